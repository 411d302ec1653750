"""A run, represented by its folder, while it goes on and afterwards."""

from __future__ import annotations

import functools
import json
import math
import os
import pathlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dapd.command import call, message_of
from dapd.errors import CommandError, error_of
from dapd.installation import environment
from dapd.process import RunProcess, read_process
from dapd.service import status
from dapd.tables import Row, json_lines, table

if TYPE_CHECKING:
    from dapd.tables import Table

GOES_ON = ("running", "paused")


@dataclass(frozen=True)
class Progress:
    """The progress of a run. `state` is running, paused (it waits for its disk), finished, failed or interrupted, as
    in `dapd runs list`."""

    state: str
    step: int
    steps: int  # 0 before it has begun
    loss: float | None  # of the last step
    phase: str | None = None  # within the step: rollout, scoring, training, evaluating
    seconds_left: float | None = None

    def __str__(self) -> str:
        parts = [f"{self.state}: step {self.step} of {self.steps}"]
        if self.loss is not None:
            parts.append(f"loss {self.loss:.6g}")
        if self.phase:
            parts.append(self.phase)
        if self.seconds_left is not None:
            parts.append(f"{self.seconds_left:.0f} s left")
        return ", ".join(parts)


@dataclass(frozen=True)
class Outcome:
    """The end of the last attempt at a run. `state` is finished, failed or stopped, `message` the error, `time` in
    seconds since 1970."""

    state: str
    exit_code: int
    message: str
    time: float


def read_log(folder: pathlib.Path, process: RunProcess) -> str:
    """Returns what `process` has written so far to its log in the run's folder."""
    with open(folder / process.log, "rb") as file:
        file.seek(process.log_start)
        return file.read().decode("utf-8", errors="replace")


def trainer_address(log: str) -> str | None:
    """Returns the address at which the trainer answers, from the output of `dapd run`."""
    said = re.findall(r"watch it with: dapd status ([^\s;\"]+)", log)
    return said[-1] if said else None


class Run:
    """The run in `folder`, whoever started it.

    Every property is read anew from the folder. A run that dapd.run() started continues when the notebook's kernel
    is restarted or the script ends; Run(folder) is a new handle of it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = pathlib.Path(folder).absolute()
        if not self.folder.is_dir():
            raise FileNotFoundError(f"{self.folder} is not a folder; dapd.runs() lists runs")

    def __repr__(self) -> str:
        return f"dapd.Run({str(self.folder)!r})"

    @property
    def name(self) -> str:
        """Returns the name of its folder, run.name."""
        return self.folder.name

    # --- While it goes on ---------------------------------------------------------

    @property
    def process(self) -> RunProcess | None:
        """Returns the process that dapd.run() started for it last; None for a run that was started in another way."""
        return read_process(self.folder)

    @property
    def log(self) -> str:
        """Returns the output of that process and its trainer. The logs of other processes, and of earlier attempts, are files
        in the folder's logs/."""
        process = self.process
        return read_log(self.folder, process) if process else ""

    @property
    def address(self) -> str | None:
        """Returns the trainer's host:port, for dapd.status(). None if dapd.run() did not start the run, and until its trainer
        is started."""
        return trainer_address(self.log)

    @property
    def page(self) -> str | None:
        """Returns the address of the page with its curves while the run goes on, or None if `address` is None."""
        said = re.findall(r"status page: (http://[^\s\"]+)", self.log)
        return said[-1] if said else None

    def status(self) -> dict[str, Any]:
        """Returns dapd.status() of its trainer, with the run's own certificate and token. Raises ValueError if
        `address` is None."""
        if self.address is None:
            raise ValueError(f"{self.folder} was not started by dapd.run(), so its trainer's address is not known; dapd.status(ADDRESS) asks one")
        return status(self.address, self._security)

    @functools.cached_property
    def _security(self) -> dict[str, str]:
        section = self.config["security"]
        own = {key: section[key] for key in ("certificate", "private_key", "ca", "token") if section[key]}
        return {f"security.{key}": value for key, value in own.items()}

    @property
    def progress(self) -> Progress:
        """Returns the progress of the run from its folder; while its trainer answers, also the phase and the time left."""
        process = self.process
        lives = process is not None and process.is_alive()
        # A trainer makes the folder before the file, so that the folder seems to hold no run for a moment.
        starts = lives and not (self.folder / "config.yaml").exists()
        rows = json.loads(call("runs", "list", self.folder, "--json"))
        if not rows or (starts and rows[0]["state"] == "damaged"):  # the trainer has written nothing yet
            return Progress("running" if lives else "interrupted", 0, 0, None)
        row = rows[0]
        if row["state"] == "damaged":
            raise error_of(row["message"], 4)
        phase = seconds = None
        if lives and row["state"] in GOES_ON and self.address:
            try:
                answer = self.status()
                phase, seconds = answer["phase"] or None, float(answer["eta_seconds"]) or None
            except CommandError:
                pass  # it is still starting, or has just ended
        return Progress(row["state"], row["step"], row["steps"], row["loss"], phase, seconds)

    def is_running(self) -> bool:
        """Returns whether its process lives, or a trainer that was started in another way holds the folder."""
        process = self.process
        return (process is not None and process.is_alive()) or self.progress.state in GOES_ON

    def wait(self, timeout: float | None = None) -> Outcome:
        """Waits until the run has ended. An interrupt ends the wait, not the run.

        Returns the outcome of a run that has finished or was stopped. Raises CommandError for a run that failed or
        whose processes were killed, and TimeoutError after `timeout` seconds.
        """
        end = math.inf if timeout is None else time.monotonic() + timeout
        while self.is_running():
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{self.folder} still runs after {timeout} s")
            self._pause(min(left, 1.0))
        return self._end()

    def _pause(self, seconds: float) -> None:
        """Pauses, for a shorter time if the process is known to have ended."""
        until = time.monotonic() + seconds
        process = self.process
        while time.monotonic() < until and (process is None or process.is_alive()):
            time.sleep(min(0.1, seconds))

    def _end(self) -> Outcome:
        outcome, process = self.outcome, self.process
        if outcome is not None:
            if outcome.state == "failed":
                raise error_of(outcome.message, outcome.exit_code)
            return outcome
        code = process.exit_code() if process else None
        if code == 130:  # before the trainer had begun
            return Outcome("stopped", code, message_of(self.log, code), time.time())
        if code is None or code > 128:
            raise CommandError(f"the processes of {self.folder} were killed; started again in the same way, the run resumes", code or 1)
        raise error_of(message_of(self.log, code), code)

    def stop(self, timeout: float | None = None, at_once: bool = False) -> Outcome:
        """Stops a run that dapd.run() started and waits for its end.

        The run first saves the last whole step, or with `at_once` nothing. Started again in the same way, it resumes
        from there. Raises the errors of wait(), and ValueError for a run that was started in another way.
        """
        process = self.process
        if process is None:
            raise ValueError(f"{self.folder} was not started by dapd.run(): stop it where it was started")
        process.stop(at_once)
        return self.wait(timeout)

    # --- What it has written ------------------------------------------------------

    @property
    def config(self) -> dict[str, Any]:
        """Returns the merged configuration, {"trainer": {"steps": 150, ...}, ...}."""
        # The environment of this process must not change what the run was.
        variables = {key: value for key, value in environment().items() if not (key.startswith("DAPD_") and "__" in key)}
        loaded = json.loads(call("config", self.folder / "config.yaml", "--json", variables=variables))
        assert isinstance(loaded, dict)
        return loaded

    @property
    def outcome(self) -> Outcome | None:
        """Returns None while an attempt goes on, and after an attempt that was killed."""
        try:
            return Outcome(**json.loads((self.folder / "outcome.json").read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    @property
    def adapter(self) -> pathlib.Path | None:
        """Returns the folder of the trained adapter, in PEFT's format; None until it exists."""
        return self._folder_if_there("adapter")

    @property
    def best_adapter(self) -> pathlib.Path | None:
        """Returns the adapter of the best evaluation within training (evaluation.interval)."""
        return self._folder_if_there("adapter-best")

    def _folder_if_there(self, name: str) -> pathlib.Path | None:
        return self.folder / name if (self.folder / name).is_dir() else None

    @property
    def metrics(self) -> Table:
        """Returns metrics.jsonl with a row for each step; the columns of a term are named `terms/NAME/value` and the like."""
        return table(json_lines(self.folder / "metrics.jsonl"))

    @property
    def answers(self) -> Table:
        """Returns answers.jsonl with a row for each answer: a few graded answers of each step."""
        return table({"step": line["step"], **answer} for line in json_lines(self.folder / "answers.jsonl") for answer in line["answers"])

    @property
    def evaluations(self) -> Table:
        """Returns a row for each evaluation, in the order of their policies: `when`, `policy_version`, `accuracy/mean`, `accuracy/low`, ..."""
        return table({key: value for key, value in row.items() if key not in ("answers", "claim_answers")} for row in self._evaluations())

    @property
    def held_out_answers(self) -> Table:
        """Returns the answers to a few held-out problems that each evaluation keeps: a row for each, with the `when` of its
        evaluation."""
        return table({"when": row["when"], **answer} for row in self._evaluations() for answer in row.get("answers", []))

    def _evaluations(self) -> list[Row]:
        rows = [{"when": path.stem, **json.loads(path.read_text(encoding="utf-8"))} for path in (self.folder / "evaluation").glob("*.json")]
        return sorted(rows, key=lambda row: (row["policy_version"], row["when"] == "after"))

    @property
    def samples(self) -> Table:
        """Returns samples/ with a row for every answer of every step. For a long run read one step with samples_of(120)."""
        return table(self._samples("*"))

    def samples_of(self, step: int) -> Table:
        """Returns the answers of one step."""
        return table(self._samples(f"{step:06d}"))

    def _samples(self, step: str) -> Iterator[Row]:
        for path in sorted((self.folder / "samples").glob(f"step-{step}.jsonl")):
            for row in json_lines(path):
                yield {"step": int(path.stem.removeprefix("step-")), **row}


def runs(folder: str | os.PathLike[str] = "runs") -> list[Run]:
    """Returns the runs in a folder (run.output_dir), with the runs of sweeps, by name; none if the folder does not
    exist."""
    place = pathlib.Path(folder)
    if not place.is_dir():
        return []
    found = {pathlib.Path(row["folder"]).absolute() for row in json.loads(call("runs", "list", place, "--json"))}
    # The command does not know runs whose trainer has written nothing yet.
    for path in place.absolute().iterdir():
        process = read_process(path)
        if process is not None and process.is_alive():
            found.add(path)
    return [Run(path) for path in sorted(found)]
