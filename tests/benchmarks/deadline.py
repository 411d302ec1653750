"""Limits how long a row may wait: if its time is limited, no process that it starts can take all of it."""

import contextlib
import math
import os
import pathlib
import signal
import subprocess
import time

# If a row's time is limited, no further pair begins after this Unix time.
DEADLINE = float(os.environ.get("DAPD_BENCHMARK_DEADLINE", "inf"))
# Every wait has this time, even after the deadline.
LEAST_SECONDS = 5


def patience(share, most=math.inf):
    """Returns the seconds that a wait may take: this share of the time left, and at most `most`; or None, without an end, if no time is
    limited."""
    return None if DEADLINE == math.inf else max(LEAST_SECONDS, min(most, share * (DEADLINE - time.time())))


def begin(command, **popen):
    """Starts a process that end() can end. Without a limit it stays in the session of its caller, whose Ctrl-C it gets."""
    return subprocess.Popen([str(part) for part in command], start_new_session=DEADLINE < math.inf, **popen)


def end(process):
    """Kills the process and its session: processes that it has started would keep the GPU, and `dapd run` gives its children their own
    groups."""
    process.kill()
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getsid(int(folder.name)) == process.pid:
                os.kill(int(folder.name), signal.SIGKILL)


def run(command, seconds, **popen):
    """Works like subprocess.run(), but ends the process after `seconds`; its code is None then."""
    with begin(command, **popen) as process:
        try:
            output, errors = process.communicate(timeout=seconds)
            code = process.returncode
        except subprocess.TimeoutExpired:
            end(process)
            output, errors = process.communicate()
            code = None
        except BaseException:
            end(process)
            raise
    return subprocess.CompletedProcess(command, code, output, errors)


def ending(code, seconds):
    """Says in words how a process with this time limit ended."""
    return f"was not done after {seconds:.0f} s" if code is None else f"ended with code {code}"
