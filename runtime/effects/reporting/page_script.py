"""The script of a run's page: it shows conversations, as text only, and the numbers of curves and tokens.

The part of the page's address after # names what is shown: #step=3&label=success&colour=advantage
"""

SCRIPT = r"""
"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const SHOWN = 200, COLOURS = ["none", "log-prob", "advantage", "version"];
const SORTS = ["as trained", "lowest reward", "highest reward"];

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  for (const child of children) made.append(child);
  return made;
}

function number(value) {
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) < 1e-12 ? "0" : String(Number(value.toPrecision(4)));
}

function extent(list) {
  return list.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
}

function signed(value) { return (value > 0 ? "+" : "") + number(value); }

// --- curves: the values under the pointer ---

for (const svg of document.querySelectorAll("svg[data-chart]")) {
  const { x, curves } = JSON.parse(svg.dataset.chart), output = svg.closest("figure").querySelector("output");
  const [low, high] = extent(curves.flatMap(([, points]) => points.map(([at]) => at)));
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), place = ((event.clientX - box.left) / box.width * 320 - 44) / 268;
    const at = low + place * (high - low);
    const nearest = curves.map(([name, points]) => [name,
      points.reduce((best, point) => Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best)]);
    output.textContent = `${x} ${number(nearest[0][1][0])}: `
      + nearest.map(([name, point]) => (name ? name + " " : "") + number(point[1])).join(", ");
  });
  svg.addEventListener("pointerleave", () => { output.textContent = ""; });
}

// --- conversations ---

function values(key) {
  return [...new Set(DATA.map((row) => row[key]))].filter((value) => value !== undefined && value !== "");
}

function counted(key) {
  return values(key).map((value) => [value, `${value} (${DATA.filter((row) => row[key] === value).length})`]);
}

function select(options, all) {
  const made = element("select");
  for (const [value, text] of [...(all ? [["", all]] : []), ...options]) made.append(element("option", { value }, text));
  return made;
}

function field(text, control) { return element("label", {}, text, control); }

function texts(row) { return row.messages.map((message) => message.text).join("\n"); }

function browser(home) {
  const state = { open: "", shown: SHOWN, token: -1 };
  const controls = {
    phase: select(counted("phase"), "all"),
    step: select(counted("step"), "all"),
    label: select(counted("label"), "all"),
    end: select(counted("end"), "all"),
    min: element("input", { type: "number", step: "any" }),
    max: element("input", { type: "number", step: "any" }),
    text: element("input", { type: "search" }),
    sort: select(SORTS.map((name) => [name, name])),
  };
  const colour = select(COLOURS.map((name) => [name, name]));
  colour.value = "advantage";
  const names = { phase: "Phase", step: "Step", label: "Label", end: "End", min: "Reward from", max: "Reward to",
    text: "Text contains", sort: "Order" };
  const filters = element("form", { class: "filters", role: "search", "aria-label": "Filters of conversations" });
  for (const [name, control] of Object.entries(controls)) {
    control.id = `filter-${name}`;
    if (name !== "phase" || values("phase").length) filters.append(field(names[name], control));
  }
  const reset = element("button", { type: "reset" }, "Show all");
  filters.append(reset);
  const count = element("p", { role: "status", id: "count" });
  const list = element("div", { class: "list" }), detail = element("article", { id: "conversation", "aria-live": "off" });
  home.append(filters, count, element("div", { class: "panes" }, list, detail));

  function name(row) { return `${row.phase ? row.phase + "/" : ""}${row.step}/${row.id}`; }

  function matching() {
    const wanted = Object.fromEntries(Object.entries(controls).map(([key, control]) => [key, control.value]));
    const text = wanted.text.toLowerCase();
    const found = DATA.filter((row) =>
      ["phase", "step", "label", "end"].every((key) => wanted[key] === "" || String(row[key]) === wanted[key])
      && (wanted.min === "" || row.reward >= Number(wanted.min)) && (wanted.max === "" || row.reward <= Number(wanted.max))
      && (text === "" || texts(row).toLowerCase().includes(text)));
    const sign = { "lowest reward": 1, "highest reward": -1 }[wanted.sort];
    return sign ? found.sort((one, other) => sign * (one.reward - other.reward)) : found;
  }

  function remember() {
    const parts = new URLSearchParams();
    for (const [key, control] of Object.entries(controls)) {
      if (control.value !== "" && control.value !== SORTS[0]) parts.set(key, control.value);
    }
    parts.set("colour", colour.value);
    if (state.open) parts.set("open", state.open);
    if (state.token >= 0) parts.set("token", state.token);
    history.replaceState(null, "", "#" + parts);
  }

  function recall() {
    const parts = new URLSearchParams(location.hash.slice(1));
    for (const [key, control] of Object.entries(controls)) {
      control.value = parts.get(key) ?? (key === "sort" ? SORTS[0] : "");
      if (control.selectedIndex === -1) control.value = "";
    }
    if (COLOURS.includes(parts.get("colour"))) colour.value = parts.get("colour");
    state.open = parts.get("open") ?? "";
    state.token = Number.parseInt(parts.get("token") ?? "-1", 10);
  }

  function item(row) {
    const said = row.messages.filter((message) => message.role === "assistant").map((message) => message.text).join(" ");
    const where = `${row.phase ? row.phase + ", " : ""}step ${row.step}, group ${row.group}`;
    const button = element("button", { type: "button", "data-name": name(row), "aria-current": name(row) === state.open },
      element("span", { class: "first" }, element("span", {}, where),
        element("span", {}, `${row.label}, ${number(row.reward)}`)),
      element("span", { class: "last", title: said.slice(0, 300) }, said.replace(/\s+/g, " ").slice(0, 90)));
    button.addEventListener("click", () => choose(row));
    return element("li", {}, button);
  }

  function show() {
    const found = matching();
    count.textContent = `${found.length} of ${DATA.length} conversations`;
    if (!found.some((row) => name(row) === state.open)) {
      state.open = found.length ? name(found[0]) : "";
      state.token = -1;
    }
    state.shown = Math.max(state.shown, 1 + found.findIndex((row) => name(row) === state.open));
    const entries = element("ol", {}, ...found.slice(0, state.shown).map(item));
    list.replaceChildren(entries);
    if (found.length > state.shown) {
      const more = element("button", { type: "button" }, `Show ${Math.min(SHOWN, found.length - state.shown)} more`);
      more.addEventListener("click", () => { state.shown += SHOWN; show(); });
      list.append(more);
    }
    const chosen = found.find((row) => name(row) === state.open);
    if (chosen) open(chosen); else detail.replaceChildren();
    const current = list.querySelector("[aria-current=true]");
    list.scrollTop = current ? current.offsetTop - list.offsetTop - 80 : 0;
  }

  function fact(title, value) { return element("span", {}, `${title} `, element("b", {}, value)); }

  function choose(row) {
    state.token = -1;
    open(row);
    remember();
  }

  function open(row) {
    state.open = name(row);
    for (const button of list.querySelectorAll("[data-name]")) {
      button.setAttribute("aria-current", button.dataset.name === state.open);
    }
    const tokens = row.messages.reduce((sum, message) => sum + (message.pieces || []).length, 0);
    const facts = element("p", { class: "facts" },
      ...(row.phase ? [fact("phase", row.phase)] : []), fact("step", row.step), fact("request", row.id),
      fact("group", row.group), fact("reward", number(row.reward)),
      ...Object.entries(row.parts || {}).map(([part, value]) => fact(part, number(value))),
      fact("label", row.label), fact("end", row.end), fact("sampled tokens", tokens));
    const numbers = element("span", { id: "numbers" });
    const scale = element("span", { class: "scale" });
    const bar = element("div", { class: "token" }, field("", colour), scale, numbers);
    colour.setAttribute("aria-label", "Colour of tokens");
    bar.firstChild.prepend("Colour ");
    detail.replaceChildren(facts, ...(row.error ? [element("p", { class: "error" }, row.error)] : []), siblings(row), bar,
      ...row.messages.map((message) => shown(message)));
    paint(row, scale);
    watch(row, numbers);
  }

  function group_of(row) {
    return DATA.filter((one) => one.phase === row.phase && one.step === row.step && one.group === row.group);
  }

  function siblings(row) {
    const group = group_of(row);
    const made = element("div", { class: "siblings" }, group.length > 1 ? `Attempts of group ${row.group}, by reward:` : "");
    for (const one of group.length > 1 ? group : []) {
      const button = element("button", { type: "button", "aria-current": one === row, title: one.label }, number(one.reward));
      button.addEventListener("click", () => choose(one));
      made.append(button);
    }
    return made;
  }

  function shown(message) {
    const model = Array.isArray(message.pieces), about = [message.role];
    if (model && message.reward) about.push(`reward ${number(message.reward)}`);
    if (model && !["stop", "", undefined].includes(message.finish_reason)) about.push(`ended by ${message.finish_reason}`);
    const text = element("p", { class: "text" }, model ? "" : message.text);
    if (model) text.setAttribute("tabindex", 0);
    for (const [place, piece] of (message.pieces || []).entries()) {
      const token = element("span", { "data-token": message.ids[place] }, piece);
      if (/^\s*\n\s*$/.test(piece)) token.classList.add("end");
      token.about = { piece, id: message.ids[place], log_prob: message.log_probs[place], version: message.versions[place],
        advantage: message.advantages[place] };
      text.append(token);
    }
    return element("div", { class: `message ${model ? "assistant" : ""}` }, element("h3", {}, about.join(", ")), text);
  }

  function tokens() { return [...detail.querySelectorAll("[data-token]")]; }

  function paint(row, scale) {
    const all = tokens(), key = { "log-prob": "log_prob", advantage: "advantage", version: "version" }[colour.value];
    const known = all.map((token) => token.about[key]).filter(Number.isFinite), [oldest, newest] = extent(known);
    const given = group_of(row).flatMap((one) => one.messages.flatMap((message) => message.advantages || []));
    const largest = Math.max(1e-12, ...extent(given.filter(Number.isFinite)).map(Math.abs).filter(Number.isFinite));
    function tint(value) {
      if (!key || !Number.isFinite(value)) return "";
      if (key === "log_prob") return `rgba(var(--low), ${(Math.min(1, -value / 6) * .65).toFixed(3)})`;
      const share = key === "version" ? (newest > oldest ? .2 + .8 * (value - oldest) / (newest - oldest) : .6)
        : Math.abs(value) / largest;
      return `rgba(var(--${value < 0 ? "low" : "high"}), ${(share * .5).toFixed(3)})`;
    }
    for (const token of all) token.style.background = tint(token.about[key]);
    scale.replaceChildren();
    const steps = {
      log_prob: [[0, "0, certain"], [-3, "\u22123"], [-6, "\u22126 or less, unlikely"]],
      advantage: [[-largest, `${number(-largest)}, made less likely`], [0, "0"],
        [largest, `+${number(largest)}, made more likely`]],
      version: [...new Set(known.length ? [oldest, newest] : [])].map((value) => [value, `version ${value}`]),
    }[key] || [];
    for (const [value, text] of steps) {
      const box = element("i");
      box.style.background = tint(value);
      scale.append(box, text, " ");
    }
  }

  function watch(row, numbers) {
    const all = tokens();
    const hint = "Point at a token for its numbers, or go through them with the arrow keys.";
    function mark(token) {
      for (const one of all) one.classList.toggle("now", one === token);
      if (!token) { numbers.textContent = all.length ? hint : ""; return; }
      const it = token.about, share = Number.isFinite(it.log_prob) ? ` (probability ${number(Math.exp(it.log_prob))})` : "";
      numbers.textContent = `${JSON.stringify(it.piece)} id ${it.id}, log-prob ${number(it.log_prob)}${share}, `
        + `advantage ${signed(it.advantage)}, version ${it.version}`;
    }
    function select_token(place) {
      state.token = place;
      mark(all[place]);
      remember();
    }
    for (const [place, token] of all.entries()) {
      token.addEventListener("pointerenter", () => mark(token));
      token.addEventListener("click", () => select_token(place));
    }
    detail.onpointerleave = () => mark(all[state.token]);
    detail.onkeydown = (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by || !event.target.classList.contains("text")) return;
      event.preventDefault();
      select_token(Math.min(all.length - 1, Math.max(0, state.token + by)));
    };
    mark(all[state.token]);
  }

  list.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key], buttons = [...list.querySelectorAll("[data-name]")];
    const at = buttons.indexOf(document.activeElement);
    if (!by || at < 0) return;
    event.preventDefault();
    const next = buttons[Math.min(buttons.length - 1, Math.max(0, at + by))];
    next.focus();
    next.click();
  });
  function changed() { state.shown = SHOWN; show(); remember(); }
  filters.addEventListener("input", changed);
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("reset", () => setTimeout(changed));
  colour.addEventListener("input", () => {
    const row = DATA.find((one) => name(one) === state.open);
    if (row) paint(row, detail.querySelector(".scale"));
    remember();
  });
  addEventListener("hashchange", () => { recall(); show(); });
  recall();
  show();
}

const home = document.getElementById("browser");
if (home) browser(home);
"""
