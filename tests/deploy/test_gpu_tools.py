"""Tests the stages of tests/gpu that run NVIDIA's tools, with stand-ins for the tools."""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU = ROOT / "tests/gpu"
sys.path[:0] = [str(GPU), str(ROOT / "tests/benchmarks")]

import machine  # noqa: E402
from duel import LEFT_OUT  # noqa: E402

# This duration distinguishes this test's processes from other tests' processes.
SLEEP = f"1001.{os.getpid()}"


def run_stage(tmp_path, stage, tool, text, **environment):
    """Runs the stage with a stand-in for the tool; returns its process and its lines."""
    record = tmp_path / "record"
    record.write_text("")
    (tmp_path / tool).write_text(text)
    (tmp_path / tool).chmod(0o755)
    result = subprocess.run([sys.executable, GPU / "stage.py", stage], capture_output=True, text=True, env={
        **os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin", "DAPD_BIN": str(tmp_path), "DAPD_BENCHMARK_RECORD": str(record), **environment})
    return result, [json.loads(line) for line in record.read_text().splitlines()]


# A stand-in that finds a race in one of our kernels and one in another kernel, except in memcheck.
SANITIZER = """#!/bin/sh
echo "[  PASSED  ] 9 tests."
if [ "$2" = memcheck ]; then echo "========= ERROR SUMMARY: 0 errors"; exit; fi
[ "$2" = synccheck ] && exit 1
echo "========= Error: Race reported between Write access at void dapd::AttendSplit<float, 4>(dapd::DecodeAttentionArgs)+0x10"
echo "========= Error: Race reported between Write access at void at::native::reduce_kernel<512>()+0x20"
echo "========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)"
"""


def run_sanitizer(tmp_path, text, **environment):
    """Returns the stage's process, its lines and the failed checks."""
    result, lines = run_stage(tmp_path, "sanitizer", "compute-sanitizer", text, **environment)
    return result, lines, [line["check"] for line in lines if line.get("ok") is False]


def test_what_the_sanitizer_finds_counts_in_our_kernels(tmp_path):
    result, _, failed = run_sanitizer(tmp_path, SANITIZER)
    assert result.returncode == 1 and len(failed) == 6, result.stderr
    assert sum(check.startswith("racecheck") and "findings in our kernels (Error: Race" in check and "dapd::AttendSplit" in check for check in failed) == 3
    assert sum(check.startswith("synccheck") and check.endswith("it did not come to its end") for check in failed) == 3


@pytest.mark.parametrize("said, why", [
    ("[  PASSED  ] 0 tests.", "no test passed under it"),
    ("[  PASSED  ] 7 tests.\n[  SKIPPED ] 2 tests, listed below:", "tests that failed or skipped themselves"),
])
def test_under_a_sanitizer_tests_have_to_run(tmp_path, said, why):
    result, _, failed = run_sanitizer(tmp_path, f'#!/bin/sh\necho "{said}"\necho "========= ERROR SUMMARY: 0 errors"\n')
    assert result.returncode == 1 and len(failed) == 9 and all(check.endswith(why) for check in failed), result.stderr


def test_a_sanitizer_that_cannot_look_into_the_gpu_is_left_out(tmp_path):
    result, lines, failed = run_sanitizer(tmp_path, '#!/bin/sh\necho "========= Error: Device not supported"\nexit 1\n')
    assert result.returncode == LEFT_OUT and not failed
    assert lines[-1]["value"] == "the sanitizer cannot look into this machine's GPU: Device not supported"


def test_a_sanitizer_that_hangs_keeps_what_it_found_and_leaves_the_others_their_time(tmp_path):
    finding = next(line for line in SANITIZER.splitlines(keepends=True) if "dapd::" in line)
    # The real tool runs the program beside itself, too.
    hangs = f'#!/bin/sh\nif [ "$2" = memcheck ]; then\n{finding}sleep {SLEEP} &\nwait\nfi\necho "[  PASSED  ] 9 tests."\necho "========= ERROR SUMMARY: 0 errors"\n'
    result, lines, failed = run_sanitizer(tmp_path, hangs, DAPD_BENCHMARK_DEADLINE=str(time.time() + 18))
    said = [line["value"] for line in lines if "figure" in line]
    assert [re.fullmatch(r"not done after \d+ s", value) is not None for value in said] == [True] * 3 + [False] * 6, result.stderr
    assert said[3:] == ["0 errors, 9 tests passed"] * 6
    assert result.returncode == 1 and len(failed) == 3 and all("findings in our kernels (Error: Race" in check for check in failed)
    assert not subprocess.run(["pgrep", "-fx", f"sleep {SLEEP}"], capture_output=True, text=True).stdout


@pytest.mark.parametrize("place", ["home/bin", "home/compute-sanitizer", "toolkits/cuda-13.0/bin", "toolkits/cuda/compute-sanitizer", "packages/nvidia/cu13/bin"])
def test_a_sanitizer_is_found_where_toolkits_and_packages_have_it(tmp_path, monkeypatch, place):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    toolkits = str(tmp_path / "toolkits/cuda*")
    assert machine.nvidia_tool("compute-sanitizer", toolkits) is None
    program = tmp_path / place / "compute-sanitizer"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert machine.nvidia_tool("compute-sanitizer", toolkits) == str(program)


# Writes lines as Nsight Compute does: messages, a header, units, and a line for each launch.
PROFILER = f"""#!{sys.executable}
import csv, pathlib, sys
log = pathlib.Path(sys.argv[sys.argv.index("--log-file") + 1])
program = pathlib.Path(sys.argv[sys.argv.index("--log-file") + 2])
if program.name == "dapd_loss_benchmark":
    log.write_text("==ERROR== ERR_NVGPUCTRPERM - no permission to access counters\\n")
    sys.exit(1)
with open(log, "w") as file:
    file.write("==PROF== Connected to process 7\\n")
    writer = csv.writer(file, quoting=csv.QUOTE_ALL)
    writer.writerow(["ID", "Kernel Name", "Grid Size", "dram__bytes.sum", "gpu__time_duration.sum"])
    writer.writerow(["", "", "", "byte", "ns"])
    for _ in range(3):
        writer.writerow([0, "void dapd::(anonymous namespace)::SkinnyProduct<(int)4, (int)2>(dapd::CudaProduct)", "(80, 1, 1)", "2,000,000", "1000"])
    writer.writerow([1, "void at::native::elementwise_kernel<at::Half (float)>(int)", "(9, 1, 1)", "1000", "1,000"])
"""


def test_a_profile_says_which_kernels_take_the_time(tmp_path):
    result, lines = run_stage(tmp_path, "profile", "ncu", PROFILER)
    figures = {line["figure"]: line["value"] for line in lines if "figure" in line}
    assert figures["scoring: SkinnyProduct<(int)4, (int)2> 80,1,1"] == "75.0%, 3 x 1.0 us, 2.00 TB/s", result.stderr
    assert figures["scoring: elementwise_kernel<Half (float)> 9,1,1"] == "25.0%, 1 x 1.0 us, 0.00 TB/s"
    assert figures["scoring: in all"] == "0.00 ms, 0.0% of it by 0 others"
    # A program that fails does not keep the other programs from running; without a GPU no model is made for two of them.
    assert figures["loss"] == "not known: Nsight Compute ended with code 1: ==ERROR== ERR_NVGPUCTRPERM - no permission to access counters"
    assert result.returncode == 1 and figures["decoding, 32 rows"].startswith("not known: ") and figures["training"].startswith("not known: ")


def test_a_profile_says_what_our_kernels_wait_for(tmp_path):
    stalls = {"smsp__average_warp_latency_per_inst_issued.ratio": 10.5, "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": 3.25,
              "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": 4.5, "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": 1}
    kernel = ["0", "void dapd::(anonymous namespace)::DivergenceInClusters<dapd::BFloat16>(dapd::CudaDivergenceArgs, dapd::ClusterPlan)", "(112, 1, 1)"]
    profiler = PROFILER.replace('== "dapd_loss_benchmark"', '== "none"') + f"""
    if "--section" in sys.argv:
        assert sys.argv[sys.argv.index("--kernel-name") + 1] == "regex:DivergenceInClusters"
        file.seek(0)
        file.truncate()
        writer.writerow(["ID", "Kernel Name", "Grid Size", *{list(stalls)}])
        writer.writerow(["", "", "", *{["inst"] * len(stalls)}])
        writer.writerow({kernel + list(map(str, stalls.values()))})
"""
    result, lines = run_stage(tmp_path, "profile", "ncu", profiler)
    figures = {line["figure"]: line["value"] for line in lines if "figure" in line}
    assert figures["loss: SkinnyProduct<(int)4, (int)2> 80,1,1"].startswith("75.0%"), result.stderr
    assert figures["loss: what DivergenceInClusters<BFloat16> 112,1,1 waits for"] == "10.5 cycles an instruction: long scoreboard 4.5, barrier 3.2, wait 1.0"
