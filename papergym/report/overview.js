// What ran and how it came out.

function overview() {
  return [
    facts(),
    data.notes.length > 0 && notes(),
    data.table.length > 0 && comparison(),
    data.stages.length > 0 && stageTable(),
    Object.keys(data.judge_exam).length > 0 && judgeExam(data.judge_exam),
    particulars(),
  ];
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
    ["Note", info.note],
  ];
  return el(
    "dl",
    { class: "facts" },
    entries
      .filter(([, value]) => value)
      .map(([name, value]) => el("div", { class: name === "Command" || name === "Note" ? "wide" : null }, el("dt", {}, name), el("dd", {}, value))),
  );
}

const notes = () =>
  el(
    "aside",
    { class: "notes" },
    el("h2", {}, "Notes on the files"),
    el(
      "ul",
      {},
      data.notes.map((note) => el("li", {}, note)),
    ),
  );

function comparison() {
  const rows = data.table;
  const base = rows.find((row) => row.row === "base");
  const seeds = (row, name) => Object.values(row.seeds || {}).map((means) => means[name]);
  const reward = intervalScale(
    rows.map((row) => row.reward),
    base ? base.reward.mean : null,
    rows.flatMap((row) => seeds(row, "reward")),
  );
  const difference = intervalScale(
    rows.map((row) => row.difference),
    0,
    rows.flatMap((row) => (row.difference ? seeds(row, "difference") : [])),
  );
  const paired = rows.some((row) => row.difference);
  const alike = rows.every((row) => row.environments === rows[0].environments && row.samples === rows[0].samples);
  const unscored = rows.some((row) => row.unscored);
  const entropy = rows.some((row) => row.entropy && !missing(row.entropy.mean));
  const body = rows.map((row) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, tag(row.row)),
      alike ? null : [cell(whole(row.environments), "right"), cell(whole(row.samples), "right")],
      cell(interval(row.reward, fixed), "right"),
      cell(reward.draw(row.reward, row.row, seeds(row, "reward")), "plot"),
      paired && [
        cell(interval(row.difference, signed), "right" + (excludesZero(row.difference) ? " strong" : "")),
        cell(row.difference && difference.draw(row.difference, row.row, seeds(row, "difference")), "plot"),
      ],
      cell(interval(row.tokens, whole), "right"),
      entropy && cell(interval(row.entropy, compact), "right"),
      cell(percent(row.truncated), "right"),
      unscored && cell(whole(row.unscored), "right" + (row.unscored ? " warn" : "")),
    ),
  );
  const headings = ["Row"]
    .concat(alike ? [] : [right("Environments"), right("Answers")])
    .concat([right("Reward, 0–1"), plot(reward.axis)])
    .concat(paired ? [right("Difference to base"), plot(difference.axis)] : [])
    .concat([right("Tokens an answer")], entropy ? [right("Entropy, nats/token")] : [], [right("Cut at limit")], unscored ? [right("Unscored")] : []);
  return section(
    data.heldout ? "Evaluation on held-out environments" : "Evaluation",
    table(headings, body, { label: "Comparison of evaluations", class: "cards" }),
    caption(rows, paired, alike),
  );
}

const excludesZero = (estimate) => estimate && !missing(estimate.low) && (estimate.low > 0 || estimate.high < 0);

function caption(rows, paired, alike) {
  const fewest = Math.min(...rows.map((row) => row.environments));
  const reading = [
    alike ? `${count(rows[0].samples, "answer")} to ${count(rows[0].environments, "environment")} in each row. ` : "",
    "Reward: weighted share of the specialised and general criteria that the judge finds met; each environment counts once," +
      " by the mean of its scored answers. Brackets: 95 % bootstrap intervals over environments (percentile, 10,000 resamples). ",
  ];
  if (paired)
    reading.push(
      "Difference: formed within each environment, then resampled; it is the one to judge by, bold where its interval" +
        " excludes 0. Dashed: base and 0. ",
    );
  if (rows.some((row) => row.unscored)) reading.push("Unscored answers are in no mean.");
  const limits = [];
  if (fewest < 20) limits.push(`With ${count(fewest, "environment")}, the intervals are rough and tend to be too narrow. `);
  const seeds = Math.max(...rows.map((row) => Object.keys(row.seeds || {}).length));
  limits.push(
    seeds > 1
      ? `They cover the choice of environments; the ${seeds} small strokes below them are the means of the ${seeds} training runs. `
      : "They cover the choice of environments, not the spread between training runs. ",
  );
  if (/^lexical/.test(String(data.info.judge)))
    limits.push("The lexical judge sees which words of a criterion a plan covers, not whether the plan is sound.");
  return [el("p", { class: "caption" }, reading), el("p", { class: "caption" }, el("strong", {}, "Limits. "), limits)];
}

function stageTable() {
  const shown = [
    ["reward/mean", "Reward", fixed],
    ["divergence", "Divergence, nats/token", compact],
    ["entropy", "Entropy, nats/token", compact],
    ["length/mean", "Length, tokens", whole],
    ["truncated", "Cut at limit", percent],
  ];
  const present = shown.filter(([name]) => data.stages.some((stage) => stage.ends[name]));
  const change = (ends, format) =>
    ends ? el("span", { class: "number" }, format(ends[0]), el("span", { class: "to" }, " → "), format(ends[1])) : "–";
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
    table(["Stage", right("Steps"), right("Training time"), ...present.map(([, text]) => right(text))], rows, {
      label: "Stages",
      class: "cards",
    }),
    el(
      "p",
      { class: "caption" },
      `Start → end: means over ${over}, on the training environments as sampled; these are not held out.` +
        " Training time is the sum of the steps’ times, without evaluation and pauses.",
    ),
  );
}

function particulars() {
  const { versions, config, ...rest } = data.info;
  const json = (value) => el("pre", { tabindex: 0 }, JSON.stringify(value, null, 2));
  const known = ["command", "created", "model", "machine", "judge", "stages"];
  const others = Object.fromEntries(Object.entries(rest).filter(([name]) => !known.includes(name)));
  const rejected = data.rejects.first.map((record) => el("li", {}, el("b", {}, record.paper), ": ", record.reason));
  const parts = [
    versions &&
      fold(
        "Versions",
        el(
          "dl",
          { class: "pairs" },
          Object.entries(versions).map(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))]),
        ),
      ),
    config && fold("Configuration", json(config)),
    Object.keys(others).length > 0 && fold("Further fields of run.json", json(others)),
    Object.keys(data.summaries).length > 0 && fold("Evaluation settings (eval/*.json)", json(data.summaries)),
    data.rejects.count > 0 &&
      fold(`Rejected papers (${data.rejects.count})`, [
        el("ul", {}, rejected),
        data.rejects.count > rejected.length && el("p", { class: "quiet" }, `The first ${rejected.length} are listed.`),
      ]),
  ].filter(Boolean);
  return parts.length > 0 && section("Particulars", parts);
}
