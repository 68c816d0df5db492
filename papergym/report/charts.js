// Pictures, drawn as SVG: intervals, changes, and curves that share one axis and one cursor.

// {values, step, format}: round numbers between low and high, at least `least` apart, with the decimals that tell them apart.
function ticks(low, high, wanted, least = 0) {
  const rough = Math.max(least, (high - low) / wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + step * 1e-9; index += 1) found.push(index * step || 0);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) + (/^25/.test(String(step * 10 ** 9)) && step < 10 ? 1 : 0);
  return {
    values: found,
    step,
    format: (value) =>
      value === 0
        ? "0"
        : digits > 4
          ? minus(value.toExponential(1))
          : minus(value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })),
  };
}

// The scale of a column of small drawings: {x: value -> place, axis: its drawing, for the head of the column}. It ends at round numbers.
function columnScale(values, width) {
  const known = values.filter((value) => !missing(value));
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const { step } = ticks(least, most > least ? most : least + 0.1, 2.5);
  const low = Math.floor(least / step + 1e-9) * step;
  const high = Math.max(low + step, Math.ceil(most / step - 1e-9) * step);
  const scale = ticks(low, high, (high - low) / step);
  const x = (value) => 8 + ((value - low) / (high - low)) * (width - 16);
  const axis = scale.values.map((value) => [
    svg("text", { x: x(value), y: 9, class: "tick middle" }, scale.format(value)),
    svg("line", { x1: x(value), x2: x(value), y1: 13, y2: 17, class: "reference" }),
  ]);
  return { x, axis: svg("svg", { width, height: 17, class: "interval", "aria-hidden": "true" }, axis.flat()) };
}

// A column of intervals on one scale: {axis, draw: (estimate, row's name, means of its seeds) -> drawing}. reference: the dashed line.
function intervalScale(estimates, reference, seeds = [], width = 150) {
  const { x, axis } = columnScale([...estimates.flatMap((item) => (item ? [item.mean, item.low, item.high] : [])), ...seeds, reference], width);
  const draw = (estimate, name, means = []) => {
    const marks = means
      .filter((value) => !missing(value))
      .map((value) => svg("line", { x1: x(value), x2: x(value), y1: 16, y2: 21, class: "seed" }));
    if (!missing(reference)) marks.push(svg("line", { x1: x(reference), x2: x(reference), y1: 0, y2: 22, class: "reference" }));
    if (estimate && !missing(estimate.low))
      marks.push(svg("line", { x1: x(estimate.low), x2: x(estimate.high), y1: 11, y2: 11, class: "whisker" }));
    if (estimate && !missing(estimate.mean)) marks.push(svg("circle", { cx: x(estimate.mean), cy: 11, r: 4, class: "dot" }));
    return svg("svg", { width, height: 22, class: "interval", "aria-hidden": "true", style: { "--c": colour(name) } }, marks);
  };
  return { axis, draw };
}

function arrow(before, after, x, width) {
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

// panel: {title, unit, about, lines: [{stage, step, x, y, seeds: [y of each]}]}; cursor: {panels: [], set(x)} shared by all curves;
// axis: {end, scale, whole: whole numbers only, bounds: [{stage, from, to}], chained: each begins where the last ended, name}.
function curve(panel, axis, window, cursor, width) {
  const height = 190;
  const margin = { left: 52, right: 10, top: 20, bottom: 24 };
  const values = panel.lines.flatMap((line) => [line.y, ...line.seeds].flat()).filter((value) => !missing(value));
  let low = Math.min(...values);
  let high = Math.max(...values);
  if (low > 0 && low < 0.4 * high) low = 0;
  const pad = high > low ? 0.06 * (high - low) : high === 0 ? 1 : 0.5 * Math.abs(high);
  low = low === 0 ? 0 : low - pad;
  high += pad;
  if (panel.unit === "share" || panel.unit === "0–1") [low, high] = [Math.max(0, low), Math.min(1, high)];
  const x = (value) => margin.left + (value / (axis.end || 1)) * (width - margin.left - margin.right);
  const y = (value) => height - margin.bottom - ((value - low) / (high - low)) * (height - margin.top - margin.bottom);

  const vertical = ticks(low, high, 4);
  const grid = vertical.values.map((value) => [
    svg("line", { x1: margin.left, x2: width - margin.right, y1: y(value), y2: y(value), class: "grid" }),
    svg("text", { x: margin.left - 7, y: y(value) + 3.5, class: "tick end" }, vertical.format(value)),
  ]);
  const horizontal = ticks(0, axis.end / axis.scale || 1, Math.max(2, width / 90), axis.whole ? 1 : 0);
  const bottom = horizontal.values.map((value) =>
    svg(
      "text",
      { x: x(value * axis.scale), y: height - 8, class: x(value * axis.scale) > width - 30 ? "tick end" : "tick middle" },
      horizontal.format(value),
    ),
  );
  const stages = (axis.chained ? axis.bounds : []).map((bound, index) => [
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
    const faint = line.seeds.length > 0 ? line.seeds : window > 1 ? [line.y] : [];
    return [
      faint.map((points) => svg("path", { d: path(line.x, points, x, y), class: "raw", style })),
      svg("path", { d: path(line.x, line.smooth, x, y), class: "curve", style }),
    ];
  });
  const hair = svg("line", { y1: margin.top, y2: height - margin.bottom, class: "hair", visibility: "hidden" });
  const spots = panel.lines.map((line) => svg("circle", { r: 3.5, class: "dot", visibility: "hidden", style: { "--c": colour(line.stage) } }));
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
    spots,
  );

  // Index of a line's point nearest to the position, if the position lies within its stage.
  const nearest = (line, position) => {
    const bound = axis.bounds.find((item) => item.stage === line.stage);
    if (position > bound.to || (axis.bounds.some((item) => item.to === bound.from) && position <= bound.from)) return null;
    const gaps = line.x.map((at, index) => (missing(line.y[index]) ? Infinity : Math.abs(at - position)));
    const best = gaps.indexOf(Math.min(...gaps));
    return gaps[best] < Infinity ? best : null;
  };
  const show = (position) => {
    hair.setAttribute("visibility", position === null ? "hidden" : "visible");
    if (position !== null) [hair.setAttribute("x1", x(position)), hair.setAttribute("x2", x(position))];
    const found = panel.lines.map((line) => (position === null ? null : nearest(line, position)));
    panel.lines.forEach((line, place) => {
      const index = found[place];
      spots[place].setAttribute("visibility", index === null ? "hidden" : "visible");
      if (index === null) return;
      spots[place].setAttribute("cx", x(line.x[index]));
      spots[place].setAttribute("cy", y(line.y[index]));
    });
    const read = panel.lines.flatMap((line, place) => (found[place] === null ? [] : [[line, found[place]]]));
    readout.replaceChildren(
      ...(read.length === 1
        ? [`${label(read[0][0].stage)} step ${read[0][0].step[read[0][1]]}: ${compact(read[0][0].y[read[0][1]])}`]
        : read.flatMap(([line, index]) => [el("b", { style: { "--c": colour(line.stage) } }, compact(line.y[index])), " "])),
    );
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
