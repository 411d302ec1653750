"""Calls `dapd run` as a user does: all three services on one GPU at Qwen3-1.7B's shape with its preset.

A signal ends the run after some steps, and it is called again.
"""

import json
import math
import os
import pathlib
import signal
import tempfile
import threading
import time

import deadline
import run_logs
import trial
from deadline import patience
from duel import BIN, ROOT, Row
from our_run import set_flags
from trial import LABORATORY, REHEARSAL, steps_of

BEFORE, STEPS = 3, 5
SMALL = {"model.device": "cpu", "model.precision": "float32", "lora.rank": 4, "rollout.max_new_tokens": 12, "rollout.slots": 4, "trainer.batch_size": 4,
         "objective.max_reference_tokens": 32}


def model_folder():
    """Makes random weights of the 1.7B shape, which row G8 uses as well; in a rehearsal it is the laboratory model."""
    if REHEARSAL:
        return LABORATORY
    from g8_step import write_model
    folder = pathlib.Path(os.environ["DAPD_G8_MODEL"])
    write_model(folder)
    return folder


class MemoryOfTheGpu:
    """Reads the peak of the GPU memory that all processes use together, every half a second."""

    def __init__(self):
        self.peak, self.stop = 0, threading.Event()
        self.thread = threading.Thread(target=self._watch)

    def _watch(self):
        if REHEARSAL:
            return
        import torch
        while not self.stop.wait(0.5):
            free, total = torch.cuda.mem_get_info()
            self.peak = max(self.peak, total - free)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def train(folder, run, end_after=None):
    """Calls `dapd run`; with `end_after` it asks the run to stop after that many steps. The run may take half of the
    remaining time. Returns the seconds until its first new step."""
    # Its own settings come last, so that a small model may replace the preset's.
    settings = {"model.path": model_folder(), "data.path": folder / "train.jsonl", "run.output_dir": run.parent, "run.name": run.name, "trainer.steps": STEPS,
                "checkpoint.interval": 1, "evaluation.path": '""', **{f"metrics.{role}_listen": "127.0.0.1:0" for role in ("rollout", "teacher", "trainer")},
                **(SMALL if REHEARSAL else {})}
    done, start, first, seconds, late = len(steps_of(run)), time.monotonic(), None, patience(1 / 2), False
    with open(folder / "run.log", "a") as log:
        process = deadline.begin([BIN / "dapd", "run", ROOT / "configs/qwen3-1.7b.yaml", *set_flags(settings)], stdout=log, stderr=log)
        while process.poll() is None:
            taken = len(steps_of(run))
            if first is None and taken > done:
                first = time.monotonic() - start
            if end_after is not None and taken >= end_after:
                process.send_signal(signal.SIGINT)
                end_after = None
            if seconds is not None and time.monotonic() - start > seconds:
                late = True
                deadline.end(process)
            time.sleep(0.1)
    if late or process.returncode not in (0, 130):
        run_logs.give_up(folder / "run.log", None if late else process.returncode, seconds)
    return first


def report(row, run, starts):
    """Checks what must hold after any calls, and reports the time of their steps."""
    steps = steps_of(run)
    row.check("steps that are missing, twice there or out of order", [line["step"] for line in steps] != list(range(1, STEPS + 1)), 0)
    row.check("losses that are no number", sum(not math.isfinite(line["loss"]) for line in steps), 0)
    row.figure("seconds to the first step, and to the next one when called again", ", ".join("none" if s is None else f"{s:.1f}" for s in starts))
    for line in steps:
        phases = ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in sorted(line["seconds"].items(), key=lambda item: -item[1]) if seconds >= 0.005)
        row.figure(f"step {line['step']}", f"{sum(line['seconds'].values()):.2f} s ({phases}), loss {line['loss']:.5f}, {line['generated_tokens']} tokens sampled")
    with row.part("outcome"):
        row.check("outcome is not 'finished'", json.loads((run / "outcome.json").read_text())["state"] != "finished", 0)
    with row.part("adapter"):
        adapter = json.loads(trial.dapd("adapter", "verify", "--model", model_folder(), "--adapter", run / "adapter", "--json"))
        row.check("modules that the adapter does not fit", adapter["modules_expected"] - adapter["modules_applied"], 0)
        row.check("the adapter changes nothing", not adapter["norm_delta"] > 0, 0)


def main():
    row = Row("run", "a whole `dapd run`, three processes on one GPU, by configs/qwen3-1.7b.yaml with random weights; stopped and continued")
    with tempfile.TemporaryDirectory() as name, MemoryOfTheGpu() as memory:
        folder = pathlib.Path(name)
        run = folder / "runs/whole"
        trial.dapd("problems", "--task", "unit_conversion", "--count", 300, "--seed", 1, "--output", folder / "train.jsonl")
        starts = []
        with row.part("until it is stopped"):
            starts.append(train(folder, run, end_after=BEFORE))
            row.check("not stopped by the signal", len(steps_of(run)) == STEPS, 0)
        with row.part("continued"):
            starts.append(train(folder, run))
        report(row, run, starts)
        if memory.peak:
            row.figure("peak memory of the GPU, all processes", f"{memory.peak / 2**30:.1f} GiB")
