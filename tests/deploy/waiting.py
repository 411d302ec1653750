"""Waits for a condition, never for a time."""

import time


def wait_for(condition, what, seconds=240):
    """Returns the condition's value once it has one; `what` names what did not come, or returns that text when called."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what() if callable(what) else what}: not within {seconds} s"
        time.sleep(0.05)
    return value
