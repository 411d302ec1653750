"""C5: 32 prompts in one continuous batch against 16 calls with 2 prompts, as the official trainer samples; our engine does both."""

import json
import os
import pathlib
import tempfile

from c2_decode import PROMPT, THREADS, make_model
from duel import BIN, PAIRS, Contender, Ratio, Row, median

# These are far fewer tokens than the 1,024 of a real answer, which would take hours, but more tokens than in the prompt.
NEW = int(os.environ.get("DAPD_C5_NEW", "128"))
SHAPES = {"one batch of 32": {"batch": 32, "calls": 1}, "16 calls of 2": {"batch": 2, "calls": 16}}


def main():
    row = Row("C5", f"rollouts of 32 prompts, Qwen3-0.6B shape, bfloat16, prompt {PROMPT}, {NEW} new tokens")
    with tempfile.TemporaryDirectory() as name:
        folder = make_model(pathlib.Path(os.environ.get("DAPD_C2_MODEL", name)))
        with Contender("dapd", [BIN / "dapd_decode_benchmark", folder, "bfloat16", "cpu", 32], OMP_NUM_THREADS=THREADS) as engine:
            figures = {shape: [] for shape in SHAPES}
            for _ in range(1 + PAIRS):
                for shape, calls in SHAPES.items():
                    figures[shape].append(engine.round(json.dumps({"kind": "generate", "prompt": PROMPT, "new": NEW, **calls})))
            whole, parts = figures.values()
            differing = sum(a != b for one, two in zip(whole, parts) for a, b in zip(one["ids"], two["ids"], strict=True))
            row.check("answers that differ between the two", differing, 0)
            for shape, rounds in figures.items():
                row.figure(shape, f"{median(rounds[1:]):.2f} s, {32 * NEW / median(rounds[1:]):.0f} tokens/s")
            ratio = Ratio(whole[1:], parts[1:])
            row.figure("16 calls of 2 / one batch", ratio, ">= 4", ratio.median >= 4)
