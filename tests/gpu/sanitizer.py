"""The kernels' tests under NVIDIA's compute-sanitizer, where the machine has one: accesses beside memory, threads that race for shared memory,
barriers that not all reach. What it finds in other people's kernels is a figure; in ours it must find nothing."""

import re
import shutil
import subprocess
import sys
import time

from duel import BIN, DEADLINE, Row

# Each kernel by itself: what runs under it takes many times as long.
TESTS = {"dapd_generation_test": "*CudaDecodeParityTest.ResidualNorm*:*CudaDecodeParityTest.SwiGlu*:*CudaDecodeParityTest.QkvAndAttention*:"
                                 "*CudaDecodeParityTest.SampledTokens*",
         "dapd_objective_test": "HeadLossAccuracyTest.OnAGpu*",
         "dapd_model_test": "CudaParityTest.TrainingRows*"}
TOOLS = ("memcheck", "racecheck", "synccheck")


def in_our_kernels(output):
    """The findings that name a kernel of ours."""
    return [line for line in output.splitlines() if line.startswith("=========") and "dapd::" in line]


def main():
    row = Row("sanitizer", "the kernels' tests under compute-sanitizer")
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        row.figure("left out", "this machine has no compute-sanitizer")
        return
    for tool in TOOLS:
        for program, tests in TESTS.items():
            what, left = f"{tool}, {program}", DEADLINE - time.time()
            if left <= 0:
                row.figure(what, "no time was left")
                continue
            # Without the host's calls, which are ours whatever kernel they lead to.
            command = [sanitizer, "--tool", tool, "--target-processes", "all", "--show-backtrace", "no", BIN / program, f"--gtest_filter={tests}"]
            late = False
            try:
                output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=None if left == float("inf") else left).stdout
            except subprocess.TimeoutExpired as error:
                late, output = True, error.stdout or b""
            output = output.decode(errors="replace")
            sys.stderr.write(output)
            summary = re.findall(r"SUMMARY: (.*)", output)
            row.figure(what, f"not done after {left:.0f} s" if late else summary[-1] if summary else "no summary")
            found = in_our_kernels(output)
            row.check(f"{what}: findings in our kernels" + (f" ({found[0].strip('= ')})" if found else ""), len(found), 0)
            if not late:
                row.check(f"{what}: it did not come to its end", not summary, 0)
