// Elements, numbers and lists. Text only ever enters the page as text nodes and attribute values, never as markup.

const data = JSON.parse(document.getElementById("data").textContent);
const environmentById = new Map(data.environments.map((environment) => [environment.id, environment]));

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.entries(value).forEach(([key, item]) => node.style.setProperty(key, item));
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// Numbers -------------------------------------------------------------------------------------------------------------------

const missing = (value) => value === null || value === undefined || Number.isNaN(value);
const minus = (text) => text.replace(/-/g, "−");
const fixed = (value, digits = 3) => (missing(value) ? "–" : minus(value.toFixed(digits).replace(/^-(0\.?0*)$/, "$1"))); // no −0.00
// With its sign, which a value that rounds to 0 doesn't have.
const signed = (value, digits = 3) => (!missing(value) && /^[^−]*[1-9]/.test(fixed(value, digits)) ? "+" : "") + fixed(value, digits);
const direction = (value, digits) => ({ "+": "up", "−": "down" })[signed(value, digits)[0]] || "";
const whole = (value) => (missing(value) ? "–" : minus(Math.round(value).toLocaleString("en")));
const percent = (value, digits = 0) => (missing(value) ? "–" : minus((100 * value).toFixed(digits)) + "\u202f%");
const count = (number, one, many = one + "s") => `${whole(number)} ${number === 1 ? one : many}`;

function compact(value) {
  if (missing(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 1e-3 || size >= 1e6) return minus(value.toExponential(2));
  return size >= 100 ? whole(value) : fixed(value, size >= 10 ? 1 : size >= 1 ? 2 : size >= 0.1 ? 3 : 4);
}

function duration(minutes) {
  if (missing(minutes)) return "–";
  if (minutes < 2) return `${whole(minutes * 60)} s`;
  return minutes < 120 ? `${fixed(minutes, minutes < 10 ? 1 : 0)} min` : `${fixed(minutes / 60, 1)} h`;
}

function interval(estimate, format) {
  if (!estimate || missing(estimate.mean)) return el("span", { class: "number" }, "–");
  const bounds = missing(estimate.low) ? null : el("span", { class: "bounds" }, `[${format(estimate.low)}, ${format(estimate.high)}]`);
  return el("span", { class: "number" }, format(estimate.mean), " ", bounds);
}

// Names and colours ---------------------------------------------------------------------------------------------------------

const LABELS = {
  base: "base",
  sft: "SFT",
  opsd: "OPSD",
  grpo: "GRPO",
  opsd_grpo: "OPSD → GRPO",
  opsd_grpo_1: "OPSD, first of two",
  opsd_grpo_2: "GRPO, second of two",
  reference: "reference",
};
const label = (name) => LABELS[name] || name;

function colour(name) {
  const known = name.replace(/^opsd_grpo_\d$/, "opsd_grpo");
  if (known in LABELS) return `var(--${known.replace("_", "-")})`;
  const others = [...new Set([...data.rows, ...data.stages.map((stage) => stage.name)])].filter((other) => !(other in LABELS));
  return `var(--other-${1 + (Math.max(0, others.indexOf(name)) % 3)})`;
}

const tag = (name) => el("span", { class: "tag", style: { "--c": colour(name) } }, label(name));
const paperOf = (id) => (environmentById.has(id) ? environmentById.get(id).paper : id);
const opening = (text, length) => (text.length > length ? text.slice(0, length).replace(/\s+\S*$/, "") + " …" : text);

// Parts ---------------------------------------------------------------------------------------------------------------------

const prose = (text, empty = "Not recorded.") => (text ? el("div", { class: "prose" }, text) : el("p", { class: "quiet" }, empty));

const section = (title, ...children) => el("section", {}, title && el("h2", {}, title), children);

const sampleOf = (answer) => `${answer.seed ? answer.seed + ", " : ""}sample ${answer.sample}`;

const fold = (title, content, open = false) => el("details", { open }, el("summary", {}, title), content);

// On a phone, class "cards" makes each row a block in which every value carries its heading.
function table(headings, rows, attributes = {}) {
  const texts = headings.map((heading) => heading.text ?? heading);
  rows.forEach((row) => [...row.children].forEach((item, index) => texts[index] && item.setAttribute("data-label", texts[index])));
  const head = headings.map((heading) =>
    typeof heading === "string"
      ? el("th", { scope: "col" }, heading)
      : el("th", { scope: "col", class: heading.class, title: heading.title }, heading.node ?? heading.text),
  );
  return el(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": attributes.label },
    el("table", { class: attributes.class }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows)),
  );
}

const cell = (content, kind) => el("td", { class: kind }, content);
const right = (text) => ({ text, class: "right" });
const plot = (node) => ({ text: "", node, class: "plot" });

function choice(name, options, value, onchange) {
  const select = el(
    "select",
    { onchange: (event) => onchange(event.target.value), "aria-label": name },
    options.map(([key, text]) => el("option", { value: key, selected: String(key) === String(value) }, text)),
  );
  return el("label", { class: "field" }, el("span", {}, name), select);
}

function range(name, low, high, step, onchange) {
  const box = (value, which, hint) =>
    el("input", {
      type: "number",
      step,
      value,
      placeholder: hint,
      "aria-label": `${name} ${hint}`,
      onchange: (event) => onchange(which, event.target.value === "" ? null : Number(event.target.value)),
    });
  return el(
    "div",
    { class: "field" },
    el("span", {}, name),
    el("span", { class: "range" }, box(low, "low", "from"), "–", box(high, "high", "to")),
  );
}

const within = (value, { low, high }) =>
  (missing(low) || (!missing(value) && value >= low)) && (missing(high) || (!missing(value) && value <= high));

// A list that is one tab stop: arrows, Home and End move, and what is reached is shown.
function listbox(name, items, selected, render, onselect) {
  const options = items.map((item, index) =>
    el(
      "li",
      { role: "option", id: `option-${index}`, "aria-selected": item.key === selected ? "true" : "false", onclick: () => choose(index) },
      render(item),
    ),
  );
  const list = el("ul", { class: "list", role: "listbox", tabindex: 0, "aria-label": name, onkeydown: move }, options);
  let current = items.findIndex((item) => item.key === selected);
  if (current >= 0) list.setAttribute("aria-activedescendant", `option-${current}`);

  function choose(index) {
    if (current >= 0) options[current].setAttribute("aria-selected", "false");
    current = index;
    options[current].setAttribute("aria-selected", "true");
    list.setAttribute("aria-activedescendant", options[current].id);
    scrollTo(options[current]);
    onselect(items[current]);
  }

  function scrollTo(option) {
    if (option.offsetTop < list.scrollTop) list.scrollTop = option.offsetTop;
    const bottom = option.offsetTop + option.offsetHeight;
    if (bottom > list.scrollTop + list.clientHeight) list.scrollTop = bottom - list.clientHeight;
  }

  function move(event) {
    const target = { ArrowDown: current + 1, ArrowUp: current - 1, Home: 0, End: items.length - 1 }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    if (items[target]) choose(target);
  }

  requestAnimationFrame(() => current >= 0 && scrollTo(options[current]));
  return list;
}
