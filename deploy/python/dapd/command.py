"""Calls of the command `dapd`."""

import json
import math
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence

from dapd.errors import error_of
from dapd.installation import environment, program

# A value that `set=` takes. A list becomes a list of the configuration.
Scalar = bool | int | float | str | os.PathLike[str] | None
Value = Scalar | Sequence[Scalar]
Settings = Mapping[str, Value]


def value_text(value: Value) -> str:
    """Returns a value in the syntax of `--set`: JSON, of which YAML is a superset, and YAML's infinity."""
    if isinstance(value, float) and math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(value_text(item) for item in value) + "]"
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    return json.dumps(value, ensure_ascii=False)


def set_flags(settings: Settings | None) -> list[str]:
    """Returns `--set key=value` for each setting."""
    return [part for key, value in (settings or {}).items() for part in ("--set", f"{key}={value_text(value)}")]


def exit_code_of(status: int) -> int:
    """Returns the exit code of a shell: 128 plus the signal's number where subprocess has a negative number."""
    return status if status >= 0 else 128 - status


def message_of(said: str, exit_code: int) -> str:
    """Returns the last message of a program of ours on standard error, which says why it ended. `said` is its output
    there, as text or, with run.log_format, as JSON."""
    starts = list(re.finditer(r"^dapd(?:-\w+)?: ", said, re.MULTILINE))
    if starts:
        return said[starts[-1].end():].strip()
    said = said.strip().removesuffix("Run with --help for more information.").strip()
    if exit_code == 2 and said:
        return said
    last = (said.splitlines() or [""])[-1]
    try:
        line = json.loads(last)
        if isinstance(line, dict) and isinstance(line.get("message"), str):
            return str(line["message"])
    except ValueError:
        pass
    if last:
        return last
    if exit_code > 128:
        return f"ended by {signal.Signals(exit_code - 128).name}" if exit_code - 128 in set(signal.Signals) else f"ended by signal {exit_code - 128}"
    return f"ended with code {exit_code} and said nothing"


def call(*arguments: str | os.PathLike[str], variables: Mapping[str, str] | None = None) -> str:
    """Runs `dapd ARGUMENTS...` to its end and returns what it printed.

    Relative paths start at the current folder. `variables` is its environment, by default environment(). Raises the
    CommandError of its exit code, with its message. An interrupt of this call ends the command.
    """
    result = subprocess.run([program("dapd"), *arguments], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace",
                            env=environment() if variables is None else variables)
    code = exit_code_of(result.returncode)
    if code != 0:
        raise error_of(message_of(result.stderr, code), code)
    return result.stdout
