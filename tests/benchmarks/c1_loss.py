"""C1: the loss of one completion with its gradient, against the official objective in PyTorch and the bare matrix products."""

from duel import BIN, PAIRS, PYTHON, ROOT, Contender, Ratio, Row, duel, median

VOCABULARY, HIDDEN = 151_936, 1024
# The longer length has one round: it is four times the work, and shows that speed and memory per token stay.
PAIRS_OF_TOKENS = {256: PAIRS, 1024: 1}
PRODUCTS = 7  # five forward, two backward
# The peer keeps 18 tensors of a token's vocabulary alive: more tokens at a time do not fit beside the other contenders.
PEER_TOKENS = 256
# glibc keeps freed memory instead of returning it page by page, and uses huge pages: a patient user of the peer would set this.
TUNED = {"MALLOC_TRIM_THRESHOLD_": 2**40, "MALLOC_MMAP_MAX_": 0, "THP_MEM_ALLOC_ENABLE": 1}


def relative(a, b):
    return abs(a / b - 1)


class Ours(Contender):
    """Remembers its resident memory at the moment when it was ready."""

    def __init__(self, name, command, **environment):
        super().__init__(name, command, **environment)
        self.before = self.resident_mib()

    def extra_gb(self):
        return (self.peak_mib() - self.before) * 2**20 / 1e9


def main():
    row = Row("C1", f"loss and gradient: 2 students, 3 teachers, d {HIDDEN}, V {VOCABULARY}, float32")
    shape = [HIDDEN, max(PAIRS_OF_TOKENS), VOCABULARY]
    program = BIN / "dapd_loss_benchmark"
    peer = [PYTHON, ROOT / "tests/benchmarks/official_loss.py", "cpu", "float32", *shape, PEER_TOKENS]
    with Ours("ours", [program, "ours", "cpu", "float32", *shape]) as ours, \
            Contender("products", [program, "products", "cpu", "float32", *shape]) as products, \
            Ours("official", peer) as official, Ours("official, tuned", peer, **TUNED) as tuned:
        row.check("loss against float64, 4 tokens", ours.ready["loss_error"], 1e-5)
        row.check("gradient against float64, 4 tokens", ours.ready["gradient_error"], 1e-5)
        for tokens, pairs in PAIRS_OF_TOKENS.items():
            compare(row, tokens, pairs, ours, products, official, tuned)


def compare(row, tokens, pairs, ours, products, official, tuned):
    mine, bare, peer, tuned_peer = duel(ours, products, official, tuned, request=str(tokens), pairs=pairs)
    row.check(f"{tokens} tokens: loss against the peer's", relative(mine[0]["loss"], peer[0]["loss"]), 1e-5)
    row.check(f"{tokens} tokens: norm of the gradient against the peer's", relative(mine[0]["gradient_norm"], peer[0]["gradient_norm"]), 1e-5)
    flops = PRODUCTS * 2 * tokens * HIDDEN * VOCABULARY
    for name, figures in ("ours", mine), ("bare products (at::mm)", bare), ("official", peer), ("official, allocator tuned", tuned_peer):
        seconds = median(figures)
        row.figure(f"{tokens} tokens, {name}", f"{seconds:.2f} s, {flops / seconds / 1e9:.0f} GFLOP/s of products")
    for name, figures, least in ("official", peer, 4), ("official, allocator tuned", tuned_peer, 2):
        faster = Ratio(mine, figures)
        row.figure(f"{tokens} tokens, times faster than the {name}", faster, f">= {least}", faster.median >= least)
    overhead = Ratio(bare, mine)
    row.figure(f"{tokens} tokens, time over the bare products'", overhead, "<= 1.15", overhead.median <= 1.15)
    row.figure(f"{tokens} tokens, extra memory", f"{ours.extra_gb():.2f} GB (official {official.extra_gb():.2f} GB)", "<= 0.4 GB", ours.extra_gb() <= 0.4)
