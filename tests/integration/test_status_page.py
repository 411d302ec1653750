"""The status page and report.html in a real browser: what they draw is what the run recorded, and they ask nobody else."""

import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import unicodedata
import urllib.parse

import pytest
from browser import CHROMIUM, Browser
from conftest import BIN, ROOT, set_flags, wait_for

SCALE_SCRIPT = ROOT / "common/charts/scale.js"
PICTURES = ROOT / "build/test-logs/status-page"
EVALUATED = {"evaluation.samples": 2, "evaluation.kl_problems": 4}

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, which deploy/install.sh --tests installs")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    PICTURES.mkdir(parents=True, exist_ok=True)
    browser = Browser(tmp_path_factory.mktemp("browser") / "profile")
    yield browser
    browser.close()


@pytest.fixture
def page(browser):
    """The browser, with nothing held against it yet."""
    browser.open("about:blank")
    browser.requests.clear()
    browser.problems.clear()
    return browser


class LiveRun:
    """A run that goes on until it is stopped."""

    def __init__(self, workspace):
        self.workspace, self.name = workspace, "shown"
        self.process = workspace.start(self.name, **EVALUATED, **{
            "trainer.steps": 2000, "trainer.schedule_steps": 2000, "evaluation.path": workspace.folder / "held_out.jsonl",
            "run.rollout_workers": 2})
        self.url = wait_for(lambda: self.find(r"status page: (http://127\.0\.0\.1:\d+/)"), what="the page's address")
        self.status_address = wait_for(lambda: self.find(r"dapd status (127\.0\.0\.1:\d+)"), what="the status' address")
        wait_for(lambda: len(self.lines()) >= 4, seconds=180, what="four steps")

    def find(self, pattern):
        assert self.process.poll() is None, self.workspace.log(self.name)
        found = re.search(pattern, self.workspace.log(self.name))
        return found and found[1]

    def lines(self):
        return self.workspace.metrics(self.name)

    def ask(self, path, method="GET", **headers):
        """(status, headers, body) of one request."""
        address = urllib.parse.urlsplit(self.url)
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
        connection.request(method, path, headers=headers, body="x=1" if method in ("POST", "PUT", "PATCH") else None)
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response.status, response.headers, body

    def json(self, path):
        return json.loads(self.ask(path)[2])


@pytest.fixture(scope="module")
def live(workspace):
    run = LiveRun(workspace)
    yield run
    if run.process.poll() is None:
        run.process.send_signal(signal.SIGTERM)
        run.process.wait(timeout=60)


@pytest.fixture(scope="module")
def finished(workspace):
    workspace.run("reported", **EVALUATED, **{
        "evaluation.path": workspace.folder / "held_out.jsonl", "evaluation.interval": 2, "evaluation.marker": "e"})
    return workspace


# Walks through the steps with the arrow keys and reads every legend at each.
READ_CHARTS = """(() => {
  const read = () => Object.fromEntries([...document.querySelectorAll('[data-chart]')].map((chart) => [chart.dataset.chart,
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

# The corners of every curve, in pixels.
READ_PATHS = """Object.fromEntries([...document.querySelectorAll('[data-chart=terms] path[data-series]')].map((path) =>
  [path.dataset.series, path.getAttribute('d').slice(1).split('L').map((point) => point.split(' ').map(Number))]))"""


def expected_values(line):
    """What the charts should read at a step, from its line in metrics.jsonl."""
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
    """Every chart, series and step against metrics.jsonl; returns how many numbers were compared."""
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


@needs_chromium
def test_the_page_draws_what_the_run_records(live, page):
    page.open(live.url)
    page.wait("document.querySelectorAll('[data-chart=terms] path[data-series]').length === 6")
    page.screenshot(PICTURES / "live-light.png")
    steps, compared = check_charts(page, live.lines())
    print(f"{steps} steps, {compared} numbers of 12 charts agree with metrics.jsonl")
    assert steps >= 4
    # The curves' pixels follow the numbers: y is the same linear function of the value for all terms.
    values = page.js("JSON.parse(document.querySelector('#data').textContent)")
    assert values is None  # the live page carries no data of its own
    history = live.json("/history.json")
    points = []
    for name, corners in page.js(READ_PATHS).items():
        for (_, y), value in zip(corners, history["series"][f"terms/{name}/value"]):
            points.append((value, y))
    (low, y_low), (high, y_high) = min(points), max(points)
    slope = (y_high - y_low) / (high - low)
    error = max(abs(y_low + slope * (value - low) - y) for value, y in points)
    print(f"{len(points)} corners are at most {error:.2f} pixels off")
    assert slope < 0 and error < 0.5
    for _ in range(2):  # it goes on by itself
        shown = page.js("document.getElementById('progress').getAttribute('aria-valuenow')")
        page.wait(f"document.getElementById('progress').getAttribute('aria-valuenow') > {shown}")
    assert page.problems == []
    assert {urllib.parse.urljoin(url, "/") for url in page.requests} == {live.url}
    assert {urllib.parse.urlsplit(url).path for url in page.requests} == {"/", "/status.json", "/history.json", "/answers.json"}


@needs_chromium
def test_workers_and_evaluation_are_those_of_the_status(live, page):
    page.open(live.url)
    page.wait("document.querySelectorAll('[data-worker]').length === 3")
    status = live.json("/status.json")
    shown = page.js("[...document.querySelectorAll('[data-worker]')].map((row) => row.dataset.worker)")
    assert sorted(shown) == sorted(worker["address"] for worker in status["workers"])
    page.wait("[...document.querySelectorAll('.state')].every((state) => state.textContent.includes('ready'))")
    accuracy = status["evaluations"][0]["accuracy"]
    row = page.js("document.querySelector('[data-measure=accuracy] [data-label=before]').textContent")
    assert row == f"{100 * accuracy['mean']:.1f} % [{100 * accuracy['low']:.1f} %, {100 * accuracy['high']:.1f} %]"


@needs_chromium
@pytest.mark.parametrize("width,dark", [(1440, True), (1280, False), (820, False), (390, False), (390, True)])
def test_the_page_fits_its_window(width, dark, live, page):
    page.open(live.url, width=width, dark=dark)
    page.wait("document.querySelectorAll('[data-chart=terms] path[data-series]').length === 6")
    page.screenshot(PICTURES / f"live-{width}-{'dark' if dark else 'light'}.png")
    assert page.js("document.documentElement.scrollWidth") <= width
    background = page.js("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
    assert brightness < 60 if dark else brightness > 200
    assert page.problems == []


def test_the_status_is_the_one_that_dapd_status_prints(live):
    page = live.json("/status.json")
    command = json.loads(live.workspace.dapd("status", live.status_address, "--json").stdout)
    assert page.keys() == command.keys()
    for key in ("run_name", "run_folder", "total_steps", "max_gradient_norm", "max_rollout_tokens", "evaluations"):
        assert page[key] == command[key]
    assert command["step"] >= page["step"]
    text = live.workspace.dapd("status", live.status_address).stdout
    for part in ("shown", "step ", "gradient norm", "held out  before  accuracy", "tokens/s", "127.0.0.1:"):
        assert part in text


def test_the_history_is_metrics_jsonl_by_columns(live):
    history = live.json("/history.json")
    lines = live.lines()[: len(history["steps"])]
    assert history["stride"] == 1
    assert history["steps"] == [line["step"] for line in lines]
    assert history["series"]["loss"] == pytest.approx([line["loss"] for line in lines], rel=1e-6)


def test_nothing_but_reading_is_answered(live):
    for path in ("/", "/status.json", "/history.json", "/answers.json", "/metrics"):
        assert live.ask(path)[0] == 200
        assert live.ask(path, "HEAD")[::2] == (200, "")
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert live.ask(path, method)[0] == 405


def test_a_foreign_host_name_is_refused(live):
    for path in ("/", "/status.json", "/history.json", "/answers.json", "/metrics"):
        assert live.ask(path, Host="rebound.example.com")[0] == 421
        assert live.ask(path, Host="localhost:9103")[0] == 200


def test_the_page_may_run_nothing_but_itself(live):
    policy = live.ask("/")[1]["Content-Security-Policy"]
    for part in ("default-src 'none'", "script-src 'sha256-", "frame-ancestors 'none'", "form-action 'none'", "trusted-types 'none'"):
        assert part in policy
    assert "unsafe" not in policy and "http" not in policy
    assert live.ask("/status.json")[1]["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"


@needs_chromium
def test_a_drag_shows_a_range_of_steps_and_a_click_all_again(live, page):
    page.open(live.url)
    page.wait("document.querySelectorAll('[data-chart=loss] path[data-series]').length === 1")
    page.js("document.querySelector('[data-chart=loss]').scrollIntoView({block: 'center'})")
    box = page.js("(({left, top, width, height}) => ({left, top, width, height}))(document.querySelector('[data-chart=loss] svg.plot').getBoundingClientRect())")
    points = "Number(document.querySelector('[data-chart=loss] path[data-series]').dataset.points)"
    before = page.js(points)
    height = box["top"] + box["height"] / 2
    for kind, place in (("mouseMoved", 0.4), ("mousePressed", 0.4), ("mouseMoved", 0.7), ("mouseMoved", 0.98), ("mouseReleased", 0.98)):
        button = "none" if place == 0.4 and kind == "mouseMoved" else "left"
        page.call("Input.dispatchMouseEvent", type=kind, x=box["left"] + place * box["width"], y=height, button=button, clickCount=1)
    page.wait("!document.getElementById('zoom').hidden")
    assert page.js(points) < before
    page.js("document.getElementById('zoom').click()")
    assert page.js(points) >= before
    page.js("[...document.querySelectorAll('.choice')].find((choice) => choice.textContent === 'log').click()")
    page.js("[...document.querySelectorAll('.choice')].find((choice) => choice.textContent === 'smoother').click()")
    assert page.js("document.querySelectorAll('[data-chart=terms] path.faint').length") == 6
    assert page.problems == []


TITLE_OF_ANSWERS = "document.getElementById('step-answers-title').textContent"
TEXTS_OF_STEP = "[...document.querySelectorAll('#step-answers .answer-text')].map((text) => text.textContent)"


def press(page, label):
    page.js(f"[...document.querySelectorAll('.choice')].find((choice) => choice.textContent === '{label}').click()")


def read_lines(path):
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def visible(text):
    """As the page shows it: what a browser leaves out or obeys stands there as its number."""
    return re.sub("[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]", lambda found: f"\\u{ord(found[0]):04x}", text)


@needs_chromium
def test_the_answers_of_the_newest_step_are_shown_until_they_are_held(live, page):
    page.open(live.url)
    page.wait("document.querySelectorAll('#step-answers article').length === 4")
    press(page, "hold")
    step = int(page.js(TITLE_OF_ANSWERS).split()[-1])
    answers = next(line["answers"] for line in read_lines(live.workspace.runs(live.name) / "answers.jsonl") if line["step"] == step)
    assert page.js(TEXTS_OF_STEP) == [visible(answer["text"]) for answer in answers]
    assert page.js("[...document.querySelectorAll('#step-answers article')].map((card) => card.dataset.problem)") == [answer["id"] for answer in answers]
    shown = page.js("document.getElementById('progress').getAttribute('aria-valuenow')")
    page.wait(f"document.getElementById('progress').getAttribute('aria-valuenow') > {shown}")
    assert page.js(TITLE_OF_ANSWERS) == f"Answers of step {step}"
    press(page, "newest")
    page.wait(f"{TITLE_OF_ANSWERS} !== 'Answers of step {step}'")
    # So far there is one evaluation, the one before.
    assert page.js("document.querySelectorAll('#held-out-answers > article').length") == 3
    assert page.js("document.querySelectorAll('#held-out-answers details article').length") == 5
    assert page.js("document.querySelectorAll('#held-out-answers > article:first-child .answer').length") == 1
    assert page.problems == []


def test_the_answers_are_those_of_the_run_folder(live):
    shown = live.json("/answers.json")
    kept = {line["step"]: line["answers"] for line in read_lines(live.workspace.runs(live.name) / "answers.jsonl")}
    assert shown["answers"] == kept[shown["step"]]
    assert shown["held_out"]["before"] == 0 and shown["held_out"]["after"] is None
    before = json.loads((live.workspace.runs(live.name) / "evaluation/before.json").read_text())["answers"]
    assert [pair["before"] for pair in shown["held_out"]["pairs"]] == before


@needs_chromium
def test_the_page_says_when_the_trainer_is_gone_and_the_report_why(live, page):
    page.open(live.url)
    page.wait("document.querySelectorAll('[data-chart=terms] path[data-series]').length === 6")
    assert page.js("document.getElementById('banner').hidden")
    live.process.send_signal(signal.SIGTERM)
    assert live.process.wait(timeout=60) == 130, live.workspace.log(live.name)
    page.wait("!document.getElementById('banner').hidden")
    assert "runs/shown/report.html" in page.js("document.getElementById('banner').textContent")
    page.screenshot(PICTURES / "gone.png", height=900)
    assert all("ERR_CONNECTION_REFUSED" in problem for problem in page.problems)

    page.open("about:blank")
    page.problems.clear()
    page.open((live.workspace.runs(live.name) / "report.html").as_uri())
    assert f"stopped after step {len(live.lines())} of 2000" in page.js("document.getElementById('banner').textContent")
    assert page.problems == []


def test_the_best_adapter_is_kept_and_named(finished):
    folder = finished.runs("reported")
    assert sorted(path.stem for path in (folder / "evaluation").iterdir()) == ["after", "before", "step-000002", "step-000004"]
    summary = json.loads((folder / "summary.json").read_text())
    trained = {when: report["accuracy"]["mean"] for when, report in summary["evaluation"].items() if when != "before"}
    assert trained[summary["best"]] == max(trained.values())
    assert (folder / "adapter-best" / "adapter_config.json").exists()


@needs_chromium
@pytest.mark.parametrize("curve,caption", [("accuracy", "accuracy"), ("marker_rate", 'with "e"')])
def test_the_report_plots_accuracy_and_marker_within_the_run(curve, caption, finished, page):
    page.open((finished.runs("reported") / "report.html").as_uri())
    page.wait(f"document.querySelectorAll('[data-curve={curve}] circle').length === 4")
    titles = page.js(f"[...document.querySelectorAll('[data-curve={curve}] title')].map((title) => title.textContent.split(':')[0])")
    assert titles == ["step 0", "step 2", "step 4", "step 5"] and page.problems == []
    assert page.js(f"document.querySelector('figure:has([data-curve={curve}]) figcaption').textContent") == caption


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
        for measure, key in (("accuracy", "accuracy"), ("format rate", "format_rate"), ('with "e"', "marker_rate")):
            interval = evaluation[when][key]
            shown = page.js(f"document.querySelector(`[data-measure='{measure}'] [data-label={when}]`).textContent")
            assert shown == "{:.1f} % [{:.1f} %, {:.1f} %]".format(*(100 * interval[part] for part in ("mean", "low", "high")))
        for name, interval in evaluation[when]["unclipped_divergence"].items():
            shown = page.js(f"document.querySelector(`[data-measure='{name.replace('_', ' ')}'] [data-label={when}]`).textContent")
            numbers = [float(number) for number in re.findall(r"[\d.e-]+", shown)]
            assert numbers == pytest.approx([interval[part] for part in ("mean", "low", "high")], rel=6e-3)
    assert page.js("document.querySelectorAll('.interval-plot .whisker').length") == 2 * (3 + 6)

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
    # The same problems of every evaluation.
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
           "\x1b[2J\x07\0\x9b31m\u202e\ufffd\nE 2026-01-01T00:00:00.000Z trainer] forged\t\\frac{1}{2} $x^2$ \u4e2d\u6587 ")


def poison(folder, *keys):
    """What a model may say, in a run's files: these texts of all answers, and 100,000 characters each."""
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
    """They are shown as text, cut, and nothing else came of them."""
    assert texts
    for text in texts:
        assert text.startswith(visible(HOSTILE)) and text.endswith("xthe end"), text[:300]
        assert re.search(r"\n\[\.\.\. \d+ characters left out \.\.\.\]\n", text) and len(text) < 5000
    assert page.js("window.hacked") is None
    assert page.js("document.querySelectorAll('main img, main script').length") == 0
    assert page.problems == []


@pytest.fixture(scope="module")
def hostile(finished):
    """The folder of a finished run with hostile answers, and the page of a trainer that shows it."""
    folder = finished.runs("hostile")
    shutil.copytree(finished.runs("reported"), folder)
    poison(folder, "id", "problem", "expected", "extracted")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
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
    # The problems are the same: a hostile answer stands beside a harmless one.
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
    # As a crash behind the last checkpoint leaves it.
    path.write_bytes(whole + whole.splitlines(keepends=True)[-1].replace(b'"step":5', b'"step":6') + b'{"step":7,"ans')
    finished.run("answers-again", **EVALUATED, **{
        "evaluation.path": finished.folder / "held_out.jsonl", "evaluation.interval": 2, "trainer.steps": 6})
    lines = path.read_bytes().splitlines(keepends=True)
    assert b"".join(lines[:5]) == whole and len(lines) == 6
    assert json.loads(lines[5])["answers"] != json.loads(lines[4])["answers"]


@needs_chromium
def test_ticks_are_few_round_and_inside_for_any_range(page):
    """Ranges as narrow as rounding, as wide as numbers go: once a flat curve kept the browser busy for ever."""
    page.open("about:blank")
    page.js(SCALE_SCRIPT.read_text() + "; Object.assign(window, {linearTicks, logTicks, axisRange, formatNumber}); null")
    result = page.js("""(() => {
      let checked = 0;
      const wrong = [];
      for (const low of [0, 1, 410, 410.00000000000006, 1e-7, 5e-6, 0.1, 12345.6, 1e12, -3, -1e-9]) {
        for (const factor of [0, 1e-16, 1e-12, 1e-9, 1e-6, 0.01, 0.5, 1, 3, 10, 1e3, 1e9]) {
          for (const isLog of [false, true]) {
            const high = low + (Math.abs(low) || 1) * factor;
            if (isLog && low <= 0) continue;
            const range = axisRange(low, high, isLog);
            const ticks = (isLog ? logTicks : linearTicks)(...range, 5);
            const margin = 1e-6 * (Math.abs(range[0]) + Math.abs(range[1]));
            const isFine = ticks.length >= 1 && ticks.length <= 12 && range[0] < range[1] &&
              ticks.every((tick, i) => tick >= range[0] - margin && tick <= range[1] + margin && (i === 0 || tick > ticks[i - 1]));
            checked += 1;
            if (!isFine) wrong.push({low, high, isLog, range, ticks});
          }
        }
      }
      return {checked, wrong, texts: [0, 0.46412, 1234.5, 12345, 3.2e-7, 5e-5, 1.5e9, null].map(formatNumber)};
    })()""")
    print(f"{result['checked']} ranges")
    assert result["wrong"] == []
    assert result["texts"] == ["0", "0.4641", "1,235", "12.35k", "3.2e-7", "5e-5", "1.5G", "\u2013"]
