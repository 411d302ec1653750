"""Runs the kernels' tests under NVIDIA's compute-sanitizer, if the machine has it.

It finds accesses outside of memory, threads that race for shared memory, and barriers that not all threads reach.
Its findings in other people's kernels are a figure; in ours it must find nothing.
"""

import re
import subprocess
import sys
import time

import deadline
import machine
from deadline import DEADLINE, patience
from duel import BIN, Row

# Each kernel runs by itself, because it takes many times as long under the sanitizer.
TESTS = {"dapd_generation_test": "*CudaDecodeParityTest.ResidualNorm*:*CudaDecodeParityTest.SwiGlu*:*CudaDecodeParityTest.QkvAndAttention*:"
                                 "*CudaDecodeParityTest.SampledTokens*:*CudaProductParityTest.*/6:*CudaProductParityTest.*/13",
         "dapd_objective_test": "HeadLossAccuracyTest.OnAGpu*",
         "dapd_model_test": "CudaParityTest.TrainingRows*"}
TOOLS = ("memcheck", "racecheck", "synccheck")
# The sanitizer prints this if the driver is not the machine's own, as in a sandbox; it then checks nothing.
REFUSAL = "Device not supported"


def in_our_kernels(output):
    """Returns the findings that name a kernel of ours."""
    return [line for line in output.splitlines() if line.startswith("=========") and "dapd::" in line]


def tests_of(output):
    """Returns how many tests passed, and how many did not run or failed, from gtest's last lines."""
    passed = re.findall(r"^\[  PASSED  \] (\d+) tests?", output, re.MULTILINE)
    return sum(map(int, passed)), sum(map(int, re.findall(r"^\[  (?:SKIPPED |FAILED  )\] (\d+) tests?", output, re.MULTILINE)))


def main():
    row = Row("sanitizer", "the kernels' tests under compute-sanitizer")
    sanitizer = machine.nvidia_tool("compute-sanitizer")
    if sanitizer is None:
        row.leave_out("this machine has no compute-sanitizer")
    runs = [(tool, program) for tool in TOOLS for program in TESTS]
    ended, refused = 0, 0
    for number, (tool, program) in enumerate(runs):
        what, left = f"{tool}, {program}", DEADLINE - time.time()
        if left <= 0:
            row.figure(what, "no time was left")
            continue
        # Time that one kernel does not need is left to the others.
        seconds = patience(1 / (len(runs) - number))
        # Errors of the host's calls are left out, because those calls are ours whatever kernel they launch.
        result = deadline.run([sanitizer, "--tool", tool, "--target-processes", "all", "--show-backtrace", "no", BIN / program,
                               f"--gtest_filter={TESTS[program]}"], seconds, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        output = result.stdout
        sys.stderr.write(output)
        if REFUSAL in output:
            row.figure(what, f"left out: {REFUSAL}")
            refused += 1
            continue
        summary = re.findall(r"SUMMARY: (.*)", output)
        passed, others = tests_of(output)
        row.figure(what, f"not done after {seconds:.0f} s" if result.returncode is None else f"{summary[-1] if summary else 'no summary'}, {passed} tests passed")
        found = in_our_kernels(output)
        row.check(f"{what}: findings in our kernels" + (f" ({found[0].strip('= ')})" if found else ""), len(found), 0)
        if result.returncode is not None:
            row.check(f"{what}: it did not come to its end", not summary, 0)
            row.check(f"{what}: no test passed under it", not passed, 0)
            row.check(f"{what}: tests that failed or skipped themselves", others, 0)
            ended += bool(summary)
    if refused == len(runs):
        row.leave_out("the sanitizer cannot look into this machine's GPU: " + REFUSAL)
    row.check("no run came to its end", not ended, 0)
