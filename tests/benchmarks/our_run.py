"""Runs a small run of all services by `dapd run`, and reads the times of its steps."""

import os
import subprocess
import sys

import deadline
import run_logs
from deadline import patience
from duel import BIN, ROOT, read_json


def dapd(*arguments):
    """Returns what the command prints; if it fails or takes too long, the part ends with the command's last line."""
    seconds = patience(1 / 3, 120)
    result = deadline.run([BIN / "dapd", *arguments], seconds, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        sys.stderr.write(result.stderr)
        sys.exit(f"dapd {arguments[0]} {deadline.ending(result.returncode, seconds)}: {run_logs.last_line(result.stderr)}")
    return result.stdout


def require_failpoints():
    """Checks that the programs have failpoints: others ignore DAPD_FAILPOINTS, and the row would measure something else."""
    cache = ROOT / "build/CMakeCache.txt"
    if not cache.is_file() or "DAPD_TESTS:BOOL=ON" not in cache.read_text():
        sys.exit("this row needs programs with failpoints: run deploy/build.sh --tests first")


def set_flags(settings):
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


def prepare(folder, problems=200):
    """Writes the data and the empty configuration that flags_of() names."""
    dapd("problems", "--task", "unit_conversion", "--count", problems, "--output", folder / "train.jsonl")
    (folder / "config.yaml").write_text("{}\n")


def flags_of(folder, name, **settings):
    """Returns flags for one worker of each role, CPU, float32 and no evaluation, plus `settings`. The model is in folder/model."""
    return set_flags({"run.name": name, "run.output_dir": folder / "runs", "run.rollout_workers": 1, "model.path": folder / "model", "model.precision": "float32",
                      "model.device": "cpu", "lora.rank": 16, "lora.alpha": 32, "data.path": folder / "train.jsonl", "evaluation.path": '""',
                      "checkpoint.interval": 1000, **{f"metrics.{role}_listen": "127.0.0.1:0" for role in ("rollout", "teacher", "trainer")}, **settings})


def start(folder, name, failpoints="", **settings):
    if failpoints:
        require_failpoints()
    with open(folder / f"{name}.log", "w") as log:
        return deadline.begin([BIN / "dapd", "run", folder / "config.yaml", *flags_of(folder, name, **settings)], stdout=log, stderr=log,
                              env={**os.environ, "DAPD_FAILPOINTS": failpoints})


def finish(process, folder, name):
    """Waits for the run and returns its lines of metrics.jsonl, one per step. It may take a third of the time left."""
    seconds = patience(1 / 3)
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        deadline.end(process)
        code = None
    if code != 0:
        run_logs.give_up(folder / f"{name}.log", code, seconds)
    return [read_json(line) for line in (folder / "runs" / name / "metrics.jsonl").read_text().splitlines()]


def run(folder, name, **settings):
    return finish(start(folder, name, **settings), folder, name)
