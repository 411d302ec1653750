"""The three divergences of official_loss.py by liger-kernel's fused linear divergence: forward KL of two hidden states under one head, in
chunks of tokens.

A contender of G1 on a GPU with the same inputs. liger-kernel has no clip, so values and gradients are those of the whole divergence, and
each term multiplies its student's states anew: nine products instead of the seven that the terms share.
"""

import sys
import time

import torch
from liger_kernel.ops import LigerFusedLinearJSDFunction

from duel import serve

TEMPERATURE, WEIGHTS = 1.1, (2 / 15, 2 / 5, 2 / 15)
NO_LABELS, FORWARD_KL, IGNORED = None, 0.0, -100
CHECKED_TOKENS = 4


def exact(head, pairs):
    """Returns the same sum in double precision, without a gradient."""
    total = 0.0
    for weight, (student, teacher) in zip(WEIGHTS, pairs):
        log_p, log_q = (torch.log_softmax(states.double() @ head.double().T / TEMPERATURE, dim=-1) for states in (student, teacher))
        total += weight * (log_q.exp() * (log_q - log_p)).sum(dim=-1).mean().item()
    return total


def main():
    device, dtype = sys.argv[1], getattr(torch, sys.argv[2])
    hidden, tokens, vocabulary = map(int, sys.argv[3:])
    torch.manual_seed(1)
    head = torch.randn(vocabulary, hidden, device=device).mul_(2 / hidden**0.5)
    common = torch.randn(tokens, hidden, device=device)
    none, self_, *teachers = (common.add(torch.randn(tokens, hidden, device=device), alpha=0.3).to(dtype) for _ in range(5))
    head = head.to(dtype)

    def first(count):
        """Returns (student, teacher) of each term for `count` tokens; the students ask for a gradient."""
        none_, own = (states[:count].clone().requires_grad_(True) for states in (none, self_))
        return list(zip((none_, own, own), (teacher[:count] for teacher in teachers)))

    def compute(pairs):
        loss = sum(weight * LigerFusedLinearJSDFunction.apply(student, head, teacher, head, NO_LABELS, FORWARD_KL, IGNORED, TEMPERATURE)
                   for weight, (student, teacher) in zip(WEIGHTS, pairs))
        loss.backward()
        return loss.item()

    few = first(CHECKED_TOKENS)
    loss_error = abs(compute(few) / exact(head, few) - 1)

    def round_(request):
        pairs = first(int(request))
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        start = time.perf_counter()
        loss = compute(pairs)
        torch.cuda.synchronize()
        return {"seconds": time.perf_counter() - start, "loss": loss, "gpu_extra_bytes": torch.cuda.max_memory_allocated() - before}

    serve({"loss_error": loss_error}, round_)


main()
