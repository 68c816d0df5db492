// What changed most between two rows: environments, criteria, kinds of criteria, length.

const changeState = { before: null, after: null };
const TOP = 10;

function changes() {
  const state = changeState;
  state.before = state.before || data.rows[0];
  state.after = state.after || data.rows[data.rows.length - 1];
  const set = (key) => (value) => {
    state[key] = value;
    show();
  };
  const rows = data.rows.map((row) => [row, label(row)]);
  const changed = changedEnvironments(state);
  return [
    el("div", { class: "controls" }, choice("Before", rows, state.before, set("before")), choice("After", rows, state.after, set("after"))),
    state.before === state.after
      ? el("p", { class: "quiet" }, "Choose two different rows.")
      : [rewardChanges(state, changed), criterionChanges(state), kindChanges(state), lengthChanges()],
  ];
}

function changedEnvironments({ before, after }) {
  return Object.entries(data.results)
    .map(([id, rows]) => ({ id, before: rows[before], after: rows[after] }))
    .filter((item) => item.before && item.after && !missing(item.before.reward) && !missing(item.after.reward))
    .map((item) => ({ ...item, change: item.after.reward - item.before.reward }))
    .sort((a, b) => b.change - a.change);
}

function rewardChanges(state, list) {
  const up = list.filter((item) => item.change > 1e-9).length;
  const down = list.filter((item) => item.change < -1e-9).length;
  const values = list.flatMap((item) => [item.before.reward, item.after.reward]);
  const { x, axis } = columnScale(values, 200);
  const shown = list.length > 2 * TOP ? [...list.slice(0, TOP), ...list.slice(-TOP)] : list;
  const body = shown.map((item) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, el("a", { href: link("answers", item.id) }, paperOf(item.id))),
      cell(fixed(item.before.reward), "right"),
      cell(arrow(item.before.reward, item.after.reward, x, 200), "plot"),
      cell(fixed(item.after.reward), "right"),
      cell(signed(item.change), "right" + (direction(item.change) ? " strong" : "")),
      cell(signed(item.after.tokens - item.before.tokens, 0), "right"),
    ),
  );
  return section(
    "Reward by environment",
    el(
      "p",
      {},
      `Of ${count(list.length, "environment")}, ${whole(up)} score higher with ${label(state.after)} than with ${label(state.before)},` +
        ` ${whole(down)} lower, ${whole(list.length - up - down)} the same.`,
    ),
    table(["Paper", right(label(state.before)), plot(axis), right(label(state.after)), right("Change"), right("Tokens")], body, {
      label: "Reward by environment",
      class: "cards",
    }),
    el(
      "p",
      { class: "caption" },
      shown.length < list.length && `The ${TOP} largest gains and the ${TOP} largest falls. `,
      "Mean reward of the scored answers to each question; hollow: before, filled: after. Tokens: change of the mean length.",
    ),
  );
}

function criterionChanges(state) {
  const found = [];
  for (const item of data.environments) {
    item.rubric.forEach((criterion, index) => {
      const pairs = shares(item.id, "specialised", index);
      if (pairs[state.before] && pairs[state.after])
        found.push({ item, criterion, index, pairs, change: rate(pairs[state.after]) - rate(pairs[state.before]) });
    });
  }
  found.sort((a, b) => b.change - a.change);
  const list = (title, items, empty) =>
    el(
      "div",
      {},
      el("h3", {}, title),
      items.length === 0
        ? el("p", { class: "quiet" }, empty)
        : table(
            ["Criterion", right(label(state.before)), right(label(state.after))],
            items.map(({ item, criterion, index, pairs }) =>
              el(
                "tr",
                {},
                cell(
                  [
                    el("a", { href: link("environments", item.id) }, item.paper),
                    el("span", { class: "quiet" }, ` ${index + 1}${criterion.dimension ? " · " + criterion.dimension : ""}`),
                    el("br"),
                    criterion.text,
                  ],
                  "text",
                ),
                shareCell(pairs[state.before]),
                shareCell(pairs[state.after]),
              ),
            ),
            { label: title, class: "criteria" },
          ),
    );
  const gained = found.filter((entry) => entry.change > 0).slice(0, TOP);
  const lost = found
    .filter((entry) => entry.change < 0)
    .reverse()
    .slice(0, TOP);
  return section(
    "Criteria gained and lost",
    el(
      "div",
      { class: "pair" },
      list("Met more often", gained, "No criterion is met more often."),
      list("Met less often", lost, "No criterion is met less often."),
    ),
    el(
      "p",
      { class: "caption" },
      `At most ${TOP} each, of ${whole(found.length)} specialised criteria. Answers that meet the criterion, of those scored on it.` +
        " The extremes of many small counts are partly luck: read them as examples, not as effects.",
    ),
  );
}

const rate = ([met, scored]) => met / scored;

function kindChanges(state) {
  const kinds = new Map();
  const add = (name, id, kind, index) => {
    if (!kinds.has(name)) kinds.set(name, {});
    for (const [row, pair] of Object.entries(shares(id, kind, index))) {
      const sum = (kinds.get(name)[row] = kinds.get(name)[row] || [0, 0]);
      sum[0] += pair[0];
      sum[1] += pair[1];
    }
  };
  for (const id of Object.keys(data.results)) {
    const item = environmentById.get(id);
    if (item)
      item.rubric.forEach((criterion, index) => add(`Specialised: ${criterion.dimension || "no dimension"}`, id, "specialised", index));
    data.general.forEach((name, index) => add(`General: ${name}`, id, "general", index));
  }
  const order = [...kinds.keys()].sort(
    (a, b) =>
      b.startsWith("Specialised") - a.startsWith("Specialised") || data.general.indexOf(a.slice(9)) - data.general.indexOf(b.slice(9)),
  );
  const body = order.map((name) => {
    const sums = kinds.get(name);
    const both = sums[state.before] && sums[state.after];
    const change = both ? 100 * (rate(sums[state.after]) - rate(sums[state.before])) : null;
    return el(
      "tr",
      {},
      el("th", { scope: "row" }, name),
      data.rows.map((row) =>
        cell(
          sums[row]
            ? el(
                "span",
                { class: "number", title: `${sums[row][0]} of ${sums[row][1]}` },
                percent(rate(sums[row])),
                el("span", { class: "bounds" }, ` n=${whole(sums[row][1])}`),
              )
            : el("span", { class: "quiet" }, "not scored"),
          "right",
        ),
      ),
      cell(signed(change, 1), "right" + (direction(change, 1) ? " strong" : "")),
    );
  });
  return section(
    "Share of verdicts met, by kind of criterion",
    table(["Kind", ...data.rows.map((row) => right(label(row))), right("Change, points")], body, {
      label: "Shares by kind",
      class: "cards",
    }),
    el(
      "p",
      { class: "caption" },
      `n: verdicts given. Change: percentage points from ${label(state.before)} to ${label(state.after)}.` +
        " Verdicts on the same question are not independent, so no interval is given here.",
    ),
  );
}

function lengthChanges() {
  const body = data.table
    .filter((row) => data.rows.includes(row.row))
    .map((row) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, tag(row.row)),
        cell(interval(row.tokens, whole), "right"),
        cell(percent(row.truncated, 1), "right"),
        cell(signed(data.correlation[row.row], 2), "right"),
      ),
    );
  return section(
    "Length",
    table(["Row", right("Tokens an answer"), right("Cut at limit"), right("Correlation of reward with length")], body, {
      label: "Length",
      class: "cards",
    }),
    el(
      "p",
      { class: "caption" },
      "Correlation (Pearson) among the answers to the same question: near +1, longer answers are paid more." +
        " It describes the answers; it does not say that length earned the reward.",
    ),
  );
}
