"""Reads the dashboards and rules as files: their panels, their queries, and the metrics that these name."""

import json
import pathlib
import re

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = sorted((ROOT / "dashboards/rules").glob("*.yml"))
DASHBOARDS = sorted((ROOT / "dashboards").glob("*.json"))


def load(path):
    return json.loads(path.read_text())


def panels(path):
    """Returns all panels of a dashboard that show data, without row headers and text."""
    return [panel for panel in load(path)["panels"] if panel["type"] not in ("row", "text")]


def queries():
    """Yields (dashboard, panel title, target) of every query of every dashboard."""
    return [(path.stem, panel["title"], target) for path in DASHBOARDS for panel in panels(path) for target in panel["targets"]]


def resolve(expr, run=".*", namespace="", instance=".*", window="5m", rate_interval="1m"):
    """Returns the expression as Grafana sends it to Prometheus. A variable without values, such as the namespaces of processes without a
    namespace, leaves nothing."""
    values = {"$namespace": namespace, "$run": run, "$instance": instance, "$window": window, "$__rate_interval": rate_interval}
    for name, value in values.items():
        expr = expr.replace(name, value)
    assert "$" not in expr, f"unknown variable in {expr}"
    return expr


def rules():
    return [rule for path in RULES for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def alerts():
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def recorded():
    return {rule["record"] for rule in rules() if "record" in rule}


def metrics_of(expr):
    """Returns the metrics that an expression names: our processes or Prometheus itself export them, or rules record them."""
    return set(re.findall(r"\b(?:\w+:)?(?:dapd|process)_\w+(?::\w+)?|\b(?:ALERTS|up|scrape_duration_seconds)\b", expr))
