"""Runs that continue to train an adapter (lora.start_from)."""

import json
import shutil

import pytest

from conftest import set_flags


@pytest.fixture(scope="module")
def start(workspace, tmp_path_factory):
    """Provides the adapter of an earlier run, in a folder of its own."""
    workspace.run("teacher-of-start", **{"trainer.steps": 2})
    folder = tmp_path_factory.mktemp("start") / "adapter"
    shutil.copytree(workspace.runs("teacher-of-start") / "adapter", folder)
    return folder


def test_a_run_begins_with_the_adapter_and_takes_it_for_its_snapshot(workspace, start, tmp_path):
    """The first step's loss is the loss of its samples under this adapter, live and as the snapshot: replay and probe
    use it for both."""
    workspace.run("from-start", **{"lora.start_from": start, "trainer.steps": 1})
    measured = workspace.metrics("from-start")[0]["loss"]
    samples = workspace.runs("from-start") / "samples/step-000001.jsonl"
    started = set_flags({"lora.start_from": start})
    losses, gradients = {}, {}
    for name, flags in {"set": started, "live given": [*started, "--adapter", start], "both given": ["--adapter", start, "--snapshot", start],
                        "base": ["--adapter", start]}.items():
        workspace.dapd("replay", "--config", workspace.config, "--batch", samples, "--output", tmp_path / name, *flags)
        losses[name] = json.loads((tmp_path / name / "objective.json").read_text())["loss"]
        report = workspace.dapd("probe", "compatibility", "--config", workspace.config, "--samples", samples, "--json",
                                "--first", "entangled_rollout", "--second", "privileged_rollout", *flags)
        gradients[name] = json.loads(report.stdout)["over_all"]["first_norm"]
    assert losses["set"] == losses["live given"] == losses["both given"] == pytest.approx(measured, rel=1e-5)
    assert gradients["set"] == gradients["live given"] == gradients["both given"]
    assert losses["base"] != pytest.approx(measured, rel=1e-5) and gradients["base"] != pytest.approx(gradients["set"], rel=1e-5)


def test_an_adapter_that_is_gone_is_missed_only_as_the_snapshot(workspace, start, tmp_path):
    settings = {"lora.start_from": tmp_path / "gone", "objective.preset": "opsd"}
    workspace.run("opsd", **{"objective.preset": "opsd", "trainer.steps": 1})
    call = ["replay", "--config", workspace.config, "--batch", workspace.runs("opsd") / "samples/step-000001.jsonl", "--output", tmp_path / "out"]
    workspace.dapd(*call, *set_flags(settings), "--adapter", start)
    missed = workspace.dapd(*call, *set_flags({**settings, "objective.teacher_weights": "snapshot"}), "--adapter", start, check=False)
    assert missed.returncode == 4 and "there is no adapter folder" in missed.stderr, missed.stderr


def test_a_step_of_no_size_leaves_the_adapter_as_it_was(workspace, start):
    workspace.run("no-step", **{"lora.start_from": start, "trainer.steps": 1, "trainer.learning_rate": 1e-30})
    weights = workspace.runs("no-step") / "adapter/adapter_model.safetensors"
    assert weights.read_bytes() == (start / "adapter_model.safetensors").read_bytes()


def test_a_resumed_run_does_not_need_the_adapter_any_more(workspace, start, tmp_path):
    workspace.run("whole", **{"lora.start_from": start, "trainer.steps": 3})
    folder = tmp_path / "adapter"
    shutil.copytree(start, folder)
    settings = {"lora.start_from": folder, "checkpoint.interval": 1}
    workspace.run("parts", **settings, **{"trainer.steps": 2})
    shutil.rmtree(folder)
    workspace.run("parts", **settings, **{"trainer.steps": 3})
    assert workspace.adapter_digest("parts") == workspace.adapter_digest("whole")


def test_an_adapter_of_other_settings_is_refused_with_those_that_fit(workspace, start):
    flags = set_flags({"run.name": "other", "lora.start_from": start, "lora.rank": 8, "lora.targets": "[q_proj]"})
    for command in ("check", "run"):
        result = workspace.dapd(command, workspace.config, *flags, check=False)
        assert result.returncode == 3 and "lora.rank=4 lora.targets=[q_proj,k_proj," in result.stderr, result.stderr
    missing = workspace.dapd("check", workspace.config, "--set", f"lora.start_from={start}-not-there", check=False)
    assert missing.returncode == 4 and "there is no adapter folder" in missing.stderr
