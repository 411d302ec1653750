"""A crash of a process is reported as a crash, with its signal and its place, and not with an exit code of another
meaning."""

import json
import os
import re
import signal
import subprocess

import pytest

from workspace import BIN, children, wait_for

# This matches a frame of a crash's report whose function has a name.
NAMED_FRAME = re.compile(r"^\s*[A-Za-z_].* \S+\(\S*\)\[0x[0-9a-f]+\]$", re.MULTILINE)
# Answers take long enough for other events within a run.
SLOW = "worker.before_token=sleep:20"


class DisturbedRun:
    """A `dapd run` whose processes get signals."""

    def __init__(self, workspace, name, failpoints="", **settings):
        self.workspace, self.name = workspace, name
        self.process = workspace.start(name, failpoints, **settings)
        self.hit = set()

    def send(self, role, number):
        """Sends it to the next process of the role, as soon as that can report a crash."""
        def new():
            assert self.process.poll() is None, self.log()
            return next((found for found in children(self.process).get(f"dapd-{role}", []) if found not in self.hit and reports_crashes(found)), None)

        found = wait_for(new, what=f"another {role}")
        self.hit.add(found)
        os.kill(found, number)

    def log(self):
        return self.workspace.log(self.name)


def reports_crashes(process):
    """Returns whether the process handles the signals already."""
    try:
        with open(f"/proc/{process}/status") as status:
            caught = int(re.search(r"^SigCgt:\s*(\w+)", status.read(), re.MULTILINE)[1], 16)
    except OSError:
        return False
    return caught >> (signal.SIGTRAP - 1) & 1


@pytest.mark.parametrize("role, number, why", [
    ("teacher", signal.SIGILL, r"SIGILL \(an instruction that this processor lacks; it has (no AVX2|AVX2|AVX-512.*|AMX)\)"),
    ("rollout", signal.SIGSEGV, "SIGSEGV")])
def test_a_worker_that_crashes_at_each_start_ends_the_run(role, number, why, workspace):
    run = DisturbedRun(workspace, f"crash-{role}")
    for _ in range(3):
        run.send(role, number)
    assert run.process.wait(90) == 1, run.log()
    lines = run.log().splitlines()
    (cause,) = (i for i, line in enumerate(lines) if re.search(rf"{role}-0 crashed by {why}, 3 times in a row with no work done in between", line))
    assert f"the end of its log ({workspace.runs(run.name)}/logs/{role}-0.log)" in lines[cause]
    # No process logs after it, and its log ends with the report.
    report = lines.index(next(line for line in lines[cause:] if re.match(rf"\s*\*\*\* dapd-{role} .* ends by {signal.Signals(number).name}\. Its stack:", line)))
    assert all(re.search(r"\[0x[0-9a-f]+\]$", line) for line in lines[report + 1:]) and NAMED_FRAME.search("\n".join(lines[report + 1:])), run.log()
    assert "code 130" not in run.log() and "given up" not in run.log()
    outcome = json.loads((workspace.runs(run.name) / "outcome.json").read_text())
    assert (outcome["state"], outcome["exit_code"]) == ("failed", 1) and f"{role}-0 crashed by" in outcome["message"]


def test_a_trainer_that_crashes_at_each_start_ends_the_run(workspace):
    run = DisturbedRun(workspace, "crash-trainer")
    for _ in range(3):
        run.send("trainer", signal.SIGABRT)
    assert run.process.wait(90) == 1, run.log()
    assert run.log().count("ends by SIGABRT. Its stack:") == 3
    assert run.log().splitlines()[-1].endswith("trainer crashed by SIGABRT, 3 times in a row with no work done in between; "
                                               "please report it with its stack, which is above"), run.log()


def test_a_worker_that_serves_between_its_crashes_is_started_again(reference_run):
    run = DisturbedRun(reference_run, "crash-late", SLOW)
    mark = reference_run.runs(run.name) / "logs/.rollout-0.work"
    for served in range(1, 5):
        wait_for(lambda: mark.exists() and int(mark.read_text()) == served, what="an answer of this start")
        run.send("rollout", signal.SIGSEGV)
    assert run.process.wait(120) == 0, run.log()
    assert run.log().count("rollout-0 crashed by SIGSEGV; restarting it in 200ms") == 4, run.log()
    assert reference_run.adapter_digest(run.name) == reference_run.adapter_digest("reference")


def test_a_worker_that_is_killed_at_each_start_did_not_crash(reference_run):
    run = DisturbedRun(reference_run, "killed-often")
    for _ in range(4):
        run.send("teacher", signal.SIGKILL)
    assert run.process.wait(120) == 0, run.log()
    assert len(re.findall(r"teacher-0 was killed by signal 9 \(SIGKILL\), .* want of memory; restarting it in", run.log())) == 4 and "crashed" not in run.log()


class Kept(DisturbedRun):
    """A `dapd keep`, as in a pod."""

    def __init__(self, workspace, name, *flags):
        self.workspace, self.name, self.hit = workspace, name, set()
        with open(workspace.folder / f"{name}.log", "w") as log:
            self.process = subprocess.Popen([BIN / "dapd", "keep", "dapd-teacher", workspace.config, "--listen", "127.0.0.1:0", *flags],
                                            stdout=log, stderr=log)


def test_a_service_that_is_kept_ends_as_its_third_crash_in_a_row(workspace):
    kept = Kept(workspace, "kept-crash")
    for _ in range(3):
        kept.send("teacher", signal.SIGBUS)
    assert kept.process.wait(60) == 128 + signal.SIGBUS, kept.log()
    assert kept.log().count("dapd-teacher crashed by SIGBUS; restarting it in") == 2
    assert kept.log().splitlines()[-1] == ("dapd: dapd-teacher crashed by SIGBUS, 3 times in a row with no work done in between; "
                                           "please report it with its stack, which is above")


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 0), (signal.SIGKILL, 137)])
def test_a_service_that_is_kept_is_started_again_for_nothing_but_a_crash(number, code, workspace):
    kept = Kept(workspace, f"kept-{code}")
    kept.send("teacher", number)
    assert kept.process.wait(60) == code, kept.log()
    mistaken = Kept(workspace, "kept-mistaken", "--set", "teacher.prefix_memory_mob=3")
    assert mistaken.process.wait(60) == 3, mistaken.log()
    assert "restarting" not in kept.log() + mistaken.log()


def test_a_stop_is_handed_on_to_a_service_that_is_kept(workspace):
    kept = Kept(workspace, "kept-stopped")
    wait_for(lambda: "ready for an adapter" in kept.log(), what="the teacher")
    kept.process.terminate()
    assert kept.process.wait(60) == 0, kept.log()
    assert kept.log().endswith("stopped\n")
