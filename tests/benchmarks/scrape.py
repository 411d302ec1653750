"""Compares the step time with and without a Prometheus that reads all four processes' metrics five times per second."""

import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from duel import BIN, PAIRS, PYTHON, ROOT, Row

sys.path.insert(0, str(ROOT / "tests/integration"))
from prometheus import Prometheus  # noqa: E402


def dapd(*arguments):
    result = subprocess.run([BIN / "dapd", *map(str, arguments)], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"dapd {arguments[0]} failed: {result.stderr}")


def scraped_step(folder, name, scraped):
    """Returns the median seconds of a step of a small run, whose four processes a Prometheus reads five times per second, or not at all."""
    ports = {"dapd-rollout": [9301, 9311], "dapd-teacher": [9302], "dapd-trainer": [9303]}
    sets = {"run.name": name, "run.output_dir": folder, "run.num_threads": 1, "trainer.listen": "127.0.0.1:0",
            "trainer.steps": 150, "trainer.schedule_steps": 150, "model.path": folder / "tiny", "data.path": folder / "tiny.jsonl", "evaluation.path": '""', "checkpoint.interval": 1000,
            **{f"metrics.{job[5:]}_listen": f"127.0.0.1:{each[0]}" for job, each in ports.items()}}
    flags = [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]
    watcher = folder / f"{name}-prometheus"
    watcher.mkdir()
    prometheus = Prometheus(watcher, {job: [f"127.0.0.1:{port}" for port in each] for job, each in ports.items()}, scrape_interval="200ms")
    with prometheus if scraped else contextlib.nullcontext():
        dapd("run", ROOT / "configs/tiny.yaml", *flags)
        if scraped:
            counts = {labels["instance"]: count for labels, count in prometheus.query("count_over_time(dapd_build_info[1h])")}
            if len(counts) != 4 or min(counts.values()) <= 10:
                sys.exit(f"Prometheus did not scrape all four processes; how often each: {counts}")
    steps = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    return statistics.median(sum(step["seconds"].values()) for step in steps)


def main():
    row = Row("scrape", "a step of 4 problems of the tiny model through all services, alone and scraped five times a second")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([PYTHON, ROOT / "deploy/make_tiny_model.py", "--output", folder / "tiny"], check=True, capture_output=True)
        dapd("problems", "--task", "unit_conversion", "--count", 100, "--output", folder / "tiny.jsonl")
        ratios = []
        for i in range(PAIRS):
            quiet, scraped = (scraped_step(folder, f"scrape-{i}-{on}", on) for on in (False, True))
            ratios.append(scraped / quiet)
            row.figure(f"pair {i + 1}", f"{1000 * quiet:.1f} ms alone, {1000 * scraped:.1f} ms scraped")
    row.figure("step time scraped / alone", f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
