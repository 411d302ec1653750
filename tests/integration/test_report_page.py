"""A finished run shows report.html in a real browser and its answers in the terminal, also if they are hostile."""

import json
import re
import shutil
import signal
import subprocess
import unicodedata

import pytest
from drawn_page import EVALUATED, PICTURES, TITLE_OF_ANSWERS, check_charts, needs_chromium, read_lines, visible
from workspace import BIN, free_port, set_flags, wait_for


@pytest.fixture(scope="module")
def finished(workspace):
    workspace.run("reported", **EVALUATED, **{
        "evaluation.path": workspace.folder / "held_out.jsonl", "evaluation.interval": 2, "evaluation.marker": "e",
        "evaluation.claims": "true"})
    return workspace


def test_the_best_adapter_is_kept_and_named(finished):
    folder = finished.runs("reported")
    assert sorted(path.stem for path in (folder / "evaluation").iterdir()) == ["after", "before", "step-000002", "step-000004"]
    summary = json.loads((folder / "summary.json").read_text())
    trained = {when: report["accuracy"]["mean"] for when, report in summary["evaluation"].items() if when != "before"}
    assert trained[summary["best"]] == max(trained.values())
    assert (folder / "adapter-best" / "adapter_config.json").exists()


@needs_chromium
@pytest.mark.parametrize("curve,caption", [("accuracy", "accuracy"), ("marker_rate", 'with "e"'), ("claims_none", "probability of claims, None"),
                                           ("claims_cross", "probability of claims, Cross")])
def test_the_report_plots_accuracy_marker_and_claims_within_the_run(curve, caption, finished, page):
    page.open((finished.runs("reported") / "report.html").as_uri())
    page.wait(f"document.querySelectorAll('[data-curve={curve}] circle').length === 4")
    titles = page.js(f"[...document.querySelectorAll('[data-curve={curve}] title')].map((title) => title.textContent.split(':')[0])")
    assert titles == ["step 0", "step 2", "step 4", "step 5"] and page.problems == []
    assert page.js(f"document.querySelector('figure:has([data-curve={curve}]) figcaption').textContent") == caption


def find_data(report):
    return re.search(r'id="data">(.*?)</script>', report, re.S)


def report_data(finished):
    return json.loads(find_data((finished.runs("reported") / "report.html").read_text())[1])


def report_with(finished, data, tmp_path):
    """Returns the address of a copy of the report with other data."""
    report = (finished.runs("reported") / "report.html").read_text()
    start, end = find_data(report).span(1)
    copy = tmp_path / "report.html"
    copy.write_text(report[:start] + json.dumps(data).replace("<", "\\u003c") + report[end:])
    return copy.as_uri()


@needs_chromium
def test_the_report_holds_curves_evaluation_and_configuration(finished, page):
    folder = finished.runs("reported")
    page.open((folder / "report.html").as_uri())
    page.wait("document.querySelectorAll('[data-chart=terms] path[data-series]').length === 6")
    for width, dark in ((1440, False), (1440, True), (390, False)):
        page.open((folder / "report.html").as_uri(), width=width, dark=dark)
        page.screenshot(PICTURES / f"report-{width}-{'dark' if dark else 'light'}.png")
        assert page.js("document.documentElement.scrollWidth") <= width
    lines = finished.metrics("reported")
    steps, compared = check_charts(page, lines)
    print(f"report.html: {steps} steps, {compared} numbers agree with metrics.jsonl")
    assert steps == len(lines) == 5

    evaluation = json.loads((folder / "summary.json").read_text())["evaluation"]
    for when in ("before", "after"):
        for measure, key in (("accuracy", "accuracy"), ("format rate", "format_rate"), ("cut off", "truncated"), ("repeating", "repeated"),
                             ('with "e"', "marker_rate")):
            interval = evaluation[when][key]
            shown = page.js(f"document.querySelector(`[data-measure='{measure}'] [data-label={when}]`).textContent")
            assert shown == "{:.1f} % [{:.1f} %, {:.1f} %]".format(*(100 * interval[part] for part in ("mean", "low", "high")))
        claims = {view.capitalize(): interval for view, interval in evaluation[when]["claim_probability"].items()}
        assert set(claims) == {"None", "Cross"}
        for name, interval in {**evaluation[when]["unclipped_divergence"], **claims}.items():
            shown = page.js(f"document.querySelector(`[data-measure='{name.replace('_', ' ')}'] [data-label={when}]`).textContent")
            numbers = [float(number) for number in re.findall(r"[\d.e-]+", shown)]
            assert numbers == pytest.approx([interval[part] for part in ("mean", "low", "high")], rel=6e-3)
    assert page.js("document.querySelectorAll('.interval-plot .whisker').length") == 2 * (5 + 6 + 2)

    key = "document.querySelector(`[data-key='trainer.steps']`).textContent"
    assert "5file:" in page.js(key)
    assert page.js("document.querySelector(`[data-key='run.seed']`)") is None
    page.js("[...document.querySelectorAll('.choice')].find((choice) => choice.textContent === 'all keys').click()")
    assert "42default" in page.js("document.querySelector(`[data-key='run.seed']`).textContent")
    assert page.js("document.getElementById('phase').textContent") == "done"
    assert page.problems == []
    assert set(page.requests) == {(folder / "report.html").as_uri()}


@needs_chromium
def test_warnings_stand_above_the_numbers_and_only_where_there_are_any(finished, page, tmp_path):
    report = finished.runs("reported") / "report.html"
    page.open(report.as_uri())
    assert page.js("document.getElementById('warnings').hidden")
    text = "the clip hides that <b>privileged_rollout</b> gets worse"
    warnings = [{"term": "privileged_rollout", "step": step, "text": text} for step in (3, 5)]
    changed, count = re.subn(r'"warnings": ?\[\]', lambda _: '"warnings":' + json.dumps(warnings).replace("<", "\\u003c"), report.read_text())
    assert count == 1
    (tmp_path / "report.html").write_text(changed)
    page.open((tmp_path / "report.html").as_uri())
    assert not page.js("document.getElementById('warnings').hidden")
    assert page.js("[...document.querySelectorAll('[data-warning]')].map((item) => item.textContent)") == [f"Step 3: {text}", f"Now: {text}"]
    assert page.problems == []


@needs_chromium
def test_a_divergence_that_is_not_finite_is_a_dash_and_spoils_no_other(finished, page, tmp_path):
    data = report_data(finished)
    for evaluation in data["status"]["evaluations"]:
        evaluation["divergences"][0]["unclipped"] = dict.fromkeys(("mean", "low", "high"), "NaN")  # protobuf writes it this way
    page.open(report_with(finished, data, tmp_path))
    name = data["status"]["evaluations"][0]["divergences"][0]["name"].replace("_", " ")
    assert page.js(f"document.querySelector(`[data-measure='{name}'] [data-label=after]`).textContent") == "\u2013 [\u2013, \u2013]"
    assert page.js("document.querySelectorAll('.interval-plot .whisker').length") == 2 * (5 + 5 + 2)
    assert "NaN" not in page.js("document.getElementById('evaluation').innerHTML")
    assert page.problems == []


def set_accuracies(data, by_when):
    for evaluation in data["status"]["evaluations"]:
        evaluation["accuracy"] = by_when.get(evaluation["when"], {"mean": 0.5, "low": 0.5, "high": 0.5})


@needs_chromium
def test_shares_are_rounded_as_the_terminal_rounds_them(finished, page, tmp_path):
    data = report_data(finished)
    shares = {"before": 0.8125, "after": 0.9375}
    set_accuracies(data, {when: {"mean": share, "low": share, "high": share} for when, share in shares.items()})
    page.open(report_with(finished, data, tmp_path))
    cells = page.js("[...document.querySelectorAll('[data-measure=accuracy] td[data-label]')].map((cell) => cell.textContent)")
    expected = ["{0:.1f} % [{0:.1f} %, {0:.1f} %]".format(100 * share) for share in shares.values()]
    assert cells == [*expected, "+12.5 points, intervals apart"]


@needs_chromium
def test_a_change_that_rounds_to_nothing_has_no_sign(finished, page, tmp_path):
    """The shares are of the same answers, but their sums were taken in another order, as earlier versions recorded
    them."""
    data = report_data(finished)
    shares = {"before": 0.3, "after": 0.30000000000000004}
    set_accuracies(data, {when: {"mean": share, "low": 0.25, "high": 0.75} for when, share in shares.items()})
    page.open(report_with(finished, data, tmp_path))
    assert page.js("document.querySelector('[data-measure=accuracy] [data-label=change]').textContent") == "\u00b10.0 points"


@needs_chromium
def test_divergences_that_only_the_last_evaluation_measured_are_shown(finished, page, tmp_path):
    """evaluation.kl_problems may change within a run."""
    data = report_data(finished)
    before = next(evaluation for evaluation in data["status"]["evaluations"] if evaluation["when"] == "before")
    name = before["divergences"][0]["name"].replace("_", " ")
    before["divergences"] = []
    page.open(report_with(finished, data, tmp_path))
    cells = page.js(f"[...document.querySelectorAll(`[data-measure='{name}'] td[data-label]`)].map((cell) => cell.textContent)")
    assert cells[:1] == ["\u2013"] and "[" in cells[1]
    assert page.problems == []


def test_a_run_that_goes_on_shows_the_steps_of_its_first_attempt(workspace):
    name, settings = "went-on", {"trainer.schedule_steps": 2000, "checkpoint.interval": 1}
    process = workspace.start(name, **settings, **{"trainer.steps": 2000})
    wait_for(lambda: len(workspace.metrics(name)) >= 2, seconds=180, what="two steps")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 130, workspace.log(name)
    first = len(workspace.metrics(name))
    workspace.run(name, **settings, **{"trainer.steps": first + 2})
    html = (workspace.runs(name) / "report.html").read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', html, re.S)[1])
    print(f"stopped after step {first}, went on to {data['history']['last_step']}")
    assert data["outcome"] == "" and data["status"]["start_step"] == first
    assert data["history"]["steps"] == [line["step"] for line in workspace.metrics(name)] == list(range(1, first + 3))
    assert data["history"]["series"]["loss"] == pytest.approx([line["loss"] for line in workspace.metrics(name)], rel=1e-6)


def test_a_few_answers_of_each_step_are_kept_with_their_grades(finished):
    folder = finished.runs("reported")
    lines = read_lines(folder / "answers.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5]
    for line in lines:
        samples = read_lines(folder / f"samples/step-{line['step']:06d}.jsonl")
        assert [answer["place"] for answer in line["answers"]] == [0, 1, 3, 4]  # of six
        for answer in line["answers"]:
            sample = samples[answer["place"]]
            assert (answer["id"], answer["problem"], answer["text"]) == (sample["id"], sample["problem"], sample["rollout"])
            assert answer["tokens"] == len(sample["rollout_ids"])
            grade = ("right" if sample["correct"] else "wrong" if sample["has_box"]
                     else "cut" if sample["finish_reason"] == "length" else "no_answer")
            assert answer["grade"] == grade
    # All evaluations have the same problems.
    held_out = [json.loads(path.read_text())["answers"] for path in (folder / "evaluation").iterdir()]
    assert len(held_out) == 4 and all(len(answers) == 8 for answers in held_out)
    assert len({tuple(answer["id"] for answer in answers) for answers in held_out}) == 1


def check_columns(text, width):
    for line in text.splitlines():
        assert sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line if unicodedata.category(c) not in ("Mn", "Me", "Cf")) <= width, line
    assert not [c for c in text if ord(c) < 0x20 and c != "\n" or 0x7F <= ord(c) < 0xA0], ascii(text)


def test_the_terminal_shows_answers_before_and_after_side_by_side(finished):
    folder = finished.runs("reported")
    text = finished.dapd("answers", folder, "--width", 80).stdout
    assert "3 of 8 kept" in text and text.count("before training") == text.count("| after step 5") == 3
    check_columns(text, 80)
    assert finished.dapd("answers", folder, "--count", 100).stdout.count("problem ") >= 8
    assert "answers of step 2\n" in finished.dapd("answers", folder, "--step", 2).stdout
    assert "answers of step 5\n" in finished.dapd("answers", folder, "--step", 0).stdout
    shown = json.loads(finished.dapd("answers", folder, "--json").stdout)
    assert (shown["step"], shown["held_out"]["before"], shown["held_out"]["after"]) == (5, 0, 5)
    for arguments, reason in (((folder, "--step", 9), "no answers of step 9; the newest is step 5"), ((folder / "none",), "holds no run")):
        wrong = finished.dapd("answers", *arguments, check=False)
        assert wrong.returncode == 4 and reason in wrong.stderr, wrong


HOSTILE = ("</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>{{script}}"
           "\x1b[2J\x07\0\x9b31m\u202e\u061c\ufffd\nE 2026-01-01T00:00:00.000Z trainer] forged\t\\frac{1}{2} $x^2$ \u4e2d\u6587 ")


def poison(folder, *keys):
    """Puts texts that a model may write into a run's files: these texts for all answers, and 100,000 characters each."""
    def change(answers):
        for answer in answers:
            answer.update(dict.fromkeys(keys, HOSTILE), text=HOSTILE + "x" * 100_000 + "the end")

    path = folder / "answers.jsonl"
    lines = read_lines(path)
    for line in lines:
        change(line["answers"])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for path in (folder / "evaluation").iterdir():
        report = json.loads(path.read_text())
        change(report["answers"])
        path.write_text(json.dumps(report))


def check_hostile(page, texts):
    """Checks that they are shown as text and truncated, and had no other effect."""
    assert texts
    for text in texts:
        assert text.startswith(visible(HOSTILE)) and text.endswith("xthe end"), text[:300]
        assert re.search(r"\n\[\.\.\. \d+ characters left out \.\.\.\]\n", text) and len(text) < 5000
    assert page.js("window.hacked") is None
    assert page.js("document.querySelectorAll('main img, main script').length") == 0
    assert page.problems == []


@pytest.fixture(scope="module")
def hostile(finished):
    """Provides the folder of a finished run with hostile answers, and the page of a trainer that shows it."""
    folder = finished.runs("hostile")
    shutil.copytree(finished.runs("reported"), folder)
    poison(folder, "id", "problem", "expected", "extracted")
    port = free_port()
    flags = set_flags({"run.name": "hostile", "trainer.when_done": "serve", "trainer.listen": "127.0.0.1:0", "metrics.trainer_listen": f"127.0.0.1:{port}"})
    with open(finished.folder / "hostile.log", "w") as log:
        trainer = subprocess.Popen([BIN / "dapd-trainer", finished.config, *flags], stderr=log, stdout=log)
    wait_for(lambda: "the run is done" in finished.log("hostile"), what="the page of the finished run")
    yield folder, f"http://127.0.0.1:{port}/"
    trainer.terminate()
    trainer.wait(timeout=60)


@needs_chromium
@pytest.mark.parametrize("width", [1440, 390])
def test_hostile_answers_are_shown_as_text(width, hostile, page):
    page.open(hostile[1], width=width)
    page.wait("document.querySelectorAll('#step-answers article').length === 4")
    check_hostile(page, page.js("[...document.querySelectorAll('.answer-text')].map((text) => text.textContent)"))
    assert page.js("[...document.querySelectorAll('.problem-text')].every((text) => text.textContent.includes('</script>'))")
    assert page.js("document.documentElement.scrollWidth") <= width
    page.screenshot(PICTURES / f"hostile-{width}.png")


def test_hostile_answers_are_escaped_in_the_terminal(hostile, finished):
    for arguments in (("--count", 8), ("--step", 0), ("--whole",)):
        text = finished.dapd("answers", hostile[0], "--width", 80, *arguments).stdout
        check_columns(text, 80)
        assert "\\x1b[2J" in text and "\\u202e" in text and "\\frac{1}{2}" in text
    assert json.loads(finished.dapd("answers", hostile[0], "--json").stdout)["held_out"]["pairs"][0]["before"]["id"] == HOSTILE


@needs_chromium
def test_a_report_shows_hostile_answers_of_an_earlier_attempt_as_text(finished, page):
    folder = finished.runs("hostile-report")
    shutil.copytree(finished.runs("reported"), folder)
    poison(folder, "expected", "extracted")
    finished.run("hostile-report", **EVALUATED, **{
        "evaluation.path": finished.folder / "held_out.jsonl", "evaluation.interval": 2, "trainer.steps": 6})
    page.open((folder / "report.html").as_uri())
    page.wait("document.querySelectorAll('#step-answers article').length === 4")
    # The problems are the same, so a hostile answer stands beside a harmless one.
    page.wait("document.querySelectorAll('#held-out-answers .answer-columns').length === 8")
    assert page.js("[...document.querySelectorAll('.answer-columns:not(:has(.answer + .answer))')].length") == 0
    check_hostile(page, page.js("[...document.querySelectorAll('.answer-columns > .answer:first-child .answer-text')].map((text) => text.textContent)"))
    assert page.js("[...document.querySelectorAll('#held-out-answers .answer-head b')].map((b) => b.textContent)")[:2] == ["before training", "after step 6"]
    assert page.js(TITLE_OF_ANSWERS) == "Answers of step 6" and [line["step"] for line in read_lines(folder / "answers.jsonl")] == [1, 2, 3, 4, 5, 6]


def test_a_run_that_goes_on_drops_answers_of_steps_that_it_does_again(finished):
    folder = finished.runs("answers-again")
    shutil.copytree(finished.runs("reported"), folder)
    path = folder / "answers.jsonl"
    whole = path.read_bytes()
    # A crash after the last checkpoint leaves it in this state.
    path.write_bytes(whole + whole.splitlines(keepends=True)[-1].replace(b'"step":5', b'"step":6') + b'{"step":7,"ans')
    finished.run("answers-again", **EVALUATED, **{
        "evaluation.path": finished.folder / "held_out.jsonl", "evaluation.interval": 2, "trainer.steps": 6})
    lines = path.read_bytes().splitlines(keepends=True)
    assert b"".join(lines[:5]) == whole and len(lines) == 6
    assert json.loads(lines[5])["answers"] != json.loads(lines[4])["answers"]
