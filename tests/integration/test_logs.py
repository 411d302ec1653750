"""log.format and log.level: with JSON every line that a run writes is an object, from the first error to the last
message."""

import json
import os
import re
import signal
import subprocess

import pytest

from workspace import BIN, children, set_flags, wait_for

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
FIELDS = {"time": str, "level": str, "service": str, "run": str, "rank": int, "step": int, "message": str}


def parse(output):
    """Returns the messages of a JSON log, in which every line must be an object."""
    lines = []
    for line in output.decode("utf-8").splitlines():
        message = json.loads(line)
        assert list(message) == [field for field in FIELDS if field in message], line
        assert all(isinstance(message[field], FIELDS[field]) for field in message), line
        assert {"time", "level", "service", "message"} <= message.keys() and TIME.fullmatch(message["time"]), line
        assert message["level"] in ("info", "warning", "error"), line
        lines.append(message)
    return lines


def start(workspace, name, **settings):
    output = open(workspace.folder / f"{name}.log", "wb")
    flags = set_flags({"run.name": name, "log.format": "json", **settings})
    return subprocess.Popen([BIN / "dapd", "run", workspace.config, *flags], stdout=output, stderr=output)


def written(workspace, name):
    return parse((workspace.folder / f"{name}.log").read_bytes())


def test_every_line_of_a_run(workspace):
    process = start(workspace, "json", **{"trainer.ranks": 2, "trainer.steps": 3})
    assert process.wait(timeout=240) == 0, (workspace.folder / "json.log").read_text()
    lines = written(workspace, "json")
    assert {line["service"] for line in lines} == {"run", "trainer"}
    assert {line["run"] for line in lines} == {"json"}
    assert {line["rank"] for line in lines if line["service"] == "trainer"} == {0}
    assert any(line.get("step") == 3 for line in lines), lines
    logs = workspace.runs("json") / "logs"
    for name, service, rank in (("rollout-0", "rollout", None), ("teacher-0", "teacher", None), ("trainer-1", "trainer", 1)):
        lines = parse((logs / f"{name}.log").read_bytes())
        assert lines and {(line["service"], line["run"], line.get("rank")) for line in lines} == {(service, "json", rank)}, lines


def test_a_trainer_that_is_killed(workspace):
    process = start(workspace, "killed", **{"trainer.steps": 4})
    wait_for(lambda: workspace.metrics("killed"), what="a step")
    os.kill(children(process)["dapd-trainer"][0], signal.SIGKILL)
    assert process.wait(timeout=240) == 0
    messages = written(workspace, "killed")
    assert any(line["level"] == "warning" and "killed" in line["message"] for line in messages)


def test_a_run_that_is_stopped(workspace):
    process = start(workspace, "stopped", **{"trainer.steps": 2000, "trainer.schedule_steps": 2000})
    wait_for(lambda: workspace.metrics("stopped"), what="a step")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=240) == 130
    messages = written(workspace, "stopped")
    assert "130" in messages[-1]["message"]
    assert [line for line in messages if line["level"] == "error"] == [], "a stop is no failure"


def test_the_level_leaves_out_what_matters_less(workspace):
    process = start(workspace, "quiet", **{"trainer.steps": 1, "log.level": "error"})
    assert process.wait(timeout=240) == 0
    assert [line for line in written(workspace, "quiet") if line["level"] == "info"] == []


# The ways to set a format, and what overrides each.
@pytest.mark.parametrize(
    "environment, in_file, flag, is_json",
    [("json", None, None, True), (None, "json", None, True), (None, None, "json", True), ("json", "text", None, True), ("json", None, "text", False), (None, None, None, False)],
)
@pytest.mark.parametrize("program", ["dapd-trainer", "dapd-rollout", "dapd-teacher", "dapd"])
def test_what_is_wrong_with_a_configuration(tmp_path, program, environment, in_file, flag, is_json):
    config = tmp_path / "config.yaml"
    config.write_text('run: {name: wrong}\ntrainer: {stepz: 1}\ndata: {path: "a\\nE 2026 \\e[2J"}\n' + (f"log: {{format: {in_file}}}\n" if in_file else ""))
    variables = {**os.environ, **({"DAPD_LOG__FORMAT": environment} if environment else {})}
    command = [BIN / program, *(["run"] if program == "dapd" else []), config, *(set_flags({"log.format": flag}) if flag else [])]
    result = subprocess.run(command, capture_output=True, env=variables, timeout=60)
    assert result.returncode == 3, result.stderr
    assert b"trainer.stepz" in result.stderr and result.stdout == b""
    if not is_json:
        assert not result.stderr.startswith(b"{")
        return
    (line,) = parse(result.stderr)
    assert line["level"] == "error" and line["run"] == "wrong" and "trainer.stepz" in line["message"]


def test_a_file_that_is_no_configuration(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_bytes(b"run: {name: \xff\xfe\x1b[2J")
    result = subprocess.run([BIN / "dapd-teacher", config], capture_output=True, env={**os.environ, "DAPD_LOG__FORMAT": "json"}, timeout=60)
    assert result.returncode == 3
    assert parse(result.stderr)[-1]["level"] == "error"
