"""The official objective in PyTorch over one completion, from hidden states to their gradient: five logits, three KL terms by autograd.

A contender of C1 and G1 with the inputs of loss_benchmark.cc.
"""

import sys
import time

import torch

from duel import serve

TEMPERATURE, CLIP, WEIGHTS = 1.1, 0.05, (2 / 15, 2 / 5, 2 / 15)
VOCABULARY_SLICE = 8192


def forward_kl(student_logits, teacher_logits):
    """Returns the mean over the tokens of the component-clipped KL, vocabulary slice by slice."""
    log_p = torch.log_softmax(student_logits / TEMPERATURE, dim=-1)
    log_q = torch.log_softmax(teacher_logits / TEMPERATURE, dim=-1)
    total = 0.0
    for begin in range(0, log_p.shape[-1], VOCABULARY_SLICE):
        p, q = (part[..., begin:begin + VOCABULARY_SLICE] for part in (log_p, log_q))
        total = total + (q.exp() * (q - p)).clamp(max=CLIP).sum(dim=-1)
    return total.mean()


def main():
    device, dtype = sys.argv[1], getattr(torch, sys.argv[2])
    hidden, tokens, vocabulary, most_at_once = map(int, sys.argv[3:])
    torch.manual_seed(1)
    head = torch.randn(vocabulary, hidden, device=device).mul_(2 / hidden**0.5)
    common = torch.randn(tokens, hidden, device=device)
    sources = [common.add(torch.randn(tokens, hidden, device=device), alpha=0.3).to(dtype) for _ in range(5)]
    head = head.to(dtype)

    def part(begin, end, count):
        """Returns the loss and the squared gradient norm of tokens [begin, end) of `count`."""
        none, self_ = (s[begin:end].clone().requires_grad_(True) for s in sources[:2])
        with torch.no_grad():
            snapshot_cross, base_none, base_cross = (s[begin:end] @ head.T for s in sources[2:])
        none_logits, self_logits = none @ head.T, self_ @ head.T
        pairs = (none_logits, snapshot_cross), (self_logits, base_none), (self_logits, base_cross)
        loss = sum(w * forward_kl(student.float(), teacher.float()) for w, (student, teacher) in zip(WEIGHTS, pairs)) * ((end - begin) / count)
        loss.backward()
        return loss.item(), sum(leaf.grad.double().square().sum().item() for leaf in (none, self_))

    def round_(request):
        count = int(request)
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        parts = [part(begin, min(begin + most_at_once, count), count) for begin in range(0, count, most_at_once)]
        if device == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "loss": sum(loss for loss, _ in parts), "gradient_norm": sum(square for _, square in parts) ** 0.5}

    serve({}, round_)


main()
