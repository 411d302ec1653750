// Draws charts over steps as SVG: axes, ticks, legend, a read-out that follows
// the pointer in all charts at once, and a range of steps to zoom into.

const margin = { top: 10, right: 14, bottom: 26 };
const tickCount = 5;
const dotLimit = 40;  // fewer points get dots, and stacks get bars
const denseLimit = 300;  // more points get thinner lines
const dragPixels = 8;

// The state that all charts share. `cursor` is the step under the pointer, or
// null; `range` is [first, last] of the steps shown, or null for all.
const view = {
  cursor: null,
  range: null,
  isLog: false,
  smoothing: 0,
  charts: [],
  set(change) {
    Object.assign(this, change);
    const onlyCursor = Object.keys(change).every((key) => key === "cursor");
    for (const chart of this.charts) onlyCursor ? chart.drawCursor() : chart.draw();
    this.onChange?.();
  },
};

// Returns the index of the step nearest to `step`; `steps` must ascend.
function nearestIndex(steps, step) {
  let low = 0;
  let high = steps.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle] <= step) low = middle;
    else high = middle;
  }
  return step - steps[low] <= steps[high] - step ? low : high;
}

// Returns a sample of a series' line, for legends and tables.
function lineSwatch({ color, dashed }) {
  return svg("svg", { class: "swatch", viewBox: "0 0 18 10", "aria-hidden": "true" },
    svg("line", { class: `line c${color}${dashed ? " dashed" : ""}`, x1: 0, x2: 18, y1: 5, y2: 5 }));
}

function areaSwatch({ color }) {
  return svg("svg", { class: "swatch", viewBox: "0 0 18 10", "aria-hidden": "true" },
    svg("rect", { class: `area c${color}`, x: 4, y: 0, width: 10, height: 10, rx: 2 }));
}

// spec: {id, title, note, format, percent, stacked, exact, joined,
//        log: "always" | "switched"}
// data: {steps, series: [{name, label, color, dashed, values, low, high}],
//        limit: {value, label} or null}; values are numbers or null; `low`
//        and `high` are the extremes of a point that stands for many steps.
class Chart {
  constructor(spec) {
    this.spec = spec;
    this.data = { steps: [], series: [], limit: null };
    this.hidden = new Set();
    this.legend = html("ul", { class: "legend" });
    this.stepLabel = html("span", { class: "at-step" });
    this.svg = svg("svg", { class: "plot", tabindex: "0", role: "img" });
    this.box = html("div", { class: "plot-box" }, this.svg);
    this.figure = html("figure", { class: "card chart", "data-chart": spec.id },
      html("figcaption", {}, html("h3", {}, spec.title), this.stepLabel),
      html("p", { class: "note" }, spec.note), this.legend, this.box);
    this.listen();
    view.charts.push(this);
  }

  setData(data) {
    this.data = data;
    this.buildLegend();
    this.draw();
  }

  // --- Visible data ----------------------------------------------------------

  get isLog() {
    return this.spec.log === "always" || (this.spec.log === "switched" && view.isLog);
  }

  // Values that are set, not measured, are not smoothed.
  get isSmoothed() {
    return view.smoothing > 0 && !this.spec.exact;
  }

  // Returns the first and the last index of the visible points.
  indexRange() {
    const { steps } = this.data;
    if (!view.range) return [0, steps.length - 1];
    const first = steps.findIndex((step) => step >= view.range[0]);
    const last = steps.findLastIndex((step) => step <= view.range[1]);
    return first < 0 || last < first ? [0, -1] : [first, last];
  }

  // Returns the visible series with the values to draw: smoothed, or stacked
  // upon each other from `base`.
  layers() {
    const shown = this.data.series.filter((series) => !this.hidden.has(series.name));
    if (!this.spec.stacked) {
      return shown.map((series) => ({
        ...series, line: this.isSmoothed ? smooth(series.values, view.smoothing) : series.values }));
    }
    let base = this.data.steps.map(() => 0);
    return shown.map((series) => {
      const line = base.map((value, i) => value + (series.values[i] ?? 0));
      const layer = { ...series, base, line };
      base = line;
      return layer;
    });
  }

  valueRange(layers, first, last) {
    let low = Infinity;
    let high = -Infinity;
    const take = (value) => {
      if (value === null || value === undefined || (this.isLog && value <= 0)) return;
      low = Math.min(low, value);
      high = Math.max(high, value);
    };
    for (const layer of layers) {
      for (let i = first; i <= last; ++i) {
        take(layer.line[i]);
        if (!this.spec.stacked) take(layer.values[i]);
        if (layer.low) take(layer.low[i]);
        if (layer.high) take(layer.high[i]);
      }
    }
    if (this.spec.stacked) take(0);
    if (!Number.isFinite(low)) return null;
    // A distant limit would only flatten the curve.
    const limit = this.data.limit?.value;
    if (limit > 0 && limit < 3 * high && limit > low / 3) take(limit);
    return axisRange(low, high, this.isLog);
  }

  // --- Drawing ---------------------------------------------------------------

  draw() {
    const width = this.box.clientWidth;
    const height = this.box.clientHeight;
    this.svg.replaceChildren();
    this.frame = null;
    if (width === 0) return;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const [first, last] = this.indexRange();
    const layers = this.layers();
    const range = last < first ? null : this.valueRange(layers, first, last);
    if (!range) {
      this.svg.append(svg("text", { class: "empty", x: width / 2, y: height / 2 },
        this.data.steps.length === 0 ? "no step yet" : "nothing to draw here"));
      this.describe();
      return;
    }
    const { steps } = this.data;
    const ticks = this.isLog ? logTicks(...range, tickCount) : linearTicks(...range, tickCount);
    const labels = ticks.map((tick) => this.formatTick(tick));
    const left = 14 + 6.6 * Math.max(...labels.map((label) => label.length));
    const right = width - margin.right;
    const bottom = height - margin.bottom;
    const pad = first === last ? 0.5 : 0;
    const bars = this.spec.stacked && last - first < dotLimit;
    const half = bars && first < last ? 0.5 * (steps[last] - steps[first]) / (last - first) : pad;
    const x = makeScale(steps[first] - half, steps[last] + half, left, right, false);
    const y = makeScale(...range, bottom, margin.top, this.isLog);
    this.frame = { x, y, left, right, bottom, first, last, layers, barWidth: bars ? 0.7 * (x(2 * half) - x(0)) : 0 };
    this.drawAxes(ticks, labels);
    for (const layer of layers) this.spec.stacked ? this.drawStack(layer) : this.drawLine(layer);
    this.drawLimit();
    this.overlay = this.svg.appendChild(svg("g", { class: "overlay" }));
    this.describe();
    this.drawCursor();
  }

  drawAxes(ticks, labels) {
    const { x, y, left, right, bottom, first, last } = this.frame;
    const { steps } = this.data;
    ticks.forEach((tick, k) => this.svg.append(
      svg("line", { class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) }),
      svg("text", { class: "tick y", x: left - 7, y: y(tick) + 3.5 }, labels[k])));
    this.svg.append(svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
    const wanted = Math.max(2, Math.floor((right - left) / 70));
    const stepTicks = linearTicks(steps[first], steps[last], wanted).filter(Number.isInteger);
    for (const tick of stepTicks) {
      this.svg.append(
        svg("line", { class: "axis", x1: x(tick), x2: x(tick), y1: bottom, y2: bottom + 4 }),
        svg("text", { class: "tick x", x: x(tick), y: bottom + 17 }, String(tick)));
    }
  }

  // Returns a path "M1 2L3 4M..." with a gap at each missing value. A series
  // that is measured at some of the steps only (spec.joined) has no gaps.
  path(values) {
    const { x, y, first, last } = this.frame;
    const { steps } = this.data;
    let d = "";
    let isGap = true;
    for (let i = first; i <= last; ++i) {
      const value = values[i];
      if (value === null || value === undefined || (this.isLog && value <= 0)) {
        isGap ||= !this.spec.joined;
        continue;
      }
      d += `${isGap ? "M" : "L"}${x(steps[i]).toFixed(1)} ${y(value).toFixed(1)}`;
      isGap = false;
    }
    return d;
  }

  drawLine(layer) {
    const { x, y, first, last } = this.frame;
    const color = `c${layer.color}${last - first > denseLimit ? " dense" : ""}`;
    if (layer.low && layer.high) this.svg.append(this.band(layer, color));
    if (this.isSmoothed) {
      this.svg.append(svg("path", { class: `line faint ${color}`, d: this.path(layer.values) }));
    }
    this.svg.append(svg("path", {
      class: `line ${color}${layer.dashed ? " dashed" : ""}`, d: this.path(layer.line),
      "data-series": layer.name, "data-points": layer.values.slice(first, last + 1).filter((v) => v !== null).length }));
    if (last - first >= dotLimit) return;
    for (let i = first; i <= last; ++i) {
      const value = layer.line[i];
      if (value === null || (this.isLog && value <= 0)) continue;
      this.svg.append(svg("circle", { class: `dot ${color}`, cx: x(this.data.steps[i]), cy: y(value), r: first === last ? 3.5 : 2.2 }));
    }
  }

  // Returns the band between the lowest and the highest value of each point.
  band(layer, color) {
    const { x, y, first, last } = this.frame;
    const at = (i, values) => `${x(this.data.steps[i]).toFixed(1)} ${y(values[i]).toFixed(1)}`;
    const points = [];
    const usable = (i) => layer.low[i] !== null && layer.high[i] !== null && !(this.isLog && layer.low[i] <= 0);
    for (let i = first; i <= last; ++i) if (usable(i)) points.push(at(i, layer.high));
    for (let i = last; i >= first; --i) if (usable(i)) points.push(at(i, layer.low));
    return svg("path", { class: `band ${color}`, d: points.length ? `M${points.join("L")}Z` : "" });
  }

  drawStack(layer) {
    const { x, y, first, last, barWidth } = this.frame;
    const { steps } = this.data;
    const group = svg("g", { class: `area c${layer.color}`, "data-series": layer.name, "data-points": last - first + 1 });
    if (barWidth > 0) {
      for (let i = first; i <= last; ++i) {
        const top = y(layer.line[i]);
        group.append(svg("rect", {
          x: x(steps[i]) - barWidth / 2, width: Math.max(barWidth, 1), y: top, height: Math.max(y(layer.base[i]) - top, 0) }));
      }
    } else {
      const at = (i, values) => `${x(steps[i]).toFixed(1)} ${y(values[i]).toFixed(1)}`;
      const points = [];
      for (let i = first; i <= last; ++i) points.push(at(i, layer.line));
      for (let i = last; i >= first; --i) points.push(at(i, layer.base));
      group.append(svg("path", { d: `M${points.join("L")}Z` }));
    }
    this.svg.append(group);
  }

  drawLimit() {
    const { limit } = this.data;
    if (!limit || !(limit.value > 0)) return;
    const { y, left, right, bottom } = this.frame;
    const height = y(limit.value);
    if (height < margin.top - 1 || height > bottom) return;
    this.svg.append(
      svg("line", { class: "limit", x1: left, x2: right, y1: height, y2: height }),
      svg("text", { class: "limit-label", x: right - 2, y: height - 4 < margin.top + 8 ? height + 12 : height - 4 }, limit.label));
  }

  formatTick(tick) {
    return this.spec.percent ? `${Number((100 * tick).toPrecision(6))} %` : formatNumber(tick);
  }

  // --- Legend and read-out ---------------------------------------------------

  buildLegend() {
    const names = this.data.series.map((series) => series.name).join();
    if (names === this.legendNames) return;
    this.legendNames = names;
    this.values = new Map();
    this.legend.replaceChildren(...this.data.series.map((series) => {
      const value = html("span", { class: "value" });
      this.values.set(series.name, value);
      const button = html("button", { type: "button", "aria-pressed": "true", title: "show or hide", "data-series": series.name },
        this.spec.stacked ? areaSwatch(series) : lineSwatch(series),
        html("span", { class: "name" }, series.label), value);
      button.addEventListener("click", () => {
        if (!this.hidden.delete(series.name)) this.hidden.add(series.name);
        button.setAttribute("aria-pressed", String(!this.hidden.has(series.name)));
        this.draw();
      });
      return html("li", {}, button);
    }));
  }

  // Returns the index of the values in the legend: the cursor's, or the last.
  readIndex() {
    const [first, last] = this.frame ? [this.frame.first, this.frame.last] : this.indexRange();
    if (view.cursor === null || last < first) return last;
    return Math.min(Math.max(nearestIndex(this.data.steps, view.cursor), first), last);
  }

  drawCursor() {
    const index = this.readIndex();
    const { steps, series } = this.data;
    for (const { name, values } of series) {
      const node = this.values.get(name);
      const value = index < 0 ? null : values[index] ?? null;
      setText(node, this.spec.format(value));
      node.dataset.value = value ?? "";
    }
    const isHeld = view.cursor !== null && index >= 0;
    setText(this.stepLabel, isHeld ? `step ${steps[index]}` : "");
    if (!this.frame) return;
    this.overlay.replaceChildren();
    if (!isHeld) return;
    const { x, y, bottom, layers } = this.frame;
    const at = x(steps[index]);
    this.overlay.append(svg("line", { class: "cursor", x1: at, x2: at, y1: margin.top, y2: bottom }));
    for (const layer of layers) {
      const value = layer.line[index];
      if (this.spec.stacked || value === null || value === undefined || (this.isLog && value <= 0)) continue;
      this.overlay.append(svg("circle", { class: `dot ring c${layer.color}`, cx: at, cy: y(value), r: 3.6 }));
    }
  }

  describe() {
    const { steps, series } = this.data;
    const last = steps.length - 1;
    this.svg.setAttribute("aria-label", last < 0 ? `${this.spec.title}: no step yet`
      : `${this.spec.title}, steps ${steps[0]} to ${steps[last]}; last: ` +
        series.map(({ label, values }) => `${label} ${this.spec.format(values[last] ?? null)}`).join(", "));
  }

  // --- Pointer and keys ------------------------------------------------------

  stepAt(event) {
    const step = this.frame.x.invert(event.clientX - this.svg.getBoundingClientRect().left);
    return this.data.steps[nearestIndex(this.data.steps, step)];
  }

  listen() {
    let start = null;
    this.svg.addEventListener("pointermove", (event) => {
      if (!this.frame) return;
      view.set({ cursor: this.stepAt(event) });
      if (start !== null) this.drawSelection(start, event.clientX);
    });
    this.svg.addEventListener("pointerleave", () => view.set({ cursor: null }));
    this.svg.addEventListener("pointerdown", (event) => {
      if (!this.frame || event.button !== 0 || event.pointerType !== "mouse") return;
      start = event.clientX;
      this.svg.setPointerCapture(event.pointerId);
    });
    this.svg.addEventListener("pointerup", (event) => {
      if (start === null || !this.frame) return;
      const ends = [this.stepAt({ clientX: start }), this.stepAt(event)].sort((a, b) => a - b);
      const isDrag = Math.abs(event.clientX - start) >= dragPixels && ends[0] < ends[1];
      start = null;
      if (isDrag) view.set({ range: ends });
      else this.drawCursor();
    });
    this.svg.addEventListener("dblclick", () => view.set({ range: null }));
    this.svg.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
      if (event.key === "Escape") view.set({ cursor: null, range: null });
      if (!move || !this.frame) return;
      event.preventDefault();
      const { first, last } = this.frame;
      const index = Math.min(Math.max(this.readIndex() + move, first), last);
      view.set({ cursor: this.data.steps[index] });
    });
    this.svg.addEventListener("blur", () => view.set({ cursor: null }));
  }

  drawSelection(from, to) {
    const offset = this.svg.getBoundingClientRect().left;
    const { left, right, bottom } = this.frame;
    const ends = [from, to].map((end) => Math.min(Math.max(end - offset, left), right)).sort((a, b) => a - b);
    this.overlay.append(svg("rect", {
      class: "selection", x: ends[0], width: ends[1] - ends[0], y: margin.top, height: bottom - margin.top }));
  }
}

// Redraws a chart when its box changes size.
const resizeObserver = new ResizeObserver((entries) => {
  for (const { target } of entries) view.charts.find((chart) => chart.box === target)?.draw();
});
