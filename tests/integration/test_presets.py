"""Runs every preset through all three services, and the preset that needs only one of them."""

import json
import pathlib
import signal
import sys

import pytest

from conftest import ROOT, children, set_flags, wait_for

sys.path.insert(0, str(ROOT / "tests" / "robustness"))
import history  # noqa: E402

BASELINES = ["opsd", "opsd_v1", "privileged_anchor", "sdft", "purified_opsd", "dopd", "sft"]


@pytest.fixture(scope="module")
def elsewhere(workspace):
    """Provides an adapter that is not its base: for a fresh student the gradient of opd and gkd would be rounding."""
    workspace.run("elsewhere", **{"objective.preset": "sft", "trainer.steps": 2, "trainer.learning_rate": 0.05})
    return workspace.runs("elsewhere") / "adapter"


@pytest.mark.parametrize("preset", [*BASELINES, "opd", "gkd"])
def test_a_preset_trains_as_its_recorded_samples_replay(preset, workspace, elsewhere):
    name = f"preset-{preset}"
    start = elsewhere if preset in ("opd", "gkd") else None
    workspace.run(name, **{"objective.preset": preset, "trainer.steps": 3}, **({"lora.start_from": start} if start else {}))
    metrics = workspace.metrics(name)
    batch = workspace.folder / f"{name}.jsonl"
    batch.write_text("".join(path.read_text() for path in sorted((workspace.runs(name) / "samples").iterdir())))
    out = workspace.folder / f"{name}-replayed"
    workspace.dapd("replay", "--config", workspace.config, "--set", f"objective.preset={preset}", "--batch", batch, "--output", out, "--apply",
                   *(["--adapter", start] if start else []))
    replayed = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert len(metrics) == len(replayed) == 3
    for ours, expected in zip(metrics, replayed):
        assert set(ours["terms"]) == set(expected["terms"])
        error = abs(ours["loss"] - expected["loss"])
        print(f"{preset}: step {ours['step']}: loss {ours['loss']:.6f}, replay differs by {error:.1e}")
        assert error < 1e-4
    if preset == "dopd":
        shares = metrics[0]["terms"]["dopd_reverse"]["regimes"]
        assert shares["first_surer"] == 1.0, "both passes are the base's before the first step"
        assert all(abs(sum(line["terms"]["dopd_surer"]["regimes"].values()) - 1) < 1e-12 for line in metrics)


def test_a_run_of_gkd_takes_the_same_turns_however_it_is_run(workspace, elsewhere):
    """Steps on references sample nothing. A run that two ranks begin and resume has the same kinds of steps, and the losses of
    one rank up to the rounding of sums; one rank that stops and resumes has the same adapter."""
    settings = {"objective.preset": "gkd", "run.seed": 42, "checkpoint.interval": 1, "trainer.schedule_steps": 10, "lora.start_from": elsewhere}

    def kinds(name):
        steps = [[json.loads(line) for line in path.read_text().splitlines()] for path in sorted((workspace.runs(name) / "samples").iterdir())]
        assert all(len({bool(row["rollout_ids"]) for row in rows}) == 1 for rows in steps)
        return [bool(rows[0]["rollout_ids"]) for rows in steps]

    workspace.run("gkd-whole", **settings, **{"trainer.steps": 6})
    sampled = kinds("gkd-whole")
    print("steps with answers:", sampled)
    assert 0 < sum(sampled) < len(sampled) == 6
    for line, is_sampled in zip(workspace.metrics("gkd-whole"), sampled, strict=True):
        tokens = {name: term["tokens"] for name, term in line["terms"].items()}
        assert (line["generated_tokens"] > 0) == is_sampled
        assert (tokens["gkd"] > 0) == is_sampled and (tokens["gkd_reference"] > 0) == (not is_sampled)
        assert line["scored_tokens"] == sum(tokens.values())
    for ranks in (1, 2):
        name = f"gkd-{ranks}"
        for steps in (3, 6):
            workspace.run(name, **settings, **{"trainer.steps": steps, "trainer.ranks": ranks})
        assert kinds(name) == sampled
        print(f"{ranks} ranks: losses", [line["loss"] for line in workspace.metrics(name)])
        for ours, whole in zip(workspace.metrics(name), workspace.metrics("gkd-whole"), strict=True):
            assert ours["loss"] == pytest.approx(whole["loss"], rel=1e-4)
        history.check(workspace.runs(name) / "ledger.jsonl", steps=6, batch_size=6,
                      answers={step for step, is_sampled in enumerate(sampled, 1) if is_sampled})
    assert workspace.adapter_digest("gkd-1") == workspace.adapter_digest("gkd-whole")


def test_a_step_replays_from_the_checkpoint_before_it(workspace, tmp_path):
    """The replay also needs the moving average, which differs from the live adapter by then."""
    settings = {"objective.preset": "sdft", "trainer.learning_rate": 0.05}
    workspace.run("averaged", **settings, **{"trainer.steps": 3, "checkpoint.interval": 1, "checkpoint.keep": 0})
    before = workspace.runs("averaged") / "checkpoints/step-000002"
    losses = {}
    for name, flags in {"with": ["--ema", before / "ema"], "without": []}.items():
        result = workspace.dapd("replay", "--config", workspace.config, *set_flags(settings), "--adapter", before / "adapter", *flags,
                                "--batch", workspace.runs("averaged") / "samples/step-000003.jsonl", "--output", tmp_path / name)
        assert ("given without --ema" in result.stderr) == (name == "without"), result.stderr
        losses[name] = json.loads((tmp_path / name / "objective.json").read_text())["loss"]
    measured = workspace.metrics("averaged")[2]["loss"]
    print(f"step 3: loss {measured:.6f}, replayed {losses}")
    assert losses["with"] == pytest.approx(measured, rel=1e-5) and losses["without"] != pytest.approx(measured, rel=1e-2)


@pytest.mark.parametrize("ranks", [1, 2])
def test_supervised_fine_tuning_starts_no_workers(ranks, workspace):
    name = f"sft-{ranks}"
    process = workspace.start(name, **{"objective.preset": "sft", "trainer.ranks": ranks, "objective.teacher_weights": "base"})
    seen = set()
    wait_for(lambda: seen.update(children(process)) or process.poll() is not None, what="the end")
    assert process.wait() == 0, workspace.log(name)
    assert seen <= {"dapd-trainer"}
    assert "needs no teachers" in workspace.log(name)
    assert workspace.log(name).count("objective.teacher_weights (--set) has no effect") == 1
    lines = workspace.metrics(name)
    assert [line["samples"] for line in lines] == [6] * 5
    assert all(line["generated_tokens"] == line["scored_tokens"] == 0 for line in lines)
    history.check(workspace.runs(name) / "ledger.jsonl", steps=5, batch_size=6, answers=False)


def test_supervised_fine_tuning_stops_when_told(workspace):
    process = workspace.start("sft-stopped", **{"objective.preset": "sft", "trainer.steps": 5000, "trainer.schedule_steps": 5000})
    wait_for(lambda: len(workspace.metrics("sft-stopped")) >= 2, what="two steps")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 130, workspace.log("sft-stopped")
    assert (workspace.runs("sft-stopped") / "adapter" / "adapter_model.safetensors").exists()


def test_an_evaluation_brings_the_rollout_workers_back(workspace):
    held_out = pathlib.Path(workspace.folder) / "held_out.jsonl"
    workspace.run("sft-evaluated", **{"objective.preset": "sft", "trainer.steps": 2, "evaluation.path": held_out, "evaluation.kl_problems": 2})
    logs = {path.name for path in (workspace.runs("sft-evaluated") / "logs").iterdir()}
    assert "rollout-0.log" in logs and "teacher-0.log" not in logs


def test_a_run_binds_its_prompts(workspace):
    settings = {"prompts.none": "'Solve {problem}'", "trainer.steps": 2}
    workspace.run("prompted", **settings)
    assert 'none: "Solve {problem}"  # --set' in (workspace.runs("prompted") / "config.yaml").read_text()
    result = workspace.run("prompted", check=False, **{**settings, "prompts.none": "'Do {problem}'", "trainer.steps": 4})
    assert result.returncode == 3 and "prompts.none: was " in result.stderr, result.stderr
    workspace.run("prompted", **{**settings, "trainer.steps": 4})
