"""Shared code of the stages parity, determinism and run: programs, models, samples, and errors of their outputs.

In a rehearsal the CPU replaces the GPU, and models are small.
"""

import concurrent.futures
import json
import os
import pathlib
import random
import shutil
import sys
from unittest import mock

import torch
from safetensors.torch import load_file

from duel import ROOT, by_size, read_json
from our_run import dapd, set_flags

LABORATORY = ROOT / "deploy/models/laboratory"
REHEARSAL = bool(os.environ.get("DAPD_GPU_REHEARSAL"))
DEVICE = "cpu" if REHEARSAL else "cuda"
RANK = 16
# Cores that a program gets: several programs on the CPU finish sooner side by side than one after the other.
CORES = 4


def side_by_side(work, sides):
    """Returns {name: work(name, *arguments)} for {name: arguments}, as many at a time as there are cores: the GPU's
    programs need not wait for the CPU's."""
    workers = min(len(sides), max(1, os.cpu_count() // CORES))
    threads = {"OMP_NUM_THREADS": str(os.cpu_count() // workers)}
    with mock.patch.dict(os.environ, threads), concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return dict(zip(sides, pool.map(lambda side: work(side, *sides[side]), sides), strict=True))


def knows(key):
    """Returns whether these programs have a key of the configuration."""
    return f"`{key}`" in dapd("config-reference")


def write_wide_model(folder, layers=2):
    """Writes two layers of Qwen3-0.6B's shape with its vocabulary and heads of 128, the shapes that the kernels are
    for."""
    import make_qwen3_0_6b as maker
    maker.LAYERS = layers
    arguments, sys.argv = sys.argv, ["make", str(folder)]
    maker.main()
    sys.argv = arguments
    return folder


def write_samples(path, count, longest, vocabulary):
    """Writes rows for replay: generated problems, and answers of random tokens, which need no sampler."""
    rng = random.Random(5)
    problems = path.with_suffix(".problems")
    dapd("problems", "--task", "stepwise_sum", "--count", count, "--seed", 1, "--output", problems)
    rows = [json.loads(line) for line in problems.read_text().splitlines()]
    samples = [{"id": f"s{i}", "problem": row["problem"], "reference": row["solution"],
                "rollout_ids": [rng.randrange(vocabulary) for _ in range(rng.randint(5, longest))]} for i, row in enumerate(rows)]
    path.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    return path


def settings_of(model, device, precision, **more):
    return {"model.path": model, "model.device": device, "model.precision": precision, "lora.rank": RANK, "lora.alpha": 2 * RANK, "run.seed": 3,
            "trainer.micro_batch_size": 2, "trainer.learning_rate": 1e-3, **more}


def replay(folder, samples, model, device, precision, steps=False, adapter=None, **more):
    """Computes losses and gradients of the samples, or with `steps` optimizer steps over them; returns the folder with
    the results."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    config = folder.with_suffix(".yaml")
    config.write_text("{}\n")
    dapd("replay", "--config", config, *set_flags(settings_of(model, device, precision, **more)), "--batch", samples, "--output", folder,
         *(["--apply"] if steps else []), *(["--adapter", adapter, "--snapshot", adapter] if adapter else []))
    return folder


def relative(found, expected):
    """Returns |found - expected| / |expected| over all tensors together, by name, in double precision."""
    if set(found) != set(expected):
        sys.exit(f"tensors differ in name: {sorted(set(found) ^ set(expected))[:3]}")
    square = sum(float((found[name].double() - expected[name].double()).square().sum()) for name in expected)
    return (square / sum(float(tensor.double().square().sum()) for tensor in expected.values())) ** 0.5


def worst(found, expected):
    """Returns the largest relative() of a single tensor, and its name. Tensors of zeros are left out."""
    errors = ((relative({name: found[name]}, {name: expected[name]}), name) for name in expected if expected[name].any())
    return max(errors, key=lambda error: by_size(error[0]))


def tensors(path):
    return {name: tensor.to(torch.float32) for name, tensor in load_file(pathlib.Path(path)).items()}


def lines(path):
    return [read_json(line) for line in pathlib.Path(path).read_text().splitlines()]


def steps_of(run):
    """Returns the whole lines of a run's metrics.jsonl."""
    path = run / "metrics.jsonl"
    return [read_json(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")] if path.exists() else []
