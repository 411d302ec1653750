"""A rank other than 0 that fails is what the run ends with: its code, its words, in the terminal and in outcome.json."""

import json
import shutil
import subprocess

from workspace import BIN, set_flags

# The trainer that `dapd run` starts. Rank 1 finds no data, once rank 0 has begun the attempt and waits for it.
TRAINER = """#!/bin/bash
case "$*" in
  *trainer.rank=1*)
    until [ -e {folder}/metrics.jsonl ]; do sleep 0.05; done
    exec {real} "$@" --set data.path=/no/such/data ;;
esac
exec {real} "$@"
"""


def test_the_failure_of_another_rank_is_the_runs(workspace, tmp_path):
    # It starts the programs beside it.
    shutil.copy(BIN / "dapd", tmp_path)
    for worker in ("dapd-rollout", "dapd-teacher"):
        (tmp_path / worker).symlink_to(BIN / worker)
    trainer = tmp_path / "dapd-trainer"
    trainer.write_text(TRAINER.format(folder=workspace.runs("rank-fails"), real=BIN / "dapd-trainer"))
    trainer.chmod(0o755)
    flags = set_flags({"run.name": "rank-fails"})
    result = subprocess.run([tmp_path / "dapd", "run", workspace.config, "--ranks", "2", *flags], capture_output=True, text=True, timeout=120)
    assert result.returncode == 4, result.stderr
    assert "trainer-1 ended with code 4" in result.stderr and "/no/such/data" in result.stderr, result.stderr
    outcome = json.loads((workspace.runs("rank-fails") / "outcome.json").read_text())
    assert (outcome["state"], outcome["exit_code"]) == ("failed", 4), outcome
    assert "trainer-1 ended with code 4" in outcome["message"] and "/no/such/data" in outcome["message"], outcome
