// Held-out answers before and after, side by side.

const answerState = { paper: "all", criterion: "any", state: "any", row: null, reward: {}, tokens: {}, order: "gain", columns: null };

const groups = new Map();
for (const answer of data.answers) {
  const key = `${answer.environment}\u0000${answer.sample}`;
  if (!groups.has(key)) groups.set(key, { key, environment: answer.environment, sample: answer.sample, seed: answer.seed, by: {} });
  groups.get(key).by[answer.source] = answer;
}

function answers(environment, sample) {
  const state = answerState;
  state.row = state.row || data.rows[data.rows.length - 1];
  const hasBase = data.rows.includes("base");
  const gain = (group) =>
    group.by[state.row] && group.by.base && !missing(group.by[state.row].reward) && !missing(group.by.base.reward)
      ? group.by[state.row].reward - group.by.base.reward
      : null;
  const value = (group, name) => (group.by[state.row] ? group.by[state.row][name] : null);
  const orders = {
    gain: ["largest gain", (a, b) => (gain(b) ?? -9) - (gain(a) ?? -9)],
    fall: ["largest fall", (a, b) => (gain(a) ?? 9) - (gain(b) ?? 9)],
    reward: ["highest reward", (a, b) => (value(b, "reward") ?? -1) - (value(a, "reward") ?? -1)],
    tokens: ["longest", (a, b) => (value(b, "tokens") ?? -1) - (value(a, "tokens") ?? -1)],
    paper: [
      "paper",
      (a, b) =>
        paperOf(a.environment) < paperOf(b.environment) ? -1 : paperOf(a.environment) > paperOf(b.environment) ? 1 : a.sample - b.sample,
    ],
  };
  if (!hasBase && (state.order === "gain" || state.order === "fall")) state.order = "reward";
  const items = [...groups.values()]
    .filter((group) => state.paper === "all" || paperOf(group.environment) === state.paper)
    .filter(
      (group) =>
        group.by[state.row] && within(group.by[state.row].reward, state.reward) && within(group.by[state.row].tokens, state.tokens),
    )
    .filter((group) => stateHolds(group.by[state.row], group.by.base, state))
    .sort(orders[state.order][1]);
  const wanted = items.find((group) => group.environment === environment && (sample === undefined || group.sample === Number(sample)));
  const current = wanted || items[0];
  const detail = el("article", { class: "detail" });
  const open = (group) =>
    detail.replaceChildren(...(group ? answerDetail(group) : [el("p", { class: "quiet" }, "No answer matches the filters.")]));
  open(current);
  const set = (key) => (choiceValue) => setFilter(state, key, choiceValue);
  return browser(
    [
      choice(
        "Filters look at",
        data.rows.map((row) => [row, label(row)]),
        state.row,
        set("row"),
      ),
      choice("Paper", papers(data.answers), state.paper, set("paper")),
      choice("Criterion", criterionOptions(state.paper), state.criterion, set("criterion")),
      choice("Verdict", hasBase ? [...STATES, ...compareStates] : STATES, state.state, set("state")),
      range("Reward", state.reward.low, state.reward.high, 0.05, bounds(state, "reward")),
      range("Tokens", state.tokens.low, state.tokens.high, 10, bounds(state, "tokens")),
      choice(
        "Order",
        Object.entries(orders)
          .filter(([key]) => hasBase || (key !== "gain" && key !== "fall"))
          .map(([key, [name]]) => [key, name]),
        state.order,
        set("order"),
      ),
    ],
    keptAnswers(items.length),
    listbox(
      "Answers",
      items,
      current && current.key,
      (group) => [
        el("b", {}, paperOf(group.environment), el("span", { class: "quiet" }, ` · ${sampleOf(group)}`)),
        el(
          "span",
          { class: "rewards" },
          data.rows
            .filter((row) => group.by[row])
            .map((row) => el("span", { style: { "--c": colour(row) } }, `${label(row)} ${fixed(group.by[row].reward, 2)}`)),
        ),
        hasBase &&
          state.row !== "base" &&
          el("span", { class: `delta ${direction(gain(group), 2)}` }, signed(gain(group), 2)),
      ],
      (group) => {
        remember("answers", group.environment, group.sample);
        open(group);
      },
    ),
    detail,
  );
}

function keptAnswers(shown) {
  const [kept, total] = data.kept.answers;
  return el(
    "p",
    { class: "kept", role: "status" },
    `${whole(shown)} of ${count(groups.size, "comparison")}`,
    kept < total &&
      `; ${whole(kept)} of the run’s ${whole(total)} answers are kept in this file,` +
        " lowest sample numbers first. The table covers all of them.",
  );
}

function answerDetail(group) {
  const item = environmentById.get(group.environment);
  const available = data.rows.filter((row) => group.by[row]);
  const chosen = answerState.columns || new Set([...data.rows.slice(0, 1), ...data.rows.slice(-2), "reference"].slice(0, 3));
  const toggles = [...data.rows, "reference"].map((name) =>
    el(
      "label",
      { class: "toggle" },
      el("input", {
        type: "checkbox",
        checked: chosen.has(name),
        onchange: (event) => {
          const columns = new Set(chosen);
          if (event.target.checked) columns.add(name);
          else columns.delete(name);
          answerState.columns = columns;
          remember("answers", group.environment, group.sample);
          show();
        },
      }),
      tag(name),
    ),
  );
  const columns = available.filter((row) => chosen.has(row)).map((row) => answerColumn(group.by[row]));
  if (chosen.has("reference"))
    columns.push(
      el(
        "section",
        { class: "answer" },
        el("header", {}, tag("reference")),
        prose(item && item.reference, "This environment has no reference in the file."),
      ),
    );
  return [
    el(
      "header",
      {},
      el("h2", {}, `${paperOf(group.environment)}, ${sampleOf(group)}`),
      item && el("p", {}, el("a", { href: link("environments", group.environment) }, "The environment")),
    ),
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
    return el(
      "tr",
      { class: changed ? "changed" : null },
      cell(number, "right quiet"),
      cell(text, "text"),
      rows.map((row, place) =>
        cell([mark(signs[place]), pairs[row] && el("span", { class: "share" }, `${pairs[row][0]}/${pairs[row][1]}`)], "verdict"),
      ),
    );
  };
  const length = Math.max(0, ...rows.map((row) => (group.by[row].specialised || "").length));
  const specialised = Array.from({ length }, (_, index) =>
    line("specialised", index, index + 1, item ? item.rubric[index].text : `Criterion ${index + 1}`),
  );
  const general = data.general.map((name, index) => line("general", index, "", name));
  const numbers = (name, format) =>
    el(
      "tr",
      { class: "sum" },
      cell("", "right quiet"),
      el("th", { scope: "row" }, name),
      rows.map((row) => cell(format(group.by[row]), "verdict")),
    );
  return fold(
    "Verdicts",
    [
      table(
        [right("#"), "Criterion", ...rows.map((row) => ({ text: label(row), class: "verdict" }))],
        [
          numbers("Reward", (answer) => fixed(answer.reward)),
          numbers("Tokens", (answer) => whole(answer.tokens)),
          specialised.length > 0 && [kindHeading("Specialised", rows.length), specialised],
          general.length > 0 && [kindHeading("General", rows.length), general],
        ]
          .flat(2)
          .filter(Boolean),
        { label: "Verdicts for each criterion", class: "criteria" + (rows.length > 3 ? " stacked" : "") },
      ),
      el(
        "p",
        { class: "caption" },
        mark("1"),
        "met, ",
        mark("0"),
        "not met, ",
        mark("-"),
        "not scored. Beside the mark: how many of all scored answers to this question meet the criterion.",
        " Shaded: first and last row differ.",
      ),
    ],
    true,
  );
}
