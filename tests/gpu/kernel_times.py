"""The kernels of a decode step, a scoring pass, a training pass and the loss under NVIDIA's Nsight Compute, where the machine has it: which of
them take the time, and at what rate of the memory. Says where a row's time goes; proves nothing."""

import collections
import csv
import io
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import deadline
import machine
from deadline import DEADLINE, patience
from duel import BIN, Row

TIME, BYTES = "gpu__time_duration.sum", "dram__bytes.sum"
LAYERS = 4  # a layer's kernels are every layer's
# Of a work; the others together are its last figure.
SHOWN = 10


def decoding(folder):
    import g2_decode
    g2_decode.make_model(folder / "model", num_hidden_layers=LAYERS)
    return [BIN / "dapd_decode_benchmark", folder / "model", "bfloat16", "cuda", 32], [g2_decode.generate(32, 64, prompt=64)]


def scoring(_):
    return [BIN / "dapd_scoring_benchmark", "ours", LAYERS], [""]


def training(folder):
    from training_model import live_views, write_model, write_views
    model, adapter = write_model(folder, "4B", LAYERS, "bfloat16", "cuda")
    case = write_views(folder / "case.json", live_views(prompt=400, rollout=1500, reference=1500, samples=2))
    return [BIN / "dapd_training_benchmark", model, adapter, case, "cuda", "bfloat16", 40_000], [""]


def loss(_):
    return [BIN / "dapd_loss_benchmark", "ours", "cuda", "bfloat16", 2560, 1024, 151_936], ["1024"]


WORKS = {"decoding, 32 rows": decoding, "scoring": scoring, "training": training, "loss": loss}


def short(name):
    """A kernel's name without what is the same in all of them: its parameters, its namespaces."""
    name = re.sub(r"\(anonymous namespace\)::|<unnamed>::|\bvoid ", "", name)
    name = re.sub(r"\b\w+::", "", name)
    depth, end = 0, len(name)
    for at, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            end = at
            break
    return name[:end][:60]


def read_launches(text):
    """(kernel, grid, seconds, bytes) of each launch, out of Nsight Compute's CSV in base units, with other lines about it."""
    rows = csv.DictReader(io.StringIO("".join(line for line in text.splitlines(keepends=True) if line.startswith('"'))))
    for row in rows:
        if row["Kernel Name"]:  # the line behind the header has the units
            seconds, moved = (float(row[metric].replace(",", "")) for metric in (TIME, BYTES))
            yield short(row["Kernel Name"]), re.sub(r"[() ]", "", row["Grid Size"]), seconds / 1e9, moved


def report(row, work, launches):
    sums = collections.defaultdict(lambda: [0, 0.0, 0.0])
    for kernel, grid, seconds, moved in launches:
        for i, value in enumerate((1, seconds, moved)):
            sums[f"{kernel} {grid}"][i] += value
    total = sum(seconds for _, seconds, _ in sums.values())
    ordered = sorted(sums.items(), key=lambda item: -item[1][1])
    for kernel, (count, seconds, moved) in ordered[:SHOWN]:
        row.figure(f"{work}: {kernel}", f"{seconds / total:.1%}, {count} x {seconds / count * 1e6:.1f} us, {moved / seconds / 1e12:.2f} TB/s")
    rest = sum(seconds for _, (_, seconds, _) in ordered[SHOWN:])
    row.figure(f"{work}: in all", f"{total * 1e3:.2f} ms, {rest / total:.1%} of it by {len(ordered[SHOWN:])} others")


def profile(ncu, make, folder, seconds):
    command, requests = make(folder)
    log = folder / "launches.csv"
    (folder / "requests").write_text("".join(f"{request}\n" for request in requests))
    # Clocks as the work has them, graphs kernel by kernel.
    with open(folder / "requests") as stdin:
        result = deadline.run([ncu, "--target-processes", "all", "--graph-profiling", "node", "--clock-control", "none", "--metrics", f"{TIME},{BYTES}",
                               "--csv", "--page", "raw", "--print-units", "base", "--log-file", log, *command], seconds, stdin=stdin,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    text = log.read_text(errors="replace") if log.exists() else ""
    sys.stderr.write(result.stdout + text[-4000:])
    launches = list(read_launches(text))
    if not launches:
        sys.exit(f"Nsight Compute {deadline.ending(result.returncode, seconds)}: {machine.last_line(text or result.stdout)}")
    return launches


def main():
    row = Row("profile", f"kernels by time under Nsight Compute, {LAYERS} layers of Qwen3-4B's shape")
    ncu = machine.nvidia_tool("ncu")
    if ncu is None:
        row.leave_out("this machine has no Nsight Compute")
    for number, (work, make) in enumerate(WORKS.items()):
        if DEADLINE - time.time() <= 0:
            row.figure(work, "no time was left")
            continue
        with row.part(work), tempfile.TemporaryDirectory() as name:
            report(row, work, profile(ncu, make, pathlib.Path(name), patience(1 / (len(WORKS) - number))))
