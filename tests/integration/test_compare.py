"""`dapd compare`: the table, the JSON and the page say what the runs' own files say."""

import json
import math
import re

import numpy
import pytest
import scipy.stats
from browser import CHROMIUM, Browser

RUNS = {"slow-1": {"trainer.learning_rate": 1e-4, "run.seed": 1}, "slow-2": {"trainer.learning_rate": 1e-4, "run.seed": 2},
        "fast-1": {"trainer.learning_rate": 1e-2, "run.seed": 1, "trainer.steps": 3}}


def train(workspace, name, settings):
    workspace.run(name, **{"trainer.steps": 2, "evaluation.path": workspace.folder / "held_out.jsonl", "evaluation.kl_problems": 4,
                          "evaluation.interval": 1, "evaluation.marker": "e", **settings})
    return workspace.runs(name)


@pytest.fixture(scope="module")
def runs(workspace):
    return [train(workspace, name, settings) for name, settings in RUNS.items()]


def test_json_has_what_the_runs_recorded(workspace, runs):
    compared = json.loads(workspace.dapd("compare", *runs, "--json").stdout)
    assert [run["name"] for run in compared["runs"]] == list(RUNS)
    assert set(compared["runs"][0]["settings"]) == {"run.seed", "trainer.learning_rate", "trainer.steps"}
    for run, folder in zip(compared["runs"], runs):
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert run["finished"] and run["step"] == len(lines) and run["loss"] == pytest.approx(lines[-1]["loss"], rel=1e-6)
    figures = {figure["name"]: figure for figure in compared["figures"]}
    summary = json.loads((runs[2] / "summary.json").read_text())["evaluation"]
    assert {"accuracy", "format_rate", "marker_rate", "truncated", "repeated", "unclipped_divergence/entangled_rollout"} <= set(figures)
    assert figures["marker_rate"]["marker"] == "e" and figures["marker_rate"]["runs"][2]["after"] == pytest.approx(summary["after"]["marker_rate"])
    assert figures["marker_rate"]["steps"] == [0, 1, 2, 3]
    within = json.loads((runs[2] / "evaluation/step-000001.json").read_text())
    assert figures["accuracy"]["runs"][2]["by_step"][1] == pytest.approx(within["accuracy"])
    assert figures["accuracy"]["groups"][0]["by_step"][3] is None, "runs of two steps"
    row = figures["unclipped_divergence/privileged_reference"]["runs"][2]
    after, before = (summary[when]["unclipped_divergence"]["privileged_reference"] for when in ("after", "before"))
    assert row["after"] == pytest.approx(after) and row["before"] == pytest.approx(before)
    assert row["change"]["mean"] == pytest.approx(after["mean"] - before["mean"])
    assert row["change"]["low"] <= row["change"]["mean"] <= row["change"]["high"]
    assert [len(group["runs"]) for group in compared["groups"]] == [2, 1]


def test_the_table_names_runs_settings_and_figures(workspace, runs):
    text = workspace.dapd("compare", *runs).stdout
    assert "trainer.learning_rate" in text and "held out: accuracy" in text and "over seeds" in text and "(2 runs)" in text
    assert all(name in text for name in RUNS)
    assert 'held out: marker_rate, with "e"' in text and "\n  step " in text


def test_figures_are_chosen_by_their_names(workspace, runs):
    compared = json.loads(workspace.dapd("compare", *runs, "--figures", "marker_rate,accuracy", "--json").stdout)
    assert [figure["name"] for figure in compared["figures"]] == ["marker_rate", "accuracy"]
    refused = workspace.dapd("compare", *runs, "--figures", "accuracy,speed", check=False)
    assert refused.returncode == 2 and "'speed'" in refused.stderr and "format_rate" in refused.stderr


def test_differences_over_seeds_are_paired_as_scipy_pairs_them(workspace, runs):
    pairs = [*runs, train(workspace, "fast-2", {**RUNS["fast-1"], "run.seed": 2})]
    compared = json.loads(workspace.dapd("compare", *pairs, "--paired", "--json").stdout)
    assert compared["paired"] and [group["runs"] for group in compared["groups"]] == [["slow-1", "slow-2"], ["fast-1", "fast-2"]]
    seen = 0
    for figure in compared["figures"]:
        rows = figure["runs"]
        if any(row[when] is None for row in rows for when in ("before", "after")):
            continue
        before, after = ([row[when]["mean"] for row in rows] for when in ("before", "after"))
        for group, difference, values, others in ((0, "change", after[:2], before[:2]), (1, "change", after[2:], before[2:]),
                                                  (1, "against_first", after[2:], after[:2])):
            if numpy.ptp(numpy.subtract(values, others)) <= 1e-12:
                continue
            limit = 1 if figure["is_share"] else math.inf
            low, high = numpy.clip(scipy.stats.ttest_rel(values, others).confidence_interval(0.95), -limit, limit)
            shown = figure["groups"][group][difference]
            assert (shown["low"], shown["high"]) == pytest.approx((low, high), rel=1e-5), (figure["name"], difference)
            seen += 1
    print(f"{seen} differences compared")
    assert seen >= 3
    alone = workspace.dapd("compare", *runs, "--paired", check=False)
    assert alone.returncode == 2 and "has no run of seed 2" in alone.stderr and alone.stdout == ""


def test_what_is_no_run_is_named(workspace, runs):
    result = workspace.dapd("compare", runs[0], workspace.folder, check=False)
    assert result.returncode == 4 and str(workspace.folder) in result.stderr and "holds no run" in result.stderr and result.stdout == ""


def test_a_page_of_an_earlier_call_is_replaced_and_nothing_else(workspace, runs, tmp_path):
    page = tmp_path / "page.html"
    workspace.dapd("compare", *runs, "--output", page)
    first = page.read_text()
    workspace.dapd("compare", runs[0], "--output", page)
    assert page.read_text() != first
    for name in ("config.yaml", "metrics.jsonl", "summary.json"):
        file = runs[0] / name
        before = file.read_text()
        result = workspace.dapd("compare", *runs, "--output", file, check=False)
        assert result.returncode == 2 and f"{file} already exists and is no page of dapd compare" in result.stderr
        assert file.read_text() == before


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, which deploy/install.sh --tests installs")
def test_the_page_draws_every_run_and_asks_nobody(workspace, runs, tmp_path):
    page = tmp_path / "page.html"
    workspace.dapd("compare", *runs, "--output", page)
    browser = Browser(tmp_path / "profile")
    try:
        browser.open("about:blank")
        browser.requests.clear()
        browser.problems.clear()
        browser.open(page.as_uri())
        browser.wait("document.querySelectorAll('[data-chart=loss] path.line').length === 3")
        points = browser.js("[...document.querySelectorAll('[data-chart=loss] path.line')].map((line) => Number(line.dataset.points))")
        assert points == [2, 2, 3]
        rows = browser.js("[...document.querySelectorAll('[data-figure=accuracy]')].map((row) => row.dataset.row)")
        assert rows[:3] == list(RUNS) and len(rows) == 5
        # Against the step there is one line per setting: the mean of two runs, and one run.
        for figure in ("accuracy", "marker_rate"):
            lines = browser.js(f"[...document.querySelectorAll('[data-chart=\"held-out/{figure}\"] path.line')].map((line) => Number(line.dataset.points))")
            assert lines == [3, 4]
        change = browser.js("document.querySelector('[data-figure=accuracy] [data-label=change]').textContent")
        assert re.fullmatch(r"[+\u2212\u00b1]\d+\.\d points \[.*\]", change)
        # The names of settings are longer than the legend's columns.
        assert browser.js("""[...document.querySelectorAll('.legend li')].filter((item) =>
            item.querySelector('.value').getBoundingClientRect().right > item.getBoundingClientRect().right + 1).length""") == 0
        assert browser.problems == []
        assert [url for url in browser.requests if not url.startswith(("file:", "data:", "about:"))] == []
    finally:
        browser.close()


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, which deploy/install.sh --tests installs")
def test_evaluations_are_joined_over_steps_that_others_were_measured_at(workspace, runs, tmp_path):
    page = tmp_path / "page.html"
    workspace.dapd("compare", *runs, "--figures", "accuracy", "--output", page)
    html = page.read_text()
    found = re.search(r'id="data">(.*?)</script>', html, re.S)
    data = json.loads(found[1])
    data["figures"][0]["groups"][1]["by_step"][1] = None
    start, end = found.span(1)
    page.write_text(html[:start] + json.dumps(data).replace("<", "\\u003c") + html[end:])
    browser = Browser(tmp_path / "profile")
    try:
        browser.open(page.as_uri())
        browser.wait("document.querySelectorAll('[data-chart=\"held-out/accuracy\"] path.line').length === 2")
        paths = browser.js("[...document.querySelectorAll('[data-chart=\"held-out/accuracy\"] path.line')].map((line) => line.getAttribute('d'))")
        assert [(path.count("M"), path.count("L")) for path in paths] == [(1, 2), (1, 2)]
    finally:
        browser.close()
