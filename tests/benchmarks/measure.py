"""See run.sh. Prints one line a measurement; times are wall seconds of whole processes less their loading time."""

import contextlib
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))
from prometheus import Prometheus  # noqa: E402

BIN = ROOT / "build" / "bin"
MODEL = ROOT / ".deps/models/SmolLM2-135M-Instruct"
REPEATS = 3


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def dapd(*arguments):
    start = time.monotonic()
    result = subprocess.run([BIN / "dapd", *map(str, arguments)], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"dapd {arguments[0]} failed: {result.stderr}")
    return time.monotonic() - start


def difference(short, long):
    """Median over repeats of the seconds that the long command takes more than the short one."""
    return statistics.median(dapd(*long) - dapd(*short) for _ in range(REPEATS))


def prompts(folder, count, length):
    rng = random.Random(1)
    rows = [{"id": f"p{i}", "input_ids": [rng.randrange(1000, 40000) for _ in range(length)]} for i in range(count)]
    return write_jsonl(folder / f"prompts-{count}-{length}", rows)


def measure_decode(folder):
    for precision in ("float32", "bfloat16"):
        for slots in (1, 8):
            rows = prompts(folder, slots, 32)
            common = ["generate", "--model", MODEL, "--input", rows, "--output", folder / "out", "--temperature", 0,
                      "--slots", slots, "--precision", precision, "--max-new-tokens"]
            seconds = difference([*common, 8], [*common, 72])
            print(f"decode {precision} batch {slots}: {64 * slots / seconds:.1f} tokens/s")


def measure_score(folder):
    for precision in ("float32", "bfloat16"):
        common = ["score", "--model", MODEL, "--output", folder / "out", "--precision", precision, "--input"]
        seconds = difference([*common, prompts(folder, 1, 256)], [*common, prompts(folder, 9, 256)])
        print(f"score {precision}: {8 * 256 / seconds:.0f} tokens/s")


def peak_memory(process):
    """Peak resident MiB by program of a run's processes, read while it lives."""
    peaks = {}
    while process.poll() is None:
        for status in pathlib.Path("/proc").glob("[0-9]*/status"):
            try:
                fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
            except (OSError, ValueError):
                continue
            if fields.get("Name", "").strip().startswith("dapd-") and "VmHWM" in fields:
                name = fields["Name"].strip()
                peaks[name] = max(peaks.get(name, 0), int(fields["VmHWM"].split()[0]) / 1024)
        time.sleep(0.2)
    return peaks


def measure_step(folder):
    data = folder / "train.jsonl"
    dapd("problems", "--task", "unit_conversion", "--count", 100, "--output", data)
    sets = {"run.name": "benchmark", "run.output_dir": folder, "trainer.steps": 3, "data.path": data, "evaluation.path": '""'}
    flags = [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]
    process = subprocess.Popen([BIN / "dapd", "run", ROOT / "configs/quickstart.yaml", *flags], stderr=subprocess.DEVNULL)
    peaks = peak_memory(process)
    if process.returncode:
        sys.exit(f"the run failed with code {process.returncode}")
    steps = [json.loads(line) for line in (folder / "benchmark/metrics.jsonl").read_text().splitlines()]
    phases = {phase: statistics.median(step["seconds"][phase] for step in steps) for phase in steps[0]["seconds"]}
    print(f"step of 8 problems: {sum(phases.values()):.1f} s  " + "  ".join(f"{p} {s:.2f} s" for p, s in phases.items()))
    print("peak memory: " + "  ".join(f"{name} {mib:.0f} MiB" for name, mib in sorted(peaks.items())))


def scraped_step(folder, name, scraped):
    """Median seconds of a step of a small run, while a Prometheus reads its four processes five times a second, or none does."""
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
        if scraped and prometheus.query("count(count_over_time(dapd_build_info[1h]) > 10)") != [({}, 4.0)]:
            sys.exit("Prometheus did not scrape all four processes")
    steps = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    return statistics.median(sum(step["seconds"].values()) for step in steps)


def measure_scrape(folder):
    subprocess.run([sys.executable, ROOT / "deploy/make_tiny_model.py", "--output", folder / "tiny"], check=True, capture_output=True)
    dapd("problems", "--task", "unit_conversion", "--count", 100, "--output", folder / "tiny.jsonl")
    ratios = []
    for i in range(REPEATS):
        quiet, scraped = (scraped_step(folder, f"scrape-{i}-{on}", on) for on in (False, True))
        ratios.append(scraped / quiet)
        print(f"step of 4 problems, tiny model: {1000 * quiet:.1f} ms alone, {1000 * scraped:.1f} ms scraped five times a second")
    print(f"scraping: step time x {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


def main():
    chosen = sys.argv[1:] or ["decode", "score", "step", "scrape"]
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            globals()[f"measure_{name}"](pathlib.Path(folder))


main()
