// How far to trust the judge: what `python -m papergym.judge.exam` found.

function judgeExam(exam) {
  const figure = (value) =>
    missing(value.value) ? "–" : interval({ mean: value.value, low: value.low, high: value.high }, (number) => fixed(number, 2));
  const sets = Object.entries(exam.agreement).filter(([name]) => !name.endsWith(", held back") || name.startsWith("all"));
  const agreementRows = sets.map(([name, strict]) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, name),
      cell(whole(strict.pairs), "right"),
      cell(whole(strict.met), "right"),
      cell(whole(strict.said), "right"),
      cell(figure(strict.agreement), "right"),
      cell(figure(strict.precision), "right"),
      cell(figure(strict["near counts"].precision), "right"),
      cell(figure(strict.recall), "right"),
      cell(figure(strict.kappa), "right"),
    ),
  );
  const most = columnScale([0, 1], 120);
  const bar = (value) =>
    svg(
      "svg",
      { width: 120, height: 14, class: "interval", "aria-hidden": "true" },
      svg("line", { x1: most.x(0), x2: most.x(0), y1: 0, y2: 14, class: "reference" }),
      svg("rect", { x: most.x(0), y: 3, width: most.x(value) - most.x(0), height: 8, class: "bar" }),
    );
  const payRows = Object.entries(exam.pays).map(([name, paid]) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, name),
      cell(fixed(paid.reward), "right"),
      cell(missing(paid.reward) ? "" : bar(paid.reward), "plot minor"),
      cell(percent(paid.met), "right"),
    ),
  );
  const headings = ["Pairs", right("Number"), right("Met"), right("Said met"), right("Agreement"), right("Precision")];
  return section(
    "How far to trust the judge",
    el(
      "p",
      { class: "caption" },
      "A reader labelled pairs of a plan and a criterion, each before its verdict was seen: answers of a small model, and plans written by" +
        " hand in other words than the paper’s. Held back: not used to choose the rule. Precision: of the pairs said to be met, those that" +
        " are; near: those that are met in part or come near. Recall: of the pairs that are met, those said to be. Brackets: 95 % bootstrap" +
        " over plans.",
    ),
    table([...headings, right("… or near"), right("Recall"), right("Cohen’s κ")], agreementRows, {
      label: "Agreement of the judge with a reader",
      class: "cards",
    }),
    fold(
      "What it pays for",
      [
        table(["Plan", right("Reward"), { ...plot(most.axis), class: "plot minor" }, right("Criteria met")], payRows, { label: "What the judge pays for" }),
        el(
          "p",
          { class: "caption" },
          "Means over the sample papers. The first three deserve their reward; the next two no more than the plan that they repeat or pad;" +
            " the rest nothing.",
        ),
      ],
      true,
    ),
  );
}
