"""Whatever `dapd check` refuses or warns of, a run refuses at its start: not after hours, and not with damaged answers."""

import json
import os
import subprocess

import pytest
from workspace import BIN, free_port, set_flags

SECURITY_FILES = [("certificate", "private_key", "ca"), ("token",), ("tokens.viewer",), ("tokens.trainer",), ("tokens.admin",)]


def check(workspace, **settings):
    return workspace.dapd("check", workspace.config, *set_flags(settings), check=False)


def trainer(workspace, name, **settings):
    settings = {"run.name": name, "rollout.addresses": f"[127.0.0.1:{free_port()}]", "teacher.addresses": f"[127.0.0.1:{free_port()}]", **settings}
    return subprocess.run([BIN / "dapd-trainer", workspace.config, *set_flags(settings)], capture_output=True, text=True, timeout=60)


def test_a_teacher_cannot_send_more_tokens_than_there_are(workspace):
    settings = {"teacher.payload": "top_k", "teacher.top_k": 10**6}
    for result in (check(workspace, **settings), trainer(workspace, "beyond", **settings)):
        assert result.returncode == 3 and "teacher.top_k (1000000) is more than the model's vocabulary has" in result.stderr, result


def test_a_run_without_data_ends_before_a_worker_starts(workspace):
    result = check(workspace, **{"data.path": '""'})
    assert result.returncode == 3 and "data.path is missing" in result.stderr and "sound" not in result.stdout, result
    result = workspace.run("without", check=False, **{"data.path": '""'})
    assert result.returncode == 3 and result.stderr.count("\n") == 1 and "data.path is missing" in result.stderr, result
    assert not workspace.runs("without").exists()


@pytest.mark.parametrize("keys", SECURITY_FILES, ids=lambda keys: keys[-1])
def test_a_security_file_that_is_not_there_is_named_with_its_key(workspace, tmp_path, keys):
    result = check(workspace, **{f"security.{key}": tmp_path / "none" for key in keys})
    assert result.returncode == 3 and f"security.{keys[0]}: " in result.stderr and "No such file" in result.stderr, result


def test_a_run_does_not_wait_for_workers_that_would_refuse_it(workspace, tmp_path):
    token = tmp_path / "token"
    token.write_text("t" * 40)
    token.chmod(0o600)
    settings = {"security.tokens.trainer": token}
    result = check(workspace, **settings)
    assert result.returncode == 0 and "security.token has no such token" in result.stderr, result
    result = workspace.run("refused", check=False, **settings)
    assert result.returncode == 3 and "security.token has no such token" in result.stderr and "started" not in result.stderr, result
    assert "has no such token" not in check(workspace, **settings, **{"security.token": token}).stderr


def test_a_run_is_not_its_own_copy(workspace):
    folder = workspace.runs("own").parent
    result = check(workspace, **{"run.output_dir": folder, "checkpoint.copy_to": os.path.relpath(folder)})
    assert result.returncode == 3 and "is run.output_dir" in result.stderr, result


def test_prompts_that_are_cut_are_counted(workspace, tmp_path):
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps({"problem": problem, "solution": "2"}) + "\n" for problem in ("1 + 1?", "1 + 1? " * 200)))
    settings = {"data.path": data, "rollout.max_new_tokens": 16, "data.max_prompt_tokens": 1000}
    result = check(workspace, **settings)
    assert result.returncode == 0 and "1 of 2 rows: the sampler's prompt is cut to 984 tokens" in result.stderr, result
    result = check(workspace, **{**settings, "data.max_prompt_tokens": 20})
    assert result.returncode == 3 and "around the problem alone and would be cut to 4" in result.stderr, result


def test_answers_are_not_judged_for_a_grader_that_does_not_need_them(workspace, tmp_path):
    rows = [json.dumps({"problem": f"Write program {i}.", "solution": "print()", "answer": "Any program that prints what it is told to " * 9})
            for i in range(4)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows) + "\n")
    settings = {"data.path": tmp_path / "rows.jsonl", "data.answer_column": "answer"}
    warned = check(workspace, **settings)
    assert warned.returncode == 0 and "expected answers are whole texts" in warned.stderr, warned
    silent = check(workspace, **settings, **{"grader.command": "[python3, grade.py]"})
    assert silent.returncode == 0 and "expected answers" not in silent.stderr, silent


@pytest.mark.parametrize("key", ["objective.temperature", "objective.purified.beta", "objective.purified.soft_clip"])
def test_divisors_that_single_precision_cannot_bear_are_refused(workspace, key):
    result = check(workspace, **{key: "1e-39"})
    assert result.returncode == 3 and key in result.stderr and "1e-06" in result.stderr, result
