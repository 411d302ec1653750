"""Tests recording rules, alerts and their runbook."""

import re
import shutil
import subprocess

import pytest
import yaml
from dashboard_files import ROOT, RULES, alerts, load, metrics_of, recorded, rules

UNIT_TESTS = sorted((ROOT / "tests/dashboards/rules").glob("*.yml"))


def promtool(*arguments):
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    result = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_rules_are_valid():
    print(promtool("check", "rules", *RULES))


@pytest.mark.parametrize("path", UNIT_TESTS, ids=lambda path: path.stem)
def test_rules_give_what_is_expected(path):
    promtool("test", "rules", path)


def test_every_alert_is_seen_to_fire_and_not_to_fire():
    fires, rests = set(), set()
    for path in UNIT_TESTS:
        for case in yaml.safe_load(path.read_text())["tests"]:
            for check in case.get("alert_rule_test", []):
                (fires if check["exp_alerts"] else rests).add(check["alertname"])
    assert fires == rests == set(alerts())
    print(f"{len(fires)} alerts")


def test_every_recorded_value_is_checked():
    checked = set()
    for path in UNIT_TESTS:
        for case in yaml.safe_load(path.read_text())["tests"]:
            for check in case.get("promql_expr_test", []):
                checked |= metrics_of(check["expr"]) if check["exp_samples"] else set()
    assert checked >= recorded()


def test_every_recorded_value_that_an_alert_asks_for_is_recorded():
    asked = {name for rule in rules() for name in metrics_of(rule["expr"]) if ":" in name}
    assert asked <= recorded()


def test_every_alert_has_a_severity_and_a_paragraph_in_the_runbook():
    runbook = (ROOT / "docs/runbook.md").read_text()
    paragraphs = dict(re.findall(r"^## (\w+)\n\n\*(\w+):", runbook, re.MULTILINE))
    assert set(paragraphs) == set(alerts())
    for name, rule in alerts().items():
        assert rule["labels"] == {"severity": paragraphs[name].lower(), "system": "dapd"}, name
        assert rule["annotations"]["summary"], name


def test_the_link_of_every_alert_is_absolute_and_leads_to_its_paragraph():
    """The link leads to the Grafana that compose starts; deploy/kubernetes puts another address in its place."""
    grafana = yaml.safe_load((ROOT / "deploy/compose.monitoring.yaml").read_text())["services"]["grafana"]
    runbook = load(ROOT / "dashboards/runbook.json")
    panels = {panel["title"]: panel["id"] for panel in runbook["panels"]}
    assert any(str(port).startswith("127.0.0.1:") and str(port).endswith(":3000") for port in grafana["ports"])
    for name, rule in alerts().items():
        link = f"http://127.0.0.1:3000/d/{runbook['uid']}/runbook?viewPanel={panels[name]}#{name.lower()}"
        assert rule["annotations"]["runbook_url"] == link, name


def test_prometheus_accepts_the_configuration_of_compose(tmp_path):
    shutil.copy(ROOT / "deploy/monitoring/prometheus.yml", tmp_path)
    shutil.copytree(ROOT / "dashboards/rules", tmp_path / "rules")
    assert "2 rule files" in promtool("check", "config", tmp_path / "prometheus.yml")


def test_compose_takes_it_beside_the_services():
    if shutil.which("docker-compose") is None:
        pytest.skip("docker-compose is not installed")
    files = [part for name in ("compose.yaml", "compose.monitoring.yaml") for part in ("-f", ROOT / "deploy" / name)]
    result = subprocess.run(["docker-compose", *files, "config"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    services = yaml.safe_load(result.stdout)["services"]
    assert set(services) == {"rollout", "teacher", "trainer", "prometheus", "grafana"}
    shared = set(services["prometheus"]["networks"])
    for name in ("rollout", "teacher", "trainer", "grafana"):
        assert shared & set(services[name]["networks"]), f"Prometheus and {name} have no network in common"
    for name in ("prometheus", "grafana"):
        service = services[name]
        assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["user"].split(":")[0] != "0", name
        assert all(str(port).startswith("127.0.0.1:") for port in service["ports"]), name
    # Nobody may log in as Grafana's first administrator, admin with the password admin, by the form or by HTTP's own authentication.
    environment = services["grafana"]["environment"]
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true" and environment["GF_AUTH_BASIC_ENABLED"] == "false"


def test_compose_mounts_what_is_there():
    compose = yaml.safe_load((ROOT / "deploy/compose.monitoring.yaml").read_text())
    mounts = [mount for service in compose["services"].values() for mount in service["volumes"] if mount.startswith(".")]
    assert len(mounts) == 5
    for mount in mounts:
        assert (ROOT / "deploy" / mount.split(":")[0]).exists(), mount
    jobs = yaml.safe_load((ROOT / "deploy/monitoring/prometheus.yml").read_text())["scrape_configs"]
    found = {job["job_name"]: (job["dns_sd_configs"][0]["names"], job["dns_sd_configs"][0]["port"]) for job in jobs}
    assert found == {"dapd-rollout": (["rollout"], 9101), "dapd-teacher": (["teacher"], 9102), "dapd-trainer": (["trainer"], 9103)}


@pytest.mark.parametrize("page", ["docs/security.md", "deploy/monitoring/prometheus.yml"])
def test_the_alert_about_processes_sees_the_jobs_that_readers_are_given(page):
    pattern = re.search(r'job=~"([^"]*)"', alerts()["ProcessDown"]["expr"])[1]
    named = re.findall(r"job_name: (\S+)", (ROOT / page).read_text())
    assert named and all(re.fullmatch(pattern, name) for name in named)
