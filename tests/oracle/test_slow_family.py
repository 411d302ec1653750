"""Models that no fast executor computes, through a whole run: LibTorch samples, scores and trains in their place, which `dapd
check` and the services say in a line each, and every number is the transcription's."""

import json

import pytest
from peft import PeftModel
from safetensors.torch import load_file

import reference_objective
from conftest import read_jsonl, run_dapd
from test_adapters import TEXT
from test_model import MAX_LOGIT_ERROR, hf_logits, score
from test_objective import ALPHA, RANK, Case, copy_fresh_adapter, write_config

STEPS, BATCH, MICRO_BATCH = 2, 4, 2
# Of each family the work that LibTorch does, and the beginning of the reason.
FAMILIES = {
    "mistral": (dict(sliding_window=24), ["decoding", "training", "scoring"], "since layers attend to a window of 24 tokens"),
    "gemma2": ({}, ["decoding", "training", "scoring", "loss"], "since attention scores are capped (softcap 50), layers attend to a window of 16"),
}


def problems(folder, split, count):
    path = folder / f"{split}.jsonl"
    run_dapd("problems", "--task", "unit_conversion", "--split", split, "--count", count, "--output", path)
    return path


@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_by_libtorch(family, tmp_path):
    sizes, works, reason = FAMILIES[family]
    case = Case(tmp_path, family, 1, **sizes)
    settings = {
        "data.path": problems(tmp_path, "train", 20), "evaluation.path": problems(tmp_path, "held_out", 4), "evaluation.kl_problems": 2,
        "objective.max_reference_tokens": 48, "rollout.max_new_tokens": 16, "rollout.slots": 4, "run.name": "run",
        "run.output_dir": tmp_path / "runs", "run.num_threads": 1, "trainer.batch_size": BATCH, "trainer.micro_batch_size": MICRO_BATCH,
        "trainer.steps": STEPS, "trainer.schedule_steps": 50, "trainer.learning_rate": 1e-3, "trainer.max_grad_norm": 0.1,
        **{f"metrics.{role}_listen": "127.0.0.1:0" for role in ("rollout", "teacher", "trainer")},
    }
    flags = write_config(tmp_path / "config.yaml", case.folder, **settings)
    printed = [line for line in run_dapd("check", tmp_path / "config.yaml", *flags).stdout.splitlines() if "by LibTorch" in line]
    assert [line.split()[0] for line in printed] == works
    assert all(reason in line for line in printed if not line.startswith("loss")), printed
    shown = run_dapd("run", tmp_path / "config.yaml", *flags).stderr
    run = tmp_path / "runs" / "run"
    logs = {"decoding": (run / "logs/rollout-0.log").read_text(), "scoring": (run / "logs/teacher-0.log").read_text(),
            "training": shown, "loss": shown}
    for work, log in logs.items():
        assert log.count(f"{work} by LibTorch, ") == (work in works), (work, log)

    oracle = reference_objective.Objective(case.base, RANK, ALPHA, learning_rate=1e-3, schedule_steps=50)
    copy_fresh_adapter(case, oracle)
    start = oracle.copy_parameters()
    for step, line in enumerate(read_jsonl(run / "metrics.jsonl"), 1):
        case.rows = read_jsonl(run / f"samples/step-{step:06d}.jsonl")
        assert len(case.rows) == BATCH
        expected = oracle.accumulate(case.views(max_reference_tokens=48), MICRO_BATCH)
        norm, _ = oracle.step()
        print(f"step {step}: loss {line['loss']:.6f} of {expected['loss']:.6f}, gradient {line['gradient_norm']:.6f} of {norm:.6f}")
        assert line["loss"] == pytest.approx(expected["loss"], rel=1e-4)
        assert line["gradient_norm"] == pytest.approx(norm, rel=1e-3)
    ours = load_file(run / "adapter" / "adapter_model.safetensors")
    difference = sum((ours[n] - p.detach()).square().sum() for n, p in oracle.parameters.items()).sqrt()
    update = sum((start[n] - p.detach()).square().sum() for n, p in oracle.parameters.items()).sqrt()
    print(f"{family}: the run's adapter differs by {difference / update:.1e} of the update's norm {update:.3f}")
    assert difference / update < 1e-3
    assert set(json.loads((run / "summary.json").read_text())["evaluation"]) == {"before", "after"}

    theirs = hf_logits(PeftModel.from_pretrained(case.base, run / "adapter").eval(), TEXT)
    found = score(case.folder, tmp_path, [{"id": "x", "input_ids": TEXT}], "--logits", "--adapter", run / "adapter")["x.logits"]
    error = (found - theirs).abs().max().item()
    print(f"{family}: logits with the run's adapter differ from peft's by {error:.1e}")
    assert error <= MAX_LOGIT_ERROR
