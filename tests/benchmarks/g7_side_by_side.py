"""G7: decoding and scoring on one GPU at once, Qwen3-4B's shape, against one after the other.

The two processes are like a rollout worker and a teacher. The driver lets processes take turns unless NVIDIA's multi-process service (MPS)
runs their kernels together. So the row is measured without MPS and then, if its control program exists and may be started, with MPS: with
its defaults, and with its settings for the process that scores.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

import deadline
from deadline import patience
from duel import BIN, PAIRS, Contender, Ended, Row, another_fits
from g1_loss import has_gpu
from g2_decode import make_model
from g4_scoring import LAYERS

BATCH, PROMPT = 32, 200
SHORT = 64
LONGEST = 4096
FIRST = {"CUDA_MPS_CLIENT_PRIORITY": "1"}
# A teacher may have these settings in its environment (common/base/cuda_environment.h). Blocks of a large product keep decoding's small
# kernels waiting, unless the small kernels go first or have multiprocessors that scoring does not use.
WAYS = {
    "with MPS": {},
    "with MPS, decoding first": FIRST,
    "with MPS, decoding first, scoring on 70 % of the multiprocessors": {**FIRST, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "70"},
    "with MPS, decoding first, scoring on 50 % of the multiprocessors": {**FIRST, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"},
}


def generate(new):
    return json.dumps({"kind": "generate", "batch": BATCH, "calls": 1, "prompt": PROMPT, "new": new})


def at_once(jobs):
    """Returns the seconds until all (contender, request) are done, and each answer."""
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        start = time.monotonic()
        answers = list(pool.map(lambda job: job[0].round(job[1]), jobs))
        return time.monotonic() - start, answers


@contextlib.contextmanager
def mps():
    """Yields the environment of MPS's clients, or None if MPS cannot be started."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        environment = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        everything = {**os.environ, **environment}
        # The daemon that it leaves behind would keep a pipe open.
        if deadline.run([control, "-d"], patience(1 / 4, 60), env=everything, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
            yield None
            return
        try:
            yield environment
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run([control], input="quit\n", text=True, env=everything, capture_output=True, timeout=60)


def measure(row, how, model, environment, of_scoring):
    """Prints the figures of two processes in each pair: decoding alone, scoring alone, and both at once. Returns the median ratio of the
    time of both at once to the time of one after the other."""
    with Contender("decoding", [BIN / "dapd_decode_benchmark", model, "bfloat16", "cuda", BATCH], **environment) as decoding, \
            Contender("scoring", [BIN / "dapd_scoring_benchmark", "ours", LAYERS], **environment, **of_scoring) as scoring:
        # Decoding gets as many tokens as take about the time of the scores, so that neither process is alone for long.
        scoring.round()
        seconds = scoring.round()["seconds"]
        decoding.round(generate(SHORT))
        short = decoding.round(generate(SHORT))
        longer = decoding.round(generate(2 * SHORT))
        step = max(longer["seconds"] - short["seconds"], 1e-3) / SHORT
        request = generate(int(min(max(seconds / step, SHORT), LONGEST)))
        ratios, slower, differing = [], [], 0
        for _ in range(PAIRS):
            start = time.time()
            first = decoding.round(request)
            second = scoring.round()
            together, (decoded, _) = at_once([(decoding, request), (scoring, "")])
            ratios.append(together / (first["seconds"] + second["seconds"]))
            slower.append(decoded["seconds"] / first["seconds"])
            differing += sum(a != b for a, b in zip(first["ids"], decoded["ids"], strict=True))
            if not another_fits(start):
                break
    row.check(f"{how}: answers that differ from those decoded alone", differing, 0)
    row.figure(f"{how}: of the time one after the other", f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    row.figure(f"{how}: decoding beside scoring, times its time alone", f"{statistics.median(slower):.2f}")
    return statistics.median(ratios)


def measure_with_mps(row, model):
    """Returns the best of all ways, or None if MPS is missing or its processes do not work; then the figures without MPS count."""
    best = None
    with mps() as environment:
        if environment is None:
            row.figure("with MPS", "not measured: nvidia-cuda-mps-control is not here, or does not start")
            return None
        for how, of_scoring in WAYS.items():
            start = time.time()
            try:
                ratio = measure(row, how, model, environment, of_scoring)
            except Ended as reason:
                row.figure(how, f"not measured: {reason}")
                break
            best = ratio if best is None else min(best, ratio)
            if not another_fits(start):
                break
    return best


def main():
    if not has_gpu():
        print("G7  skipped: no GPU")
        return
    row = Row("G7", f"decoding {BATCH} answers and scoring 8 samples on a GPU at once, {LAYERS} layers of Qwen3-4B, bfloat16, two processes")
    with tempfile.TemporaryDirectory() as folder:
        make_model(pathlib.Path(folder))
        best = None
        with row.part("in turns"):
            best = measure(row, "in turns, as the driver has it", folder, {}, {})
        if (together := measure_with_mps(row, folder)) is not None:
            best = together
    if best is not None:
        row.figure("of the time one after the other", f"{best:.2f}", "<= 0.8", best <= 0.8)
