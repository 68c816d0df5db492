// The rollouts of training.

const rolloutState = { paper: "all", criterion: "any", state: "any", stage: "all", steps: {}, reward: {}, tokens: {}, order: "step" };

const rolloutKey = (rollout) => [rollout.source, rollout.step, rollout.environment, rollout.sample, rollout.seed || ""].join("\u0000");

function rollouts(stage, step, environment, sample, seed) {
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
  const wanted = stage === undefined ? null : rolloutKey({ source: stage, step: Number(step), environment, sample: Number(sample), seed });
  const current = items.find((item) => item.key === wanted) || items[0];
  const detail = el("article", { class: "detail" });
  const open = (rollout) =>
    detail.replaceChildren(...(rollout ? rolloutDetail(rollout) : [el("p", { class: "quiet" }, "No rollout matches the filters.")]));
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
      choice(
        "Order",
        Object.entries(orders).map(([key, [name]]) => [key, name]),
        state.order,
        set("order"),
      ),
    ],
    el(
      "p",
      { class: "kept", role: "status" },
      `${whole(items.length)} of ${count(data.rollouts.length, "rollout")}`,
      kept < total &&
        `; kept in this file: all rollouts of ${count(steps, "step")} spread over training, ${whole(kept)} of the run’s ${whole(total)}.`,
    ),
    listbox(
      "Training rollouts",
      items,
      current && current.key,
      (rollout) => [
        el("b", {}, tag(rollout.source), ` step ${rollout.step}`, el("span", { class: "quiet" }, ` · ${sampleOf(rollout)}`)),
        el("span", { class: "quiet" }, paperOf(rollout.environment)),
        el(
          "span",
          { class: "rewards" },
          !missing(rollout.reward) && el("span", {}, `reward ${fixed(rollout.reward, 2)}`),
          el("span", {}, count(rollout.tokens, "token")),
        ),
      ],
      (rollout) => {
        remember("rollouts", rollout.source, rollout.step, rollout.environment, rollout.sample, rollout.seed || "");
        open(rollout);
      },
    ),
    detail,
  );
}

function rolloutDetail(rollout) {
  const item = environmentById.get(rollout.environment);
  const lines = (kind, text) =>
    [...(rollout[kind] || "")].map((sign, index) =>
      el("tr", {}, cell(kind === "general" ? "" : index + 1, "right quiet"), cell(text(index), "text"), cell(mark(sign), "verdict")),
    );
  const specialised = lines("specialised", (index) => (item ? item.rubric[index].text : `Criterion ${index + 1}`));
  const general = lines("general", (index) => data.general[index]);
  const body = [
    specialised.length > 0 && [kindHeading("Specialised", 1), specialised],
    general.length > 0 && [kindHeading("General", 1), general],
  ]
    .flat(2)
    .filter(Boolean);
  const stage = label(rollout.source);
  return [
    el(
      "header",
      {},
      el("h2", {}, `${stage} step ${rollout.step}, ${paperOf(rollout.environment)}, ${sampleOf(rollout)}`),
      item && el("p", {}, el("a", { href: link("environments", rollout.environment) }, "The environment")),
    ),
    item ? fold("Question", prose(item.question)) : el("p", { class: "quiet" }, "This environment is not kept in the file."),
    !missing(rollout.advantage) && el("p", { class: "caption" }, `Advantage in its group: ${signed(rollout.advantage)}.`),
    body.length > 0
      ? fold(
          "Verdicts",
          table([right("#"), "Criterion", { text: "Verdict", class: "verdict" }], body, { label: "Verdicts", class: "criteria" }),
          !narrow(),
        )
      : el("p", { class: "caption" }, `${stage} does not score its rollouts.`),
    el("div", { class: "columns" }, answerColumn(rollout, false)),
  ].filter(Boolean);
}
