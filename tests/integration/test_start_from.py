"""Runs that train on from an adapter (lora.start_from)."""

import json
import shutil

import pytest

from conftest import set_flags


@pytest.fixture(scope="module")
def start(workspace, tmp_path_factory):
    """The adapter of an earlier run, in a folder of its own."""
    workspace.run("teacher-of-start", **{"trainer.steps": 2})
    folder = tmp_path_factory.mktemp("start") / "adapter"
    shutil.copytree(workspace.runs("teacher-of-start") / "adapter", folder)
    return folder


def test_a_run_begins_with_the_adapter_and_takes_it_for_its_snapshot(workspace, start, tmp_path):
    """The first step's loss is that of its samples under this adapter, live and as the snapshot."""
    workspace.run("from-start", **{"lora.start_from": start, "trainer.steps": 1})
    measured = workspace.metrics("from-start")[0]["loss"]
    losses = {}
    for name, flags in {"start": ["--adapter", start, "--snapshot", start], "base": ["--adapter", start]}.items():
        workspace.dapd("replay", "--config", workspace.config, "--batch", workspace.runs("from-start") / "samples/step-000001.jsonl",
                       "--output", tmp_path / name, *flags)
        losses[name] = json.loads((tmp_path / name / "objective.json").read_text())["loss"]
    assert measured == pytest.approx(losses["start"], rel=1e-5)
    assert losses["base"] != pytest.approx(losses["start"], rel=1e-5)


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
