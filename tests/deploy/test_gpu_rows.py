"""Runs GPU rows of tests/benchmarks whose peers end, with stand-ins for all programs: our own figures must stay."""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A stand-in for any contender, slower at each call. It answers all requests; `dapd` answers none; a peer, if it begins, answers as many as
# it is told.
CONTENDER = f"""#!{sys.executable}
import json, os, pathlib, subprocess, sys
name = pathlib.Path(sys.argv[0]).name
if name == "dapd":
    sys.exit()
if name == "peer" and os.environ["PEER_ROUNDS"] == "hangs":
    # Beside it what it has started, in a group of its own.
    subprocess.run(["sleep", os.environ["SLEEP"]], process_group=0)
told = {{key: value for key, value in os.environ.items() if key.startswith("CUDA_MPS") and not key.endswith("DIRECTORY")}}
pathlib.Path(sys.argv[0] + ".told").open("a").write(json.dumps(told) + "\\n")
if ("CUDA_MPS_PIPE_DIRECTORY" in os.environ and os.environ.get("MPS") != "works") or (name == "peer" and os.environ["PEER_ROUNDS"] == "none"):
    sys.exit(3)
print(json.dumps({{"loss_error": 0, "loss_error_of_passes": 0, "gradient_error": 0, "weight_bytes": 1e9, "tokens": 8, "flops": 1e12, "mismatches": 0, "chi_square": 1}}), flush=True)
for number, _ in enumerate(sys.stdin):
    if name == "peer" and number == int(os.environ["PEER_ROUNDS"]):
        sys.exit(3)
    print(json.dumps({{"seconds": (2 if name == "peer" else 1) * (number + 1), "loss": 1, "gpu_extra_bytes": 0, "bytes": 1e9, "ids": [[1, 2]], "logprobs": [-1.5], "kept_layers": 1,
                       "libtorch_flops_a_second": 1e12, "own_flops_a_second": 1e12}}), flush=True)
"""

# Runs the requested rows without the parts that make models and runs for them.
ROWS = """
import importlib
import sys

import torch

from duel import Row

torch.cuda.is_available = lambda: True


def write_nothing(*_):
    return "model", "adapter"


def run(folder, model, name, steps, **_):
    (folder / "runs/ours/samples").mkdir(parents=True)
    (folder / "runs/ours/samples/step-1.jsonl").write_text("{}\\n")
    return [{"seconds": 1.0, "loss": 1.0, "generated_tokens": 8}] * steps


for name in sys.argv[1:]:
    row = importlib.import_module(name)
    for module in row, sys.modules.get("c3_training"):
        for maker in "make_model", "write_model":
            if hasattr(module, maker):
                setattr(module, maker, write_nothing)
    if name == "g8_step":
        row.run = run
    row.main()
sys.exit("; ".join(Row.failures) or 0)
"""


# This model refers to itself, as transformers' models do.
MODEL = """
import contextlib
import gc
import sys
import types
import weakref

import torch

from g2_decode import make_model


class Model:
    def save_pretrained(self, folder):
        self.itself, alive.model = self, weakref.ref(self)


alive = types.SimpleNamespace()
sys.modules["transformers"] = types.SimpleNamespace(AutoModelForCausalLM=types.SimpleNamespace(from_config=lambda *_, **__: Model()), Qwen3Config=dict)
torch.device = lambda _: contextlib.nullcontext()
torch.cuda.empty_cache = lambda: print("alive" if alive.model() else "gone")
gc.disable()
make_model("folder")
"""


# A wrong kernel most likely gives NaN.
NAN = """
import sys

from duel import Row, by_size, read_json

row = Row("X", "title")
row.check("null", read_json('{"error": null}')["error"], 1)
row.check("none", None, 1)
row.check("second", max([1e-5, float("nan"), 1e-4], key=by_size), 1e-3)
row.check("sound", max([1e-5, 1e-4], key=by_size), 1e-3)
row.figure("figure", "1")
sys.exit("; ".join(Row.failures) or 0)
"""


def run_rows(tmp_path, *rows, peer="none", path="", **environment):
    """Returns the process and the value of each figure or check."""
    for name in ("dapd", "peer", *(f"dapd_{kind}_benchmark" for kind in ("decode", "gpu_kernels", "loss", "scoring", "training"))):
        (tmp_path / name).write_text(CONTENDER)
        (tmp_path / name).chmod(0o755)
    record = tmp_path / "record"
    result = subprocess.run([sys.executable, "-c", ROWS, *rows], capture_output=True, text=True, env={
        **os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "tests/benchmarks"), "DAPD_BIN": str(tmp_path),
        "DAPD_PYTHON": str(tmp_path / "peer"), "PEER_ROUNDS": peer, "DAPD_BENCHMARK_RECORD": str(record), "DAPD_BENCHMARK_PAIRS": "2", **environment})
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    return result, [(line["row"], line.get("figure") or line.get("check"), line.get("value")) for line in lines if "title" not in line]


def test_a_model_that_a_row_makes_leaves_its_memory_to_the_contenders():
    result = subprocess.run([sys.executable, "-c", MODEL], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "tests/benchmarks")})
    assert result.stdout == "gone\n", result.stderr


def test_a_nan_fails_its_check_and_the_row_goes_on(tmp_path):
    record = tmp_path / "record"
    result = subprocess.run([sys.executable, "-c", NAN], capture_output=True, text=True, env={
        **os.environ, "PYTHONPATH": str(ROOT / "tests/benchmarks"), "DAPD_BENCHMARK_RECORD": str(record)})
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert {line["check"]: line["ok"] for line in lines if "check" in line} == {"null": False, "none": False, "second": False, "sound": True}, result.stderr
    assert lines[-1] == {"row": "X", "figure": "figure", "value": "1"} | {key: lines[-1][key] for key in lines[-1].keys() - {"row", "figure", "value"}}
    assert result.returncode == 1


def test_rows_keep_our_figures_where_their_peers_do_not_begin(tmp_path):
    result, lines = run_rows(tmp_path, "g1_loss", "g2_decode", "g3_training", "g5_sampling", "g8_step")
    peers = {"G1": "official", "G2": "hf", "G3": "peft", "G5": "torch", "G8": "the official step"}
    # The row G1 has two sizes, so it appears twice.
    assert [(row, figure) for row, figure, value in lines if str(value).startswith("left out: ") and "ended with code 3" in value] == [
        (row, peers[row]) for row in ("G1", "G1", "G2", "G3", "G5", "G8")], result.stderr
    said = [(row, figure) for row, figure, _ in lines]
    assert said.count(("G1", "time over the bare products'")) == said.count(("G1", "extra memory")) == 2
    assert {("G2", "batch 4: share of the floor"), ("G2", "batch 32: share of the floor"), ("G3", "rate"), ("G5", "ours"), ("G8", "seconds a step")} <= set(said)
    assert not [figure for _, figure in said if "times" in figure]
    # The call still fails.
    assert result.returncode == 1 and all(f"{row}: {peer} ended with code 3" in result.stderr for row, peer in peers.items())


def test_a_peer_that_hangs_is_ended_and_costs_no_figure_of_ours(tmp_path):
    sleep = f"1000.{os.getpid()}"
    result, lines = run_rows(tmp_path, "g2_decode", "g5_sampling", peer="hangs", SLEEP=sleep, DAPD_BENCHMARK_DEADLINE=str(time.time() + 30))
    assert re.fullmatch(r"left out: hf did not answer within \d+ s", next(value for row, figure, value in lines if (row, figure) == ("G2", "hf"))), result.stderr
    said = [(row, figure) for row, figure, _ in lines]
    assert {("G2", "batch 4: share of the floor"), ("G2", "batch 32: share of the floor"), ("G5", "ours")} <= set(said)
    # A peer can use up all the time, so measurements without a peer come first.
    assert said.index(("G2", "batch 32: products of a step by themselves")) < said.index(("G2", "hf"))
    assert said.index(("G2", "batch 32: a token with an adapter of rank 64")) < said.index(("G2", "hf"))
    assert said.index(("G2", "batch 32: share of the floor")) < said.index(("G2", "hf"))
    assert result.returncode == 1 and subprocess.run(["pgrep", "-fx", f"sleep {sleep}"], capture_output=True).stdout == b""


def test_a_row_keeps_the_pairs_that_there_are_where_its_peer_ends(tmp_path):
    result, lines = run_rows(tmp_path, "g1_loss", peer="2")
    assert result.returncode == 1, result.stderr
    assert [value for _, figure, value in lines if figure == "times faster than the official"] == ["2.00 (2.00 to 2.00)"] * 2


def test_decoding_beside_a_peer_compares_both_batches(tmp_path):
    result, lines = run_rows(tmp_path, "g2_decode", peer="99")
    assert result.returncode == 0, result.stderr
    said = [figure for _, figure, _ in lines]
    for batch in 4, 32:
        assert said.count(f"batch {batch}: times generate's speed") == said.count(f"batch {batch}: log-probabilities of our answers, worst") == 1


def mps_control(tmp_path):
    control = tmp_path / "path/nvidia-cuda-mps-control"
    control.parent.mkdir()
    control.write_text("#!/bin/sh\n")
    control.chmod(0o755)
    return control.parent


def test_two_processes_in_turns_are_measured_whatever_mps_does(tmp_path):
    """MPS's control program may start while the processes that use it do not."""
    result, lines = run_rows(tmp_path, "g7_side_by_side", path=mps_control(tmp_path))
    assert result.returncode == 0, result.stderr
    assert [figure for _, figure, value in lines if value is not None] == [
        "in turns, as the driver has it: of the time one after the other", "in turns, as the driver has it: decoding beside scoring, times its time alone",
        "with MPS", "of the time one after the other"]
    assert lines[-2][2] == "not measured: decoding ended with code 3"


def test_mps_is_told_of_the_process_that_scores_alone(tmp_path):
    result, lines = run_rows(tmp_path, "g7_side_by_side", path=mps_control(tmp_path), MPS="works")
    assert result.returncode == 0, result.stderr
    ways = [figure.removesuffix(": of the time one after the other") for _, figure, _ in lines if figure.endswith(": of the time one after the other")]
    assert ways == ["in turns, as the driver has it", "with MPS", "with MPS, decoding first",
                    *(f"with MPS, decoding first, scoring on {share} % of the multiprocessors" for share in (70, 50))]

    def told(kind):
        return [json.loads(line) for line in (tmp_path / f"dapd_{kind}_benchmark.told").read_text().splitlines()]

    first = {"CUDA_MPS_CLIENT_PRIORITY": "1"}
    assert told("scoring") == [{}, {}, first, *({**first, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": share} for share in ("70", "50"))]
    assert told("decode") == [{}] * 5
