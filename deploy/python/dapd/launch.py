"""Starts runs."""

from __future__ import annotations

import json
import os
import pathlib
import time

from dapd.command import Settings, call, message_of, set_flags
from dapd.errors import UnavailableError, error_of
from dapd.installation import environment, program
from dapd.process import RunProcess, one_start_at_a_time, read_process, start_process
from dapd.run_folder import Run


def run(config: str | os.PathLike[str], set: Settings | None = None, *, ranks: int | None = None) -> Run:
    """Starts `dapd run` of a configuration, a file or the name of one that this package brings, and returns its handle once the trainer is started.

    `set` is what `--set` takes: run("laboratory", set={"trainer.steps": 20}). `ranks` is the number of trainer processes. The run is in a process
    and a session of its own: it goes on when this interpreter ends. In a folder (run.output_dir and run.name) with an unfinished run that one goes
    on; if it is running, started by the same call, its handle is returned. Raises ConfigurationError, DataError and the like with the message of the
    command, and UnavailableError if another call has started what runs there.
    """
    arguments = [os.fspath(config), *set_flags(set), *(["--ranks", str(ranks)] if ranks is not None else [])]
    configured = json.loads(call("config", os.fspath(config), *set_flags(set), "--json"))["run"]
    folder = pathlib.Path(configured["output_dir"], configured["name"]).absolute()
    with one_start_at_a_time(folder):
        process = read_process(folder)
        if process is None or not process.is_alive():
            process = start_process(folder, program("dapd"), ["run", *arguments], environment())
        elif process.arguments != ["run", *arguments]:
            raise UnavailableError(f"process {process.pid} trains in {folder}, started with other arguments; dapd.Run({str(folder)!r}) is its handle", 5)
    handle = Run(folder)
    _wait_for_trainer(handle, process)
    return handle


def _wait_for_trainer(handle: Run, process: RunProcess) -> None:
    while handle.address is None:
        if not process.is_alive():
            code = process.exit_code()
            if code != 0:  # 0: the folder's run had finished, and its copy was completed
                raise error_of(message_of(handle.log, code or 1), code or 1)
            return
        time.sleep(0.05)
