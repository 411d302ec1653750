"""Stopping does not depend on a reader of the program's output: a pipe that nobody reads, a frozen terminal, a stopped
parent."""

import fcntl
import json
import os
import pty
import signal
import subprocess
import time

import pytest
from workspace import BIN, children, set_flags, wait_for

# One page, which a few lines fill.
PIPE_BYTES = 4096
# Steps take a while, so that a stop comes between them.
SLOW = {"DAPD_FAILPOINTS": "worker.before_token=sleep:10"}
SETTINGS = {"trainer.steps": 200, "trainer.schedule_steps": 200, "checkpoint.interval": 100}


def start(workspace, name, output, **environment):
    return subprocess.Popen(["env", "--default-signal=INT,HUP", BIN / "dapd", "run", workspace.config, *set_flags({"run.name": name, **SETTINGS})],
                            stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=os.environ | SLOW | environment, start_new_session=True)


def step(workspace, name):
    lines = workspace.metrics(name)
    return lines[-1]["step"] if lines else 0


def fill(descriptor):
    """Writes until not one more byte fits."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    try:
        while True:
            os.write(descriptor, b"x" * 1000)
    except BlockingIOError:
        pass
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)


def check_saved(workspace, name):
    """Checks that the run was stopped and its last whole step is saved."""
    folder = workspace.runs(name)
    outcome = json.loads((folder / "outcome.json").read_text())
    assert (outcome["state"], outcome["exit_code"]) == ("stopped", 130), outcome
    saved = [int(path.name.split("-")[-1]) for path in (folder / "checkpoints").iterdir() if ".tmp" not in path.name]
    assert max(saved) == step(workspace, name) > 0


def full_pipe():
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    fill(writer)
    return reader, writer


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_run_whose_output_nobody_reads_trains_stops_and_saves(workspace, log_format):
    name = f"unread-{log_format}"
    reader, writer = full_pipe()
    with start(workspace, name, writer, DAPD_LOG__FORMAT=log_format) as process:
        os.close(writer)
        wait_for(lambda: step(workspace, name) >= 3, what="steps beyond a full pipe")
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 130
        assert time.monotonic() - begin < 15
    os.close(reader)
    check_saved(workspace, name)


def test_a_run_on_a_frozen_terminal_stops_and_saves(workspace):
    master, slave = pty.openpty()
    with start(workspace, "frozen", slave) as process:
        # Nobody reads the master, so the terminal's buffer is soon full.
        os.set_blocking(slave, False)
        wait_for(lambda: step(workspace, "frozen") >= 1, what="a step")
        with pytest.raises(BlockingIOError):
            while True:
                os.write(slave, b"x" * 1000)
        os.set_blocking(slave, True)
        before = step(workspace, "frozen")
        wait_for(lambda: step(workspace, "frozen") >= before + 2, what="steps beyond a full terminal")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 130
    os.close(master)
    os.close(slave)
    check_saved(workspace, "frozen")


def test_a_trainer_whose_parent_is_stopped_stops_and_saves(workspace):
    reader, writer = os.pipe()
    # The parent relays the trainer's lines, and is then stopped.
    with start(workspace, "orphaned", writer, DAPD_LOG__FORMAT="json") as process:
        os.close(writer)
        wait_for(lambda: step(workspace, "orphaned") >= 1, what="a step")
        (trainer,) = children(process)["dapd-trainer"]
        process.send_signal(signal.SIGSTOP)
        with open(f"/proc/{trainer}/fd/2", "wb", buffering=0) as relay:
            fill(relay.fileno())
        before = step(workspace, "orphaned")
        wait_for(lambda: step(workspace, "orphaned") >= before + 2, what="steps beyond a full relay")
        os.kill(trainer, signal.SIGTERM)
        wait_for(lambda: (workspace.runs("orphaned") / "outcome.json").exists(), 30, "the trainer's end")
        check_saved(workspace, "orphaned")
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        while os.read(reader, 1 << 16):
            pass
        process.wait(30)
    os.close(reader)


def test_lines_that_nobody_read_are_there_for_who_comes_back(workspace):
    reader, writer = full_pipe()
    with start(workspace, "back", writer, DAPD_LOG__FORMAT="json") as process:
        os.close(writer)
        wait_for(lambda: step(workspace, "back") >= 3, what="steps beyond a full pipe")
        process.send_signal(signal.SIGTERM)
        text = b""
        while chunk := os.read(reader, 1 << 16):
            text += chunk
        assert process.wait(30) == 130
    os.close(reader)
    lines = [json.loads(line) for line in text.decode().lstrip("x").splitlines() if line]
    said = [line["message"] for line in lines]
    assert any(message.startswith("started rollout-0") for message in said) and any("stopped after step" in message for message in said), said


@pytest.mark.parametrize("command", ["rollout", "teacher"])
def test_a_worker_whose_output_nobody_reads_stops(workspace, command):
    reader, writer = full_pipe()
    with subprocess.Popen([BIN / f"dapd-{command}", workspace.config, "--set", f"{command}.listen=127.0.0.1:0"], stdout=writer, stderr=writer) as process:
        os.close(writer)
        time.sleep(3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
    os.close(reader)


def test_a_command_whose_result_nobody_reads_keeps_it_and_stops(workspace, tmp_path):
    (tmp_path / "input").write_text("".join(json.dumps({"id": str(i), "messages": [{"role": "user", "content": "x" * 500}]}) + "\n" for i in range(500)))
    command = [BIN / "dapd", "render", "--model", workspace.model, "--input", tmp_path / "input", "--output", "/dev/stdout"]
    whole = subprocess.run(command, capture_output=True, check=True).stdout
    reader, writer = os.pipe()
    with subprocess.Popen(command, stdout=writer) as process:
        os.close(writer)
        time.sleep(2)
        assert process.poll() is None, "it waits for its reader"
        text = b""
        while chunk := os.read(reader, 1 << 16):
            text += chunk
        assert process.wait(30) == 0 and text == whole
    os.close(reader)
    reader, writer = full_pipe()
    with subprocess.Popen(command, stdout=writer) as process:
        os.close(writer)
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == -signal.SIGTERM
    os.close(reader)
