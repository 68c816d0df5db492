// Pictures, drawn as SVG: intervals, changes, and curves that share one axis and one cursor.

// {values, format}: round numbers between low and high, with the decimals that tell them apart.
function ticks(low, high, wanted) {
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + step * 1e-9; index += 1) found.push(index * step || 0);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) + (/^25/.test(String(step * 10 ** 9)) && step < 10 ? 1 : 0);
  return {
    values: found,
    format: (value) =>
      value === 0
        ? "0"
        : digits > 4
          ? minus(value.toExponential(1))
          : minus(value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })),
  };
}

// A row of intervals on one scale: the returned function draws one of them. reference: where the dashed line stands.
function intervalScale(estimates, reference, width = 150) {
  const values = estimates
    .flatMap((item) => (item ? [item.mean, item.low, item.high] : []))
    .concat(reference)
    .filter((value) => !missing(value));
  const low = Math.min(...values);
  const high = Math.max(...values);
  const x = (value) => 6 + ((value - low) / (high - low || 1)) * (width - 12);
  return (estimate, name) => {
    const marks = [];
    if (!missing(reference)) marks.push(svg("line", { x1: x(reference), x2: x(reference), y1: 0, y2: 22, class: "reference" }));
    if (estimate && !missing(estimate.low))
      marks.push(svg("line", { x1: x(estimate.low), x2: x(estimate.high), y1: 11, y2: 11, class: "whisker" }));
    if (estimate && !missing(estimate.mean)) marks.push(svg("circle", { cx: x(estimate.mean), cy: 11, r: 4, class: "dot" }));
    return svg("svg", { width, height: 22, class: "interval", "aria-hidden": "true", style: { "--c": colour(name) } }, marks);
  };
}

function arrow(before, after, low, high, width = 200) {
  const x = (value) => 6 + ((value - low) / (high - low || 1)) * (width - 12);
  return svg(
    "svg",
    { width, height: 18, class: "interval", "aria-hidden": "true", style: { "--c": after >= before ? "var(--gain)" : "var(--loss)" } },
    svg("line", { x1: x(before), x2: x(after), y1: 9, y2: 9, class: "whisker" }),
    svg("circle", { cx: x(before), cy: 9, r: 3, class: "start" }),
    svg("circle", { cx: x(after), cy: 9, r: 4, class: "dot" }),
  );
}

function smooth(values, window) {
  const reach = (window - 1) / 2;
  return values.map((value, index) => {
    if (missing(value)) return null;
    const near = values.slice(Math.max(0, index - reach), index + reach + 1).filter((item) => !missing(item));
    return near.reduce((sum, item) => sum + item, 0) / near.length;
  });
}

function path(xs, ys, x, y) {
  let text = "";
  let pen = "M";
  ys.forEach((value, index) => {
    if (missing(value)) pen = "M";
    else {
      text += `${pen}${x(xs[index]).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = "L";
    }
  });
  return text;
}

// panel: {title, unit, about, lines: [{stage, step, x, y}]}; axis: {end, scale, bounds: [{stage, from, to}], name};
// cursor: {panels: [], set(x)} shared by all curves.
function curve(panel, axis, window, cursor, width) {
  const height = 190;
  const margin = { left: 52, right: 10, top: 20, bottom: 24 };
  const values = panel.lines.flatMap((line) => line.y).filter((value) => !missing(value));
  let low = Math.min(...values);
  let high = Math.max(...values);
  if (low > 0 && low < 0.4 * high) low = 0;
  const pad = high > low ? 0.06 * (high - low) : high === 0 ? 1 : 0.5 * Math.abs(high);
  low = low === 0 ? 0 : low - pad;
  high += pad;
  const x = (value) => margin.left + (value / (axis.end || 1)) * (width - margin.left - margin.right);
  const y = (value) => height - margin.bottom - ((value - low) / (high - low)) * (height - margin.top - margin.bottom);

  const vertical = ticks(low, high, 4);
  const grid = vertical.values.map((value) => [
    svg("line", { x1: margin.left, x2: width - margin.right, y1: y(value), y2: y(value), class: "grid" }),
    svg("text", { x: margin.left - 7, y: y(value) + 3.5, class: "tick end" }, vertical.format(value)),
  ]);
  const horizontal = ticks(0, axis.end / axis.scale || 1, Math.max(2, width / 90));
  const bottom = horizontal.values.map((value) =>
    svg(
      "text",
      { x: x(value * axis.scale), y: height - 8, class: x(value * axis.scale) > width - 30 ? "tick end" : "tick middle" },
      horizontal.format(value),
    ),
  );
  const stages = axis.bounds.map((bound, index) => [
    index > 0 && svg("line", { x1: x(bound.from), x2: x(bound.from), y1: margin.top, y2: height - margin.bottom, class: "boundary" }),
    x(bound.to) - x(bound.from) > 34 &&
      svg("text", { x: x(bound.from) + 4, y: 12, class: "stage", style: { "--c": colour(bound.stage) } }, label(bound.stage)),
  ]);
  const lines = panel.lines.map((line) => {
    const known = line.y.filter((value) => !missing(value)).length;
    const style = { "--c": colour(line.stage) };
    if (known === 1) {
      const index = line.y.findIndex((value) => !missing(value));
      return svg("circle", { cx: x(line.x[index]), cy: y(line.y[index]), r: 3, class: "dot", style });
    }
    line.smooth = window > 1 ? smooth(line.y, window) : line.y;
    return [
      window > 1 && svg("path", { d: path(line.x, line.y, x, y), class: "raw", style }),
      svg("path", { d: path(line.x, line.smooth, x, y), class: "curve", style }),
    ];
  });
  const hair = svg("line", { y1: margin.top, y2: height - margin.bottom, class: "hair", visibility: "hidden" });
  const spot = svg("circle", { r: 3.5, class: "dot", visibility: "hidden" });
  const readout = el("span", { class: "readout" });
  const drawing = svg(
    "svg",
    {
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      tabindex: 0,
      role: "img",
      "aria-label": `${panel.title}${panel.unit ? ", " + panel.unit : ""}. ${panel.about}`,
    },
    grid,
    bottom,
    stages,
    lines.flat(2).filter(Boolean),
    hair,
    spot,
  );

  const point = (position) => {
    let best = null;
    for (const line of panel.lines) {
      line.x.forEach((at, index) => {
        const gap = Math.abs(at - position);
        if (!missing(line.y[index]) && (!best || gap < best.gap)) best = { gap, at, line, index };
      });
    }
    const stage = axis.bounds.find((bound) => position <= bound.to) || axis.bounds[axis.bounds.length - 1];
    return best && best.line.stage === stage.stage ? best : null;
  };
  const show = (position) => {
    const found = position === null ? null : point(position);
    hair.setAttribute("visibility", position === null ? "hidden" : "visible");
    spot.setAttribute("visibility", found ? "visible" : "hidden");
    if (position !== null) [hair.setAttribute("x1", x(position)), hair.setAttribute("x2", x(position))];
    if (found) {
      spot.setAttribute("cx", x(found.at));
      spot.setAttribute("cy", y(found.line.y[found.index]));
      spot.style.setProperty("--c", colour(found.line.stage));
    }
    readout.textContent = found
      ? `${label(found.line.stage)} step ${found.line.step[found.index]}: ${compact(found.line.y[found.index])}`
      : "";
  };
  cursor.panels.push(show);
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const share = (((event.clientX - box.left) * width) / box.width - margin.left) / (width - margin.left - margin.right);
    cursor.set(Math.min(1, Math.max(0, share)) * axis.end);
  });
  drawing.addEventListener("pointerleave", () => cursor.set(null));
  drawing.addEventListener("blur", () => cursor.set(null));
  drawing.addEventListener("keydown", (event) => {
    const turn = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!turn) return;
    event.preventDefault();
    const all = panel.lines.flatMap((line) => line.x.filter((_, index) => !missing(line.y[index]))).sort((a, b) => a - b);
    const place = cursor.at === null ? (turn > 0 ? -1 : all.length) : all.findIndex((value) => value >= cursor.at);
    const next = all[Math.min(all.length - 1, Math.max(0, (place < 0 && cursor.at !== null ? all.length : place) + turn))];
    cursor.set(next);
  });
  const unit = panel.unit ? el("span", { class: "unit" }, panel.unit) : null;
  return el("figure", { class: "curve-panel" }, el("figcaption", {}, el("h3", {}, panel.title, unit), readout), drawing);
}
