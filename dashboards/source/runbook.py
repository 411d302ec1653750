"""Makes a dashboard of docs/runbook.md, so that the link of an alert leads to a page that every cluster with these
dashboards has.

Each alert's paragraph is a panel; `?viewPanel=NUMBER` shows a single one, where NUMBER is its place on the page.
"""

import pathlib
import re

from grafana import COLUMNS, linked

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/runbook.md"
COLUMNS_OF_TEXT = 170  # characters in a line of a panel of full width, about


def sections():
    """Returns (alert, its text) in the order of the page. Links to other files of the repository become their names."""
    _, *parts = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    for part in parts:
        title, text = part.split("\n", 1)
        yield title.strip(), re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text.strip())


def panels():
    y = 0
    for number, (title, text) in enumerate(sections(), 1):
        lines = sum(1 + len(line) // COLUMNS_OF_TEXT for line in re.sub(r"(?<=\S)\n(?=\S)", " ", text).splitlines())
        height = 3 + lines
        yield {"id": number, "type": "text", "title": title, "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": height},
               "options": {"mode": "markdown", "content": text}}
        y += height


DASHBOARD = linked("dapd-runbook", "DAPD / Runbook", "What to look at and what to do when an alert fires: docs/runbook.md.", [], list(panels()))
