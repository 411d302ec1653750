"""How long a row may wait: where its time is limited, no process that it starts can take all of it."""

import contextlib
import math
import os
import pathlib
import signal
import subprocess
import time

# Unix time after which no further pair begins, where a row's time is limited.
DEADLINE = float(os.environ.get("DAPD_BENCHMARK_DEADLINE", "inf"))
# What every wait has, even where the time is over.
LEAST_SECONDS = 5


def patience(share, most=math.inf):
    """Seconds that a wait may take: this share of what is left, and no more than `most`; None, which has no end, where no time is limited."""
    return None if DEADLINE == math.inf else max(LEAST_SECONDS, min(most, share * (DEADLINE - time.time())))


def begin(command, **popen):
    """A process that end() can end. Without a limit it is in the session of its caller, whose Ctrl-C it gets."""
    return subprocess.Popen([str(part) for part in command], start_new_session=DEADLINE < math.inf, **popen)


def end(process):
    """Kills it and its session: what it has started would keep the GPU, and has groups of its own if `dapd run` started it."""
    process.kill()
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getsid(int(folder.name)) == process.pid:
                os.kill(int(folder.name), signal.SIGKILL)


def run(command, seconds, **popen):
    """As subprocess.run(). What is not done after the seconds is ended, and its code is None."""
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
    """How a process ended that might take the seconds; in words."""
    return f"was not done after {seconds:.0f} s" if code is None else f"ended with code {code}"
