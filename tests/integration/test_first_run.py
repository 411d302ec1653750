"""The output that a user sees who starts a first run, and then a second one beside it."""

import re
import signal

from workspace import wait_for


def status_address(workspace, name):
    return wait_for(lambda: re.search(r"dapd status (\S+);", workspace.log(name)), what="the address in the log")[1]


def test_a_start_at_which_all_is_well_warns_of_nothing(workspace):
    result = workspace.run("calm", **{"trainer.steps": 2})
    assert not [line for line in result.stderr.splitlines() if line.startswith(("W ", "E "))], result.stderr


def test_the_status_needs_no_address(workspace):
    """Other users may have runs on this machine, too."""
    settings = {"trainer.steps": 200, "trainer.schedule_steps": 200}
    names = ["beside-a", "beside-b"]
    processes = [workspace.start(name, "worker.before_token=sleep:20", **settings) for name in names]
    wait_for(lambda: all(workspace.metrics(name) for name in names), what="steps of both")
    result = workspace.dapd("status", check=False)
    assert result.returncode == 2 and "name the run's address" in result.stderr, result.stderr
    for name in names:
        assert re.search(rf"^  {re.escape(status_address(workspace, name))}  {re.escape(str(workspace.runs(name)))}$", result.stderr, re.MULTILINE)
        shown = workspace.dapd("status", status_address(workspace, name)).stdout
        assert name in shown
    processes[0].send_signal(signal.SIGTERM)
    assert processes[0].wait(60) == 130
    result = workspace.dapd("status", check=False)
    assert names[0] not in result.stdout + result.stderr
    assert names[1] in (result.stdout if result.returncode == 0 else result.stderr)
    processes[1].send_signal(signal.SIGTERM)
    assert processes[1].wait(60) == 130


def test_more_steps_than_the_schedule_has_lead_to_a_new_run(workspace):
    """Two refusals must not refer to each other: the command that they name works."""
    settings = {"trainer.steps": 2, "trainer.schedule_steps": 2}
    workspace.run("short", **settings)
    beyond = workspace.run("short", check=False, **{**settings, "trainer.steps": 4})
    assert beyond.returncode == 3 and "lora.start_from" in beyond.stderr
    longer = workspace.run("short", check=False, **{"trainer.steps": 4, "trainer.schedule_steps": 4})
    named = re.search(r"lora\.start_from: (\S+/adapter)", longer.stderr)
    assert longer.returncode == 3 and named, longer.stderr
    workspace.run("further", **{"trainer.steps": 2, "trainer.schedule_steps": 4, "lora.start_from": named[1]})
    done = workspace.run("short", check=False, **settings)
    assert f"lora.start_from: {workspace.runs('short')}/adapter" in done.stderr, done.stderr
