// Environments: question, reference, criteria with how often each row meets them, stages.

const browseState = { text: "", split: "all", domain: "all" };

// Shares of answers that meet a criterion: {row: [met, scored]} for the rows in which it was scored.
function shares(id, kind, index) {
  const results = data.results[id] || {};
  return Object.fromEntries(
    data.rows.map((row) => [row, results[row] && results[row][kind][index]]).filter(([, pair]) => pair && pair[1] > 0),
  );
}

const shareCell = (pair) =>
  cell(
    pair ? el("span", { class: "number", title: `met in ${pair[0]} of ${pair[1]} scored answers` }, `${pair[0]}/${pair[1]}`) : "–",
    "right",
  );

function environments(selected) {
  const { text, split, domain } = browseState;
  const wanted = text.toLowerCase();
  const items = data.environments
    .filter((item) => split === "all" || item.split === split)
    .filter((item) => domain === "all" || item.domain === domain)
    .filter(
      (item) =>
        !wanted ||
        [item.id, item.paper, item.question, item.reference || "", ...item.rubric.map((criterion) => criterion.text)].some((part) =>
          part.toLowerCase().includes(wanted),
        ),
    )
    .map((item) => ({ ...item, key: item.id }));
  const values = (name) => [
    ["all", "all"],
    ...[...new Set(data.environments.map((item) => item[name]))].map((value) => [value, value === "heldout" ? "held out" : value]),
  ];
  const change = (key) => (value) => {
    browseState[key] = value;
    show();
  };
  const current = items.some((item) => item.id === selected) ? selected : items.length ? items[0].id : null;
  const detail = el("article", { class: "detail" });
  const open = (id) =>
    detail.replaceChildren(
      ...(id === null ? [el("p", { class: "quiet" }, "No environment matches.")] : environmentDetail(environmentById.get(id))),
    );
  open(current);
  return browser(
    [
      el(
        "label",
        { class: "field wide" },
        el("span", {}, "Text"),
        el("input", {
          type: "search",
          value: text,
          placeholder: "question, reference, criteria",
          onchange: (event) => change("text")(event.target.value),
        }),
      ),
      choice("Split", values("split"), split, change("split")),
      choice("Domain", values("domain"), domain, change("domain")),
    ],
    keptLine(items.length, data.environments.length, data.kept.environments, "environment"),
    listbox(
      "Environments",
      items,
      current,
      (item) => [
        el("b", {}, item.paper),
        el("span", { class: "quiet" }, `${item.domain} · ${item.split === "heldout" ? "held out" : item.split}`),
        el("span", { class: "excerpt" }, opening(item.question, 90)),
      ],
      (item) => {
        remember("environments", item.id);
        open(item.id);
      },
    ),
    detail,
  );
}

const keptLine = (shown, listed, [kept, total], one) =>
  el(
    "p",
    { class: "kept", role: "status" },
    `${whole(shown)} of ${count(listed, one)}`,
    kept < total && ` kept in this file; the run has ${whole(total)}`,
  );

function browser(filters, line, list, detail) {
  return el(
    "div",
    { class: "browser" },
    el(
      "aside",
      { class: "side" },
      el("details", { class: "filters", open: !narrow() }, el("summary", {}, "Filters"), el("div", { class: "controls" }, filters)),
      line,
      list,
    ),
    detail,
  );
}

const narrow = () => window.matchMedia("(max-width: 760px)").matches;

// A stage's text under the titles of the sections that it comes from: runs of [title, characters], parted by one space.
function cutBySection(text, runs) {
  const whole = runs && text.length === runs.reduce((sum, [, length]) => sum + length + 1, -1);
  if (!text || !whole) return prose(text, "Nothing was found for this stage.");
  let at = 0;
  return runs.map(([title, length]) => {
    const part = text.slice(at, at + length);
    at += length + 1;
    return [el("p", { class: "origin" }, title ? `from “${title}”` : "from the text before the first heading"), prose(part)];
  });
}

function environmentDetail(item) {
  const rows = data.rows.filter((row) => data.results[item.id] && data.results[item.id][row]);
  const weighted = item.rubric.some((criterion) => criterion.weight !== 1);
  const body = item.rubric.map((criterion, index) => {
    const pairs = shares(item.id, "specialised", index);
    return el(
      "tr",
      {},
      cell(index + 1, "right quiet"),
      cell(
        [
          criterion.text,
          el(
            "span",
            { class: "only-narrow" },
            [criterion.dimension, criterion.source && `from ${criterion.source}`].filter(Boolean).join(" · "),
          ),
        ],
        "text",
      ),
      cell(criterion.dimension || "–", "minor"),
      cell(criterion.source || "–", "minor"),
      weighted && cell(compact(criterion.weight), "right"),
      rows.map((row) => shareCell(pairs[row])),
    );
  });
  const headings = [right("#"), "Criterion", { text: "Dimension", class: "minor" }, { text: "From", class: "minor" }].concat(
    weighted ? [right("Weight")] : [],
    rows.map((row) => right(label(row))),
  );
  const answers = data.answers.some((answer) => answer.environment === item.id);
  return [
    el(
      "header",
      {},
      el("h2", {}, item.paper),
      el("p", { class: "quiet" }, `${item.id} · ${item.domain} · ${item.split === "heldout" ? "held out" : item.split}`),
      answers && el("p", {}, el("a", { href: link("answers", item.id) }, "Answers before and after")),
    ),
    el(
      "div",
      { class: "pair" },
      el("div", {}, el("h3", {}, "Question"), prose(item.question)),
      el("div", {}, el("h3", {}, "Reference"), prose(item.reference, "This data set has no reference.")),
    ),
    el("h3", {}, "Criteria"),
    table(headings, body, { label: "Criteria", class: "criteria" }),
    rows.length > 0 &&
      el(
        "p",
        { class: "caption" },
        "Last columns: answers that meet the criterion, of those scored on it. From: what the criterion was drawn from.",
      ),
    item.stages && [
      el("h3", {}, "Stages of the paper"),
      el(
        "div",
        { class: "stages" },
        Object.entries(item.stages).map(([name, text]) =>
          el("div", {}, el("h4", {}, name), cutBySection(text, (item.provenance.sections || {})[name])),
        ),
      ),
    ],
    el("h3", {}, "Provenance"),
    el(
      "dl",
      { class: "pairs" },
      Object.entries(item.provenance)
        .filter(([name, value]) => name !== "sections" && value !== null && value !== "")
        .map(([name, value]) => [
          el("dt", {}, name),
          el("dd", {}, typeof value === "object" ? el("pre", {}, JSON.stringify(value, null, 2)) : String(value)),
        ]),
    ),
  ]
    .flat(Infinity)
    .filter(Boolean);
}
