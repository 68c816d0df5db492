// The curves of every stage on one axis.

const METRICS = {
  "reward/mean": ["Reward", "0–1"],
  divergence: ["Divergence to the teacher", "nats/token"],
  entropy: ["Entropy", "nats/token at the stage's temperature"],
  "length/mean": ["Length", "tokens"],
  truncated: ["Cut at the token limit", "share"],
  loss: ["Loss", ""],
  kl: ["KL to the reference", "nats/token"],
  zero_variance: ["Groups without reward variance", "share"],
  "reward/std": ["Reward, standard deviation", ""],
  unscored: ["Unscored answers", "count"],
  unanswered: ["Answers that never left thinking", "share"],
  clip_fraction: ["Clipped tokens", "share"],
  ratio: ["Ratio of the policies", ""],
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
  const span = curveState.window === "auto" ? auto : Number(curveState.window);
  const axis = sharedAxis();
  const cursor = {
    panels: [],
    at: null,
    set(position) {
      this.at = position;
      this.panels.forEach((show) => show(position));
    },
  };
  const present = [...new Set(data.stages.flatMap((stage) => Object.keys(stage.series)))];
  const known = Object.keys(METRICS);
  const rank = (name) => known.indexOf(name) + 1 || known.length + 1;
  present.sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  const panels = present.map((name) => panelOf(name, axis));
  const leading = panels.filter((panel) => rank(panel.name) <= MAIN);
  const further = panels.filter((panel) => rank(panel.name) > MAIN);
  const redraw = (key) => (value) => {
    curveState[key] = value;
    show();
  };
  const grouped = data.stages.filter((stage) => stage.group > 1);
  const seeds = Math.max(...data.stages.flatMap((stage) => Object.values(stage.seeds).map((each) => each.length)), 1);
  const grid = (list, box) => list.map((panel) => curve(panel, axis, span, cursor, box));
  const available = main.clientWidth - 2 * parseFloat(getComputedStyle(main).paddingLeft);
  const columns = Math.max(1, Math.floor((available + 24) / 384));
  const width = Math.floor((available - 24 * (columns - 1)) / columns);
  return [
    el(
      "div",
      { class: "controls" },
      choice(
        "Axis",
        [
          ["step", "optimizer steps"],
          ["minutes", "training time"],
        ],
        curveState.axis,
        redraw("axis"),
      ),
      choice(
        "Running mean",
        [
          ["auto", `automatic (${auto})`],
          ["1", "none"],
          ["5", "5 points"],
          ["11", "11 points"],
          ["21", "21 points"],
        ],
        curveState.window,
        redraw("window"),
      ),
      !axis.chained && el("div", { class: "legend" }, axis.bounds.map(({ stage }) => tag(stage))),
    ),
    el("div", { class: "curves" }, grid(leading, width)),
    el(
      "p",
      { class: "caption" },
      axis.chained
        ? `Stages follow each other on one axis (${axis.name}). `
        : `One axis (${axis.name}); a stage begins where the one ended whose adapter it went on from, others at 0. `,
      lineMeaning(span, seeds),
      "Measured on what was sampled from the training environments at that step. ",
      "Point at a curve, or focus it and press ← →, to read values in all of them. ",
      grouped.map((stage) => `${label(stage.name)}: a point is the mean of ${stage.group} steps. `),
    ),
    further.length > 0 &&
      el(
        "details",
        {
          open: curveState.further,
          ontoggle: (event) => {
            curveState.further = event.target.open;
          },
        },
        el("summary", {}, count(further.length, "further metric")),
        el("div", { class: "curves" }, grid(further, width)),
      ),
  ];
}

function lineMeaning(span, seeds) {
  const running = span > 1 ? `centred running mean over ${count(span, "point")}` : "";
  if (seeds > 1) return `Strong line: mean over ${seeds} seeds${running && ", as a " + running}; faint lines: each seed. `;
  return running ? `Strong line: ${running}; faint line: each point. ` : "";
}

// A stage begins where the stage ended whose adapter it went on from, any other at 0; in a run that names no such adapter, where the last ended.
function sharedAxis() {
  const step = curveState.axis === "step";
  const length = (stage) => (step ? stage.step[stage.step.length - 1] : stage.minutes[stage.minutes.length - 1]);
  const drawn = data.stages.filter((stage) => stage.step.length > 0);
  const unlinked = drawn.every((stage) => !stage.after);
  const bounds = [];
  for (const stage of drawn) {
    const before = unlinked ? bounds[bounds.length - 1] : bounds.find((bound) => bound.stage === stage.after);
    const from = before ? before.to : 0;
    bounds.push({ stage: stage.name, from, to: from + length(stage) });
  }
  const end = Math.max(0, ...bounds.map((bound) => bound.to));
  const hours = !step && end >= 180;
  return {
    end,
    bounds,
    chained: bounds.every((bound, index) => bound.from === (index ? bounds[index - 1].to : 0)),
    whole: step,
    name: step ? "optimizer steps, counted on" : `training time in ${hours ? "hours" : "minutes"}`,
    scale: hours ? 60 : 1,
  };
}

function panelOf(name, axis) {
  const [title, unit] = METRICS[name] || (name.startsWith("time/") ? [`Time: ${name.slice(5)}`, "s"] : [name, ""]);
  const stages = data.stages.filter((stage) => stage.series[name]);
  const lines = stages.map((stage) => {
    const { from } = axis.bounds.find((bound) => bound.stage === stage.name);
    const places = curveState.axis === "step" ? stage.step : stage.minutes;
    return { stage: stage.name, step: stage.step, x: places.map((place) => from + place), y: stage.series[name], seeds: stage.seeds[name] || [] };
  });
  const about = stages
    .map((stage) => `${label(stage.name)} from ${compact(stage.ends[name][0])} to ${compact(stage.ends[name][1])}`)
    .join("; ");
  return { name, title, unit, lines, about };
}
