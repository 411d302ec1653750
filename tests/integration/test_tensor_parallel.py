"""A rollout worker whose model several processes compute together."""

import json
import os
import signal
import subprocess
import time

import pytest

from conftest import BIN, children, set_flags, wait_for
from service_process import running

TOGETHER = {"rollout.tensor_parallel": 2}


def answers(workspace, name, step):
    lines = (workspace.runs(name) / "samples" / f"step-{step:06d}.jsonl").read_text().splitlines()
    return [json.loads(line)["rollout_ids"] for line in lines]


class Parent:
    """A process with what children() needs."""

    def __init__(self, pid):
        self.pid = pid


@pytest.fixture(scope="module")
def together(reference_run):
    reference_run.run("together", **TOGETHER)
    return reference_run


def test_two_processes_sample_what_one_does(together):
    alone, shared = (together.metrics(name) for name in ("reference", "together"))
    assert answers(together, "together", 1) == answers(together, "reference", 1)
    difference = abs(alone[0]["loss"] - shared[0]["loss"])
    print(f"the first step's loss differs by {difference:.1e}")
    assert difference < 1e-6
    assert len(shared) == len(alone)


@pytest.mark.parametrize("stop, how", [(signal.SIGKILL, "ended with code 75"), (signal.SIGSTOP, "ended with code 75"), (signal.SIGSEGV, "crashed by SIGSEGV")])
def test_a_process_that_is_lost_takes_its_worker_with_it_and_the_run_goes_on(stop, how, together):
    name = f"together-{stop.name}"
    process = together.start(name, **TOGETHER)
    wait_for(lambda: len(together.metrics(name)) >= 1 or process.poll() is not None, what="a step")
    (worker,) = children(process)["dapd-rollout"]
    (rank,) = children(Parent(worker))["dapd-rollout"]
    os.kill(rank, stop)
    assert process.wait(timeout=120) == 0, together.log(name)
    assert f"rollout-0 {how}; restarting it" in together.log(name)
    log = (together.runs(name) / "logs" / "rollout-0.log").read_text()
    assert "other rollout rank" in log and "trainer rank" not in log
    assert together.adapter_digest(name) == together.adapter_digest("together")


@pytest.mark.parametrize("stop, code", [(signal.SIGKILL, 75), (signal.SIGFPE, 128 + signal.SIGFPE)])
def test_a_process_that_is_lost_while_it_is_awaited_takes_its_worker_with_it(stop, code, together):
    flags = set_flags({**TOGETHER, "rollout.listen": "127.0.0.1:0", "metrics.rollout_listen": "127.0.0.1:0"})
    worker = subprocess.Popen([BIN / "dapd-rollout", together.config, *flags])
    try:
        wait_for(lambda: children(worker).get("dapd-rollout") or worker.poll() is not None, what="the other rank")
        (rank,) = children(worker)["dapd-rollout"]
        os.kill(rank, stop)
        assert worker.wait(timeout=60) == code
    finally:
        worker.kill()
        worker.wait()


def test_the_processes_of_a_worker_end_with_it(together):
    name = "together-ended"
    process = together.start(name, **TOGETHER)
    wait_for(lambda: len(together.metrics(name)) >= 1 or process.poll() is not None, what="a step")
    (worker,) = children(process)["dapd-rollout"]
    (rank,) = children(Parent(worker))["dapd-rollout"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 130, together.log(name)
    wait_for(lambda: not os.path.exists(f"/proc/{rank}"), what="the other rank's end")


def test_a_signal_to_all_processes_of_a_worker_is_for_the_first_to_heed(together):
    """pkill and systemd send it to all; only the first process handles it, because its running answers need the others."""
    with running("dapd-rollout", together, TOGETHER) as worker:
        (rank,) = children(worker.process)["dapd-rollout"]
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(rank, number)
        time.sleep(1)
        assert worker.process.poll() is None, worker.log()
        worker.stop()
    wait_for(lambda: not os.path.exists(f"/proc/{rank}"), what="the other rank's end")


def test_a_model_that_cannot_be_split_is_refused_by_its_number(together):
    result = together.run("too-many", check=False, **{"rollout.tensor_parallel": 3})
    log = (together.runs("too-many") / "logs" / "rollout-0.log").read_text()
    assert result.returncode != 0 and "cannot be split over 3 ranks" in result.stderr + log


@pytest.mark.parametrize("key,settings", [("rollout.tensor_parallel", {}), ("trainer.shard_base", {"trainer.ranks": 3, "trainer.shard_base": "true"})])
def test_check_says_what_cannot_be_split(key, settings, together):
    settings = settings or {key: 3}
    result = together.dapd("check", together.config, *set_flags(settings), check=False)
    assert result.returncode == 3 and f"{key}: the model's 4 attention heads cannot be split over 3 ranks" in result.stderr
