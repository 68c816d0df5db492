// Views, addresses and the theme. The address after # is view/argument/…, so a view can be linked to and the back button works.

const VIEWS = [
  ["overview", "Overview", overview, true],
  ["curves", "Curves", curves, data.stages.some((stage) => stage.step.length > 0)],
  ["changes", "What changed", changes, data.rows.length > 1 && Object.keys(data.results).length > 0],
  ["answers", "Before and after", answers, data.answers.length > 0],
  ["rollouts", "Training rollouts", rollouts, data.rollouts.length > 0],
  ["environments", "Environments", environments, data.environments.length > 0],
].filter(([, , , present]) => present);

const link = (...parts) => "#" + parts.map(encodeURIComponent).join("/");
const address = () => location.hash.slice(1).split("/").map(decodeURIComponent);
const remember = (...parts) => history.replaceState(null, "", link(...parts));

const main = document.getElementById("main");
const tabs = VIEWS.map(([name, text]) => el("a", { role: "tab", id: `tab-${name}`, href: link(name), "aria-controls": "main" }, text));

function show() {
  const [wanted, ...parts] = address();
  const view = VIEWS.find(([name]) => name === wanted) || VIEWS[0];
  for (const tabLink of tabs) {
    const selected = tabLink.id === `tab-${view[0]}`;
    tabLink.setAttribute("aria-selected", String(selected));
    tabLink.tabIndex = selected ? 0 : -1;
    if (selected && main.dataset.view !== view[0]) tabLink.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  const focused = main.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
  main.dataset.view = view[0];
  main.setAttribute("role", "tabpanel");
  main.setAttribute("aria-labelledby", `tab-${view[0]}`);
  main.replaceChildren(...[view[2](...parts)].flat(Infinity).filter(Boolean));
  // A filter that redraws its view keeps the focus.
  if (focused) [...main.querySelectorAll("[aria-label]")].find((node) => node.getAttribute("aria-label") === focused)?.focus();
}

function moveTab(event) {
  const current = tabs.findIndex((tabLink) => tabLink.getAttribute("aria-selected") === "true");
  const target = { ArrowRight: current + 1, ArrowLeft: current - 1, Home: 0, End: tabs.length - 1 }[event.key];
  if (target === undefined) return;
  event.preventDefault();
  const next = tabs[(target + tabs.length) % tabs.length];
  next.focus();
  location.hash = next.getAttribute("href");
}

function theme() {
  const button = document.getElementById("theme");
  const modes = ["light dark", "light", "dark"];
  const names = { "light dark": "as the system", light: "light", dark: "dark" };
  const set = (mode) => {
    document.documentElement.style.colorScheme = mode;
    button.textContent = `Theme: ${names[mode]}`;
    button.dataset.mode = mode;
  };
  set(modes[0]);
  button.addEventListener("click", () => set(modes[(modes.indexOf(button.dataset.mode) + 1) % modes.length]));
}

// An error must not look like a view without content.
window.addEventListener("error", (event) => {
  const box = document.getElementById("failure");
  box.hidden = false;
  box.textContent = `This view failed to draw: ${event.message} (line ${event.lineno}). The data are in the run directory.`;
});

document.getElementById("run-name").textContent = document.title.replace(/ · papergym$/, "");
document.getElementById("tabs").append(...tabs);
document.getElementById("tabs").addEventListener("keydown", moveTab);
window.addEventListener("hashchange", () => {
  show();
  window.scrollTo(0, 0);
});
let drawn = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === drawn) return; // on phones the address bar changes the height only
  drawn = window.innerWidth;
  if (main.dataset.view === "curves") show();
});
theme();
show();
