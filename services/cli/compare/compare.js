// Runs over each other: tables of what they reached, and a chart a column of
// their steps with a line a run.

const numColors = 8;

// Runs beyond the colours begin again, dashed.
function runStyle(run, index) {
  return { name: String(index), label: run.name, color: index % numColors, dashed: index >= numColors };
}

// Every step that some run has a point for.
function allSteps(runs) {
  return [...new Set(runs.flatMap((run) => run.curves.steps))].sort((a, b) => a - b);
}

// A run's values at `steps`: between its own points on the line that joins
// them, outside of them missing.
function valuesAt(steps, curve, values) {
  let next = 0;
  return steps.map((step) => {
    while (next < curve.length && curve[next] < step) ++next;
    if (next === curve.length) return null;
    if (curve[next] === step) return values[next] ?? null;
    const [before, after] = [values[next - 1] ?? null, values[next] ?? null];
    if (next === 0 || before === null || after === null) return null;
    const share = (step - curve[next - 1]) / (curve[next] - curve[next - 1]);
    return before + share * (after - before);
  });
}

function shortened(text) {
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

function showRuns({ runs, differing }) {
  const head = ["run", "steps", "loss", ...differing];
  byId("runs").replaceChildren(html("table", {},
    html("thead", {}, html("tr", {}, head.map((text) => html("th", { scope: "col" }, text)))),
    html("tbody", {}, runs.map((run, index) => html("tr", { "data-run": run.name },
      html("th", { scope: "row" }, lineSwatch(runStyle(run, index)), " ", run.name),
      html("td", {}, run.finished ? String(run.step) : `${run.step} of ${run.steps}`),
      html("td", {}, formatNumber(run.loss)),
      differing.map((key) => html("td", { class: "code", title: run.settings[key] }, shortened(run.settings[key]))))))));
}

// Shares differ by points, as in the terminal.
function differenceText(interval, isShare) {
  if (!interval) return "\u2013";
  const write = (value) => signed(value, isShare ? toPoints : formatNumber);
  return `${write(interval.mean)}${isShare ? " points" : ""} [${write(interval.low)}, ${write(interval.high)}]`;
}

// A bar from `low` to `high` with a dot at the mean, on a scale from `from` to
// `to`.
function whisker(interval, color, y, from, to) {
  const at = (value) => `${(100 * (value - from)) / (to - from || 1)}%`;
  return [
    svg("line", { class: `line c${color}`, x1: at(interval.low), x2: at(interval.high), y1: y, y2: y }),
    svg("circle", { class: `dot c${color}`, cx: at(interval.mean), cy: y, r: 3.6 })];
}

function figureRows(figure, rows, label, range) {
  const format = figure.is_share ? formatPercent : formatNumber;
  return rows.map((row, index) => {
    const plot = svg("svg", { class: "interval-plot", role: "img", "aria-label": intervalText(row.after, format) },
      svg("line", { class: "axis", x1: 0, x2: "100%", y1: 14, y2: 14 }));
    if (row.after) plot.append(...whisker(row.after, index % numColors, 14, ...range));
    return html("tr", { "data-figure": figure.name, "data-row": label(row, index) },
      html("th", { scope: "row" }, label(row, index)),
      html("td", { "data-label": "before" }, intervalText(row.before, format)),
      html("td", { "data-label": "after" }, intervalText(row.after, format)),
      html("td", { "data-label": "change" }, differenceText(row.change, figure.is_share)),
      html("td", { "data-label": "against the first" }, differenceText(row.against_first, figure.is_share)),
      html("td", { class: "plot-cell" }, plot));
  });
}

function figureTable(figure, groups, paired) {
  const all = [...figure.runs, ...figure.groups].flatMap((row) => row.after ? [row.after] : []);
  const range = figure.is_share ? [0, 1] : [Math.min(0, ...all.map((value) => value.low)), Math.max(1e-9, ...all.map((value) => value.high))];
  const format = figure.is_share ? formatPercent : formatNumber;
  const group = (text, scale) => html("tr", { class: "group" },
    html("th", { scope: "colgroup", colspan: 5 }, text), html("th", { class: "plot-cell scale" }, scale));
  return html("tbody", {},
    group(figure.title, `${format(range[0])} to ${format(range[1])}`),
    figureRows(figure, figure.runs, (row) => row.run, range),
    figure.groups.length > 0 && group(paired ? "over seeds, paired" : "over seeds", ""),
    figureRows(figure, figure.groups, (row, index) => groups[index].label, range));
}

function showHeldOut({ figures, groups, paired }) {
  const head = ["", "before", "after", "change", "against the first", ""];
  byId("held-out").replaceChildren(figures.length === 0
    ? html("p", { class: "empty-text" }, "No run has a held-out evaluation (evaluation.path).")
    : html("table", { class: "intervals" },
      html("thead", {}, html("tr", {}, head.map((text) => html("th", { scope: "col" }, text)))),
      figures.map((figure) => figureTable(figure, groups, paired))));
}

// Figures of the evaluations within the runs, with their intervals; runs of one
// setting as their mean, in the colours of the tables.
function showHeldOutCharts({ figures }) {
  for (const figure of figures.filter(({ steps }) => steps.length > 0)) {
    const rows = figure.groups.length > 0 ? figure.groups : figure.runs;
    const chart = new Chart({
      id: `held-out/${figure.name}`, title: `Held out: ${figure.title}`, note: "", format: figure.is_share ? formatPercent : formatNumber,
      percent: figure.is_share, log: figure.is_share ? undefined : "switched", exact: true, joined: true });
    byId("held-out-charts").append(chart.figure);
    resizeObserver.observe(chart.box);
    const part = (row, name) => row.by_step.map((value) => value?.[name] ?? null);
    chart.setData({ steps: figure.steps, limit: null, series: rows.map((row, index) => ({
      ...runStyle({ name: row.group ?? row.run }, index), values: part(row, "mean"), low: part(row, "low"), high: part(row, "high") })) });
  }
}

function showCharts({ runs, charts }) {
  const steps = allSteps(runs);
  for (const { column, title, is_share: isShare, is_log: isLog } of charts) {
    const chart = new Chart({
      id: column, title, note: "", format: isShare ? formatPercent : formatNumber, percent: isShare, log: isLog ? "switched" : undefined });
    byId("charts").append(chart.figure);
    resizeObserver.observe(chart.box);
    chart.setData({ steps, limit: null, series: runs.flatMap((run, index) => {
      const values = run.curves.series[column];
      return values ? [{ ...runStyle(run, index), values: valuesAt(steps, run.curves.steps, values) }] : [];
    }) });
  }
  startViewControls();
}

const data = JSON.parse(byId("data").textContent);
setText(byId("title"), `${data.runs.length} runs compared`);
showRuns(data);
showHeldOut(data);
showHeldOutCharts(data);
showCharts(data);
