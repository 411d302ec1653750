"""Waiting for a condition, never for a time."""

import time


def wait_for(condition, what, seconds=240):
    """The condition's value, once it has one; `what` says what did not come, or returns it when it is called."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what() if callable(what) else what}: not within {seconds} s"
        time.sleep(0.05)
    return value
