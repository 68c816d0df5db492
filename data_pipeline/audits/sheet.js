// A rubric at a time. Text only ever enters the page as text nodes. labels: key -> true or false; what is skipped has none.
"use strict";
(() => {
  const source = document.getElementById("data");
  const items = JSON.parse(source.textContent);
  const place = `papergym-labels-${source.dataset.sheet}`;
  const keys = new Set(items.flatMap((item) => item.criteria.map(([key]) => key)));
  const ASKED = {
    leakage: "Can this criterion be inferred from the question alone?",
    verdict: "Does the plan meet this criterion, as well as the reference does?",
  };
  let labels = {};
  let [rubric, criterion] = [0, 0];

  const byId = (id) => document.getElementById(id);

  function el(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value);
    }
    node.append(...children);
    return node;
  }

  function fail(text) {
    byId("failure").textContent = text;
    byId("failure").hidden = !text;
  }

  const warn = (event) => event.preventDefault();

  // The browser's store may be closed to files: then only saving keeps the labels, and leaving without it is warned of.
  function remember() {
    try {
      localStorage.setItem(place, JSON.stringify(labels));
    } catch {
      addEventListener("beforeunload", warn);
    }
  }

  function recall() {
    try {
      labels = JSON.parse(localStorage.getItem(place)) || {};
    } catch {
      labels = {};
    }
  }

  function draw() {
    const item = items[rubric];
    const done = [...keys].filter((key) => key in labels).length;
    byId("progress").textContent = `rubric ${rubric + 1} of ${items.length}, ${done} of ${keys.size} criteria labelled`;
    const texts = [["Question", item.question], ["Reference plan", item.reference], ["Plan", item.plan]].filter(([, text]) => text);
    byId("main").replaceChildren(
      el("section", {}, ...texts.flatMap(([title, text]) => [el("h2", {}, title), el("div", { class: "text" }, text)])),
      el("section", {}, el("h2", {}, ASKED[item.kind]), el("ol", {}, ...item.criteria.map(row))),
    );
  }

  function row([key, text], index) {
    const button = (name, value, pressed) => el("button", { type: "button", ...pressed, onclick: () => answer(index, value) }, name);
    const choice = (name, value) => button(name, value, { "aria-pressed": String(labels[key] === value) });
    const node = el("li", {}, el("p", {}, `${index + 1}. ${text}`), choice("Yes", true), choice("No", false), button("Skip", undefined));
    if (index === criterion) node.className = "current";
    return node;
  }

  function answer(index, value) {
    const [key] = items[rubric].criteria[index];
    if (value === undefined) delete labels[key];
    else labels[key] = value;
    remember();
    go(rubric, index + 1);
  }

  function go(to, at = 0) {
    rubric = Math.max(0, Math.min(to, items.length - 1));
    criterion = Math.max(0, Math.min(at, items[rubric].criteria.length - 1));
    draw();
    byId("main").querySelector("li.current").scrollIntoView({ block: "nearest" });
  }

  function goToFirstOpen() {
    for (const [index, item] of items.entries()) {
      const at = item.criteria.findIndex(([key]) => !(key in labels));
      if (at >= 0) return go(index, at);
    }
  }

  function save() {
    const text = JSON.stringify({ sheet: source.dataset.sheet, labels }, null, 1);
    const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "application/json" })), download: "labels.json" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    removeEventListener("beforeunload", warn);
  }

  async function load(event) {
    const [file] = event.target.files;
    if (!file) return;
    try {
      const given = JSON.parse(await file.text()).labels;
      const wrong = Object.entries(given).find(([key, value]) => !keys.has(key) || typeof value !== "boolean");
      if (wrong) throw new Error(`${wrong[0]} is not on this sheet, or has no label`);
      labels = { ...labels, ...given };
      remember();
      fail("");
      goToFirstOpen();
    } catch (error) {
      fail(`${file.name} can't be read as labels of this sheet: ${error.message}`);
    }
    event.target.value = "";
  }

  const KEYS = {
    1: () => answer(criterion, true),
    0: () => answer(criterion, false),
    s: () => answer(criterion, undefined),
    ArrowDown: () => go(rubric, criterion + 1),
    ArrowUp: () => go(rubric, criterion - 1),
    ArrowRight: () => go(rubric + 1),
    ArrowLeft: () => go(rubric - 1),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "INPUT" || !KEYS[event.key]) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  byId("back").addEventListener("click", () => go(rubric - 1));
  byId("next").addEventListener("click", () => go(rubric + 1));
  byId("open").addEventListener("click", goToFirstOpen);
  byId("save").addEventListener("click", save);
  byId("load").addEventListener("change", load);
  recall();
  draw();
})();
