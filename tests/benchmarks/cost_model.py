"""Compares steps as `dapd check` predicts them from three rates of the machine with measured steps (docs/scale.md).

The rates are measured beside each run: a bare matrix product of the MLP's shape, a read of memory, and a copy through loopback TCP. The
teachers wait for whole answers here, so that each phase has the machine to itself.
"""

import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import our_run
import torch
from duel import BIN, PYTHON, ROOT, Contender, Row

sys.path.insert(0, str(ROOT / "tests/oracle"))
import models  # noqa: E402

STEPS, ROUNDS, ROWS = 3, 5, 1024
THREADS = os.cpu_count()
SMALL = dict(hidden_size=512, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4, head_dim=64, initializer_range=0.05,
             max_position_embeddings=4096)
DEMO = ROOT / ".deps/models/SmolLM2-135M-Instruct"


def make_small(folder):
    models.make_model(folder, "qwen3", **SMALL)


def make_large(folder):
    subprocess.run([PYTHON, ROOT / "tests/benchmarks/make_qwen3_0_6b.py", folder], check=True, capture_output=True)


# By name: a function that makes the folder, precision, hidden and MLP size, problems per step, tokens of an answer.
POINTS = {"Qwen3 of 8 layers and hidden 512": (make_small, "float32", 512, 1536, 4, 128),
          "SmolLM2-135M": (lambda folder: folder.symlink_to(DEMO), "float32", 576, 1536, 4, 64),
          "Qwen3-0.6B's shape": (make_large, "bfloat16", 1024, 3072, 2, 64)}


def best_rate(amount, work):
    """Returns the best rate of some rounds, since other work on the machine disturbs that round least."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return amount / min(times)


def measure_rates(precision, hidden, mlp):
    """Returns TFLOP/s, GB/s of memory and GB/s of the network."""
    dtype = getattr(torch, precision)
    x, weight = torch.randn(ROWS, hidden, dtype=dtype), torch.randn(mlp, hidden, dtype=dtype)
    numbers = torch.ones(1 << 28)
    size = 1 << 28
    with Contender("sink", [BIN / "dapd_raw_transfer_benchmark", "sink"]) as sink, \
            Contender("source", [BIN / "dapd_raw_transfer_benchmark", "push", size, sink.ready["port"]]) as source:
        network = max(size / source.round()["seconds"] for _ in range(ROUNDS))
    return best_rate(2 * ROWS * hidden * mlp * 20, lambda: [x @ weight.T for _ in range(20)]) / 1e12, best_rate(4 * numbers.numel(), numbers.sum) / 1e9, network / 1e9


def point(row, name, make, precision, hidden, mlp, batch, tokens):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        make(folder / "model")
        our_run.prepare(folder)
        settings = {"run.num_threads": THREADS, "model.precision": precision, "rollout.max_new_tokens": tokens, "rollout.slots": batch, "teacher.streaming": "false",
                    "teacher.snapshot_interval": 1000, "trainer.batch_size": batch, "trainer.micro_batch_size": batch, "trainer.activation_memory_mib": 0,
                    "trainer.steps": STEPS, "trainer.schedule_steps": STEPS}
        rates = measure_rates(precision, hidden, mlp)
        steps = our_run.run(folder, "run", **settings)[1:]
        plan = subprocess.run([BIN / "dapd", "check", folder / "config.yaml", *our_run.flags_of(folder, "run", **settings),
                               "--samples", folder / f"runs/run/samples/step-{STEPS:06d}.jsonl",
                               *(str(part) for flag, rate in zip(("--tflops", "--memory-gbs", "--network-gbs"), rates) for part in (flag, rate))],
                              check=True, capture_output=True, text=True).stdout
    row.figure(name, f"{precision}, {batch} answers of {tokens}; {1000 * rates[0]:.0f} GFLOP/s, memory {rates[1]:.0f} GB/s, loopback {rates[2]:.1f} GB/s")
    predicted = dict(zip(("rollout", "score", "train"), map(float, re.search(r"one by one .*rollout (\S+), teachers (\S+), trainer (\S+),", plan).groups())))
    measured = {phase: statistics.median(step["seconds"][phase] for step in steps) for phase in predicted}
    for phase in predicted:
        row.figure(f"  {phase}", f"{measured[phase]:.2f} s, predicted {predicted[phase]:.2f} s: {measured[phase] / predicted[phase]:.2f}")
    row.figure("  together", f"{sum(measured.values()) / sum(predicted.values()):.2f} of the prediction")


def main():
    torch.set_num_threads(THREADS)
    row = Row("cost", "a step as dapd check predicts it and as it is")
    for name, how in POINTS.items():
        point(row, name, *how)
