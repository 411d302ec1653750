"""The cause of a run's end is named in its last line, outcome.json, `dapd runs list` and the webhook, and decides its
exit code."""

import json
import shutil

import pytest
from receiver import Receiver
from workspace import wait_for


@pytest.fixture
def receiver():
    with Receiver() as receiver:
        yield receiver


def told(workspace, name, receiver, process):
    """Returns the text that all places agree on, and the state and the code that they have."""
    code = process.wait(150)
    last = workspace.log(name).splitlines()
    outcome = json.loads((workspace.runs(name) / "outcome.json").read_text())
    (document,) = receiver.documents
    (listed,) = [run for run in json.loads(workspace.dapd("runs", "list", "--json", workspace.runs(name)).stdout)]
    assert code == outcome["exit_code"] == document["exit_code"], (code, outcome, document)
    assert outcome["message"] == document["message"] and outcome["state"] == document["state"]
    assert listed["state"] == {"stopped": "interrupted"}.get(outcome["state"], outcome["state"])
    if outcome["state"] == "failed":
        assert listed["message"] == outcome["message"]
    # It must be the last of all lines.
    message = outcome["message"].splitlines()
    assert last[-len(message):] == [f"dapd: {message[0]}", *message[1:]], last[-len(message) - 3:]
    return outcome


@pytest.mark.parametrize("role, failpoint", [("teacher", "worker.before_score"), ("rollout", "worker.before_prefill")])
def test_a_worker_that_is_killed_whenever_it_works_is_named(workspace, receiver, role, failpoint):
    name = f"fate-{role}"
    process = workspace.start(name, f"{failpoint}=kill", **{"run.notify_url": receiver.url})
    outcome = told(workspace, name, receiver, process)
    assert (outcome["state"], outcome["exit_code"]) == ("failed", 1)
    assert f"{role}-0 was killed by signal 9 (SIGKILL), " in outcome["message"] and "want of memory" in outcome["message"]


def test_a_trainer_that_ends_by_itself_has_the_last_word(workspace, receiver, tmp_path):
    data = tmp_path / "data.jsonl"
    data.write_text("{}\n")
    process = workspace.start("fate-data", **{"run.notify_url": receiver.url, "data.path": data})
    outcome = told(workspace, "fate-data", receiver, process)
    assert outcome["exit_code"] == 4 and "data.jsonl" in outcome["message"] and "dapd run" not in outcome["message"]


def test_a_run_whose_folder_is_removed_ends_and_says_so(workspace):
    process = workspace.start("fate-removed", "worker.before_token=sleep:20", **{"trainer.steps": 100, "trainer.schedule_steps": 100})
    wait_for(lambda: workspace.metrics("fate-removed"), what="a step")
    shutil.rmtree(workspace.runs("fate-removed"))
    assert process.wait(60) == 6, workspace.log("fate-removed")
    assert "was removed or renamed while the run was under way" in workspace.log("fate-removed").splitlines()[-1]
    assert not workspace.runs("fate-removed").exists()
