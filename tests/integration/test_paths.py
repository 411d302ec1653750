"""~ means the home folder wherever a path is read, and what only a shell replaces is refused."""

import os
import shutil
import subprocess

import pytest
from workspace import BIN, set_flags

PATHS = [
    "run.output_dir", "checkpoint.copy_to", "checkpoint.copy_python", "model.path", "data.path", "evaluation.path", "lora.start_from", "run.notify_secret_file",
    "run.notify_ca_file", "security.certificate", "security.private_key", "security.ca", "security.token", "security.tokens.viewer", "security.tokens.trainer",
    "security.tokens.admin",
]


@pytest.fixture
def home(workspace, tmp_path):
    folder = tmp_path / "home"
    shutil.copytree(workspace.model, folder / "model")
    shutil.copy(workspace.folder / "train.jsonl", folder)
    return folder


def dapd(home, *arguments, **environment):
    return subprocess.run(
        [BIN / "dapd", *map(str, arguments)], capture_output=True, text=True, timeout=120, cwd=home, env={**os.environ, "HOME": str(home), **environment}
    )


# These keys are refused without others.
IDENTITY = ["security.certificate", "security.private_key", "security.ca"]


def settings(key, value):
    given = {"run.notify_url": "http://127.0.0.1:1/"} if key.startswith("run.notify") else {}
    given.update({other: value for other in IDENTITY} if key in IDENTITY else {key: value})
    return set_flags(given)


@pytest.mark.parametrize("key", PATHS)
def test_every_key_that_is_a_path_is_expanded(key, workspace, home):
    result = dapd(home, "config", workspace.config, *settings(key, "~/x/y"))
    assert result.returncode == 0 and f"{home}/x/y" in result.stdout and "~" not in result.stdout, result
    if key == "data.path":
        assert f"{home}/z" in dapd(home, "config", workspace.config, DAPD_DATA__PATH="~/z").stdout
    for bad, named in [("$HOME/x", "$HOME"), ("${HOME}/x", "${HOME}"), ("~nobody/x", "~nobody")]:
        result = dapd(home, "config", workspace.config, *settings(key, bad))
        assert result.returncode == 3 and key in result.stderr and named in result.stderr and "write the path out" in result.stderr, result


def test_a_file_of_workers_too(workspace, home):
    result = dapd(home, "config", workspace.config, "--set", "rollout.addresses=[file://~/workers]")
    assert result.returncode == 0 and f"file://{home}/workers" in result.stdout, result


def test_a_run_writes_into_the_home_folder_and_its_copy(workspace, home):
    (home / "base.yaml").write_text(workspace.config.read_text())
    (home / "mine.yaml").write_text(
        "extends: ~/base.yaml\nmodel: {path: ~/model}\ndata: {path: ~/train.jsonl}\ncheckpoint: {copy_to: ~/backup}\n"
        "run: {output_dir: ~/runs, name: mine}\ntrainer: {steps: 1}\n"
    )
    result = dapd(home, "run", "~/mine.yaml")
    assert result.returncode == 0, result
    assert (home / "runs/mine/adapter/adapter_model.safetensors").exists() and (home / "backup/mine").is_dir()
    assert not (home / "~").exists()
    listed = dapd(home, "runs", "list", "~/runs")
    assert listed.returncode == 0 and "mine" in listed.stdout, listed
    result = dapd(home, "restore", "~/backup/mine", "~/back")
    assert result.returncode == 0 and (home / "back/config.yaml").exists(), result


def test_options_that_are_paths_are_expanded(home):
    (home / "rows.jsonl").write_text('{"text": "1 + 1"}\n')
    result = dapd(home, "tokenize", "--model", "~/model", "--input", "~/rows.jsonl", "--output", "~/out.jsonl")
    assert result.returncode == 0 and (home / "out.jsonl").exists(), result
    for option, path in [("--input", "$HOME/rows.jsonl"), ("--output", "~other/out.jsonl")]:
        arguments = {"--model": "~/model", "--input": "~/rows.jsonl", "--output": "~/out2.jsonl", option: path}
        result = dapd(home, "tokenize", *(part for pair in arguments.items() for part in pair))
        assert result.returncode == 2 and option in result.stderr and "write the path out" in result.stderr, result
