#!/usr/bin/env python3
"""Writes the five dashboards, one panel per line, so that a diff shows which panels have changed.

    dashboards/source/write.py [FOLDER]      default: dashboards/
"""

import json
import pathlib
import sys

import overview
import reliability
import rollout
import runbook
import training

DASHBOARDS = {module.__name__: module.DASHBOARD for module in (overview, rollout, training, reliability, runbook)}


def text(dashboard):
    """The dashboard as JSON: a line per entry, and a line per item of a list."""
    entries = []
    for name, value in dashboard.items():
        if isinstance(value, list) and value:
            shown = "[\n    " + ",\n    ".join(map(json.dumps, value)) + "\n  ]"
        else:
            shown = json.dumps(value)
        entries.append(f"  {json.dumps(name)}: {shown}")
    return "{\n" + ",\n".join(entries) + "\n}\n"


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[1])
    for name, content in DASHBOARDS.items():
        (folder / f"{name}.json").write_text(text(content))


if __name__ == "__main__":
    main()
