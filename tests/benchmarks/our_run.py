"""A small run of all services through `dapd run`, and what its steps took."""

import json
import os
import subprocess
import sys

from duel import BIN, ROOT


def require_failpoints():
    """Programs that were built without them ignore DAPD_FAILPOINTS: the row would measure something else."""
    cache = ROOT / "build/CMakeCache.txt"
    if not cache.is_file() or "DAPD_TESTS:BOOL=ON" not in cache.read_text():
        sys.exit("this row needs programs with failpoints: run deploy/build.sh --tests first")


def set_flags(settings):
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


def prepare(folder, problems=200):
    """The data and the empty configuration that flags_of() names."""
    subprocess.run([BIN / "dapd", "problems", "--task", "unit_conversion", "--count", str(problems), "--output", folder / "train.jsonl"], check=True, capture_output=True)
    (folder / "config.yaml").write_text("{}\n")


def flags_of(folder, name, **settings):
    """One worker a role, CPU, float32, no evaluation; whatever else `settings` say. The model lies in folder/model."""
    return set_flags({"run.name": name, "run.output_dir": folder / "runs", "run.rollout_workers": 1, "model.path": folder / "model", "model.precision": "float32",
                      "model.device": "cpu", "lora.rank": 16, "lora.alpha": 32, "data.path": folder / "train.jsonl", "evaluation.path": '""',
                      "checkpoint.interval": 1000, **{f"metrics.{role}_listen": "127.0.0.1:0" for role in ("rollout", "teacher", "trainer")}, **settings})


def start(folder, name, failpoints="", **settings):
    if failpoints:
        require_failpoints()
    with open(folder / f"{name}.log", "w") as log:
        return subprocess.Popen([BIN / "dapd", "run", folder / "config.yaml", *flags_of(folder, name, **settings)], stdout=log, stderr=log,
                                env={**os.environ, "DAPD_FAILPOINTS": failpoints})


def finish(process, folder, name):
    """The run's lines of metrics.jsonl, one per step."""
    if process.wait():
        sys.exit((folder / f"{name}.log").read_text())
    return [json.loads(line) for line in (folder / "runs" / name / "metrics.jsonl").read_text().splitlines()]


def run(folder, name, **settings):
    return finish(start(folder, name, **settings), folder, name)
