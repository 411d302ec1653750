"""G1: the loss with its gradient on a GPU, with a bfloat16 head and float32 logits, against the bare products, the official objective in
PyTorch and, if it is installed, liger-kernel's fused linear divergences."""

import importlib.util

import torch

from duel import BIN, PYTHON, ROOT, Contender, Peer, Ratio, Row, duel, median

VOCABULARY, TOKENS = 151_936, 8192
HIDDEN = (2560, 5120)
PRODUCTS = 7  # five forward, two backward
# A token takes about 90 bytes per vocabulary entry, and all tokens at a time must fit into 80 GB.
PEER_TOKENS = 2048


def shrunk(hidden):
    """Returns the relative amount by which a logit may be too small: a tensor core adds 16 products at a time to a float32 sum, and each
    time it may cut the sum off instead of rounding it. If all logits shrink, a divergence changes by their square."""
    return hidden / 16 * 2**-23


def has_gpu():
    return torch.cuda.is_available()


def main():
    if not has_gpu():
        print("G1  skipped: no GPU")
        return
    for hidden in HIDDEN:
        row = Row("G1", f"loss and gradient on a GPU: {TOKENS} tokens, 2 students, 3 teachers, d {hidden}, V {VOCABULARY}, bfloat16")
        with row.part(f"d {hidden}"):
            compare(row, hidden)


def compare(row, hidden):
    shape = [hidden, TOKENS, VOCABULARY]
    with Contender("ours", [BIN / "dapd_loss_benchmark", "ours", "cuda", "bfloat16", *shape]) as ours, \
            Contender("products", [BIN / "dapd_loss_benchmark", "products", "cuda", "bfloat16", *shape]) as products, \
            Peer(row, "official", [PYTHON, ROOT / "tests/benchmarks/official_loss.py", "cuda", "bfloat16", *shape, PEER_TOKENS]) as official:
        row.check("loss against float64 of the same logits, 4 tokens", ours.ready["loss_error_of_passes"], 1e-5)
        row.check("loss against float64, 4 tokens", ours.ready["loss_error"], 1e-5 + 2 * shrunk(hidden))
        row.check("gradient against float64, 4 tokens", ours.ready["gradient_error"], 5e-3)
        mine, bare, peer = duel(ours, products, official, request=str(TOKENS))
    flops = PRODUCTS * 2 * TOKENS * hidden * VOCABULARY
    for name, figures in ("ours", mine), ("bare products (at::mm)", bare), ("official", peer):
        if figures:
            row.figure(name, f"{median(figures) * 1e3:.1f} ms, {flops / median(figures) / 1e12:.0f} TFLOP/s of products")
    if peer:
        row.check("loss against the peer's", abs(mine[0]["loss"] / peer[0]["loss"] - 1), 1e-2)
        faster = Ratio(mine, peer)
        row.figure("times faster than the official", faster, ">= 2.5", faster.median >= 2.5)
    overhead = Ratio(bare, mine)
    row.figure("time over the bare products'", overhead, "<= 1.25", overhead.median <= 1.25)
    extra = max(figure["gpu_extra_bytes"] for figure in mine) / 1e9
    row.figure("extra memory", f"{extra:.2f} GB", "<= 1.0 GB", extra <= 1.0)
    measure_forms(row, shape, median(bare))
    compare_with_liger(row, shape)


def measure_forms(row, shape, bare):
    """Measures the forms of the loss that no run takes unless it asks for them: logits in bfloat16, and more warps in a block."""
    for logits, warps in ("float32", 32), ("bfloat16", 16), ("bfloat16", 32):
        name = f"{logits} logits, {warps} warps"
        with Contender(name, [BIN / "dapd_loss_benchmark", "ours", "cuda", "bfloat16", *shape, logits, warps]) as form:
            if logits == "float32":
                row.check(f"{name}: gradient against float64, 4 tokens", form.ready["gradient_error"], 5e-3)
            else:
                row.figure(f"{name}: errors against float64, 4 tokens", f"loss {form.ready['loss_error']:.1e}, gradient {form.ready['gradient_error']:.1e}")
            figures = [form.round(str(TOKENS)) for _ in range(4)][1:]
            row.figure(name, f"{median(figures) * 1e3:.1f} ms, {median(figures) / bare:.2f} x the bare products")


def compare_with_liger(row, shape):
    """Runs after the row's other peers, since it keeps as much memory again. It needs a C compiler for Triton's launchers."""
    if importlib.util.find_spec("liger_kernel") is None:
        row.figure("liger-kernel", "left out: not installed")
        return
    with Peer(row, "liger-kernel", [PYTHON, ROOT / "tests/benchmarks/liger_loss.py", "cuda", "bfloat16", *shape], spare=True) as liger:
        if liger.lost:
            return
        row.check("liger-kernel's loss against float64, 4 tokens", liger.ready["loss_error"], 5e-2)
        with Contender("ours", [BIN / "dapd_loss_benchmark", "ours", "cuda", "bfloat16", *shape]) as ours:
            mine, theirs = duel(ours, liger, request=str(TOKENS))
    if not theirs:
        return
    extra = max(figure["gpu_extra_bytes"] for figure in theirs) / 1e9
    row.figure("liger-kernel (no clip, nine products)", f"{median(theirs) * 1e3:.1f} ms, {extra:.2f} GB extra")
    row.figure("times faster than liger-kernel", Ratio(mine, theirs))
