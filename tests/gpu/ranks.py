"""Runs several ranks on one GPU: trainer ranks, a base that they share, and a rollout worker of two processes, with
ranks that are killed and stopped.

NCCL joins ranks on one GPU from 2.30.3 on (nccl.py). In a rehearsal they are on the CPU and exchange everything by
gRPC.
"""

import json
import os
import pathlib
import signal
import tempfile
import time

import deadline
import our_run
import run_logs
import trial
from deadline import patience
from determinism import digest
from duel import ROOT, Row
from trial import DEVICE, LABORATORY, REHEARSAL, steps_of

STEPS = 4
SETTINGS = {"model.device": DEVICE, "model.precision": "float32", "model.deterministic": "true", "trainer.steps": STEPS, "trainer.batch_size": 4,
            "trainer.micro_batch_size": 1, "trainer.learning_rate": 1e-3, "trainer.rank_timeout_seconds": 20, "rollout.max_new_tokens": 24, "rollout.slots": 4,
            "checkpoint.interval": 1, "run.teacher_workers": 1}
TWO = {"trainer.ranks": 2}
SHARED = {"trainer.shard_base": "true"}
TOGETHER = {"trainer.ranks": 1, "rollout.tensor_parallel": 2}
# Two ranks sum a step's gradients in another order than one does, in float32.
MOST_RELATIVE = 1e-4


def answers(folder, name, step):
    path = folder / "runs" / name / "samples" / f"step-{step:06d}.jsonl"
    return sorted(tuple(json.loads(line)["rollout_ids"]) for line in path.read_text().splitlines())


def processes_below(process):
    """Returns the ids and the command lines of all processes that a process has started."""
    parents, commands = {}, {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            commands[int(path.name)] = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            pass
    below, new = set(), {process.pid}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new}
        below |= new
    return {pid: commands[pid] for pid in below}


def find_rank(process, *marks):
    """Returns the process whose command line has all these words, once there is one."""
    while process.poll() is None:
        for pid, command in processes_below(process).items():
            if all(mark in command for mark in marks):
                return pid
        time.sleep(0.1)
    return None


def run(folder, name, **settings):
    return our_run.run(folder, name, **{**SETTINGS, **settings})


def run_twice(folder, name, **settings):
    """Stops a run after two steps and calls it again."""
    process = our_run.start(folder, name, **{**SETTINGS, **settings})
    wait_for_steps(process, folder, name, 2)
    process.send_signal(signal.SIGINT)
    seconds = patience(1 / 3)
    code = process.wait(seconds)
    if code != 130:
        run_logs.give_up(folder / f"{name}.log", code, seconds)
    before = len(steps_of(folder / "runs" / name))
    run(folder, name, **settings)
    return before


def wait_for_steps(process, folder, name, steps):
    end = time.monotonic() + (patience(1 / 3) or 600)
    while len(steps_of(folder / "runs" / name)) < steps and process.poll() is None and time.monotonic() < end:
        time.sleep(0.1)


def run_with_a_fault(folder, name, fault, marks, **settings):
    """Sends a signal to a rank after the first step; returns the seconds from then to the end of the run."""
    process = our_run.start(folder, name, **{**SETTINGS, **settings})
    wait_for_steps(process, folder, name, 1)
    rank = find_rank(process, *marks)
    if rank is None:
        deadline.end(process)
        run_logs.give_up(folder / f"{name}.log", process.returncode, patience(1 / 3))
    os.kill(rank, fault)
    start = time.monotonic()
    our_run.finish(process, folder, name)
    return time.monotonic() - start


def was_not_restarted(folder, name):
    """Returns whether the run went on as if nothing had happened."""
    return "; restarting " not in (folder / f"{name}.log").read_text()


def compare_with_one(row, folder):
    one, two = (trial.tensors(folder / "runs" / name / "adapter/adapter_model.safetensors") for name in ("one", "two"))
    row.check("adapter of two trainer ranks, relative error against one's", trial.relative(two, one), MOST_RELATIVE)
    first = [steps_of(folder / "runs" / name)[0] for name in ("one", "two")]
    norms = [line["gradient_norm"] for line in first]
    row.check("the sum of two ranks' gradients in step 1, relative error of its norm", abs(norms[1] / norms[0] - 1), MOST_RELATIVE)
    row.check("answers of step 1 that differ from one rank's", answers(folder, "two", 1) != answers(folder, "one", 1), 0)


def main():
    row = Row("ranks", f"several ranks on {'the CPU' if REHEARSAL else 'one GPU'}")
    if not REHEARSAL:
        # Programs preload this NCCL (with_libraries.sh).
        os.environ.update(DAPD_NCCL=str(ROOT / "nccl/libnccl.so.2"), NCCL_MULTI_RANK_GPU_ENABLE="1")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        our_run.prepare(folder)
        (folder / "model").symlink_to(LABORATORY)
        run(folder, "one", **{"trainer.ranks": 1})
        with row.part("two trainer ranks"):
            # The ranks compare the digests of their adapters after every step, so a run that ends has had equal ones.
            row.check("steps that are missing", STEPS - len(run(folder, "two", **TWO)), 0)
            compare_with_one(row, folder)
        with row.part("stopped and continued"):
            before = run_twice(folder, "continued", **TWO)
            row.check("not stopped by the signal", before == STEPS, 0)
            row.check("adapters that differ from the ranks' that were not stopped", digest(folder / "runs/continued") != digest(folder / "runs/two"), 0)
        with row.part("a base that the ranks share"):
            lines = run(folder, "shared", **TWO, **SHARED)
            row.check("adapters that differ from the ranks' with the whole base", digest(folder / "runs/shared") != digest(folder / "runs/two"), 0)
            row.figure("seconds that a step waited for layers", ", ".join(f"{line['gather_wait_seconds']:.3f}" for line in lines))
        with row.part("a worker of two processes"):
            run(folder, "together", **TOGETHER)
            row.check("answers of step 1 that differ from one process's", answers(folder, "together", 1) != answers(folder, "one", 1), 0)
            if not REHEARSAL:
                log = (folder / "runs/together/logs/rollout-0.log").read_text()
                row.check("the worker decodes without graphs", "LibTorch" in log, 0)
        for what, fault in ("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP):
            with row.part(f"a trainer rank that is {what}"):
                seconds = run_with_a_fault(folder, f"trainer-{what}", fault, ["trainer.rank=1"], **TWO)
                row.figure(f"seconds from a trainer rank that is {what} to the end of the run", f"{seconds:.1f}")
                row.check(f"not restarted, a trainer rank {what}", was_not_restarted(folder, f"trainer-{what}"), 0)
                row.check(f"adapters that differ, a trainer rank {what}", digest(folder / f"runs/trainer-{what}") != digest(folder / "runs/two"), 0)
            with row.part(f"a worker's rank that is {what}"):
                seconds = run_with_a_fault(folder, f"worker-{what}", fault, ["--tensor-rank", "1"], **TOGETHER)
                row.figure(f"seconds from a worker's rank that is {what} to the end of the run", f"{seconds:.1f}")
                row.check(f"not restarted, a worker's rank {what}", was_not_restarted(folder, f"worker-{what}"), 0)
                row.check(f"adapters that differ, a worker's rank {what}", digest(folder / f"runs/worker-{what}") != digest(folder / "runs/together"), 0)
