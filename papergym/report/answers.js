// Held-out answers before and after, side by side; and the rollouts of training.

const SIGNS = { 1: ["met", "met"], 0: ["not met", "unmet"], "-": ["not scored", "unscored"] };
const STATES = [["any", "any verdict"], ["1", "met"], ["0", "not met"], ["-", "not scored"]];
const compareStates = [["gained", "gained since base"], ["lost", "lost since base"]];

const answerState = { paper: "all", criterion: "any", state: "any", row: null, reward: {}, tokens: {}, order: "gain", columns: null };
const rolloutState = { paper: "all", criterion: "any", state: "any", stage: "all", steps: {}, reward: {}, tokens: {}, order: "step" };

const groups = new Map();
for (const answer of data.answers) {
  const key = `${answer.environment}\u0000${answer.sample}`;
  if (!groups.has(key)) groups.set(key, { key, environment: answer.environment, sample: answer.sample, by: {} });
  groups.get(key).by[answer.source] = answer;
}

const mark = (sign) => {
  const [name, kind] = SIGNS[sign] || ["no verdict", "none"];
  return el("span", { class: `mark ${kind}`, title: name }, el("span", { class: "hidden" }, name));
};

const verdictsOf = (answer, criterion) => {
  if (!answer) return "";
  if (criterion === "any") return (answer.specialised || "") + (answer.general || "");
  if (criterion === "specialised" || criterion === "general") return answer[criterion] || "";
  const [kind, index] = criterion.split(":");
  return (answer[kind] || "")[Number(index)] || "";
};

function stateHolds(answer, base, { criterion, state }) {
  if (state === "any") return true;
  const after = [...verdictsOf(answer, criterion)];
  if (state !== "gained" && state !== "lost") return after.includes(state);
  const before = verdictsOf(base, criterion);
  const [from, to] = state === "gained" ? ["0", "1"] : ["1", "0"];
  return after.some((sign, index) => sign === to && before[index] === from);
}

function criterionOptions(paper) {
  const chosen = data.environments.filter((item) => item.paper === paper);
  const own = chosen.length === 1 ? chosen[0].rubric.map((criterion, index) => [`specialised:${index}`, `${index + 1}. ${opening(criterion.text, 60)}`]) : [];
  return [["any", "any criterion"], ["specialised", "any of its rubric"], ...own, ["general", "any general one"], ...data.general.map((name, index) => [`general:${index}`, name])];
}

const papers = (list) => [["all", "all"], ...[...new Set(list.map((answer) => paperOf(answer.environment)))].sort().map((paper) => [paper, paper])];

// Changing the paper drops a criterion that the other paper doesn't have.
function setFilter(state, key, value) {
  state[key] = value;
  if (key === "paper" && state.criterion.startsWith("specialised:")) state.criterion = "any";
  show();
}

const bounds = (state, key) => (which, value) => setFilter(state, key, { ...state[key], [which]: value });

// Before and after ----------------------------------------------------------------------------------------------------------

function answers(environment, sample) {
  const state = answerState;
  state.row = state.row || data.rows[data.rows.length - 1];
  const hasBase = data.rows.includes("base");
  const gain = (group) => (group.by[state.row] && group.by.base && !missing(group.by[state.row].reward) && !missing(group.by.base.reward) ? group.by[state.row].reward - group.by.base.reward : null);
  const value = (group, name) => (group.by[state.row] ? group.by[state.row][name] : null);
  const orders = {
    gain: ["largest gain", (a, b) => (gain(b) ?? -9) - (gain(a) ?? -9)],
    fall: ["largest fall", (a, b) => (gain(a) ?? 9) - (gain(b) ?? 9)],
    reward: ["highest reward", (a, b) => (value(b, "reward") ?? -1) - (value(a, "reward") ?? -1)],
    tokens: ["longest", (a, b) => (value(b, "tokens") ?? -1) - (value(a, "tokens") ?? -1)],
    paper: ["paper", (a, b) => (paperOf(a.environment) < paperOf(b.environment) ? -1 : paperOf(a.environment) > paperOf(b.environment) ? 1 : a.sample - b.sample)],
  };
  if (!hasBase && (state.order === "gain" || state.order === "fall")) state.order = "reward";
  const items = [...groups.values()]
    .filter((group) => state.paper === "all" || paperOf(group.environment) === state.paper)
    .filter((group) => group.by[state.row] && within(group.by[state.row].reward, state.reward) && within(group.by[state.row].tokens, state.tokens))
    .filter((group) => stateHolds(group.by[state.row], group.by.base, state))
    .sort(orders[state.order][1]);
  const wanted = items.find((group) => group.environment === environment && (sample === undefined || group.sample === Number(sample)));
  const current = wanted || items[0];
  const detail = el("article", { class: "detail" });
  const open = (group) => detail.replaceChildren(...(group ? answerDetail(group) : [el("p", { class: "quiet" }, "No answer matches the filters.")]));
  open(current);
  const set = (key) => (choiceValue) => setFilter(state, key, choiceValue);
  return browser(
    [
      choice("Filters look at", data.rows.map((row) => [row, label(row)]), state.row, set("row")),
      choice("Paper", papers(data.answers), state.paper, set("paper")),
      choice("Criterion", criterionOptions(state.paper), state.criterion, set("criterion")),
      choice("Verdict", hasBase ? [...STATES, ...compareStates] : STATES, state.state, set("state")),
      range("Reward", state.reward.low, state.reward.high, 0.05, bounds(state, "reward")),
      range("Tokens", state.tokens.low, state.tokens.high, 10, bounds(state, "tokens")),
      choice("Order", Object.entries(orders).filter(([key]) => hasBase || (key !== "gain" && key !== "fall")).map(([key, [name]]) => [key, name]), state.order, set("order")),
    ],
    keptAnswers(items.length),
    listbox("Answers", items, current && current.key, (group) => [
      el("b", {}, paperOf(group.environment), el("span", { class: "quiet" }, ` · sample ${group.sample}`)),
      el("span", { class: "rewards" }, data.rows.filter((row) => group.by[row]).map((row) => el("span", { style: { "--c": colour(row) } }, `${label(row)} ${fixed(group.by[row].reward, 2)}`))),
      hasBase && state.row !== "base" && el("span", { class: "delta " + (gain(group) > 0 ? "up" : gain(group) < 0 ? "down" : "") }, signed(gain(group), 2)),
    ], (group) => { remember("answers", group.environment, group.sample); open(group); }),
    detail,
  );
}

function keptAnswers(shown) {
  const [kept, total] = data.kept.answers;
  return el("p", { class: "kept", role: "status" }, `${whole(shown)} of ${count(groups.size, "comparison")}`,
    kept < total && `; ${whole(kept)} of the run’s ${whole(total)} answers are kept in this file, lowest sample numbers first. The table covers all of them.`);
}

function answerDetail(group) {
  const item = environmentById.get(group.environment);
  const available = data.rows.filter((row) => group.by[row]);
  const chosen = answerState.columns || new Set([...data.rows.slice(0, 1), ...data.rows.slice(-2), "reference"].slice(0, 3));
  const toggles = [...data.rows, "reference"].map((name) =>
    el("label", { class: "toggle" }, el("input", { type: "checkbox", checked: chosen.has(name), onchange: (event) => {
      const columns = new Set(chosen);
      if (event.target.checked) columns.add(name); else columns.delete(name);
      answerState.columns = columns;
      remember("answers", group.environment, group.sample);
      show();
    } }), tag(name)));
  const columns = available.filter((row) => chosen.has(row)).map((row) => answerColumn(group.by[row]));
  if (chosen.has("reference")) columns.push(el("section", { class: "answer" }, el("header", {}, tag("reference")), prose(item && item.reference, "This environment has no reference in the file.")));
  return [
    el("header", {}, el("h2", {}, `${paperOf(group.environment)}, sample ${group.sample}`), item && el("p", {}, el("a", { href: link("environments", group.environment) }, "The environment"))),
    item ? fold("Question", prose(item.question)) : el("p", { class: "quiet" }, "This environment is not kept in the file."),
    verdictTable(group, available),
    el("div", { class: "toggles", role: "group", "aria-label": "Columns" }, "Side by side: ", toggles),
    el("div", { class: "columns" }, columns),
  ];
}

function verdictTable(group, rows) {
  const item = environmentById.get(group.environment);
  const line = (kind, index, number, text) => {
    const signs = rows.map((row) => (group.by[row][kind] || "")[index]);
    const pairs = shares(group.environment, kind, index);
    const changed = signs[0] !== signs[signs.length - 1] && signs.length > 1;
    return el("tr", { class: changed ? "changed" : null }, cell(number, "right quiet"), cell(text, "text"),
      rows.map((row, place) => cell([mark(signs[place]), pairs[row] && el("span", { class: "share" }, `${pairs[row][0]}/${pairs[row][1]}`)], "verdict")));
  };
  const length = Math.max(0, ...rows.map((row) => (group.by[row].specialised || "").length));
  const specialised = Array.from({ length }, (_, index) => line("specialised", index, index + 1, item ? item.rubric[index].text : `Criterion ${index + 1}`));
  const general = data.general.map((name, index) => line("general", index, "", name));
  const numbers = (name, format) => el("tr", { class: "sum" }, cell("", "right quiet"), el("th", { scope: "row" }, name), rows.map((row) => cell(format(group.by[row]), "verdict")));
  return fold("Verdicts", [
    table([right("#"), "Criterion", ...rows.map((row) => ({ text: label(row), class: "verdict" }))],
      [numbers("Reward", (answer) => fixed(answer.reward)), numbers("Tokens", (answer) => whole(answer.tokens)),
        specialised.length > 0 && [kindHeading("Specialised", rows.length), specialised], general.length > 0 && [kindHeading("General", rows.length), general]].flat(2).filter(Boolean),
      { label: "Verdicts for each criterion", class: "criteria" }),
    el("p", { class: "caption" }, mark("1"), "met, ", mark("0"), "not met, ", mark("-"), "not scored. Beside the mark: how many of all scored answers to this question meet the criterion. Shaded: first and last row differ."),
  ], true);
}

const kindHeading = (text, columns) => el("tr", { class: "kind" }, cell("", "right quiet"), el("th", { colspan: columns + 1, scope: "rowgroup" }, text));

function answerColumn(answer, named = true) {
  const cut = answer.finish === "length";
  return el("section", { class: "answer" },
    el("header", {}, named && tag(answer.source), answer.specialised && el("span", { class: "number" }, missing(answer.reward) ? "reward not scored" : `reward ${fixed(answer.reward)}`), el("span", { class: "number" }, count(answer.tokens, "token")), cut && el("span", { class: "warn" }, "cut at the limit")),
    answer.thinking && answer.thinking.trim() && fold(`Thinking (${count(answer.thinking.length, "character")})`, prose(answer.thinking)),
    answer.raw && fold("Response as sampled", prose(answer.raw)),
    prose(answer.plan, "There is no answer after the thinking block."),
    answer.stop && answer.stop.trim() && el("p", { class: "stop" }, el("code", {}, answer.stop.trim())));
}

// Training rollouts ---------------------------------------------------------------------------------------------------------

const rolloutKey = (rollout) => [rollout.source, rollout.step, rollout.environment, rollout.sample].join("\u0000");

function rollouts(stage, step, environment, sample) {
  const state = rolloutState;
  const orders = {
    step: ["step", () => 0],
    reward: ["highest reward", (a, b) => (b.reward ?? -1) - (a.reward ?? -1)],
    low: ["lowest reward", (a, b) => (a.reward ?? 9) - (b.reward ?? 9)],
    tokens: ["longest", (a, b) => b.tokens - a.tokens],
    short: ["shortest", (a, b) => a.tokens - b.tokens],
  };
  const place = new Map(data.stages.map((item, index) => [item.name, index]));
  const items = data.rollouts
    .filter((rollout) => state.paper === "all" || paperOf(rollout.environment) === state.paper)
    .filter((rollout) => state.stage === "all" || rollout.source === state.stage)
    .filter((rollout) => within(rollout.step, state.steps) && within(rollout.reward, state.reward) && within(rollout.tokens, state.tokens))
    .filter((rollout) => stateHolds(rollout, null, state))
    .map((rollout) => ({ ...rollout, key: rolloutKey(rollout) }))
    .sort((a, b) => place.get(a.source) - place.get(b.source) || a.step - b.step)
    .sort(orders[state.order][1]);
  const wanted = stage === undefined ? null : rolloutKey({ source: stage, step: Number(step), environment, sample: Number(sample) });
  const current = items.find((item) => item.key === wanted) || items[0];
  const detail = el("article", { class: "detail" });
  const open = (rollout) => detail.replaceChildren(...(rollout ? rolloutDetail(rollout) : [el("p", { class: "quiet" }, "No rollout matches the filters.")]));
  open(current);
  const set = (key) => (value) => setFilter(state, key, value);
  const [kept, total] = data.kept.rollouts;
  const steps = new Set(data.rollouts.map((rollout) => `${rollout.source} ${rollout.step}`)).size;
  return browser(
    [
      choice("Stage", [["all", "all"], ...data.stages.map((item) => [item.name, label(item.name)])], state.stage, set("stage")),
      choice("Paper", papers(data.rollouts), state.paper, set("paper")),
      choice("Criterion", criterionOptions(state.paper), state.criterion, set("criterion")),
      choice("Verdict", STATES, state.state, set("state")),
      range("Step", state.steps.low, state.steps.high, 1, bounds(state, "steps")),
      range("Reward", state.reward.low, state.reward.high, 0.05, bounds(state, "reward")),
      range("Tokens", state.tokens.low, state.tokens.high, 10, bounds(state, "tokens")),
      choice("Order", Object.entries(orders).map(([key, [name]]) => [key, name]), state.order, set("order")),
    ],
    el("p", { class: "kept", role: "status" }, `${whole(items.length)} of ${count(data.rollouts.length, "rollout")}`,
      kept < total && `; kept in this file: all rollouts of ${count(steps, "step")} spread over training, ${whole(kept)} of the run’s ${whole(total)}.`),
    listbox("Training rollouts", items, current && current.key, (rollout) => [
      el("b", {}, tag(rollout.source), ` step ${rollout.step}`, el("span", { class: "quiet" }, ` · sample ${rollout.sample}`)),
      el("span", { class: "quiet" }, paperOf(rollout.environment)),
      el("span", { class: "rewards" }, !missing(rollout.reward) && el("span", {}, `reward ${fixed(rollout.reward, 2)}`), el("span", {}, count(rollout.tokens, "token"))),
    ], (rollout) => { remember("rollouts", rollout.source, rollout.step, rollout.environment, rollout.sample); open(rollout); }),
    detail,
  );
}

function rolloutDetail(rollout) {
  const item = environmentById.get(rollout.environment);
  const lines = (kind, text) => [...(rollout[kind] || "")].map((sign, index) => el("tr", {}, cell(kind === "general" ? "" : index + 1, "right quiet"), cell(text(index), "text"), cell(mark(sign), "verdict")));
  const specialised = lines("specialised", (index) => (item ? item.rubric[index].text : `Criterion ${index + 1}`));
  const general = lines("general", (index) => data.general[index]);
  const body = [specialised.length > 0 && [kindHeading("Specialised", 1), specialised], general.length > 0 && [kindHeading("General", 1), general]].flat(2).filter(Boolean);
  const stage = label(rollout.source);
  return [
    el("header", {}, el("h2", {}, `${stage} step ${rollout.step}, ${paperOf(rollout.environment)}, sample ${rollout.sample}`),
      item && el("p", {}, el("a", { href: link("environments", rollout.environment) }, "The environment"))),
    item ? fold("Question", prose(item.question)) : el("p", { class: "quiet" }, "This environment is not kept in the file."),
    !missing(rollout.advantage) && el("p", { class: "caption" }, `Advantage in its group: ${signed(rollout.advantage)}.`),
    body.length > 0 ? fold("Verdicts", table([right("#"), "Criterion", { text: "Verdict", class: "verdict" }], body, { label: "Verdicts", class: "criteria" }), !narrow())
      : el("p", { class: "caption" }, `${stage} does not score its rollouts.`),
    el("div", { class: "columns" }, answerColumn(rollout, false)),
  ].filter(Boolean);
}
