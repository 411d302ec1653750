"""If a rank other than 0 fails, the run ends with its code and its message, in the terminal and in outcome.json."""

import json
import shutil
import socket
import subprocess

from receiver import Receiver
from workspace import BIN, set_flags

# This replaces the trainer that `dapd run` starts. Rank 1 finds no data after rank 0 has begun the attempt and waits
# for it.
TRAINER = """#!/bin/bash
case "$*" in
  *trainer.rank=1*)
    until [ -e {folder}/metrics.jsonl ]; do sleep 0.05; done
    exec {real} "$@" --set data.path=/no/such/data ;;
esac
exec {real} "$@"
"""


def test_the_failure_of_another_rank_is_the_runs(workspace, tmp_path):
    # It starts the programs in its own folder.
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


def test_the_failure_of_another_rank_of_a_machine_is_the_runs(workspace):
    run = "rank-of-machine-fails"
    nobody = "[127.0.0.1:1]"
    # Rank 1's ports are 10 higher than rank 0's; this port is taken.
    with socket.create_server(("127.0.0.1", 0)) as taken, Receiver() as receiver:
        result = subprocess.run(
            [BIN / "dapd-trainer", workspace.config, *set_flags({
                "run.name": run, "trainer.ranks_per_machine": 2, "rollout.addresses": nobody, "teacher.addresses": nobody,
                "trainer.listen": f"127.0.0.1:{taken.getsockname()[1] - 10}", "metrics.trainer_listen": "127.0.0.1:0",
                "run.notify_url": receiver.url})],
            capture_output=True, text=True, timeout=120)
    assert result.returncode == 3 and "rank 1 ended with code 3" in result.stderr, result.stderr
    outcome = json.loads((workspace.runs(run) / "outcome.json").read_text())
    assert (outcome["state"], outcome["exit_code"]) == ("failed", 3), outcome
    assert [(document["state"], document["exit_code"]) for document in receiver.documents] == [("failed", 3)]
