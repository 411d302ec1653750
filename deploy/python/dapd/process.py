"""The process of a run that this module started.

It has its own session and outlives the interpreter that started it; a file in the run's folder identifies it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from dapd.command import exit_code_of
from dapd.errors import ConfigurationError

# Processes that this interpreter started and has to wait for.
_children: dict[tuple[int, int], subprocess.Popen[bytes]] = {}


def _start_ticks(pid: int) -> int | None:
    """Returns when the process was started, in ticks since the machine started; None if it does not exist or has ended."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _boot() -> str:
    return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@dataclass(frozen=True)
class RunProcess:
    """A `dapd run` of one run. `start` and `boot` distinguish it from another process that got its number later."""

    pid: int
    start: int
    boot: str
    log: str  # in the run's folder; earlier processes wrote to it, too
    log_start: int  # in bytes: the log from there on is this process's
    arguments: list[str]

    def is_alive(self) -> bool:
        child = self._child()
        if child is not None:
            return child.poll() is None
        return self.boot == _boot() and _start_ticks(self.pid) == self.start

    def exit_code(self) -> int | None:
        """Returns the exit code as a shell shows it; None while the process lives, and if another interpreter started
        it."""
        child = self._child()
        status = None if child is None else child.poll()
        return None if status is None else exit_code_of(status)

    def _child(self) -> subprocess.Popen[bytes] | None:
        known = _children.get((self.pid, self.start))
        return known if self.boot == _boot() else None

    def stop(self, at_once: bool) -> None:
        """Tells it to stop, after the current step or at once."""
        with contextlib.suppress(ProcessLookupError):
            # Two signals of one kind would count as one if the second came before the first was handled.
            for number in (signal.SIGTERM, signal.SIGINT)[:2 if at_once else 1]:
                if self.is_alive():
                    os.kill(self.pid, number)


def record_path(folder: pathlib.Path) -> pathlib.Path:
    return folder / "logs/dapd-run.json"


def read_process(folder: pathlib.Path) -> RunProcess | None:
    """Returns the process that was started last for the run in this folder; None if it was started in another way, for
    example by a shell."""
    try:
        return RunProcess(**json.loads(record_path(folder).read_text()))
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
        return None


@contextlib.contextmanager
def one_start_at_a_time(folder: pathlib.Path) -> Iterator[None]:
    """Lets only one process at a time start the run in this folder."""
    try:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"the run's folder {folder} cannot be made: {error.strerror}", 3) from error
    descriptor = os.open(folder / "logs", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def start_process(folder: pathlib.Path, program: pathlib.Path, arguments: list[str], environment: dict[str, str]) -> RunProcess:
    """Starts `program ARGUMENTS...` and appends its output to a log of the folder. Must be called within
    one_start_at_a_time."""
    log = record_path(folder).with_suffix(".log")
    with open(log, "ab") as output:
        log_start = output.tell()
        child = subprocess.Popen([program, *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env=environment)
    process = RunProcess(child.pid, _start_ticks(child.pid) or 0, _boot(), str(log.relative_to(folder)), log_start, arguments)
    _children[process.pid, process.start] = child
    keep_process(folder, process)
    return process


def keep_process(folder: pathlib.Path, process: RunProcess | None) -> None:
    """Writes the file that read_process reads; None removes the file."""
    if process is None:
        record_path(folder).unlink(missing_ok=True)
        return
    aside = record_path(folder).with_suffix(".json.tmp")
    with open(aside, "w", encoding="utf-8") as file:
        json.dump(asdict(process), file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(record_path(folder))
