"""C1: the loss of one completion with its gradient, against the official objective in PyTorch and the bare matrix products."""

from duel import BIN, PYTHON, ROOT, Contender, Ratio, Row, duel, median

VOCABULARY, HIDDEN = 151_936, 1024
TOKENS = (256, 1024)
PRODUCTS = 7  # five forward, two backward
# Logits, gradient and tempered values of five sources are alive at once: more tokens than this at a time do not fit into 24 GiB.
PEER_TOKENS = 256


def relative(a, b):
    return abs(a / b - 1)


def main():
    row = Row("C1", f"loss and gradient: 2 students, 3 teachers, d {HIDDEN}, V {VOCABULARY}, float32")
    shape = [HIDDEN, max(TOKENS), VOCABULARY]
    with Contender("ours", [BIN / "dapd_loss_benchmark", "ours", "cpu", "float32", *shape]) as ours:
        row.check("loss against float64, 4 tokens", ours.ready["loss_error"], 1e-5)
        row.check("gradient against float64, 4 tokens", ours.ready["gradient_error"], 1e-5)
        before = ours.resident_mib()
        with Contender("products", [BIN / "dapd_loss_benchmark", "products", "cpu", "float32", *shape]) as products, \
                Contender("official", [PYTHON, ROOT / "tests/benchmarks/official_loss.py", "cpu", "float32", *shape, PEER_TOKENS]) as official:
            peer_before = official.resident_mib()
            for tokens in TOKENS:
                compare(row, tokens, ours, products, official, before, peer_before)


def compare(row, tokens, ours, products, official, before, peer_before):
    mine, bare, peer = duel(ours, products, official, request=str(tokens))
    row.check(f"{tokens} tokens: loss against the peer's", relative(mine[0]["loss"], peer[0]["loss"]), 1e-4)
    row.check(f"{tokens} tokens: norm of the gradient against the peer's", relative(mine[0]["gradient_norm"], peer[0]["gradient_norm"]), 1e-4)
    flops = PRODUCTS * 2 * tokens * HIDDEN * VOCABULARY
    for name, figures in ("ours", mine), ("bare products (at::mm)", bare), ("official", peer):
        seconds = median(figures)
        row.figure(f"{tokens} tokens, {name}", f"{seconds:.2f} s, {flops / seconds / 1e9:.0f} GFLOP/s of products")
    faster, overhead = Ratio(mine, peer), Ratio(bare, mine)
    row.figure(f"{tokens} tokens, times faster than the official", faster, ">= 4", faster.median >= 4)
    row.figure(f"{tokens} tokens, time over the bare products'", overhead, "<= 1.15", overhead.median <= 1.15)
    extra = (ours.peak_mib() - before) * 2**20 / 1e9
    row.figure(f"{tokens} tokens, extra memory", f"{extra:.2f} GB (official {(official.peak_mib() - peer_before) * 2**20 / 1e9:.2f} GB)",
               "<= 0.4 GB", extra <= 0.4)
