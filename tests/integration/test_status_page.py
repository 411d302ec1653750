"""The status page and report.html in a real browser draw what the run recorded, and load nothing from elsewhere."""

import http.client
import json
import re
import signal
import urllib.parse

import pytest
from conftest import ROOT, wait_for
from drawn_page import EVALUATED, PICTURES, TITLE_OF_ANSWERS, check_charts, needs_chromium, read_lines, visible

SCALE_SCRIPT = ROOT / "common/charts/scale.js"
STATUS_SCRIPT = ROOT / "services/trainer/status/page/status_view.js"


class LiveRun:
    """A run that continues until it is stopped."""

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
        """Returns (status, headers, body) of one request."""
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


# Reads the corners of every curve, in pixels.
READ_PATHS = """Object.fromEntries([...document.querySelectorAll('[data-chart=terms] path[data-series]')].map((path) =>
  [path.dataset.series, path.getAttribute('d').slice(1).split('L').map((point) => point.split(' ').map(Number))]))"""


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
    assert values is None  # the live page contains no data itself
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
    for _ in range(2):  # it continues by itself
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


TEXTS_OF_STEP = "[...document.querySelectorAll('#step-answers .answer-text')].map((text) => text.textContent)"


def press(page, label):
    page.js(f"[...document.querySelectorAll('.choice')].find((choice) => choice.textContent === '{label}').click()")


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
    # So far there is one evaluation, the one before training.
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


@needs_chromium
def test_ticks_are_few_round_and_inside_for_any_range(page):
    """The ranges are as narrow as rounding and as wide as numbers go: once a flat curve kept the browser busy for ever."""
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


@needs_chromium
def test_the_first_loss_of_a_long_run_is_called_the_mean_that_it_is(page):
    page.open("about:blank")
    page.js(SCALE_SCRIPT.read_text() + STATUS_SCRIPT.read_text() + "; Object.assign(window, {firstLossText}); null")
    for steps, loss, text in (([1, 2], [0.5, 0.25], "first step 0.5"), ([4, 8], [0.5, 0.25], "mean of the first 4 steps 0.5"),
                              ([1], [None], "of the last step"), ([], None, "of the last step")):
        history = {"steps": steps, "series": {} if loss is None else {"loss": loss}}
        assert page.js(f"firstLossText({json.dumps(history)})") == text
    assert page.js("firstLossText(null)") == "of the last step"


@needs_chromium
def test_a_worker_is_behind_what_it_is_to_serve_and_nothing_else(page):
    page.open("about:blank")
    page.js(STATUS_SCRIPT.read_text() + "; Object.assign(window, {servedText}); null")
    cases = {
        ("rollout", "live", 120): "120",
        ("rollout", "live", 118): "118, 2 behind",
        ("teacher", "snapshot", 100): "100",
        ("teacher", "snapshot", 0): "0, 100 behind",
        ("teacher", "live", 119): "119, 1 behind",
        ("teacher", "base", 0): "0",
        ("teacher", "ema", 120): "120",
        ("teacher", "snapshot", -1): "none yet",
    }
    for (role, weights, version), text in cases.items():
        worker = {"role": role, "policy_version": version, "weights": [{"set": weights, "version": version}]}
        status = {"step": 120, "snapshot_step": 100}
        assert page.js(f"servedText({json.dumps(worker)}, {json.dumps(status)})") == text
