"""Runs one stage in a process of its own, which run.py may end.

    stage.py NAME

Stages are the rows of tests/benchmarks and modules of this folder. They report findings as Row does. The process
ends with 0 if every check held, and otherwise with a last line on stderr that says why.
"""

import importlib
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "benchmarks"), str(HERE.parent / "oracle")]

from duel import Row  # noqa: E402

# The order in which they run: correctness comes before speed, and the stages that take all remaining time come last.
STAGES = {"kernels": "kernel_tests", "parity": "parity", "run": "whole_run", "determinism": "determinism", "ranks": "ranks", "G5": "g5_sampling", "G6": "g6_merge", "G1": "g1_loss",
          "G2": "g2_decode", "G3": "g3_training", "G4": "g4_scoring", "G7": "g7_side_by_side", "G8": "g8_step", "profile": "kernel_times",
          "sanitizer": "sanitizer"}
# These stages cannot begin without a peer, which they train or decode beside.
NEEDS = {"G2": ["transformers"], "G3": ["transformers", "peft"], "G7": ["transformers"], "G8": ["transformers", "peft"]}
# These stages need a part of the pack that only some packs have (pack.sh).
PARTS = {"ranks": "nccl"}
# The CPU can rehearse these stages.
REHEARSED = ("parity", "determinism", "run", "ranks")


def want_of_part(name, manifest, gpu):
    """Returns why the pack lacks a part that a stage needs on this GPU, or None."""
    part = PARTS.get(name)
    if part is None:
        return None
    if part not in manifest:
        return f"this pack has no {part}: make one with tests/gpu/pack.sh --ranks"
    if manifest[part]["capability"] != gpu["capability"]:
        return f"the pack's {part} is for capability {manifest[part]['capability']}, and {gpu['name']} has {gpu['capability']}"
    return None


def main():
    name = sys.argv[1]
    importlib.import_module(STAGES[name]).main()
    if Row.failures:
        sys.exit("checks failed: " + "; ".join(Row.failures))
    if not os.path.getsize(os.environ["DAPD_BENCHMARK_RECORD"]):
        sys.exit("it skipped itself and measured nothing")


if __name__ == "__main__":
    main()
