// Lists the charts, and the part of the history that each shows: metrics.jsonl
// by columns, {"steps", "series": {"terms/<name>/value": [...]}, "low", "high"}.

const numColors = 8;

// Styles of the terms; terms of one kind stand side by side. The colour of a
// term tells its kind (entangled, inference, privileged), and its line tells the
// scored text: solid for rollouts, dashed for references.
function termStyles(names) {
  const kindOf = (name) => name.replace(/_(rollout|reference)$/, "");
  const kinds = [...new Set(names.map(kindOf))];
  const styles = names.map((name) => ({
    name, label: name.replaceAll("_", " "), dashed: name.endsWith("_reference"), kind: kinds.indexOf(kindOf(name)) }));
  return styles.sort((a, b) => a.kind - b.kind || a.dashed - b.dashed).map((style) => ({ ...style, color: style.kind % numColors }));
}

function termNames(history) {
  return Object.keys(history.series).flatMap((key) => key.match(/^terms\/(.*)\/value$/)?.[1] ?? []);
}

function termSeries(history, field) {
  return termStyles(termNames(history)).map((style) => ({ ...style, values: history.series[`terms/${style.name}/${field}`] ?? [] }));
}

// The divergence of each term from each teacher that the rows name; a gap where
// a step had none of the teacher's tokens.
function teacherSeries(history) {
  return Object.entries(history.series).flatMap(([key, values]) => {
    const match = key.match(/^terms\/(.*)\/teachers\/([^/]*)\/unclipped$/);
    return match ? [{ name: key, label: `${match[1].replaceAll("_", " ")}, ${match[2]}`, values }] : [];
  }).map((series, place) => ({ ...series, color: place % numColors, dashed: place >= numColors }));
}

// columns: [[key, label], ...]; columns that the run does not have are left out.
function columnSeries(history, columns) {
  return columns.filter(([key]) => history.series[key]).map(([key, label], color) => ({
    name: key, label, color, values: history.series[key], low: history.low?.[key], high: history.high?.[key] }));
}

const phaseOrder = ["rollout", "score", "train", "optimizer", "publish"];

// Returns the phases of a step in their order; unknown phases come last.
function phaseKeys(history) {
  const rank = (key) => {
    const index = phaseOrder.indexOf(key.slice("seconds/".length));
    return index < 0 ? phaseOrder.length : index;
  };
  return Object.keys(history.series).filter((key) => key.startsWith("seconds/")).sort((a, b) => rank(a) - rank(b));
}

function stepSeconds(history) {
  const columns = phaseKeys(history).map((key) => history.series[key]);
  return history.steps.map((unused, i) => columns.reduce((sum, column) => sum + (column[i] ?? 0), 0));
}

function rateSeries(history, columns, factor = 1) {
  const seconds = stepSeconds(history);
  return columnSeries(history, columns).map((series) => ({
    ...series, low: null, high: null,
    values: series.values.map((value, i) => value === null || !(seconds[i] > 0) ? null : (factor * value) / seconds[i]) }));
}

// `optional`: the chart is shown only if the run has series for it.
const panels = [
  { id: "loss", title: "Total loss", note: "weighted sum of the clipped terms", format: formatNumber, log: "switched",
    series: (history) => columnSeries(history, [["loss", "loss"]]) },
  { id: "terms", title: "Loss by term", note: "clipped KL a token; solid: rollout, dashed: reference", format: formatNumber, log: "switched",
    series: (history) => termSeries(history, "value") },
  { id: "divergence", title: "True KL by term", note: "the same without the clip", format: formatNumber, log: "switched",
    series: (history) => termSeries(history, "unclipped") },
  { id: "teachers", title: "True KL by teacher", note: "of terms whose rows name their teachers", format: formatNumber, log: "switched",
    optional: true, series: teacherSeries },
  { id: "clipped", title: "Clipped tokens by term", note: "share of scored tokens with a clipped vocabulary entry", format: formatPercent, percent: true,
    series: (history) => termSeries(history, "clipped_fraction") },
  { id: "gradient", title: "Gradient norm", note: "global, before clipping", format: formatNumber, log: "always",
    series: (history) => columnSeries(history, [["gradient_norm", "norm"]]),
    limit: (limits) => limits.max_gradient_norm > 0 && { value: limits.max_gradient_norm, label: "clipped above" } },
  { id: "rate", title: "Learning rate", note: "used in the step", format: formatNumber, exact: true,
    series: (history) => columnSeries(history, [["learning_rate", "rate"]]) },
  { id: "length", title: "Rollout length", note: "mean tokens per answer", format: formatNumber,
    series: (history) => columnSeries(history, [["rollout/mean_tokens", "tokens"]]),
    limit: (limits) => limits.max_rollout_tokens > 0 && { value: limits.max_rollout_tokens, label: "longest allowed" } },
  { id: "answers", title: "Rollouts", note: "share of the step's answers", format: formatPercent, percent: true,
    series: (history) => columnSeries(history, [["rollout/correct_fraction", "correct"], ["rollout/boxed_fraction", "boxed"], ["rollout/truncated_fraction", "truncated"]]) },
  { id: "mismatch", title: "Sampler against trainer", note: "difference of their log-probabilities of the sampled tokens", format: formatNumber,
    series: (history) => columnSeries(history, [["sampler_mismatch/mean", "mean"], ["sampler_mismatch/max", "largest"]]) },
  { id: "phases", title: "Step time by phase", note: "seconds of wall time", format: formatSeconds, stacked: true,
    series: (history) => columnSeries(history, phaseKeys(history).map((key) => [key, key.slice("seconds/".length)])) },
  { id: "tokens", title: "Tokens per second", note: "over the whole step", format: formatNumber,
    series: (history) => rateSeries(history, [["generated_tokens", "generated"], ["scored_tokens", "scored by teachers"]]) },
  { id: "samples", title: "Samples per minute", note: "trained", format: formatNumber,
    series: (history) => rateSeries(history, [["samples", "samples"]], 60) },
  { id: "payload", title: "Teacher payload", note: "MB of scores received a step", format: formatNumber,
    series: (history) => columnSeries(history, [["payload_bytes", "MB"]]).map((series) => ({
      ...series, values: series.values.map((value) => value === null ? null : value / 1e6) })) },
];

const charts = panels.map((panel) => ({ panel, chart: new Chart(panel) }));

// `limits`: a status, for max_gradient_norm and max_rollout_tokens.
function showHistory(history, limits) {
  for (const { panel, chart } of charts) {
    const series = panel.series(history);
    chart.figure.hidden = Boolean(panel.optional) && series.length === 0;
    chart.setData({ steps: history.steps, series, limit: panel.limit?.(limits) || null });
  }
}
