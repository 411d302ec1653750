"""The kernels' tests under NVIDIA's compute-sanitizer, where the machine has one: accesses beside memory, threads that race for shared memory,
barriers that not all reach. What it finds in other people's kernels is a figure; in ours it must find nothing."""

import os
import re
import signal
import subprocess
import sys
import time

import machine
from duel import BIN, DEADLINE, Row

# Each kernel by itself: what runs under it takes many times as long.
TESTS = {"dapd_generation_test": "*CudaDecodeParityTest.ResidualNorm*:*CudaDecodeParityTest.SwiGlu*:*CudaDecodeParityTest.QkvAndAttention*:"
                                 "*CudaDecodeParityTest.SampledTokens*:*CudaProductParityTest.*/6",
         "dapd_objective_test": "HeadLossAccuracyTest.OnAGpu*",
         "dapd_model_test": "CudaParityTest.TrainingRows*"}
TOOLS = ("memcheck", "racecheck", "synccheck")


def in_our_kernels(output):
    """The findings that name a kernel of ours."""
    return [line for line in output.splitlines() if line.startswith("=========") and "dapd::" in line]


def run(command, seconds):
    """What it printed, and whether its time was over before its end."""
    # The sanitizer starts the program as a child, which would keep the GPU from the next one.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    late = False
    try:
        output, _ = process.communicate(timeout=None if seconds == float("inf") else seconds)
    except subprocess.TimeoutExpired:
        late = True
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    return output.decode(errors="replace"), late


def main():
    row = Row("sanitizer", "the kernels' tests under compute-sanitizer")
    sanitizer = machine.compute_sanitizer()
    if sanitizer is None:
        row.figure("left out", "this machine has no compute-sanitizer")
        return
    runs = [(tool, program) for tool in TOOLS for program in TESTS]
    for number, (tool, program) in enumerate(runs):
        what, left = f"{tool}, {program}", DEADLINE - time.time()
        if left <= 0:
            row.figure(what, "no time was left")
            continue
        # What one of them does not need is the others'.
        share = left / (len(runs) - number)
        # Without the host's calls, which are ours whatever kernel they lead to.
        output, late = run([sanitizer, "--tool", tool, "--target-processes", "all", "--show-backtrace", "no", BIN / program,
                            f"--gtest_filter={TESTS[program]}"], share)
        sys.stderr.write(output)
        summary = re.findall(r"SUMMARY: (.*)", output)
        row.figure(what, f"not done after {share:.0f} s" if late else summary[-1] if summary else "no summary")
        found = in_our_kernels(output)
        row.check(f"{what}: findings in our kernels" + (f" ({found[0].strip('= ')})" if found else ""), len(found), 0)
        if not late:
            row.check(f"{what}: it did not come to its end", not summary, 0)
