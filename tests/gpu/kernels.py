"""The tests that need a GPU: kernels, samplers, graphs and attention against LibTorch and float64, a model's passes against the CPU."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from duel import BIN, Row

FILTER = "*Cuda*:*Gpu*:*GPU*"


def cases(report):
    """(name, failed, skipped) of every test that a gtest report has."""
    for suite in json.loads(report.read_text())["testsuites"]:
        for case in suite["testsuite"]:
            yield f"{suite['name']}.{case['name']}", bool(case.get("failures")), case.get("result") == "SKIPPED"


def main():
    row = Row("kernels", "tests that need a GPU")
    for program in os.environ["DAPD_GPU_TESTS"].split():
        with tempfile.TemporaryDirectory() as name:
            report = pathlib.Path(name) / "report.json"
            code = subprocess.run([BIN / program, f"--gtest_filter={FILTER}", f"--gtest_output=json:{report}"], stdout=sys.stderr).returncode
            if not report.exists():
                row.check(f"{program} ended with code {code} and without a report", 1, 0)
                continue
            found = list(cases(report))
        failed, skipped = ([case[0] for case in found if case[kind]] for kind in (1, 2))
        row.figure(program, f"{len(found) - len(failed) - len(skipped)} passed")
        row.check(f"{program}: tests that failed" + (f" ({', '.join(failed)})" if failed else ""), len(failed), 0)
        row.check(f"{program}: tests that skipped themselves" + (f" ({', '.join(skipped)})" if skipped else ""), len(skipped), 0)
        row.check(f"{program}: no test at all", not found, 0)
