"""Profiles the kernels of a decode step, a scoring pass, a training pass and the loss with NVIDIA's Nsight Compute.

If the machine has it, the stage says which kernels take the time, at what memory rate, and what the warps of our
kernels wait for. It shows where a row's time goes and proves nothing.
"""

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
LAYERS = 4  # all layers run the same kernels
# Number of kernels shown per work; its last figure is the sum of the others.
SHOWN = 10
# Number of launches of a work that are profiled: each takes the profiler 10 ms and more.
MOST_LAUNCHES = 1000
# Cycles between two instructions of a warp, and how many of them it waits for each cause.
LATENCY, STALLED = "smsp__average_warp_latency_per_inst_issued.ratio", re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")
WAITS_SHOWN = 4


def decoding(folder):
    import g2_decode
    g2_decode.make_model(folder / "model", num_hidden_layers=LAYERS)
    return [BIN / "dapd_decode_benchmark", folder / "model", "bfloat16", "cuda", 32], [g2_decode.generate(32, 8, prompt=64)]


def scoring(_):
    return [BIN / "dapd_scoring_benchmark", "ours", 1], [""]


def training(folder):
    from training_model import live_views, write_model, write_views
    model, adapter = write_model(folder, "4B", LAYERS, "bfloat16", "cuda")
    case = write_views(folder / "case.json", live_views(prompt=400, rollout=1500, reference=1500, samples=2))
    return [BIN / "dapd_training_benchmark", model, adapter, case, "cuda", "bfloat16", 40_000], [""]


def loss(_):
    return [BIN / "dapd_loss_benchmark", "ours", "cuda", "bfloat16", 2560, 1024, 151_936], ["1024"]


WORKS = {"decoding, 32 rows": decoding, "scoring": scoring, "training": training, "loss": loss}
# Our kernels that do more than copy, by work.
OURS = {"decoding, 32 rows": "SkinnyProduct|AttendBFloat16", "loss": "DivergenceInClusters"}


def short(name):
    """Returns a kernel's name without parameters and namespaces, which all kernels share."""
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
    """Returns (kernel and grid, figures by metric) for each launch, from Nsight Compute's CSV in base units with other
    lines around it."""
    rows = csv.DictReader(io.StringIO("".join(line for line in text.splitlines(keepends=True) if line.startswith('"'))))
    for row in rows:
        if row["Kernel Name"]:  # the line after the header has the units
            yield f"{short(row['Kernel Name'])} {re.sub(r'[() ]', '', row['Grid Size'])}", row


def number(launch, metric):
    return float(launch[metric].replace(",", ""))


def report(row, work, launches):
    sums = collections.defaultdict(lambda: [0, 0.0, 0.0])
    for kernel, launch in launches:
        for i, value in enumerate((1, number(launch, TIME) / 1e9, number(launch, BYTES))):
            sums[kernel][i] += value
    total = sum(seconds for _, seconds, _ in sums.values())
    ordered = sorted(sums.items(), key=lambda item: -item[1][1])
    for kernel, (count, seconds, moved) in ordered[:SHOWN]:
        row.figure(f"{work}: {kernel}", f"{seconds / total:.1%}, {count} x {seconds / count * 1e6:.1f} us, {moved / seconds / 1e12:.2f} TB/s")
    rest = sum(seconds for _, (_, seconds, _) in ordered[SHOWN:])
    row.figure(f"{work}: in all", f"{total * 1e3:.2f} ms, {rest / total:.1%} of it by {len(ordered[SHOWN:])} others")


def report_waits(row, work, launches):
    """Reports the waits of each kernel's last launch."""
    for kernel, launch in dict(launches).items():
        waits = {found[1]: number(launch, metric) for metric in launch if (found := STALLED.fullmatch(metric))}
        longest = sorted(waits, key=waits.get, reverse=True)[:WAITS_SHOWN]
        row.figure(f"{work}: what {kernel} waits for", f"{number(launch, LATENCY):.1f} cycles an instruction: " +
                   ", ".join(f"{wait.replace('_', ' ')} {waits[wait]:.1f}" for wait in longest))


def profile(ncu, command, requests, what, folder, seconds):
    """Returns the launches of the command, which answers the requests, under Nsight Compute with the options `what`."""
    log = folder / "launches.csv"
    log.unlink(missing_ok=True)
    (folder / "requests").write_text("".join(f"{request}\n" for request in requests))
    # The clocks are not fixed, and graphs are profiled kernel by kernel.
    with open(folder / "requests") as stdin:
        result = deadline.run([ncu, "--target-processes", "all", "--graph-profiling", "node", "--clock-control", "none", *what, "--kill", "yes",
                               "--csv", "--page", "raw", "--print-units", "base", "--log-file", log, *command], seconds, stdin=stdin,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    text = log.read_text(errors="replace") if log.exists() else ""
    sys.stderr.write(result.stdout + text[-4000:])
    launches = list(read_launches(text))
    if not launches:
        sys.exit(f"Nsight Compute {deadline.ending(result.returncode, seconds)}: {machine.last_line(text or result.stdout)}")
    return launches


def main():
    row = Row("profile", "kernels by time under Nsight Compute, some layers of Qwen3-4B's shape")
    ncu = machine.nvidia_tool("ncu")
    if ncu is None:
        row.leave_out("this machine has no Nsight Compute")
    for place, (work, make) in enumerate(WORKS.items()):
        if DEADLINE - time.time() <= 0:
            row.figure(work, "no time was left")
            continue
        with row.part(work), tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            command = make(folder)
            share = 1 / (len(WORKS) - place)
            report(row, work, profile(ncu, *command, ["--metrics", f"{TIME},{BYTES}", "--launch-count", MOST_LAUNCHES], folder, patience(share)))
            if work in OURS:
                report_waits(row, work, profile(ncu, *command, ["--section", "WarpStateStats", "--kernel-name", f"regex:{OURS[work]}", "--launch-skip", 2,
                                                                "--launch-count", 6], folder, patience(share / 2)))
