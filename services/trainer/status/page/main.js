// Starts the page: as a report if it carries data, otherwise as a window onto
// the trainer that served it.

const statusSeconds = 2;
const historySeconds = 5;  // at least, between two histories
const timeoutSeconds = 10;
const tokenKey = "dapd-token";

function showSteps(history, status) {
  showHistory(history, status);
  setText(byId("thinned"), history.stride > 1 ? `each point is the mean of ${history.stride} steps; the pale band runs from the lowest to the highest` : "");
}

function startControls() {
  byId("charts").replaceChildren(...charts.map(({ chart }) => chart.figure));
  for (const { chart } of charts) resizeObserver.observe(chart.box);
  startViewControls();
}

// "hold" keeps the answers of a step in place while somebody reads them.
const answers = {
  newest: null,
  isHeld: false,
  show(data) {
    answers.newest = data;
    showHeldOutAnswers(data.held_out);
    if (!answers.isHeld) showStepAnswers(data);
  },
  hold(isHeld) {
    answers.isHeld = isHeld;
    if (answers.newest) answers.show(answers.newest);
  },
};

// Shows the parts that change whenever there are other answers.
function answersKey(status) {
  return JSON.stringify([status.step, status.evaluations.map(({ when, policy_version: version }) => [when, version])]);
}

async function fetchJson(path) {
  const token = sessionStorage.getItem(tokenKey);
  const response = await fetch(path, {
    cache: "no-store", signal: AbortSignal.timeout(1000 * timeoutSeconds),
    headers: token ? { Authorization: `Bearer ${token}` } : {} });
  if (response.status === 401 || response.status === 403) {
    await askForToken(!token ? "" : response.status === 403 ? "This token does not permit viewing a run." : "This token is not accepted here.");
    return fetchJson(path);
  }
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response.json();
}

// Resolves once the user has entered a token.
function askForToken(problem) {
  const form = byId("login");
  form.hidden = false;
  setText(byId("login-problem"), problem);
  byId("token").focus();
  return new Promise((resolve) => form.addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(tokenKey, byId("token").value.trim());
    byId("token").value = "";
    form.hidden = true;
    resolve();
  }, { once: true }));
}

// Asks for the status every two seconds while the page is visible, and for
// history and answers when there are new steps or evaluations.
async function follow() {
  let shownStep = -1;
  let lastHistory = -Infinity;
  let shownAnswers = null;
  let lastAnswers = -Infinity;
  let lastAnswer = Date.now();
  let status = null;
  let history = null;
  setText(byId("kind"), "live");
  addChoices("answers-choices", [["newest", false], ["hold", true]], answers.hold);
  for (;;) {
    try {
      status = await fetchJson("status.json");
      showStatus(status, history);
      if (status.step !== shownStep && performance.now() - lastHistory >= 1000 * historySeconds) {
        history = await fetchJson("history.json");
        showSteps(history, status);
        shownStep = history.last_step;
        lastHistory = performance.now();
      }
      if (answersKey(status) !== shownAnswers && performance.now() - lastAnswers >= 1000 * historySeconds) {
        answers.show(await fetchJson("answers.json"));
        shownAnswers = answersKey(status);
        lastAnswers = performance.now();
      }
      lastAnswer = Date.now();
      showConnection(true, lastAnswer, status);
    } catch (error) {
      showConnection(false, lastAnswer, status);
    }
    await new Promise((wake) => setTimeout(wake, 1000 * statusSeconds));
    if (document.hidden) {
      await new Promise((wake) => document.addEventListener("visibilitychange", wake, { once: true }));
    }
  }
}

function showConnection(isUp, lastAnswer, status) {
  const at = new Date(lastAnswer).toLocaleTimeString();
  byId("connection").classList.toggle("down", !isUp);
  setText(byId("connection"), isUp ? `as of ${at}` : `no answer since ${at}`);
  const banner = byId("banner");
  banner.hidden = isUp;
  document.body.classList.toggle("stale", !isUp);
  if (isUp) return;
  const isLast = status !== null && status.total_steps > 0 && status.step >= status.total_steps;
  setText(banner, isLast ? `The run has taken all its steps and the trainer has ended; its report is in ${status.run_folder}/report.html.`
    : "The trainer does not answer: it has ended, or cannot be reached. " +
      (status === null ? "" : `Below is what it last reported. Once it has ended, its report is in ${status.run_folder}/report.html.`));
}

startControls();
const embedded = JSON.parse(byId("data").textContent);
if (embedded) showReport(embedded);
else follow();
