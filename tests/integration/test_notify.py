"""run.notify_url: `dapd run` and a trainer that was started alone notify it of a run's end, over HTTP and HTTPS."""

import json
import shutil
import signal
import subprocess

import certificates
import pytest
from receiver import Receiver
from workspace import BIN, set_flags, wait_for

SECRET = "correct-horse-battery-staple"


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_text(SECRET + "\n")
    path.chmod(0o600)
    return path


def test_a_finished_run_is_told_with_its_evaluation_and_no_secret_is_kept(workspace, secret):
    with Receiver() as receiver:
        result = workspace.run("told", **{"trainer.steps": 2, "run.notify_url": receiver.url, "run.notify_secret_file": secret,
                                          "evaluation.path": workspace.folder / "held_out.jsonl", "evaluation.kl_problems": 2})
    (document,) = receiver.documents
    assert receiver.headers[0]["Authorization"] == f"Bearer {SECRET}" and receiver.headers[0]["Content-Type"] == "application/json"
    assert (document["run"], document["state"], document["exit_code"], document["message"]) == ("told", "finished", 0, "")
    assert (document["step"], document["steps"]) == (2, 2) and document["seconds"] > 0
    assert document["adapter_digest"] == workspace.metrics("told")[-1]["adapter_digest"]
    summary = json.loads((workspace.runs("told") / "summary.json").read_text())
    assert document["evaluation"] == {when: summary["evaluation"][when] for when in ("before", "after")}
    assert "of the run's end: finished" in result.stderr and "hidden-path" not in result.stderr
    kept = [path.read_bytes().decode(errors="replace") for path in workspace.runs("told").rglob("*") if path.is_file()]
    assert len(kept) > 5 and not any(SECRET in text for text in [result.stderr, *kept])


def test_a_server_that_hangs_holds_the_run_no_longer_than_the_time_out(workspace):
    with Receiver(hangs=True) as receiver:
        result = workspace.run("hangs", **{"trainer.steps": 1, "run.notify_url": receiver.url, "run.notify_timeout_seconds": 2})
        assert len(receiver.documents) == 1, "it may only be slow"
    assert "no notice of the run's end could be sent" in result.stderr and "hidden-path" not in result.stderr
    assert json.loads((workspace.runs("hangs") / "outcome.json").read_text())["state"] == "finished"


def test_a_server_that_refuses_fails_nothing(workspace):
    with Receiver() as receiver:
        url = receiver.url
    result = workspace.run("refused", **{"trainer.steps": 1, "run.notify_url": url})
    assert "no notice of the run's end could be sent" in result.stderr


def test_a_run_that_cannot_be_loaded_is_told_with_the_trainers_own_words(workspace):
    with Receiver() as receiver:
        settings = {"data.path": workspace.folder / "none.jsonl", "run.notify_url": receiver.url}
        assert workspace.run("unloaded", check=False, **settings).returncode == 4
    (document,) = receiver.documents
    recorded = json.loads((workspace.runs("unloaded") / "outcome.json").read_text())
    (listed,) = json.loads(workspace.dapd("runs", "list", workspace.runs("unloaded"), "--json").stdout)
    assert {part["message"] for part in (document, recorded, listed)} == {f"there is no data file {workspace.folder}/none.jsonl"}
    assert {part["state"] for part in (document, recorded, listed)} == {"failed"} and document["steps"] is None


def test_a_stop_is_told_once_though_trainer_and_supervisor_end(workspace):
    with Receiver() as receiver:
        process = workspace.start("stopped-and-told", **{"trainer.steps": 500, "trainer.schedule_steps": 500, "run.notify_url": receiver.url})
        wait_for(lambda: workspace.metrics("stopped-and-told") or process.poll() is not None, what="a step")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 130
    assert [(document["state"], document["exit_code"]) for document in receiver.documents] == [("stopped", 130)]


def test_a_trainer_of_its_own_tells_of_a_failure_but_not_of_a_run_that_another_holds(workspace):
    def trainer(**settings):
        nobody = "[127.0.0.1:1]"
        flags = set_flags({"run.name": "alone", "rollout.addresses": nobody, "teacher.addresses": nobody, "trainer.listen": "127.0.0.1:0", **settings})
        return subprocess.Popen([BIN / "dapd-trainer", workspace.config, *flags], stderr=subprocess.PIPE, text=True)

    def listed():
        (run,) = json.loads(workspace.dapd("runs", "list", workspace.runs("alone"), "--json").stdout)
        return run

    with Receiver() as receiver:
        holder = trainer(**{"trainer.peer_timeout_seconds": 600})
        wait_for(lambda: (workspace.runs("alone") / "config.yaml").exists(), what="the run's folder")
        assert listed()["state"] == "running"
        second = trainer(**{"run.notify_url": receiver.url})
        assert second.wait(timeout=60) == 5 and receiver.documents == []
        assert listed()["state"] == "running"
        holder.kill()
        holder.wait()
        third = trainer(**{"trainer.peer_timeout_seconds": 1, "run.notify_url": receiver.url})
        assert third.wait(timeout=120) == 5
        for process in (holder, second, third):
            process.stderr.close()
    (document,) = receiver.documents
    assert document["state"] == "failed" and document["exit_code"] == 5 and document["step"] == 0 and document["message"]
    assert listed()["state"] == "failed" and listed()["message"] == document["message"]
    assert document["message"].splitlines()[0][:40] in workspace.dapd("runs", "list", workspace.folder / "runs").stdout


def test_a_second_dapd_run_tells_nothing_of_a_run_that_goes_on(workspace):
    with Receiver() as receiver:
        settings = {"trainer.steps": 500, "trainer.schedule_steps": 500, "run.notify_url": receiver.url}
        first = workspace.start("two-at-once", **settings)
        wait_for(lambda: workspace.metrics("two-at-once") or first.poll() is not None, what="a step")
        second = workspace.run("two-at-once", check=False, **settings)
        assert second.returncode == 5 and "in use by another trainer" in second.stderr
        assert receiver.documents == []
        first.send_signal(signal.SIGTERM)
        assert first.wait(timeout=120) == 130, workspace.log("two-at-once")
    assert [document["state"] for document in receiver.documents] == ["stopped"]


@pytest.mark.parametrize("command,code", [(["dapd-trainer"], 0), (["dapd", "run"], 3)], ids=["trainer", "dapd run"])
def test_an_end_that_its_process_could_not_tell_is_told_by_the_next_start(workspace, command, code):
    """The process was killed after its summary, for example while it waited for the last copy."""
    run = f"untold-{command[0]}"
    workspace.runs(run).mkdir(parents=True)
    for name, text in (("config.yaml", workspace.config.read_text()), ("summary.json", '{"steps": 5}')):
        (workspace.runs(run) / name).write_text(text)
    with Receiver() as receiver:
        start = [BIN / command[0], *command[1:], workspace.config, *set_flags({"run.name": run, "run.notify_url": receiver.url})]
        for _ in range(2):
            result = subprocess.run(start, capture_output=True, text=True, timeout=60)
            assert result.returncode == code and "finished run" in result.stderr, result.stderr
    assert [(document["state"], document["exit_code"]) for document in receiver.documents] == [("finished", 0)]


def test_a_finished_run_is_not_told_of_again_once_it_is_restored(workspace):
    with Receiver() as receiver:
        copies, folder = workspace.folder / "copies-of-the-told", workspace.runs("lost-and-told")
        settings = {"trainer.steps": 1, "checkpoint.copy_to": copies, "run.notify_url": receiver.url}
        workspace.run("lost-and-told", **settings)
        shutil.rmtree(folder)
        workspace.dapd("restore", copies / "lost-and-told", folder)
        assert "holds a finished run" in workspace.run("lost-and-told", **settings).stderr
    assert [document["state"] for document in receiver.documents] == ["finished"]


def test_https_needs_the_authority_that_is_named(workspace, tmp_path):
    certificates.make(tmp_path / "tls")
    server = certificates.make_odd(tmp_path / "tls" / "ca", tmp_path / "server", "IP:127.0.0.1")
    with Receiver(certificate=server) as receiver:
        unknown = workspace.run("unknown-authority", **{"trainer.steps": 1, "run.notify_url": receiver.url})
        assert receiver.documents == [] and "no notice of the run's end" in unknown.stderr
        workspace.run("known-authority", **{"trainer.steps": 1, "run.notify_url": receiver.url, "run.notify_ca_file": server / "ca.crt"})
    assert [document["run"] for document in receiver.documents] == ["known-authority"]


def test_a_secret_that_others_can_read_is_refused_before_anything_starts(workspace, secret):
    secret.chmod(0o644)
    for command in ("check", "run"):
        result = workspace.dapd(command, workspace.config, *set_flags(
            {"run.name": "open", "run.notify_url": "https://example.org/x", "run.notify_secret_file": secret}), check=False)
        assert result.returncode == 3 and "run.notify_secret_file" in result.stderr and SECRET not in result.stderr
    assert not workspace.runs("open").exists()
