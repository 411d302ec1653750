"""Tests the dashboards as Grafana reads them."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from dashboard_files import DASHBOARDS, ROOT, load, panels, queries, resolve

by_dashboard = pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)


def test_there_are_the_five():
    assert [path.stem for path in DASHBOARDS] == ["overview", "reliability", "rollout", "runbook", "training"]
    for key in ("uid", "title"):
        assert len({load(path)[key] for path in DASHBOARDS}) == 5


def test_the_runbook_is_there_paragraph_by_paragraph():
    shown = {panel["title"]: panel["options"]["content"] for panel in load(ROOT / "dashboards/runbook.json")["panels"]}
    assert list(shown) == re.findall(r"^## (\w+)$", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE)
    for title, content in shown.items():
        assert content.startswith("*") and "](" not in content, title


def test_the_files_are_what_their_source_writes(tmp_path):
    subprocess.run([sys.executable, ROOT / "dashboards/source/write.py", tmp_path], check=True)
    for path in DASHBOARDS:
        assert path.read_text() == (tmp_path / path.name).read_text(), f"{path.name} differs: run dashboards/source/write.py"


def differences(ours, theirs, where=""):
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [d for key in ours for d in (differences(ours[key], theirs[key], f"{where}/{key}") if key in theirs else [f"{where}/{key}"])]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [d for i, pair in enumerate(zip(ours, theirs)) for d in differences(*pair, f"{where}/{i}")]
    return [] if ours == theirs else [f"{where}: {ours!r} became {theirs!r}"]


@by_dashboard
def test_grafanas_own_types_know_every_field(path):
    """Nothing is lost or changed when they are read into the types generated from Grafana's schema and written again."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    content = load(path)
    again = json.loads(json.dumps(Dashboard.from_json(content), cls=JSONEncoder))
    assert differences(content, again) == []


@by_dashboard
def test_panels_have_numbers_of_their_own_and_do_not_overlap(path):
    everything = load(path)["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    taken = {}
    for panel in everything:
        place = panel["gridPos"]
        assert 0 <= place["x"] and place["x"] + place["w"] <= 24, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies over {taken[x, y]}"
                taken[x, y] = panel["title"]


@by_dashboard
def test_no_line_of_a_dashboard_is_left_ragged(path):
    """Panels side by side must have the same height and fill the width."""
    lines = {}
    for panel in load(path)["panels"]:
        lines.setdefault(panel["gridPos"]["y"], []).append(panel["gridPos"])
    for y, places in lines.items():
        assert sum(place["w"] for place in places) == 24, f"line {y} of {path.stem}"
        assert len({place["h"] for place in places}) == 1, f"line {y} of {path.stem}"


@by_dashboard
def test_every_panel_says_what_it_shows_in_which_unit(path):
    for panel in panels(path):
        assert panel["title"] and panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
        for target in panel["targets"]:
            assert target["legendFormat"] and target["datasource"]["uid"] == "${datasource}", panel["title"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]), panel["title"]


def test_every_query_is_about_the_chosen_run():
    for dashboard, title, target in queries():
        for name, selector in re.findall(r"((?:dapd|process)_\w+)(\{[^}]*\})?", target["expr"]):
            assert 'namespace="$namespace", run="$run"' in selector, f"{dashboard}, {title}: {name} is not limited to a run"


@by_dashboard
def test_a_run_is_chosen_by_its_namespace_and_its_name(path):
    variables = {entry["name"]: entry for entry in load(path)["templating"]["list"]}
    if path.stem == "runbook":
        assert not variables
        return
    assert list(variables) == ["datasource", "namespace", "run", "instance", "window"]
    assert 'namespace="$namespace"' in variables["run"]["query"]["query"]
    assert 'namespace="$namespace", run="$run"' in variables["instance"]["query"]["query"]
    # With several or all values at once, panels would add up runs that have the same name.
    assert not any(variables[name].get(several) for name in ("namespace", "run") for several in ("multi", "includeAll"))


def answers(tmp_path, series, asked):
    """Asks Prometheus itself: `asked` has (expression, expected value), over constant series."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    checks = [{"expr": f"sum({expr})", "eval_time": "10m", "exp_samples": [] if value is None else [{"labels": "{}", "value": value}]}
              for expr, value in asked]
    case = {"interval": "1m", "input_series": [{"series": name, "values": f"{value}x20"} for name, value in series.items()],
            "promql_expr_test": checks}
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "1m", "tests": [case]}))
    result = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def expression(dashboard, title):
    (found,) = (target["expr"] for name, panel, target in queries() if (name, panel) == (dashboard, title))
    return found


def test_runs_of_one_name_in_two_namespaces_and_outside_any_are_three(tmp_path):
    step, alerts = expression("overview", "Step"), expression("overview", "Firing alerts")
    firing = 'ALERTS{alertstate="firing", system="dapd", severity="warning"'
    series = {'dapd_trainer_policy_version{namespace="one", run="same"}': 1, 'dapd_trainer_policy_version{namespace="two", run="same"}': 2,
              'dapd_trainer_policy_version{run="same"}': 4,
              firing + ', alertname="RetryStorm", namespace="one", run="same"}': 1,
              firing + ', alertname="ProcessDown", namespace="one", job="dapd-rollout"}': 1,
              firing + ', alertname="GpuError", gpu="3"}': 1}
    asked = [(resolve(step, run="same", namespace=namespace), value) for namespace, value in (("one", 1), ("two", 2), ("", 4), ("three", None))]
    # A run has its own alert, its process's alert and the GPU's alert; the other runs have only the GPU's alert.
    asked += [(resolve(alerts, run="same", namespace=namespace), value) for namespace, value in (("one", 3), ("two", 1), ("", 1))]
    answers(tmp_path, series, asked)


def test_scrapes_are_those_of_the_chosen_run(tmp_path):
    """Prometheus itself times the scrapes and knows no runs."""
    series, times = {}, {"one": 1, "other": 2}
    for run, seconds in times.items():
        process = f'job="dapd-rollout", namespace="n", instance="{run}:9101"'
        series[f"scrape_duration_seconds{{{process}}}"] = seconds
        series[f"up{{{process}}}"] = 1
        series[f'dapd_build_info{{{process}, run="{run}", service="rollout"}}'] = 1
    scrapes = expression("reliability", "Scrapes")
    answers(tmp_path, series, [(resolve(scrapes, run=run, namespace="n"), seconds) for run, seconds in times.items()])


# dcgm-exporter has these names for the figures that the panels show, by the lists that it ships (etc/default-counters.csv) and documents
# (DCGM Exporter Metrics, and the renamed fields in the notes of release 4.9.0): until 4.8 and since, with a value in each unit.
GPU_PANELS = {
    "GPU busy": ({"DCGM_FI_DEV_GPU_UTIL": 50}, {"DCGM_FI_DEV_GPU_UTIL_RATIO": 0.5}, 0.5),
    "Tensor cores busy": ({"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.25}, {"DCGM_FI_PROF_TENSOR_UTIL_RATIO": 0.25}, 0.25),
    "GPU memory": ({"DCGM_FI_DEV_FB_USED": 3}, {"DCGM_FI_DEV_FB_USED_BYTES": 3 << 20}, 3 << 20),
    "GPU power": ({"DCGM_FI_DEV_POWER_USAGE": 300}, {"DCGM_FI_DEV_BOARD_POWER_WATTS": 300}, 300),
    "GPU temperature": ({"DCGM_FI_DEV_GPU_TEMP": 60}, {"DCGM_FI_DEV_GPU_TEMP_CELSIUS": 60}, 60),
    "GPU errors": ({"DCGM_FI_DEV_XID_ERRORS": 79}, {"DCGM_FI_DEV_XID_ERROR": 79}, 79),
}


@pytest.mark.parametrize("title", GPU_PANELS)
def test_a_panel_of_gpus_shows_what_either_exporter_has(title, tmp_path):
    *exported, value = GPU_PANELS[title]
    expr = expression("reliability", title)
    assert set(re.findall(r"DCGM_\w+", expr)) == {name for names in exported for name in names}
    for names in exported:
        series = {f'{name}{{gpu="0", UUID="GPU-1", device="nvidia0"}}': content for name, content in names.items()}
        answers(tmp_path, series, [(expr, value)])


def test_every_panel_of_gpus_is_checked():
    assert {title for _, title, target in queries() if "DCGM_" in target["expr"]} == set(GPU_PANELS)


def test_every_query_is_promql(tmp_path):
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    rules = [{"record": f"query:{i}", "expr": resolve(target["expr"])} for i, (_, _, target) in enumerate(queries())]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    result = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    print(f"{len(rules)} queries in {sum(len(panels(path)) for path in DASHBOARDS)} panels")
