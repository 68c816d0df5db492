// What the answer and rollout browsers share: verdict marks, filters, one answer as a column.

const SIGNS = { 1: ["met", "met"], 0: ["not met", "unmet"], "-": ["not scored", "unscored"] };
const STATES = [
  ["any", "any verdict"],
  ["1", "met"],
  ["0", "not met"],
  ["-", "not scored"],
];
const compareStates = [
  ["gained", "gained since base"],
  ["lost", "lost since base"],
];

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
  const own =
    chosen.length === 1
      ? chosen[0].rubric.map((criterion, index) => [`specialised:${index}`, `${index + 1}. ${opening(criterion.text, 60)}`])
      : [];
  return [
    ["any", "any criterion"],
    ["specialised", "any of its rubric"],
    ...own,
    ["general", "any general one"],
    ...data.general.map((name, index) => [`general:${index}`, name]),
  ];
}

const papers = (list) => [
  ["all", "all"],
  ...[...new Set(list.map((answer) => paperOf(answer.environment)))].sort().map((paper) => [paper, paper]),
];

// Changing the paper drops a criterion that the other paper doesn't have.
function setFilter(state, key, value) {
  state[key] = value;
  if (key === "paper" && state.criterion.startsWith("specialised:")) state.criterion = "any";
  show();
}

const bounds = (state, key) => (which, value) => setFilter(state, key, { ...state[key], [which]: value });

const kindHeading = (text, columns) =>
  el("tr", { class: "kind" }, cell("", "right quiet"), el("th", { colspan: columns + 1, scope: "rowgroup" }, text));

function answerColumn(answer, named = true) {
  const cut = answer.finish === "length";
  return el(
    "section",
    { class: "answer" },
    el(
      "header",
      {},
      named && tag(answer.source),
      answer.specialised &&
        el("span", { class: "number" }, missing(answer.reward) ? "reward not scored" : `reward ${fixed(answer.reward)}`),
      el("span", { class: "number" }, count(answer.tokens, "token")),
      cut && el("span", { class: "warn" }, "cut at the limit"),
    ),
    answer.thinking && answer.thinking.trim() && fold(`Thinking (${count(answer.thinking.length, "character")})`, prose(answer.thinking)),
    answer.raw && fold("Response as sampled", prose(answer.raw)),
    prose(answer.plan, "There is no answer after the thinking block."),
    answer.stop && answer.stop.trim() && el("p", { class: "stop" }, el("code", {}, answer.stop.trim())),
  );
}
