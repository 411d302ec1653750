#!/usr/bin/env python3
"""Writes the five dashboards.

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


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[1])
    for name, content in DASHBOARDS.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
