"""Helpers for runs that are copied and restored."""

SEED = {"run.seed": 1000}


def copied(url, **settings):
    """Returns settings for a copied run. At its end the run waits for its copy longer than a test waits for the run."""
    return {**SEED, "checkpoint.copy_to": url, "checkpoint.copy_wait_seconds": 600, **settings}


def restore(workspace, url, name, *arguments, check=True):
    return workspace.dapd("restore", url, workspace.runs(name), *arguments, check=check)
