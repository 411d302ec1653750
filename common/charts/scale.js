// Computes scales and ticks, and formats numbers. Does not use the DOM.

// A linear or logarithmic map from values to pixels.
function makeScale(low, high, from, to, isLog) {
  const place = isLog ? Math.log10 : (value) => value;
  const a = place(low);
  const span = place(high) - a || 1;
  const scale = (value) => from + ((place(value) - a) / span) * (to - from);
  scale.invert = (pixel) => {
    const value = a + ((pixel - from) / (to - from)) * span;
    return isLog ? 10 ** value : value;
  };
  return scale;
}

// Values that differ only by rounding have no range between them.
function isFlat(low, high) {
  return !(high - low > 1e-9 * Math.max(Math.abs(low), Math.abs(high)));
}

// Returns about `count` round numbers (1, 2 or 5 times a power of ten) in
// [low, high].
function linearTicks(low, high, count) {
  if (isFlat(low, high)) return [low];
  const span = high - low;
  const power = 10 ** Math.floor(Math.log10(span / count));
  const step = power * [1, 2, 5, 10].find((factor) => span / (factor * power) <= count + 1.5);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; ++k) {
    ticks.push(Number((k * step).toPrecision(12)));
  }
  return ticks;
}

// Returns powers of ten in [low, high], also their double and fivefold if these
// are few; returns linear ticks if the range is smaller than a factor of 5.
function logTicks(low, high, count) {
  if (high / low < 5) return linearTicks(low, high, count).filter((tick) => tick > 0);
  const factors = Math.log10(high / low) > count ? [1] : [1, 2, 5];
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; ++power) {
    for (const factor of factors) {
      const tick = Number((factor * 10 ** power).toPrecision(12));
      if (tick >= low && tick <= high) ticks.push(tick);
    }
  }
  const every = Math.ceil(ticks.length / (count + 3));
  return ticks.filter((unused, index) => index % every === 0);
}

// Returns the range that an axis shows for values in [low, high].
function axisRange(low, high, isLog) {
  if (isLog) {
    return isFlat(low, high) ? [low / 2, high * 2] : [low / (high / low) ** 0.05, high * (high / low) ** 0.05];
  }
  if (isFlat(low, high)) {
    return low === 0 ? [0, 1] : [Math.min(0, 2 * low), Math.max(0, 2 * low)];
  }
  const bottom = low >= 0 && low < 0.5 * high ? 0 : low - 0.06 * (high - low);
  return [bottom, high + 0.06 * (high - low)];
}

// Formats with three or four digits: "0.4641", "1,234", "12.34k", "3.2e-7".
function formatNumber(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "\u2013";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e15 || size < 1e-3) return String(value.toExponential(3)).replace(/\.?0*e\+?/, "e");
  const units = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]];
  const unit = units.find(([limit]) => size >= limit);
  if (unit) {
    const divisor = unit[1] === "k" ? 1e3 : unit[0];
    return Number((value / divisor).toPrecision(4)) + unit[1];
  }
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(size < 0.1 ? 3 : 4)));
}

// Formats a share in percentage points, 0.8125 as "81.2": like the terminal's
// printf, it rounds to the even digit.
function toPoints(share) {
  const points = 100 * share;
  return (points % 1 === 0.25 ? points - 0.05 : points).toFixed(1);
}

// Formats a difference; if it rounds to zero, its sign is "\u00b1".
function signed(value, format) {
  const size = format(Math.abs(value));
  return `${size === format(0) ? "\u00b1" : value > 0 ? "+" : "\u2212"}${size}`;
}

function formatPercent(fraction) {
  return fraction === null || !Number.isFinite(fraction) ? "\u2013" : `${toPoints(fraction)} %`;
}

// Returns a text such as "48.0 % [40.1 %, 55.9 %]".
function intervalText(interval, format) {
  return interval ? `${format(interval.mean)} [${format(interval.low)}, ${format(interval.high)}]` : "\u2013";
}

// Returns "48 ms", "4.21 s", "12 min 30 s", "3 h 05 min" or "2 d 4 h".
function formatSeconds(seconds) {
  if (seconds === null || !Number.isFinite(seconds)) return "\u2013";
  if (seconds < 1) return `${Number((1000 * seconds).toPrecision(3))} ms`;
  if (seconds < 60) return `${Number(seconds.toPrecision(3))} s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${whole % 60} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

// Returns the exponential moving average, corrected for its start from zero;
// gaps stay gaps.
function smooth(values, weight) {
  let sum = 0;
  let total = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return sum / total;
  });
}
