"""Dual-Anchored Policy Distillation from Python: starts runs, follows them, and reads what they wrote.

    import dapd

    run = dapd.run(dapd.make_demonstration(), set={"trainer.steps": 20})
    print(run.progress)
    run.wait()
    run.metrics.to_pandas().plot("step", "loss")

The command `dapd`, which this package brings, does everything; its errors become exceptions (dapd.CommandError) with
its message and exit code. A run has its own process, which continues when a kernel is restarted:
dapd.Run("runs/laboratory") and dapd.runs() find the run again.
"""

from importlib.metadata import version as _version

from dapd.command import Settings, call
from dapd.demonstration import MODEL as laboratory_model
from dapd.demonstration import TINY_MODEL as tiny_model
from dapd.demonstration import make_demonstration
from dapd.errors import (CommandError, ConfigurationError, DataError, LostRunError, RankLostError, StoppedError, UnavailableError, UsageError)
from dapd.installation import config_names, config_path
from dapd.launch import run
from dapd.model_commands import Answer, Grade, Score, check, generate, grade, problems, score
from dapd.run_folder import Outcome, Progress, Run, runs
from dapd.service import status

__version__ = _version("dapd")

__all__ = [
    "Answer", "CommandError", "ConfigurationError", "DataError", "Grade", "LostRunError", "Outcome", "Progress", "RankLostError", "Run", "Score",
    "Settings", "StoppedError", "UnavailableError", "UsageError", "call", "check", "config_names", "config_path", "generate", "grade",
    "laboratory_model", "make_demonstration", "problems", "run", "runs", "score", "status", "tiny_model",
]
