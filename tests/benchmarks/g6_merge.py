"""G6: an adapter of rank 64 merged into all weights of Qwen3-4B's trunk on a GPU, against a copy of the same weights."""

import torch

from duel import BIN, Contender, Ratio, Row, duel, median

# This is half a unit of bfloat16's last place, relative to the smallest number with such a unit.
ROUNDING = 2**-8


def main():
    if not torch.cuda.is_available():
        print("G6  skipped: no GPU")
        return
    row = Row("G6", "adapter of rank 64 merged into 252 weights of Qwen3-4B, bfloat16, on a GPU")
    program = BIN / "dapd_gpu_kernels_benchmark"
    with Contender("merge", [program, "merge"]) as merge, Contender("copy", [program, "copy"]) as copy:
        row.check("largest relative error of a merged weight against float64", merge.ready["error"], ROUNDING)
        merged, copied = duel(merge, copy)
    for name, figures in ("merge", merged), ("copy", copied):
        seconds = median(figures)
        row.figure(name, f"{seconds * 1e3:.2f} ms, {figures[0]['bytes'] / seconds / 1e9:.0f} GB/s read and written")
    over = Ratio(copied, merged)
    row.figure("time over the copy's", over, "<= 1.3", over.median <= 1.3)
