"""Runs two or more programs in turns, A B A B, for at least five pairs; figures are medians of paired ratios.

A contender is a process that speaks the line protocol of contender.h (C++) or serve() below (Python). All contenders of a row live at the
same time and only one of them computes, so other work on the machine slows all of them alike.
"""

import contextlib
import json
import math
import os
import pathlib
import select
import statistics
import subprocess
import sys
import threading
import time
import traceback

import deadline
from deadline import DEADLINE, patience

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("DAPD_BIN", ROOT / "build/bin"))
PYTHON = pathlib.Path(os.environ.get("DAPD_PYTHON", ROOT / ".deps/venv/bin/python"))
PAIRS = int(os.environ.get("DAPD_BENCHMARK_PAIRS", "5"))
# The exit code of a row that cannot be measured here.
LEFT_OUT = 77


def serve(ready, round_):
    """Serves the Python side of a contender; round_(request) returns a dict with "seconds"."""
    print(json.dumps({"ready": True, **ready}), flush=True)
    for request in sys.stdin:
        print(json.dumps(round_(request.strip())), flush=True)


def read_json(text):
    """Reads the JSON of our programs, which have null for a number that is not finite."""
    def with_nan(value):
        if isinstance(value, dict):
            return {key: with_nan(part) for key, part in value.items()}
        return [with_nan(part) for part in value] if isinstance(value, list) else math.nan if value is None else value

    return with_nan(json.loads(text))


def as_json(number):
    """Writes JSON that any reader accepts: numbers that are not finite become text."""
    return number if math.isfinite(number) else str(number)


def by_size(error):
    """Key for max() over errors: max() alone ignores a NaN that is not the first element, so a NaN counts as the largest."""
    return math.inf if math.isnan(error) else error


class Ended(SystemExit):
    """A contender's process has ended; the text says which one and its code. If nobody catches this, the row ends, too."""


class Contender:
    """A running contender. `ready` holds the line that it printed after its preparation. An answer may take a share of the time left; if it
    does not come, the contender is ended."""

    def __init__(self, name, command, share=1 / 2, **environment):
        self.name, self.share = name, share
        self.process = deadline.begin(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      env={**os.environ, **{key: str(value) for key, value in environment.items()}})
        self.ready = self._read()

    def _read(self):
        seconds = patience(self.share)
        # An answer is one line and is written at once.
        if seconds is not None and not select.select([self.process.stdout], [], [], seconds)[0]:
            deadline.end(self.process)
            raise Ended(f"{self.name} did not answer within {seconds:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise Ended(f"{self.name} ended with code {self.process.wait()}")
        return read_json(line)

    def round(self, request=""):
        with contextlib.suppress(BrokenPipeError):  # it has ended, and _read() says how
            self.process.stdin.write(f"{request}\n")
            self.process.stdin.flush()
        return self._read()

    def peak_mib(self):
        """Returns the peak resident memory so far."""
        return self._status_mib("VmHWM")

    def resident_mib(self):
        """Returns the resident memory now."""
        return self._status_mib("VmRSS")

    def _status_mib(self, field):
        if self.process.poll() is None:
            for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
                if line.startswith(field):
                    return int(line.split()[1]) / 1024
        return 0.0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(patience(1 / 2, 60))
        except subprocess.TimeoutExpired:
            deadline.end(self.process)
            self.process.wait()


class Peer(Contender):
    """A foreign program; without it the row still has our figures. If it ends or does not begin, it is `lost`: `ready` is empty, its rounds
    are None, and the row says so and fails, unless the peer is `spare`."""

    def __init__(self, row, name, command, spare=False, **environment):
        self.row, self.spare, self.ready, self.lost = row, spare, {}, False
        try:
            super().__init__(name, command, **environment)
        except Ended as reason:
            self._lose(reason)

    def round(self, request=""):
        try:
            return None if self.lost else super().round(request)
        except Ended as reason:
            self._lose(reason)

    def _lose(self, reason):
        self.lost = True
        self.row.figure(self.name, f"left out: {reason}")
        if not self.spare:
            self.row.fail(reason)


def another_fits(start):
    """Returns whether the work that began at `start` may be done once more: then no round takes more than its share of the time left."""
    return 2 * (time.time() - start) <= DEADLINE - time.time()


def duel(*contenders, request="", pairs=PAIRS):
    """Runs a round of each contender in turn, `pairs` times, after a first round of each that does not count. Returns a list of figures for
    each contender; a lost peer has fewer. If there is a pair already and no time for another pair, it stops."""
    for contender in contenders:
        contender.round(request)
    figures = [[] for _ in contenders]
    for _ in range(pairs):
        start = time.time()
        for contender, collected in zip(contenders, figures):
            if (figure := contender.round(request)) is not None:
                collected.append(figure)
        if not another_fits(start):
            break
    return figures


class Ratio:
    """Holds the paired ratios b / a of one figure; shown as `median (lowest to highest)`."""

    def __init__(self, a, b, key="seconds"):
        self.values = sorted(y[key] / x[key] for x, y in zip(a, b))
        self.median = statistics.median(self.values)

    def __str__(self):
        return f"{self.median:.2f} ({self.values[0]:.2f} to {self.values[-1]:.2f})"


def median(figures, key="seconds"):
    return statistics.median(figure[key] for figure in figures)


class Row:
    """Prints one row of the table and remembers whether a check of it failed. The file DAPD_BENCHMARK_RECORD gets each line as JSON as
    well, at once, so that the lines of a row that does not end are there."""

    failures = []

    def __init__(self, name, title):
        self.name = name
        print(f"{name}  {title}", flush=True)
        self._record(title=title)

    def figure(self, what, value, target=None, met=None):
        """`met` says whether the target was reached; a miss is reported and is no error."""
        note = "" if target is None else f"   [target {target}: {'met' if met else 'MISSED'}]"
        print(f"    {what}: {value}{note}", flush=True)
        self._record(figure=what, value=str(value), target=target, met=None if target is None else bool(met))

    def check(self, what, error, limit):
        """Checks a result that must be right before its time counts. JSON turns a NaN into None."""
        error = math.nan if error is None else float(error)
        good = error <= limit
        print(f"    check: {what}: {error:.3g} (limit {limit:g}) {'ok' if good else 'FAILED'}", flush=True)
        self._record(check=what, error=as_json(error), limit=as_json(float(limit)), ok=good)
        if not good:
            self.fail(what)

    def leave_out(self, why):
        """Ends a row that cannot be measured on this machine; this is no success."""
        self.figure("left out", why)
        print(why, file=sys.stderr)
        sys.exit(LEFT_OUT)

    def fail(self, why):
        Row.failures.append(f"{self.name}: {why}")

    @contextlib.contextmanager
    def part(self, what):
        """Runs a part that other parts do not need: an error ends only this part, and the row fails."""
        try:
            yield
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            reason = next(reversed(str(error).strip().splitlines()), type(error).__name__)
            self.figure(what, f"not known: {reason}")
            self.fail(f"{what}: {reason}")

    def _record(self, **line):
        if path := os.environ.get("DAPD_BENCHMARK_RECORD"):
            with open(path, "a") as file:
                file.write(json.dumps({"row": self.name, **line}) + "\n")


class MemoryWatch:
    """Measures the peak summed MiB of some processes twice per second, because reading stops a process; a page that several share counts
    once."""

    def __init__(self, pids):
        self.pids, self.peak, self.stop = pids, 0.0, threading.Event()
        self.thread = threading.Thread(target=self._watch)

    def _watch(self):
        while not self.stop.wait(0.5):
            self.peak = max(self.peak, sum(map(proportional_mib, self.pids())))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def proportional_mib(pid):
    """Returns a process's resident memory, with shared pages divided by their users; 0 if the process is gone."""
    try:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0
