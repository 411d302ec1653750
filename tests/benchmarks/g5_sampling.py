"""G5: temperature, top-k 20 and top-p 0.95 over 32 rows of 151,936 logits, against the same sampling in PyTorch."""

import sys
import time

import torch

from duel import BIN, PYTHON, Contender, Peer, Ratio, Row, duel, median, serve

ROWS, VOCABULARY, CALLS = 32, 151_936, 100
TEMPERATURE, TOP_K, TOP_P = 1.1, 20, 0.95


def sample(logits):
    """Samples as transformers' logits processors and sampler do, on the device and without waiting for it."""
    logits = logits / TEMPERATURE
    logits = logits.masked_fill(logits < torch.topk(logits, TOP_K).values[..., -1, None], -float("inf"))
    ordered, indices = torch.sort(logits, descending=False)
    remove = ordered.softmax(-1).cumsum(-1) <= 1 - TOP_P
    remove[..., -1:] = False
    logits = logits.masked_fill(remove.scatter(1, indices, remove), -float("inf"))
    return torch.multinomial(logits.softmax(-1), 1)


def peer():
    logits = torch.randn(ROWS, VOCABULARY, device="cuda") * 3

    def round_(_):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            sample(logits)
        torch.cuda.synchronize()
        return {"seconds": (time.perf_counter() - start) / CALLS}

    serve({}, round_)


def main():
    if not torch.cuda.is_available():
        print("G5  skipped: no GPU")
        return
    row = Row("G5", f"sampling on a GPU: {ROWS} x {VOCABULARY} logits, top-k {TOP_K}, top-p {TOP_P}")
    with Contender("ours", [BIN / "dapd_gpu_kernels_benchmark", "sample"]) as ours, Peer(row, "torch", [PYTHON, __file__]) as torch_:
        row.check("tokens that are not SampleToken's", ours.ready["mismatches"], 0)
        row.check("chi square of 64,000 draws by degree of freedom", ours.ready["chi_square"], 2.5)
        mine, theirs = duel(ours, torch_)
    seconds = median(mine)
    row.figure("ours", f"{seconds * 1e6:.0f} us, {mine[0]['bytes'] / seconds / 1e9:.0f} GB/s of logits", "<= 40 us", seconds <= 40e-6)
    if theirs:
        faster = Ratio(mine, theirs)
        row.figure("torch", f"{median(theirs) * 1e6:.0f} us")
        row.figure("times faster than torch", faster, ">= 8", faster.median >= 8)


if __name__ == "__main__":
    sys.exit(peer())
