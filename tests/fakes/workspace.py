"""Provides a folder with a tiny model and data, and runs real processes on it."""

import contextlib
import hashlib
import json
import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("DAPD_BIN", ROOT / "build" / "bin"))


def set_flags(settings):
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


class Workspace:
    """Is a folder with a tiny model, problems, and the runs that use them."""

    def __init__(self, folder):
        self.folder = folder
        self.model = folder / "model"
        python = ROOT / ".deps/venv/bin/python"
        subprocess.run([python, ROOT / "deploy/make_tiny_model.py", "--output", self.model], check=True, capture_output=True)
        for split, count in (("train", 60), ("held_out", 8)):
            self.dapd("problems", "--task", "unit_conversion", "--split", split, "--count", count, "--output", folder / f"{split}.jsonl")
        self.config = folder / "config.yaml"
        self.config.write_text(
            f"""
model: {{path: {self.model}, precision: float32, device: cpu}}
lora: {{rank: 4, alpha: 8}}
data: {{path: {folder}/train.jsonl}}
objective: {{max_reference_tokens: 48}}
rollout: {{max_new_tokens: 16, slots: 4}}
teacher: {{snapshot_interval: 2}}
trainer: {{batch_size: 6, micro_batch_size: 2, steps: 5, schedule_steps: 10, learning_rate: 1.0e-3}}
run: {{name: run, output_dir: {folder}/runs, num_threads: 1}}
metrics: {{rollout_listen: "127.0.0.1:0", teacher_listen: "127.0.0.1:0", trainer_listen: "127.0.0.1:0"}}
"""
        )

    def dapd(self, *arguments, check=True, timeout=240):
        result = subprocess.run([BIN / "dapd", *map(str, arguments)], capture_output=True, text=True, timeout=timeout)
        if check:
            assert result.returncode == 0, f"{arguments}: code {result.returncode}\n{result.stderr}"
        return result

    def start(self, name, failpoints="", **settings):
        flags = set_flags({"run.name": name, **settings})
        log = open(self.folder / f"{name}.log", "w")
        # Behaves as if started from a shell, even if the tests run under nohup.
        return subprocess.Popen(["env", "--default-signal=HUP", BIN / "dapd", "run", self.config, *flags], stderr=log, stdout=log,
                                env={**os.environ, "DAPD_FAILPOINTS": failpoints})

    def run(self, name, check=True, **settings):
        result = self.dapd("run", self.config, *set_flags({"run.name": name, **settings}), check=check)
        return result

    def runs(self, name):
        return self.folder / "runs" / name

    def forget_runs(self, keep):
        """Removes all runs but one, so that their names are free again."""
        for path in (self.folder / "runs").glob("*"):
            if path.is_dir() and path.name != keep:
                shutil.rmtree(path)

    def adapter_digest(self, name):
        return hashlib.sha256((self.runs(name) / "adapter" / "adapter_model.safetensors").read_bytes()).hexdigest()

    def metrics(self, name):
        path = self.runs(name) / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()


DRAWN = set()


def free_port():
    """Returns a port below the range that the kernel gives to clients, so that no client of the tests takes it first.

    No port is drawn twice, since the first user may not have opened it yet. Each process of pytest-xdist therefore draws from
    its own part of the range.
    """
    parts = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    part = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % parts
    ports = 10000 // parts
    for _ in range(1000):
        port = 20000 + part * ports + secrets.randbelow(ports)
        if port in DRAWN:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            DRAWN.add(port)
            return port
    raise AssertionError("no free port")


def wait_for(condition, seconds=60, what="condition"):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what} did not hold within {seconds} s")


def children(process):
    """Returns the ids of the processes that `dapd run` started, by program name."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
            name = path.with_name("comm").read_text().strip()
        except OSError:
            continue
        # A child has its parent's name until it starts its own program.
        if int(fields[1]) == process.pid and name != "dapd":
            found.setdefault(name, []).append(int(path.parent.name))
    return found
