"""G3: LoRA forward and backward over 16k packed tokens of Qwen3-4B's shape on a GPU, against peft over padded views."""

import os
import pathlib
import tempfile

import torch

from c3_training import compare
from duel import Row
from training_model import RANK, live_views

LAYERS = int(os.environ.get("DAPD_BENCHMARK_LAYERS", "36"))
# Both programs round at every operation, as in C3 with its limit of 0.1, but in three times as many layers. A wrong gradient is off by its
# own size.
GRADIENT = 0.2
# Two right implementations differ by 0.047 after 160 tokens and by 0.053 after 512 (these layers, bfloat16, adapters of rank 64). The
# difference grows with the length.
HIDDEN = 1e-1
# The budget keeps 27 of 36 layers. All layers would be 55 GB beside the two models, their working memory and the peer's checkpoints: 84 GB
# in total. A trainer has no peer on its GPU and keeps all layers, so the rate is measured without the peer.
BUDGET_MIB = int(os.environ.get("DAPD_BENCHMARK_BUDGET_MIB", "40000"))
ALONE_MIB = 100_000


def main():
    if not torch.cuda.is_available():
        print("G3  skipped: no GPU")
        return
    row = Row("G3", f"LoRA rank {RANK} forward and backward, {LAYERS} layers of Qwen3-4B, live views of 2 samples and 16k tokens; bfloat16")
    with tempfile.TemporaryDirectory() as name:
        groups = live_views(prompt=400, rollout=1500, reference=1500, samples=2)
        compare(row, pathlib.Path(name), "4B", LAYERS, groups, "cuda", "bfloat16", limit=HIDDEN, targets=(2.0, None, 0.55), budget_mib=BUDGET_MIB,
                gradient_limit=GRADIENT, alone_mib=ALONE_MIB)
