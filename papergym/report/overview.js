// What ran and how it came out; the curves of every stage on one axis.

function overview() {
  return [facts(), data.notes.length > 0 && notes(), data.table.length > 0 && comparison(), data.stages.length > 0 && stageTable(), particulars()];
}

function facts() {
  const { info } = data;
  const names = { heldout: "held out", train: "for training" };
  const splits = Object.entries(data.splits).map(([split, number]) => `${whole(number)} ${names[split] || split}`);
  if (data.rejects.count) splits.push(`${count(data.rejects.count, "paper")} rejected`);
  const entries = [
    ["Command", info.command && el("code", {}, Array.isArray(info.command) ? info.command.join(" ") : info.command)],
    ["Started", info.created],
    ["Model", info.model],
    ["Machine", info.machine],
    ["Judge", typeof info.judge === "string" ? info.judge : info.judge && JSON.stringify(info.judge)],
    ["Stages", data.stages.length > 0 && data.stages.map((stage) => tag(stage.name))],
    ["Environments", splits.join(", ")],
  ];
  return el("dl", { class: "facts" }, entries.filter(([, value]) => value).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

const notes = () => el("aside", { class: "notes" }, el("h2", {}, "Notes on the files"), el("ul", {}, data.notes.map((note) => el("li", {}, note))));

function comparison() {
  const rows = data.table;
  const base = rows.find((row) => row.row === "base");
  const reward = intervalScale(rows.map((row) => row.reward), base ? base.reward.mean : null);
  const difference = intervalScale(rows.map((row) => row.difference), 0);
  const paired = rows.some((row) => row.difference);
  const body = rows.map((row) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, tag(row.row)),
      cell(whole(row.environments), "right"),
      cell(whole(row.samples), "right"),
      cell(interval(row.reward, fixed), "right"),
      cell(reward(row.reward, row.row), "plot"),
      paired && [cell(interval(row.difference, signed), "right" + (excludesZero(row.difference) ? " strong" : "")), cell(row.difference && difference(row.difference, row.row), "plot")],
      cell(interval(row.tokens, whole), "right"),
      cell(percent(row.truncated, 1), "right"),
      cell(whole(row.unscored), "right" + (row.unscored ? " warn" : "")),
    ),
  );
  const headings = ["Row", right("Environments"), right("Answers"), right("Reward, 0–1"), ""]
    .concat(paired ? [right("Difference to base"), ""] : [])
    .concat([right("Tokens an answer"), right("Cut at limit"), right("Unscored")]);
  return section(data.heldout ? "Evaluation on held-out environments" : "Evaluation", table(headings, body, { label: "Comparison of evaluations", class: "cards" }), caption(rows, paired));
}

const excludesZero = (estimate) => estimate && !missing(estimate.low) && (estimate.low > 0 || estimate.high < 0);

function caption(rows, paired) {
  const fewest = Math.min(...rows.map((row) => row.environments));
  const reading = ["Reward: weighted share of the specialised and general criteria that the judge finds met; each environment counts once, by the mean of its scored answers. Brackets: 95 % bootstrap intervals over environments (percentile, 10,000 resamples). "];
  if (paired) reading.push("Difference: formed within each environment, then resampled; it is the one to judge by, bold where its interval excludes 0. Dashed: base and 0. ");
  if (rows.some((row) => row.unscored)) reading.push("Unscored answers are in no mean.");
  const limits = [];
  if (fewest < 20) limits.push(`With ${count(fewest, "environment")}, the intervals are rough and tend to be too narrow. `);
  limits.push("They cover the choice of environments, not the spread between training runs. ");
  if (/^lexical/.test(String(data.info.judge))) limits.push("The lexical judge sees which words of a criterion a plan covers, not whether the plan is sound.");
  return [el("p", { class: "caption" }, reading), el("p", { class: "caption" }, el("strong", {}, "Limits. "), limits)];
}

function stageTable() {
  const shown = [["reward/mean", "Reward", fixed], ["divergence", "Divergence, nats/token", compact], ["entropy", "Entropy, nats/token", compact], ["length/mean", "Length, tokens", whole], ["truncated", "Cut at limit", percent]];
  const present = shown.filter(([name]) => data.stages.some((stage) => stage.ends[name]));
  const change = (ends, format) => (ends ? el("span", { class: "number" }, format(ends[0]), el("span", { class: "to" }, " → "), format(ends[1])) : "–");
  const rows = data.stages.map((stage) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, tag(stage.name)),
      cell(whole(stage.steps), "right"),
      cell(duration(stage.minutes[stage.minutes.length - 1]), "right"),
      present.map(([name, , format]) => cell(change(stage.ends[name], format), "right")),
    ),
  );
  const spans = [...new Set(data.stages.flatMap((stage) => Object.values(stage.ends).map((ends) => ends[2])))].sort((a, b) => a - b);
  const over = spans.length === 1 && spans[0] === 1 ? "the first and the last step" : `the first and the last ${spans.join(" or ")} steps`;
  return section(
    "Training",
    table(["Stage", right("Steps"), right("Training time"), ...present.map(([, text]) => right(text))], rows, { label: "Stages", class: "cards" }),
    el("p", { class: "caption" }, `Start → end: means over ${over}, on the training environments as sampled; these are not held out. Training time is the sum of the steps’ times, without evaluation and pauses.`),
  );
}

function particulars() {
  const { versions, config, ...rest } = data.info;
  const json = (value) => el("pre", { tabindex: 0 }, JSON.stringify(value, null, 2));
  const known = ["command", "created", "model", "machine", "judge", "stages"];
  const others = Object.fromEntries(Object.entries(rest).filter(([name]) => !known.includes(name)));
  const rejected = data.rejects.first.map((record) => el("li", {}, el("b", {}, record.paper), ": ", record.reason));
  const parts = [
    versions && fold("Versions", el("dl", { class: "pairs" }, Object.entries(versions).map(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))]))),
    config && fold("Configuration", json(config)),
    Object.keys(others).length > 0 && fold("Further fields of run.json", json(others)),
    Object.keys(data.summaries).length > 0 && fold("Evaluation settings (eval/*.json)", json(data.summaries)),
    data.rejects.count > 0 && fold(`Rejected papers (${data.rejects.count})`, [el("ul", {}, rejected), data.rejects.count > rejected.length && el("p", { class: "quiet" }, `The first ${rejected.length} are listed.`)]),
  ].filter(Boolean);
  return parts.length > 0 && section("Particulars", parts);
}

// Curves --------------------------------------------------------------------------------------------------------------------

const METRICS = {
  "reward/mean": ["Reward", "0–1"],
  divergence: ["Divergence to the teacher", "nats/token"],
  entropy: ["Entropy", "nats/token"],
  "length/mean": ["Length", "tokens"],
  truncated: ["Cut at the token limit", "share"],
  loss: ["Loss", ""],
  kl: ["KL to the reference", "nats/token"],
  zero_variance: ["Groups without reward variance", "share"],
  "reward/std": ["Reward, standard deviation", ""],
  unscored: ["Unscored answers", "count"],
  unanswered: ["Answers that never left thinking", "share"],
  clip_fraction: ["Clipped tokens", "share"],
  "mismatch/mean": ["Sampler–trainer mismatch, mean", "nats"],
  "mismatch/max": ["Sampler–trainer mismatch, largest", "nats"],
  teacher_entropy: ["Teacher entropy", "nats/token"],
  top1_agree: ["Top token agrees with teacher", "share"],
  grad_norm: ["Gradient norm", ""],
  lr: ["Learning rate", ""],
};
const MAIN = 6; // the first of METRICS; the rest can be folded away
const curveState = { axis: "step", window: "auto", further: true };

function curves() {
  const total = data.stages.reduce((sum, stage) => sum + stage.step.length, 0);
  const auto = Math.max(1, 2 * Math.floor(total / data.stages.length / 40) + 1);
  const window_ = curveState.window === "auto" ? auto : Number(curveState.window);
  const axis = sharedAxis();
  const cursor = { panels: [], at: null, set(position) { this.at = position; this.panels.forEach((show) => show(position)); } };
  const present = [...new Set(data.stages.flatMap((stage) => Object.keys(stage.series)))];
  const known = Object.keys(METRICS);
  const rank = (name) => (known.indexOf(name) + 1 || known.length + 1);
  present.sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  const panels = present.map((name) => panelOf(name, axis));
  const main = panels.filter((panel) => rank(panel.name) <= MAIN);
  const further = panels.filter((panel) => rank(panel.name) > MAIN);
  const redraw = (key) => (value) => { curveState[key] = value; show(); };
  const grouped = data.stages.filter((stage) => stage.group > 1);
  const grid = (list, box) => list.map((panel) => curve(panel, axis, window_, cursor, box));
  const available = document.getElementById("main").clientWidth - 2 * parseFloat(getComputedStyle(document.getElementById("main")).paddingLeft);
  const columns = Math.max(1, Math.floor((available + 24) / 384));
  const width = Math.floor((available - 24 * (columns - 1)) / columns);
  return [
    el(
      "div",
      { class: "controls" },
      choice("Axis", [["step", "optimizer steps"], ["minutes", "training time"]], curveState.axis, redraw("axis")),
      choice("Running mean", [["auto", `automatic (${auto})`], ["1", "none"], ["5", "5 points"], ["11", "11 points"], ["21", "21 points"]], curveState.window, redraw("window")),
    ),
    el("div", { class: "curves" }, grid(main, width)),
    el("p", { class: "caption" },
      `Stages follow each other on one axis (${axis.name}). Strong line: centred running mean over ${count(window_, "point")}; faint line: each point. `,
      "Measured on what was sampled from the training environments at that step. Point at a curve, or focus it and press ← →, to read values in all of them. ",
      grouped.map((stage) => `${label(stage.name)}: a point is the mean of ${stage.group} steps. `)),
    further.length > 0 && el("details", { open: curveState.further, ontoggle: (event) => { curveState.further = event.target.open; } },
      el("summary", {}, count(further.length, "further metric")), el("div", { class: "curves" }, grid(further, width))),
  ];
}

function sharedAxis() {
  const step = curveState.axis === "step";
  let end = 0;
  const bounds = data.stages.filter((stage) => stage.step.length > 0).map((stage) => {
    const from = end;
    end += step ? stage.step[stage.step.length - 1] : stage.minutes[stage.minutes.length - 1];
    return { stage: stage.name, from, to: end };
  });
  const hours = !step && end >= 180;
  return { end, bounds, name: step ? "optimizer steps, counted on" : `training time in ${hours ? "hours" : "minutes"}`, scale: hours ? 60 : 1 };
}

function panelOf(name, axis) {
  const [title, unit] = METRICS[name] || (name.startsWith("time/") ? [`Time: ${name.slice(5)}`, "s"] : [name, ""]);
  const stages = data.stages.filter((stage) => stage.series[name]);
  const lines = stages.map((stage) => {
    const { from } = axis.bounds.find((bound) => bound.stage === stage.name);
    const places = curveState.axis === "step" ? stage.step : stage.minutes;
    return { stage: stage.name, step: stage.step, x: places.map((place) => from + place), y: stage.series[name] };
  });
  const about = stages.map((stage) => `${label(stage.name)} from ${compact(stage.ends[name][0])} to ${compact(stage.ends[name][1])}`).join("; ");
  return { name, title, unit, lines, about };
}
