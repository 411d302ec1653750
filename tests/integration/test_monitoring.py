"""A real training under a real Prometheus: every dashboard has data, every metric exists, faults raise alerts."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request

import pytest
from conftest import ROOT, children, wait_for
from prometheus import Prometheus
from test_serve import client_of, serving
from workspace import free_port

sys.path.insert(0, str(ROOT / "tests/dashboards"))
from dashboard_files import metrics_of, queries, recorded, resolve, rules  # noqa: E402

# Only a process with a certificate has this metric; test_security.py covers it.
NEED_A_CERTIFICATE = {"dapd_certificate_expiry_timestamp_seconds"}
# Only a routed term has the first metric; test_a_routed_term_shows_its_regimes covers it. Only a term whose rows name their teachers has the
# second; test_teachers.py covers it.
NEED_A_CERTAIN_TERM = {"dapd_trainer_regime_ratio", "dapd_trainer_teacher_divergence"}
# Only a grader of the user's own and `dapd serve` have these metrics; test_a_grader_fills_its_panels and
# test_a_server_fills_its_panels cover them.
NEED_A_GRADER_OR_A_SERVER = re.compile("dapd_trainer_(grading|ungraded)_|dapd_serve_")
# Only dcgm-exporter has these metrics, on a machine with a GPU.
NEED_A_GPU = "DCGM_"
# This exists only while an alert fires; test_a_hanging_worker_raises_alerts_that_go_away covers it.
NEED_A_FIRING_ALERT = {"Alerts over time", "Firing alerts"}

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")


def ask(prometheus, target, run="watched"):
    """Returns the finite values of a panel's query, asked as Grafana does."""
    found = prometheus.query(resolve(target["expr"], run=run, window="30s", rate_interval="10s"))
    return [value for _, value in found if math.isfinite(value)]


class Watched:
    """A run of two rollout workers and a teacher, and its Prometheus."""

    def __init__(self, workspace, folder):
        base = free_port()
        self.ports = {"dapd-rollout": [base, base + 10], "dapd-teacher": [free_port()], "dapd-trainer": [free_port()]}
        self.name = "watched"
        self.workspace = workspace
        self.run = workspace.start(self.name, **{
            "run.rollout_workers": 2, "trainer.listen": "127.0.0.1:0", "trainer.steps": 100000, "trainer.schedule_steps": 100000,
            "checkpoint.interval": 3, "checkpoint.copy_to": folder / "copies",
            "evaluation.path": workspace.folder / "held_out.jsonl", "evaluation.kl_problems": 2, "evaluation.claims": "true", "evaluation.marker": "e",
            **{f"metrics.{job[5:]}_listen": f"127.0.0.1:{ports[0]}" for job, ports in self.ports.items()}})
        self.prometheus = Prometheus(folder, {job: [f"127.0.0.1:{port}" for port in ports] for job, ports in self.ports.items()})

    def alive(self):
        assert self.run.poll() is None, self.workspace.log(self.name)
        return True

    def has_stepped(self):
        return self.alive() and (self.prometheus.value("dapd_trainer_policy_version") or 0) >= 5

    def steps(self):
        return len(self.workspace.metrics(self.name))

    def stop(self):
        self.run.send_signal(signal.SIGTERM)
        assert self.run.wait(timeout=60) == 130, self.workspace.log(self.name)


@pytest.fixture(scope="module")
def watched(workspace, tmp_path_factory):
    run = Watched(workspace, tmp_path_factory.mktemp("prometheus"))
    try:
        with run.prometheus:
            wait_for(run.prometheus.ready, what="Prometheus")
            wait_for(lambda: run.alive() and run.prometheus.value("sum(up)") == 4, what="four processes scraped")
            wait_for(run.has_stepped, seconds=180, what="five steps")
            yield run
    finally:
        if run.run.poll() is None:
            run.stop()


def test_every_metric_that_a_dashboard_or_rule_names_exists(watched):
    named = {name for _, _, target in queries() for name in metrics_of(target["expr"])}
    named |= {name for rule in rules() for name in metrics_of(rule["expr"])}
    named -= {"ALERTS", *NEED_A_CERTIFICATE, *NEED_A_CERTAIN_TERM, *filter(NEED_A_GRADER_OR_A_SERVER.match, named)}
    wait_for(lambda: watched.alive() and recorded() <= watched.prometheus.metrics(), what="recorded values")
    missing = named - watched.prometheus.metrics()
    print(f"{len(named)} metrics named")
    assert not missing


def test_every_panel_shows_something(watched):
    checked = [(dashboard, title, target) for dashboard, title, target in queries()
               if title not in NEED_A_FIRING_ALERT and NEED_A_GPU not in target["expr"] and not metrics_of(target["expr"]) & NEED_A_CERTAIN_TERM
               and not NEED_A_GRADER_OR_A_SERVER.search(target["expr"])]
    empty = {}

    def all_answered():
        watched.alive()
        empty.clear()
        empty.update({(dashboard, title, target["refId"]): target["expr"] for dashboard, title, target in checked
                      if not ask(watched.prometheus, target)})
        return not empty

    try:
        wait_for(all_answered, seconds=180, what="data in every panel")
    except AssertionError:
        raise AssertionError("no data in:\n" + "\n".join(f"{' / '.join(key)}: {expr}" for key, expr in empty.items())) from None
    print(f"{len(checked)} queries answered")


def test_a_routed_term_shows_its_regimes(workspace):
    port = free_port()
    run = workspace.start("routed", **{
        "objective.preset": "dopd", "trainer.steps": 100000, "trainer.schedule_steps": 100000,
        "metrics.trainer_listen": f"127.0.0.1:{port}"})
    try:
        def regimes():
            assert run.poll() is None, workspace.log("routed")
            if not workspace.metrics("routed"):
                return None
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
            return {(labels["term"], labels["regime"]): float(value)
                    for line, value in re.findall(r"^dapd_trainer_regime_ratio\{(.*?)\} (\S+)$", text, re.MULTILINE)
                    for labels in [dict(re.findall(r'(\w+)="(.*?)"', line))]}
        shares = wait_for(regimes, seconds=180, what="the regimes of a step")
        for term in ("dopd_reverse", "dopd_surer"):
            found = [share for (name, _), share in shares.items() if name == term]
            assert len(found) == 4 and math.isclose(sum(found), 1, abs_tol=1e-6)
    finally:
        run.send_signal(signal.SIGTERM)
        run.wait(timeout=60)


# Declines each third answer.
GRADER = """
import json, sys
for number, line in enumerate(sys.stdin):
    grade = {"error": "no idea"} if number % 3 == 0 else {"correct": True}
    print(json.dumps({"id": json.loads(line)["id"], **grade}), flush=True)
"""


def test_a_grader_fills_its_panels(workspace, tmp_path):
    program = tmp_path / "grade.py"
    program.write_text(GRADER)
    port = free_port()
    run = workspace.start("graded", **{
        "grader.command": json.dumps([sys.executable, str(program)]), "trainer.steps": 100000, "trainer.schedule_steps": 100000,
        "metrics.trainer_listen": f"127.0.0.1:{port}"})
    try:
        with Prometheus(tmp_path, {"dapd-trainer": [f"127.0.0.1:{port}"], "dapd-rollout": [], "dapd-teacher": []}) as prometheus:
            checked = [(title, target) for _, title, target in queries() if "dapd_trainer_grading" in target["expr"]
                       or "dapd_trainer_ungraded" in target["expr"]]
            assert len({title for title, _ in checked}) == 3

            def all_answered():
                assert run.poll() is None, workspace.log("graded")
                return all(ask(prometheus, target, run="graded") for _, target in checked)

            wait_for(prometheus.ready, what="Prometheus")
            wait_for(all_answered, seconds=180, what="data in every panel of the grader")
            wait_for(lambda: "AnswersUngraded" in prometheus.firing(), seconds=60, what="the alert about ungraded answers")
    finally:
        run.send_signal(signal.SIGTERM)
        run.wait(timeout=60)


def test_a_server_fills_its_panels(workspace, tmp_path):
    with serving(workspace, tmp_path, "--device", "cpu", "--slots", 2, name="served") as port, \
            Prometheus(tmp_path, {"dapd-trainer": [], "dapd-rollout": [f"127.0.0.1:{port}"], "dapd-teacher": []}) as prometheus:
        checked = [(title, target) for _, title, target in queries() if "dapd_serve_" in target["expr"]]
        assert len({title for title, _ in checked}) == 6

        def all_answered():
            client_of(port).completions.create(model="served", prompt="What", max_tokens=2)
            return all(ask(prometheus, target, run="served") for _, target in checked)

        wait_for(prometheus.ready, what="Prometheus")
        wait_for(all_answered, seconds=120, what="data in every panel of the server")


def test_the_metrics_of_every_process_pass_promtool(watched):
    for ports in watched.ports.values():
        for port in ports:
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read()
            result = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
            assert result.returncode == 0, result.stdout + result.stderr
            assert b'run="watched"' in text


def test_the_numbers_are_those_of_the_run(watched):
    """Prometheus has the same losses as metrics.jsonl."""
    steps = watched.steps()
    wait_for(lambda: watched.alive() and watched.prometheus.value("dapd_trainer_policy_version") >= steps, what=f"step {steps}")
    loss = watched.prometheus.value("dapd_trainer_total_loss")
    lines = watched.workspace.metrics("watched")
    assert any(math.isclose(loss, line["loss"], rel_tol=1e-6) for line in lines)
    assert {labels["term"] for labels, _ in watched.prometheus.query("dapd_trainer_loss")} == set(lines[0]["terms"])
    assert watched.prometheus.value("dapd_trainer_planned_steps") == 100000
    assert watched.prometheus.value("dapd_trainer_checkpoint_interval_steps") == 3


def test_a_killed_worker_shows_as_lost_and_comes_back(watched):
    starts = 'sum(changes(process_start_time_seconds{service="rollout"}[5m]))'
    before = watched.prometheus.value(starts)
    os.kill(children(watched.run)["dapd-rollout"][0], signal.SIGKILL)
    wait_for(lambda: watched.alive() and watched.prometheus.value(starts) == before + 1, what="the new process scraped")
    usable = 'sum(dapd_trainer_workers{role="rollout", state=~"ready|loading"})'
    wait_for(lambda: watched.alive() and watched.prometheus.value(usable) == 2, what="two usable workers")


def test_a_hanging_worker_raises_alerts_that_go_away(watched):
    prometheus = watched.prometheus
    wait_for(lambda: watched.alive() and "RolloutAllDown" not in prometheus.firing(), what="a quiet start")
    hanging = children(watched.run)["dapd-rollout"]
    for pid in hanging:
        os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(lambda: watched.alive() and {"ProcessDown", "RolloutAllDown"} <= prometheus.firing(), what="alerts")
        assert prometheus.value('ALERTS{alertstate="firing", alertname="RolloutAllDown", run="watched", severity="critical"}') == 1
        for _, title, target in queries():
            if title in NEED_A_FIRING_ALERT:
                assert ask(prometheus, target), title
    finally:
        for pid in hanging:
            os.kill(pid, signal.SIGCONT)
    steps = watched.steps()
    wait_for(lambda: watched.alive() and not {"ProcessDown", "RolloutAllDown"} & prometheus.firing(), what="no alert")
    wait_for(lambda: watched.alive() and watched.steps() > steps, what="another step")
