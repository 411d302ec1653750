// Shows the parts of a status: head, tiles, workers, evaluation, policy.
// `status` has the form of /status.json and of `dapd status --json`.

// Weighs each term's clipped share by the term's weight, since the status does
// not have the numbers of scored tokens.
function weightedClip(terms) {
  const weight = terms.reduce((sum, term) => sum + term.weight, 0);
  return weight > 0 ? terms.reduce((sum, term) => sum + term.weight * term.clipped_fraction, 0) / weight : null;
}

function tile(id, label, value, note) {
  return html("div", { class: "tile card", "data-tile": id },
    html("p", { class: "label" }, label), html("p", { class: "number" }, value), html("p", { class: "note" }, note ?? ""));
}

// Returns the first loss of the history, which may be null: in long runs a point
// is the mean of several steps.
function firstLossText(history) {
  const first = history?.series.loss?.[0] ?? null;
  if (first === null) return "of the last step";
  const steps = history.steps[0];
  return steps === 1 ? `first step ${formatNumber(first)}` : `mean of the first ${steps} steps ${formatNumber(first)}`;
}

// `history`: as in /history.json, or null.
function showTiles(status, history) {
  const { terms, workers } = status;
  const hasStep = status.step > 0;
  const ready = workers.filter((worker) => worker.state === "ready").length;
  const number = (value, format = formatNumber) => (hasStep ? format(value) : "\u2013");
  byId("tiles").replaceChildren(
    tile("loss", "Loss", number(status.loss), firstLossText(history)),
    tile("clipped", "Clipped tokens", number(weightedClip(terms), formatPercent), "weighted mean"),
    tile("gradient", "Gradient norm", number(status.gradient_norm), status.max_gradient_norm > 0 ? `clipped at ${formatNumber(status.max_gradient_norm)}` : ""),
    tile("length", "Rollout length", number(status.mean_rollout_tokens), status.max_rollout_tokens > 0 ? `of at most ${status.max_rollout_tokens}` : "tokens"),
    tile("tokens", "Generated tokens/s", number(status.generated_tokens_per_second), `scored: ${number(status.scored_tokens_per_second)}`),
    tile("step-time", "Time a step", number(status.seconds_per_step || null, formatSeconds), `${number(60 * status.samples_per_second)} samples/min`),
    tile("policy", "Policy version", String(status.step), `snapshot of step ${status.snapshot_step}`),
    tile("workers", "Workers ready", workers.length > 0 ? `${ready} of ${workers.length}` : "\u2013",
      ready < workers.length ? "see below" : workers.length > 0 ? "all" : "none known yet"));
}

function phaseText(status) {
  return status.phase_total > 0 ? `${status.phase} ${status.phase_done} of ${status.phase_total}` : status.phase;
}

function showHead(status) {
  const { step, total_steps: total } = status;
  setText(byId("run-name"), status.run_name || "DAPD");
  setText(byId("phase"), phaseText(status));
  byId("phase").dataset.phase = status.phase;
  const percent = total > 0 ? (100 * step) / total : 0;
  byId("progress-bar").style.width = `${percent}%`;
  byId("progress").setAttribute("aria-valuemax", total);
  byId("progress").setAttribute("aria-valuenow", step);
  const parts = [`step ${step} of ${total}`, `${Math.floor(percent)} %`, `running for ${formatSeconds(Math.round(status.elapsed_seconds))}`];
  if (status.seconds_per_step > 0 && step < total) parts.push(`${formatSeconds(Math.round(status.eta_seconds))} left`);
  setText(byId("progress-text"), total > 0 ? parts.join(" \u00b7 ") : "no steps yet");
}

// Shows a state by its shape as well as by its colour.
const stateSymbols = { ready: "\u25cf", loading: "\u25d0", connecting: "\u25cb", lost: "\u2715" };

// Returns the weights that a worker serves, and how many versions they are
// behind, as far as the status says it: the base never changes, and the moving
// average has no version number.
function servedText(worker, status) {
  if (worker.teacher) return "its own model";
  if (worker.policy_version < 0) return "none yet";
  if (worker.weights.length > 1) return worker.weights.map(({ set, version }) => `${set} ${version}`).join(", ");
  const wanted = { live: status.step, snapshot: status.snapshot_step };
  const behind = wanted[worker.role === "rollout" ? "live" : worker.weights[0]?.set] - worker.policy_version;
  return behind > 0 ? `${worker.policy_version}, ${behind} behind` : String(worker.policy_version);
}

function showWorkers(status) {
  if (status.workers.length === 0) {
    byId("workers").replaceChildren(html("p", { class: "empty-text" }, "No worker is known yet: the trainer looks up rollout.addresses and teacher.addresses every few seconds."));
    return;
  }
  byId("workers").replaceChildren(html("table", { class: "worker-table" },
    html("thead", {}, html("tr", {}, ["role", "address", "state", "policy", "in flight", "last error"].map((text) => html("th", { scope: "col" }, text)))),
    html("tbody", {}, status.workers.map((worker) => html("tr", { "data-worker": worker.address },
      html("td", { "data-label": "role" }, worker.teacher ? `teacher ${worker.teacher}` : worker.role),
      html("td", { "data-label": "address", class: "code" }, worker.address),
      html("td", { "data-label": "state" }, html("span", { class: `state ${worker.state}` }, html("span", { "aria-hidden": "true" }, stateSymbols[worker.state] ?? "?"), ` ${worker.state}`)),
      html("td", { "data-label": "policy" }, servedText(worker, status)),
      html("td", { "data-label": "in flight" }, String(worker.in_flight)),
      html("td", { "data-label": "last error", class: "error-text" }, worker.last_error || "\u2013"))))));
}

// Shows the warnings of the steps so far; the last step that showed a warning
// may be long past.
function showWarnings(status) {
  const { warnings, step } = status;
  const isShown = JSON.stringify([warnings, step]);
  if (showWarnings.shown === isShown) return;
  showWarnings.shown = isShown;
  byId("warnings").hidden = warnings.length === 0;
  byId("warnings").replaceChildren(...warnings.map((warning) => html("li", { "data-warning": warning.term },
    html("strong", {}, Number(warning.step) < Number(step) ? `Step ${warning.step}: ` : "Now: "), warning.text)));
}

function showEvaluation(status) {
  const isShown = JSON.stringify(status.evaluations);
  if (showEvaluation.shown === isShown) return;
  showEvaluation.shown = isShown;
  byId("evaluation").replaceChildren(...(status.evaluations.length > 0 ? evaluationView(status.evaluations)
    : [html("p", { class: "empty-text" }, "No evaluation. A run with evaluation.path is evaluated before and after training.")]));
}

function showDetails(status) {
  const rows = [["run folder", status.run_folder], ["policy version", status.step], ["adapter digest", status.adapter_digest || "none yet"],
    ["snapshot", `of step ${status.snapshot_step}`], ["learning rate", formatNumber(status.learning_rate)]];
  if (status.sampler_mismatch_tokens > 0) {
    rows.push(["sampler against trainer", `log-probabilities differ by ${formatNumber(status.sampler_mismatch_mean)}, at most ${formatNumber(status.sampler_mismatch_max)}`]);
  }
  if (status.start_step > 0) rows.push(["resumed", `after step ${status.start_step} of an earlier attempt`]);
  byId("details").replaceChildren(...rows.flatMap(([name, value]) => [html("dt", {}, name), html("dd", { class: "code" }, String(value))]));
  if (status.terms.length === 0) {
    byId("terms").replaceChildren(html("p", { class: "empty-text" }, "No step yet."));
    return;
  }
  const styles = termStyles(status.terms.map((term) => term.name));
  const terms = Object.fromEntries(status.terms.map((term) => [term.name, term]));
  byId("terms").replaceChildren(html("table", { class: "term-table" },
    html("thead", {}, html("tr", {}, ["term", "loss", "weight", "share", "clipped"].map((text) => html("th", { scope: "col" }, text)))),
    html("tbody", {}, styles.flatMap((style) => {
      const { value, weight, clipped_fraction: clipped, teachers = [] } = terms[style.name];
      const row = html("tr", {},
        html("th", { scope: "row" }, lineSwatch(style), style.label),
        html("td", {}, formatNumber(value)), html("td", {}, formatNumber(weight)),
        html("td", {}, status.loss > 0 ? formatPercent((weight * value) / status.loss) : "\u2013"),
        html("td", {}, formatPercent(clipped)));
      return [row, ...teachers.map((teacher) => html("tr", {},
        html("th", { scope: "row" }, `from ${teacher.name}`),
        html("td", { colspan: 4 }, `true KL ${formatNumber(teacher.unclipped)}, ${teacher.tokens} tokens`)))];
    }))));
}

function showStatus(status, history) {
  document.title = `${status.run_name || "DAPD"}: step ${status.step} of ${status.total_steps}`;
  showHead(status);
  showWarnings(status);
  showTiles(status, history);
  showWorkers(status);
  showEvaluation(status);
  showDetails(status);
}
