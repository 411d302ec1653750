"""The commands on PATH: each takes the place of this interpreter's process."""

import os
import sys
from typing import NoReturn

from dapd.installation import environment, program


def become(name: str) -> NoReturn:
    """Replaces this process by the program, with this process's arguments."""
    path = program(name)
    try:
        os.execve(path, [str(path), *sys.argv[1:]], environment())
    except OSError as error:
        sys.exit(f"{name}: {path} cannot be started: {error.strerror}; pip install --force-reinstall the wheel of dapd")


def dapd() -> NoReturn:
    become("dapd")


def dapd_rollout() -> NoReturn:
    become("dapd-rollout")


def dapd_teacher() -> NoReturn:
    become("dapd-teacher")


def dapd_trainer() -> NoReturn:
    become("dapd-trainer")
