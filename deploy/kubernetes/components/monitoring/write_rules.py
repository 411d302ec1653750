#!/usr/bin/env python3
"""Writes rules.yaml beside it: dashboards/rules/*.yml as an object of the Prometheus operator.

Call it after a change of the rules. Needs PyYAML.
"""

import pathlib

import yaml

HERE = pathlib.Path(__file__).resolve().parent
RULES = HERE.parents[3] / "dashboards/rules"
HEADER = "# Written by write_rules.py from dashboards/rules: change the rules there.\n"


def rules_object():
    groups = [group for path in sorted(RULES.glob("*.yml")) for group in yaml.safe_load(path.read_text())["groups"]]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "dapd", "namespace": "dapd"},
        "spec": {"groups": groups},
    }


def text():
    return HEADER + yaml.safe_dump(rules_object(), sort_keys=False, width=100, allow_unicode=True)


if __name__ == "__main__":
    (HERE / "rules.yaml").write_text(text())
