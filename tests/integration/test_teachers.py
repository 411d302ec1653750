"""Further teachers: workers of other models beside the student's own, killed, resumed, and mistaken for each other."""

import json
import re
import shutil
import signal
import subprocess

import pytest
from drawn_page import needs_chromium
from service_process import fetch, running

from workspace import BIN, ROOT, Workspace, children, free_port, set_flags, wait_for

OPD = "{name: opd, student: none_rollout, teacher: none_rollout, teacher_weights: %s, divergence: reverse_kl, clip: .inf, weight: 1}"


def make_teacher(folder, seed):
    subprocess.run([ROOT / ".deps/venv/bin/python", ROOT / "deploy/make_tiny_model.py", "--output", folder, "--seed", str(seed)],
                   check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """Provides a workspace with two more models, and data whose rows name one of three teachers."""
    workspace = Workspace(tmp_path_factory.mktemp("teachers"))
    make_teacher(workspace.folder / "big", 2)
    make_teacher(workspace.folder / "small", 3)
    rows = [json.loads(line) for line in (workspace.folder / "train.jsonl").read_text().splitlines()]
    for i, row in enumerate(rows):
        row["teacher"] = ["big", "base", "small"][i % 3]
    (workspace.folder / "routed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return workspace


def teachers(workspace, *names, **fields):
    """Returns the setting of these teachers, whose folders have their names."""
    more = "".join(f", {key}: {value}" for key, value in fields.items())
    return {"teachers": "[" + ", ".join(f'{{name: {n}, path: {workspace.folder / n}, metrics_listen: "127.0.0.1:0"{more}}}' for n in names) + "]"}


def routed(workspace):
    return {**teachers(workspace, "big", "small"), "data.path": workspace.folder / "routed.jsonl", "data.teacher_column": "teacher",
            "objective.terms": "[" + ", ".join([OPD % "row", (OPD % "big").replace("opd", "cross").replace("teacher: none", "teacher: cross")]) + "]"}


def test_a_copy_of_the_base_gives_the_bits_of_the_base(taught):
    shutil.copytree(taught.model, taught.folder / "copy")
    taught.run("own", **{"trainer.steps": 3, "objective.terms": f"[{OPD % 'base'}]"})
    taught.run("copied", **{"trainer.steps": 3, "objective.terms": f"[{OPD % 'copy'}]", **teachers(taught, "copy")})
    assert taught.adapter_digest("copied") == taught.adapter_digest("own")
    assert not (taught.runs("copied") / "logs/teacher-0.log").exists()
    assert (taught.runs("copied") / "logs/teacher-copy-0.log").exists()


@pytest.fixture(scope="module")
def routed_run(taught):
    taught.run("routed", **routed(taught))
    return taught.adapter_digest("routed")


def test_rows_with_their_own_teachers_end_the_same_after_kills(taught, routed_run):
    process = taught.start("killed", **routed(taught))
    wait_for(lambda: len(taught.metrics("killed")) >= 2, what="two steps")
    for number in children(process).get("dapd-teacher", []):
        subprocess.run(["kill", "-KILL", str(number)], check=True)
    wait_for(lambda: len(taught.metrics("killed")) >= 3, what="a step after the kills")
    (trainer,) = children(process)["dapd-trainer"]
    subprocess.run(["kill", "-KILL", str(trainer)], check=True)
    assert process.wait(timeout=120) == 0, taught.log("killed")
    assert taught.adapter_digest("killed") == routed_run


def test_each_step_tells_the_divergence_from_each_teacher(taught, routed_run):
    """Also of a run that was killed and went on: its lines are those of the run that nothing happened to."""
    lines = {name: taught.metrics(name) for name in ("routed", "killed")}
    for line in lines["routed"]:
        term = line["terms"]["opd"]
        assert term["teachers"].keys() <= {"base", "big", "small"} and "teachers" not in line["terms"]["cross"]
        assert sum(measured["tokens"] for measured in term["teachers"].values()) == term["tokens"]
        assert all(measured["unclipped"] > 0 for name, measured in term["teachers"].items() if name != "base")
    assert [line["terms"] for line in lines["killed"]] == [line["terms"] for line in lines["routed"]]


@needs_chromium
def test_the_report_draws_each_teacher(taught, routed_run, page):
    page.open((taught.runs("routed") / "report.html").as_uri())
    page.wait("document.querySelectorAll('[data-chart=teachers] path[data-series]').length === 3")
    names = page.js("[...document.querySelectorAll('[data-chart=teachers] path[data-series]')].map((path) => path.dataset.series)")
    assert set(names) == {f"terms/opd/teachers/{name}/unclipped" for name in ("base", "big", "small")}
    rows = page.js("[...document.querySelectorAll('#terms tbody tr')].map((row) => row.textContent)")
    last = taught.metrics("routed")[-1]["terms"]["opd"]["teachers"]
    shown = [row for row in rows if row.startswith("from ")]
    assert [(row.split("true KL")[0], row.split(", ")[1]) for row in shown] == [
        (f"from {name}", f"{measured['tokens']} tokens") for name, measured in last.items()]
    assert page.problems == []


def test_a_run_shows_its_teachers_apart(taught):
    port = free_port()
    metrics = free_port()
    process = taught.start("shown", **{**routed(taught), "trainer.steps": 50, "trainer.schedule_steps": 50, "trainer.listen": f"127.0.0.1:{port}",
                                       "metrics.trainer_listen": f"127.0.0.1:{metrics}"})
    try:
        wait_for(lambda: len(taught.metrics("shown")) >= 1, what="a step")
        status = taught.dapd("status", f"127.0.0.1:{port}").stdout
        for name in ("teacher big", "teacher small", "teacher  "):
            assert re.search(rf"^{name} .*ready", status, re.MULTILINE), status
        text = fetch(f"http://127.0.0.1:{metrics}/metrics")[1]
        assert re.search(r'^dapd_trainer_workers\{[^}]*role="teacher"[^}]*state="ready"[^}]*teacher="small"[^}]*\} 1$', text, re.MULTILINE), text
        assert re.search(r'^dapd_trainer_[a-z_]+\{[^}]*teacher="big"[^}]*term="cross"', text, re.MULTILINE), text
        # Three rows in turn name three teachers, so each has had a row before long.
        wait_for(lambda: {name for line in taught.metrics("shown") for name in line["terms"]["opd"]["teachers"]} == {"base", "big", "small"},
                 what="a row of each teacher")
        text = fetch(f"http://127.0.0.1:{metrics}/metrics")[1]
        for name in ("base", "big", "small"):
            assert re.search(rf'^dapd_trainer_teacher_divergence\{{[^}}]*teacher="{name}"[^}}]*term="opd"[^}}]*\}} [0-9]', text, re.MULTILINE), text
        status = taught.dapd("status", f"127.0.0.1:{port}").stdout
        assert re.search(r"^term +opd .*\n +from (base|big|small) +\S+  unclipped, \d+ tokens$", status, re.MULTILINE), status
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


def test_another_model_under_the_name_does_not_go_on(taught):
    settings = {**teachers(taught, "changing"), "objective.terms": f"[{OPD % 'changing'}]"}
    shutil.copytree(taught.folder / "big", taught.folder / "changing")
    taught.run("changed", **settings, **{"trainer.steps": 1})
    shutil.rmtree(taught.folder / "changing")
    shutil.copytree(taught.folder / "small", taught.folder / "changing")
    result = taught.run("changed", check=False, **settings, **{"trainer.steps": 2})
    assert result.returncode == 3, result.stderr
    assert "the teacher 'changing': its model or its adapter does not have the content that it had" in result.stderr


def test_a_folder_that_is_missing_is_named_before_a_process_starts(taught):
    settings = {"objective.terms": f"[{OPD % 'gone'}]", **teachers(taught, "gone")}
    for command in (("run", "--set", "run.name=gone"), ("check",)):
        result = taught.dapd(command[0], taught.config, *command[1:], *set_flags(settings), check=False)
        assert result.returncode == 4, result.stderr
        assert "teachers: 'gone': " in result.stderr and str(taught.folder / "gone") in result.stderr
    assert not (taught.runs("gone") / "logs").exists()


def test_a_worker_of_the_wrong_teacher_is_refused_by_name(taught):
    settings = {"objective.terms": f"[{OPD % 'big'}]", "trainer.steps": 1, "run.name": "mistaken", "trainer.peer_timeout_seconds": 3,
                "trainer.listen": "127.0.0.1:0"}
    unknown = subprocess.run([BIN / "dapd-teacher", taught.config, "--teacher", "bog", *set_flags(teachers(taught, "big"))],
                             capture_output=True, text=True)
    assert unknown.returncode == 3 and "the configuration has no teacher 'bog'; `teachers` has 'big'" in unknown.stderr
    # The worker serves the student's own model, or another model under the right name.
    other = {"teachers": teachers(taught, "big")["teachers"].replace(str(taught.folder / "big"), str(taught.folder / "small"))}
    for arguments, message in ((), "it serves the student's own model, and this address is for the teacher 'big'"), (("--teacher", "big"), "teacher_digest is "):
        with running("dapd-teacher", taught, other, arguments=arguments) as teacher, running("dapd-rollout", taught, {}) as rollout:
            result = subprocess.run([BIN / "dapd-trainer", taught.config, *set_flags({
                **settings, **teachers(taught, "big", addresses=f"[127.0.0.1:{teacher.port}]"), "rollout.addresses": f"[127.0.0.1:{rollout.port}]"})],
                capture_output=True, text=True, timeout=60)
            assert result.returncode == 4, result.stderr
            assert message in result.stderr, result.stderr
