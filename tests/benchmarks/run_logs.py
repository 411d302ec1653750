"""Prints what `dapd run` and its services wrote before they failed, for readers of the output who no longer have the run's folder."""

import sys

from deadline import ending

MOST_BYTES = 64 << 10


def show(folder, out):
    """Prints the end of each log below the folder."""
    for path in sorted(folder.rglob("*.log")):
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - MOST_BYTES))
            out.write(f"---- the end of {path.relative_to(folder)}\n{file.read().decode(errors='replace')}\n")
    out.flush()


def last_line(text):
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no output")


def give_up(log, code, seconds):
    """Ends a program that needs the run with this log, which ended with `code`, or with None if it was not done after `seconds`."""
    show(log.parent, sys.stderr)
    sys.exit(f"dapd run {ending(code, seconds)}: {last_line(log.read_text(errors='replace'))}")
