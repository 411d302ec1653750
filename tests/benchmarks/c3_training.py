"""C3: LoRA forward and backward over the packed live views of one sample, against peft over padded views."""

import os
import pathlib
import tempfile

from safetensors.torch import load_file

from duel import BIN, PYTHON, Contender, Peer, Ratio, Row, by_size, duel, median
from training_model import RANK, live_views, write_model, write_views

HERE = pathlib.Path(__file__).resolve().parent
LAYERS = int(os.environ.get("DAPD_BENCHMARK_LAYERS", "4"))
PROMPT, ROLLOUT, REFERENCE = (int(n) for n in os.environ.get("DAPD_BENCHMARK_LENGTHS", "100,256,256").split(","))
# All activations are kept: C3 measures the pass, not the exchange of time for memory.
BUDGET_MIB = int(os.environ.get("DAPD_BENCHMARK_BUDGET_MIB", "100000"))


def check(row, folder, ours, peer, limit, gradient_limit):
    found, expected = folder / "ours.safetensors", folder / "peer.safetensors"
    ours.round(found)
    if peer.round(expected) is None:
        return
    found, expected = load_file(found), load_file(expected)
    assert set(found) == set(expected), set(found) ^ set(expected)
    hidden = expected.pop("hidden")
    row.check("hidden states, relative", float((found.pop("hidden") - hidden).norm() / hidden.norm()), limit)
    row.check("worst gradient, relative", max((float((found[n] - g).norm() / g.norm()) for n, g in expected.items()), key=by_size), gradient_limit)


def measure_rate(row, ours, rounds, layers, target):
    """Prints the rate of our `rounds` beside a bare GEMM."""
    gemm = duel(ours, request="gemm")[0]
    flops = ours.ready["flops"] / median(rounds)
    libtorch, own = median(gemm, "libtorch_flops_a_second"), median(gemm, "own_flops_a_second")
    share = flops / max(libtorch, own)
    row.figure("rate", f"{median(rounds):.3f} s, {rounds[0]['kept_layers']} of {layers} layers kept: {flops / 1e9:.0f} GFLOP/s, a bare GEMM "
                       f"{libtorch / 1e9:.0f} (LibTorch) and {own / 1e9:.0f} (ours): {share:.2f} of the faster", f">= {target}", share >= target)


def compare(row, folder, shape, layers, groups, device, precision, limit, targets, budget_mib=BUDGET_MIB, gradient_limit=None, alone_mib=None):
    """`targets` are the speed-up, the memory ratio and the share of the GEMM rate, or None where the row has no target. `alone_mib` is the
    budget for activations without the peer's memory; if it is given, the rate is measured with it."""
    model, adapter = write_model(folder, shape, layers, precision, device)
    case = write_views(folder / "case.json", groups)
    arguments = [model, adapter, case, device, precision]
    speedup, memory, rate = targets
    with Contender("ours", [BIN / "dapd_training_benchmark", *arguments, budget_mib]) as ours, \
            Peer(row, "peft", [PYTHON, HERE / "peft_training.py", *arguments]) as peer:
        row.figure("tokens packed and padded", f"{ours.ready['tokens']} and {peer.ready.get('tokens', 'none')}")
        loaded = ours.peak_mib(), peer.peak_mib()
        check(row, folder, ours, peer, limit, gradient_limit or limit)
        a, b = duel(ours, peer)
        if b:
            ratio = Ratio(a, b)
            row.figure("times as fast as peft", ratio, f">= {speedup}", ratio.median >= speedup)
        row.figure("seconds", f"{median(a):.3f} and {f'{median(b):.3f}' if b else 'none'}; layers kept {a[0]['kept_layers']} of {layers}")
        if alone_mib is None:
            measure_rate(row, ours, a, layers, rate)
        if memory is not None and not peer.lost:
            peak = ours.peak_mib(), peer.peak_mib()
            row.figure("peak memory", f"{peak[0]:.0f} and {peak[1]:.0f} MiB, {peak[0] / peak[1]:.2f}", f"<= {memory}", peak[0] <= memory * peak[1])
            grown = [after - before for before, after in zip(loaded, peak)]
            row.figure("of which the pass", f"{grown[0]:.0f} and {grown[1]:.0f} MiB, {grown[0] / grown[1]:.2f}")
    if alone_mib is not None:
        with Contender("ours", [BIN / "dapd_training_benchmark", *arguments, alone_mib]) as alone:
            measure_rate(row, alone, duel(alone)[0], layers, rate)


def main():
    row = Row("C3", f"LoRA rank {RANK} forward and backward, {LAYERS} layers of Qwen3-0.6B, live views of one sample: prompt {PROMPT}, rollout "
                    f"{ROLLOUT}, reference {REFERENCE}; float32")
    with tempfile.TemporaryDirectory() as name:
        groups = live_views(PROMPT, ROLLOUT, REFERENCE)
        compare(row, pathlib.Path(name), "0.6B", LAYERS, groups, "cpu", "float32", limit=1e-4, targets=(1.5, 0.6, 0.7))
    row = Row("C3", f"the same in bfloat16, {3 * LAYERS} layers as wide as SmolLM2-135M's")
    with tempfile.TemporaryDirectory() as name:
        # Both programs round at every operation; TrainingPassTest checks the distance from float32.
        compare(row, pathlib.Path(name), "135M", 3 * LAYERS, groups, "cpu", "bfloat16", limit=1e-1, targets=(2.5, None, 0.6))
