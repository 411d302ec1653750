"""G4: a teacher's scoring of 8 samples, base and snapshot, Qwen3-4B's shape on a GPU, against the bare products of as many tokens."""

import os

import torch

from duel import BIN, Contender, Row, duel, median

LAYERS = int(os.environ.get("DAPD_BENCHMARK_LAYERS", "36"))
# By performance.md 0.1, a sample has snapshot Cross twice, and base None and Cross twice; nothing is padded.
TOKENS = 8 * 11_960


def main():
    if not torch.cuda.is_available():
        print("G4  skipped: no GPU")
        return
    row = Row("G4", f"scoring 8 samples on a GPU, {LAYERS} layers of Qwen3-4B, bfloat16, snapshot adapter of rank 64")
    program = BIN / "dapd_scoring_benchmark"
    with Contender("ours", [program, "ours", LAYERS]) as ours, Contender("products", [program, "products", LAYERS]) as products:
        # The bits must be equal.
        row.check("hidden states of requests scored together against each alone", ours.ready["error"], 0)
        mine, bare = duel(ours, products)
    # A sample has four Cross views of 2,378 tokens and two None views of 1,224 tokens.
    row.check("tokens computed beyond those of the views", abs(mine[0]["tokens"] - TOKENS), 0)
    row.figure("rows of a pass of 1,000 tokens", ours.ready["rows_for_1000_tokens"])
    rates = {}
    for name, figures in ("ours", mine), ("bare products", bare):
        rates[name] = figures[0]["flops"] / median(figures)
        row.figure(name, f"{median(figures):.2f} s, {figures[0]['tokens'] / median(figures):.0f} tokens/s, {rates[name] / 1e12:.0f} TFLOP/s of products")
    share = rates["ours"] / rates["bare products"]
    row.figure("of the products' rate", f"{share:.0%}", ">= 65 %", share >= 0.65)
