"""Runs the tests that need a GPU: kernels, samplers, graphs and attention against LibTorch and float64, a model's
passes against the CPU.

A process runs tests until one fails, and the next process continues after that test: after an illegal access every
call of a process fails, so the later tests would seem to fail as well. A test that ends its process or does not end
has no result; the others still run.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time

import deadline
from deadline import DEADLINE, patience
from duel import BIN, Row

FILTER = "*Cuda*:*Gpu*:*GPU*"
# Time limit of one test, with what its process loads before it. It is never more than half of the remaining time.
MOST_SECONDS = float(os.environ.get("DAPD_GPU_TEST_SECONDS", "150"))


def tests_of(program):
    """Returns the names of the tests that the filter leaves."""
    listed = deadline.run([BIN / program, f"--gtest_filter={FILTER}", "--gtest_list_tests"], patience(1 / 2, MOST_SECONDS), stdout=subprocess.PIPE,
                          stderr=sys.stderr, text=True).stdout
    names, suite = [], ""
    for line in listed.splitlines():
        word = line.split("#")[0].strip()
        if not line.startswith(" "):
            suite = word
        elif word:
            names.append(suite + word)
    return names


class Process:
    """Runs tests of a program in turn, up to the first that fails. `results` gets the outcome of each test that began:
    passed, failed, skipped, or why it is unknown."""

    def __init__(self, program, names, results):
        self.names, self.results, self.running, self.over = names, results, None, False
        # gtest prints the name of each test at its beginning and at its end.
        self.process = subprocess.Popen([BIN / program, "--gtest_fail_fast", f"--gtest_filter={':'.join(names)}"], stdout=subprocess.PIPE, stderr=sys.stderr,
                                        text=True, errors="replace")
        self._begin()
        watch = threading.Thread(target=self._watch)
        watch.start()
        self._read()
        self.code = self.process.wait()
        watch.join()
        if self.running:
            results[self.running] = f"not done after {time.time() - self.began:.0f} s" if self.over else f"ended the process with {self._ending()}"

    def _begin(self):
        self.began = time.time()
        self.until = self.began + min(MOST_SECONDS, (DEADLINE - self.began) / 2)

    def _watch(self):
        while self.process.poll() is None:
            if time.time() > self.until:
                self.over = True
                self.process.kill()
            time.sleep(0.1)

    def _read(self):
        for line in self.process.stdout:
            sys.stderr.write(line)
            said = re.match(r"\[ +(RUN|OK|FAILED|SKIPPED) +\] ([^\s,]+)", line)
            if not said or said[2] not in self.names or "failed" in (self.results.get(name) for name in self.names):
                continue  # after a failure gtest reports the other tests as skipped
            if said[1] == "RUN":
                self.running = said[2]
                self._begin()
            else:
                self.results[said[2]] = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}[said[1]]
                self.running = None

    def _ending(self):
        return signal.Signals(-self.code).name if self.code < 0 else f"code {self.code}"


def run(program):
    """Returns the outcome of each test. Tests for which there was no time are missing."""
    names, results = tests_of(program), {}
    while left := [name for name in names if name not in results]:
        if time.time() > DEADLINE:
            break
        process = Process(program, left, results)
        if not any(name in results for name in left):  # it ended before its first test
            results.update(dict.fromkeys(left, "did not begin: " + (f"not done after {time.time() - process.began:.0f} s" if process.over
                                                                    else process._ending())))
    return names, results


def main():
    row = Row("kernels", "tests that need a GPU")
    for program in os.environ["DAPD_GPU_TESTS"].split():
        names, results = run(program)

        def those(*states):
            return [name for name, state in results.items() if state in states]

        def check(what, found):
            row.check(f"{program}: {what}" + (f" ({', '.join(found)})" if found else ""), len(found), 0)

        row.figure(program, f"{len(those('passed'))} passed")
        check("tests that failed", those("failed"))
        check("tests without a result", [f"{name}: {state}" for name, state in results.items() if state not in ("passed", "failed", "skipped")])
        check("tests that skipped themselves", those("skipped"))
        check("tests for which there was no time", [name for name in names if name not in results])
        row.check(f"{program}: no test at all", not names, 0)
