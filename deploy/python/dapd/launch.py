"""Starts runs."""

from __future__ import annotations

import json
import os
import pathlib
import time

from dapd.command import Settings, call, message_of, set_flags
from dapd.errors import UnavailableError, error_of
from dapd.installation import environment, program
from dapd.process import RunProcess, keep_process, one_start_at_a_time, read_process, start_process
from dapd.run_folder import Run, read_log, trainer_address


def run(config: str | os.PathLike[str], set: Settings | None = None, *, ranks: int | None = None) -> Run:
    """Starts `dapd run` with a configuration (a file, or the name of one in this package), and returns its handle once
    the trainer is started.

    `set` takes what `--set` takes: run("laboratory", set={"trainer.steps": 20}). `ranks` is the number of trainer
    processes. The run has its own process and session, so it continues when this interpreter ends. If the folder
    (run.output_dir and run.name) has an unfinished run, that run resumes; if it is already running and was started
    by the same call, its handle is returned. Raises ConfigurationError, DataError and the like with the message of
    the command, and UnavailableError if another call has started the run in that folder.
    """
    arguments = [os.fspath(config), *set_flags(set), *(["--ranks", str(ranks)] if ranks is not None else [])]
    configured = json.loads(call("config", os.fspath(config), *set_flags(set), "--json"))["run"]
    folder = pathlib.Path(configured["output_dir"], configured["name"]).absolute()
    with one_start_at_a_time(folder):
        running = read_process(folder)
        if running is None or not running.is_alive():
            _start(folder, ["run", *arguments], running)
        elif running.arguments != ["run", *arguments]:
            raise UnavailableError(f"process {running.pid} trains in {folder}, started with other arguments; dapd.Run({str(folder)!r}) is its handle", 5)
    return Run(folder)


def _start(folder: pathlib.Path, arguments: list[str], before: RunProcess | None) -> None:
    """Returns once the trainer is started, or the process has ended without an error. `before` is the process that the
    folder named; it is named again if this one is refused."""
    process = start_process(folder, program("dapd"), arguments, environment())
    while process.is_alive() and trainer_address(read_log(folder, process)) is None:
        time.sleep(0.05)
    code = process.exit_code()
    if code and trainer_address(read_log(folder, process)) is None:
        keep_process(folder, before)
        raise error_of(message_of(read_log(folder, process), code), code)
