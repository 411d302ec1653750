"""Reads what the status page and report.html both draw."""

import json
import re

import pytest
from browser import CHROMIUM
from workspace import ROOT

PICTURES = ROOT / "build/test-logs/status-page"
EVALUATED = {"evaluation.samples": 2, "evaluation.kl_problems": 4}

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, which deploy/install.sh --tests installs")

# Moves through the steps with the arrow keys and reads every legend at each step.
READ_CHARTS = """(() => {
  const read = () => Object.fromEntries([...document.querySelectorAll('[data-chart]:not([hidden])')].map((chart) => [chart.dataset.chart,
    Object.fromEntries([...chart.querySelectorAll('.legend button')].map((entry) =>
      [entry.dataset.series, Number(entry.querySelector('.value').dataset.value)]))]));
  const plot = document.querySelector('[data-chart=loss] svg.plot');
  const key = (name) => plot.dispatchEvent(new KeyboardEvent('keydown', {key: name, bubbles: true}));
  const steps = {};
  for (let previous = null; ;) {
    key(previous === null ? 'ArrowRight' : 'ArrowLeft');
    const step = Number(document.querySelector('[data-chart=loss] .at-step').textContent.replace('step ', ''));
    if (step === previous) break;
    steps[step] = read();
    previous = step;
  }
  key('Escape');
  return steps;
})()"""

TITLE_OF_ANSWERS = "document.getElementById('step-answers-title').textContent"


def expected_values(line):
    """Returns what the charts should show at a step, from its line in metrics.jsonl."""
    seconds = sum(line["seconds"].values())
    terms = line["terms"]
    return {
        "loss": {"loss": line["loss"]},
        "terms": {name: term["value"] for name, term in terms.items()},
        "divergence": {name: term["unclipped"] for name, term in terms.items()},
        "clipped": {name: term["clipped_fraction"] for name, term in terms.items()},
        "gradient": {"gradient_norm": line["gradient_norm"]},
        "rate": {"learning_rate": line["learning_rate"]},
        "length": {"rollout/mean_tokens": line["rollout"]["mean_tokens"]},
        "answers": {f"rollout/{key}": line["rollout"][key] for key in ("correct_fraction", "boxed_fraction", "truncated_fraction")},
        "mismatch": {f"sampler_mismatch/{key}": line["sampler_mismatch"][key] for key in ("mean", "max")},
        "phases": {f"seconds/{phase}": value for phase, value in line["seconds"].items()},
        "tokens": {key: line[key] / seconds for key in ("generated_tokens", "scored_tokens")},
        "samples": {"samples": 60 * line["samples"] / seconds},
        "payload": {"payload_bytes": line["payload_bytes"] / 1e6},
    }


def check_charts(browser, lines):
    """Compares every chart, series and step with metrics.jsonl; returns how many numbers were compared."""
    drawn = browser.js(READ_CHARTS)
    by_step = {line["step"]: line for line in lines}
    compared = 0
    for step, charts in drawn.items():
        expected = expected_values(by_step[int(step)])
        assert charts.keys() == expected.keys()
        for chart, series in expected.items():
            assert charts[chart].keys() == series.keys(), chart
            for name, value in series.items():
                assert charts[chart][name] == pytest.approx(value, rel=1e-6, abs=1e-12), (step, chart, name)
                compared += 1
    return len(drawn), compared


def read_lines(path):
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def visible(text):
    """Returns a text as the page shows it: characters that a browser hides or obeys appear as their numbers."""
    return re.sub("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]", lambda found: f"\\u{ord(found[0]):04x}", text)
