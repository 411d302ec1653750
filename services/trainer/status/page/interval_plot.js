// Shows means with their 95 % intervals: before and after training as table
// rows with a small plot each, and during training as a curve.

const intervalColors = { before: "c-before", after: "c-after" };

// Draws a bar from `low` to `high` with a dot at the mean, on a scale from 0 to
// `end`.
function whisker(interval, kind, y, end) {
  const at = (value) => `${(100 * Math.min(Math.max(value / end, 0), 1)).toFixed(2)}%`;
  return svg("g", { class: `whisker ${intervalColors[kind] ?? "c-before"}` },
    svg("line", { x1: at(interval.low), x2: at(interval.high), y1: y, y2: y }),
    svg("line", { x1: at(interval.low), x2: at(interval.low), y1: y - 3.5, y2: y + 3.5 }),
    svg("line", { x1: at(interval.high), x2: at(interval.high), y1: y - 3.5, y2: y + 3.5 }),
    svg("circle", { cx: at(interval.mean), cy: y, r: 3.6 }));
}

// JSON has words for numbers that are not finite, such as some divergences.
function isFiniteInterval(interval) {
  return Boolean(interval) && [interval.mean, interval.low, interval.high].every(Number.isFinite);
}

function pointsText(share) {
  return `${toPoints(share)} points`;
}

// Returns "+0.12", and whether the two intervals have no value in common.
function changeText(before, after, format) {
  if (!isFiniteInterval(before) || !isFiniteInterval(after)) return "";
  const text = signed(after.mean - before.mean, format);
  const isApart = before.high < after.low || after.high < before.low;
  return isApart ? `${text}, intervals apart` : text;
}

// rows: [{label, before, after}], each interval {mean, low, high} or null.
function intervalRows(rows, format, end) {
  return rows.map(({ label, before, after }) => {
    const plot = svg("svg", { class: "interval-plot", role: "img",
      "aria-label": `${label}: before ${intervalText(before, format)}, after ${intervalText(after, format)}` },
      svg("line", { class: "axis", x1: 0, x2: "100%", y1: 14, y2: 14 }));
    if (isFiniteInterval(before)) plot.append(whisker(before, "before", 8, end));
    if (isFiniteInterval(after)) plot.append(whisker(after, "after", 20, end));
    return html("tr", { "data-measure": label },
      html("th", { scope: "row" }, label),
      html("td", { "data-label": "before" }, intervalText(before, format)),
      html("td", { "data-label": "after" }, intervalText(after, format)),
      html("td", { "data-label": "change" }, changeText(before, after, format === formatPercent ? pointsText : format)),
      html("td", { class: "plot-cell" }, plot));
  });
}

function intervalGroup(title, scaleText, rows) {
  return html("tbody", {},
    html("tr", { class: "group" }, html("th", { scope: "colgroup", colspan: 4 }, title), html("th", { class: "plot-cell scale" }, scaleText)),
    rows);
}

// `with " = "`, as common/data/marker_label.h has it.
function markerLabel(marker) {
  const characters = [...marker];
  return `with "${visibleText(characters.slice(0, 24).join(""))}${characters.length > 24 ? "..." : ""}"`;
}

// Draws a share against the step, each evaluation with its interval; returns
// null for fewer than three evaluations. points: [{step, share}]. The axis ends
// at `least` or above.
function shareCurve(title, measure, points, format = formatPercent, least = 0.01) {
  if (points.length < 3) return null;
  points.sort((a, b) => a.step - b.step);
  const width = 640, height = 150, left = 52, right = 14, top = 10, bottom = 24;
  const lastStep = Math.max(1, points.at(-1).step);
  const largest = Math.max(least, ...points.map((point) => point.share.high));
  const x = (step) => left + (width - left - right) * step / lastStep;
  const y = (share) => top + (height - top - bottom) * (1 - Math.max(0, share) / largest);
  const label = (text, at, anchor) => svg("text", { ...at, "text-anchor": anchor }, text);
  const bars = points.map(({ step, share }) => svg("g", { class: "whisker c-after" },
    svg("title", {}, `step ${step}: ${intervalText(share, format)}`),
    svg("line", { x1: x(step), x2: x(step), y1: y(share.low), y2: y(share.high) }),
    svg("circle", { cx: x(step), cy: y(share.mean), r: 3.6 })));
  const description = points.map(({ step, share }) => `step ${step} ${format(share.mean)}`).join(", ");
  const curve = svg("svg", { class: "evaluation-curve", "data-curve": measure, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Held-out ${title}: ${description}` },
    svg("line", { class: "axis", x1: left, x2: width - right, y1: y(0), y2: y(0) }),
    svg("polyline", { points: points.map(({ step, share }) => `${x(step).toFixed(1)},${y(share.mean).toFixed(1)}`).join(" ") }),
    bars,
    label(format(largest), { x: left - 8, y: top + 4 }, "end"),
    label(format(0), { x: left - 8, y: y(0) + 4 }, "end"),
    label("step 0", { x: left, y: height - 6 }, "start"),
    label(`step ${lastStep}`, { x: width - right, y: height - 6 }, "end"));
  return html("figure", { class: "evaluation-figure" }, html("figcaption", {}, title), curve);
}

// Returns the evaluations that measured `marker`; other markers cannot be
// compared with it.
function withMarker(evaluations, marker) {
  return evaluations.filter((evaluation) => evaluation?.marker_rate && evaluation.marker === marker);
}

// The views in which claims are measured. Claims may be far rarer than one in a
// thousand answers, so they have numbers in place of percents.
const claimViews = [["None", "claims_none"], ["Cross", "claims_cross"]];
const leastScale = 1e-9;

function curvesOf(evaluations, markers) {
  const points = (chosen, key) => chosen.map((evaluation) => ({ step: Number(evaluation.policy_version), share: evaluation[key] }));
  return [
    shareCurve("accuracy", "accuracy", points(evaluations.filter((evaluation) => evaluation.accuracy), "accuracy")),
    ...markers.map((marker) => shareCurve(markerLabel(marker), "marker_rate", points(withMarker(evaluations, marker), "marker_rate"))),
    ...claimViews.map(([view, key]) => shareCurve(`probability of claims, ${view}`, key,
      points(evaluations.filter((evaluation) => evaluation[key]), key), formatNumber, leastScale))];
}

// evaluations: as in the status. Returns the elements under the heading.
function evaluationView(evaluations) {
  const by = Object.fromEntries(evaluations.map((evaluation) => [evaluation.when, evaluation]));
  const { before, after } = by;
  const known = before ?? after ?? evaluations[0];
  // Older runs did not measure the last two rows; without expected answers there
  // is no accuracy.
  const shares = [["accuracy", "accuracy"], ["format rate", "format_rate"], ["cut off", "truncated"], ["repeating", "repeated"]]
    .filter(([, key]) => evaluations.some((evaluation) => evaluation[key]))
    .map(([label, key]) => ({ label, before: before?.[key], after: after?.[key] }));
  const markers = [...new Set(evaluations.filter((evaluation) => evaluation.marker_rate).map((evaluation) => evaluation.marker))];
  const markerRates = markers.map((marker) => ({
    label: markerLabel(marker), before: withMarker([before], marker)[0]?.marker_rate, after: withMarker([after], marker)[0]?.marker_rate }));
  // evaluation.kl_problems may change within a run.
  const names = new Set([before, after].filter(Boolean).flatMap((evaluation) => evaluation.divergences.map((term) => term.name)));
  const divergences = termStyles([...names]).map(({ name, label }) => ({
    label,
    before: before?.divergences.find((term) => term.name === name)?.unclipped,
    after: after?.divergences.find((term) => term.name === name)?.unclipped }));
  const claims = claimViews.filter(([, key]) => evaluations.some((evaluation) => evaluation[key]))
    .map(([label, key]) => ({ label, before: before?.[key], after: after?.[key] }));
  const largestOf = (rows) => Math.max(leastScale, ...rows.flatMap((row) => [row.before, row.after]).filter(isFiniteInterval).map(({ high }) => high));
  const largest = largestOf(divergences);
  const graded = known.graded_problems;
  const gradedText = graded < known.problems ? `; accuracy: ${graded === 0 ? "no" : `the ${graded}`} problems with an expected answer` : "";
  const table = html("table", { class: "intervals" },
    html("thead", {}, html("tr", {}, ["held out", "before", "after", "change", ""].map((text) => html("th", { scope: "col" }, text)))),
    intervalGroup(`Answers, ${known.problems} problems \u00d7 ${known.samples}${gradedText}`, "0 to 100 %", intervalRows([...shares, ...markerRates], formatPercent, 1)),
    divergences.length > 0 && intervalGroup("True KL by term", `0 to ${formatNumber(largest)}`, intervalRows(divergences, formatNumber, largest)),
    claims.length > 0 && intervalGroup("Probability of claims by view", `0 to ${formatNumber(largestOf(claims))}`, intervalRows(claims, formatNumber, largestOf(claims))));
  const what = (evaluation) => `${evaluation.when} training: policy ${evaluation.policy_version}, ` +
    `${formatNumber(evaluation.mean_tokens)} tokens per answer, took ${formatSeconds(evaluation.seconds)}`;
  return [
    html("p", { class: "legend-line" },
      svg("svg", { class: "key", viewBox: "0 0 14 10", "aria-hidden": "true" }, svg("circle", { class: "c-before", cx: 7, cy: 5, r: 3.6 })), "before ",
      svg("svg", { class: "key", viewBox: "0 0 14 10", "aria-hidden": "true" }, svg("circle", { class: "c-after", cx: 7, cy: 5, r: 3.6 })), "after; ",
      html("span", { class: "note" }, `bars are 95 % intervals over problems. ${[before, after].filter(Boolean).map(what).join("; ")}.`)),
    ...curvesOf(evaluations, markers),
    table].filter(Boolean);
}
