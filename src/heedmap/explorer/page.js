/* The page: what is shown, pointed at, pinned, played and kept. All text goes in as text. */

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);

// Okabe and Ito's colours, which are told apart with any kind of colour vision.
const HUES = ["#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#f0e442", "#d55e00", "#0072b2"];
const SCALES = {
  shared: "shared by all words",
  word: "each word its own",
  raw: "raw probability",
  content: "share among the content words",
};
const SIDES = { source: "Source", edited: "Edit" };
const rgb = (hue) => [1, 3, 5].map((i) => parseInt(hue.slice(i, i + 2), 16));
const tables = Object.fromEntries(
  Object.entries(data.look.colours).map(([name, text]) => [name, bytesOf(text)]),
);
for (const run of data.runs) run.views = run.views.map((view) => new View(view));

const state = {
  pair: 0,
  mode: "side",
  scale: "shared",
  layers: "all",
  step: 0, // 0 for all, else the number of a window of steps, from 1
  span: "one",
  head: -1,
  opacity: data.look.opacity,
  colours: data.look.colour,
  outline: false,
  threshold: 0.5,
  native: false,
  specials: false,
  negative: false,
  pins: [],
  hover: null,
  last: null,
  point: null, // [x, y] as parts of the picture
};
let figures = [];
let chips = [];

/* --- elements -------------------------------------------------------------------------------- */

function make(tag, options = {}, ...children) {
  const { dataset, on, ...rest } = options;
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(rest)) {
    if (name in element && name !== "role") element[name] = value;
    else element.setAttribute(name, value);
  }
  Object.assign(element.dataset, dataset);
  for (const [name, act] of Object.entries(on || {})) element.addEventListener(name, act);
  element.append(...children);
  return element;
}

function makeSvg(tag, attributes = {}) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

const said = { text: "", timer: 0 };

/** Tell screen readers, at most about twice a second: the last thing said counts. */
function announce(text) {
  said.text = text;
  if (said.timer) return;
  said.timer = setTimeout(() => {
    said.timer = 0;
    $("said").textContent = said.text;
  }, 500);
}

const number = (value) => (value === 0 ? "0" : Number(value.toPrecision(2)).toString());
const percent = (part) => `${Math.round(part * 100)}\u00a0%`;

/* --- what is selected ------------------------------------------------------------------------ */

const pairNow = () => data.pairs[state.pair] || null;
const runsNow = () => {
  const pair = pairNow();
  return pair ? [pair.source, pair.edited] : [0];
};
const mainView = () => data.runs[runsNow()[0]].views[0];
const viewsShown = (run) => data.runs[run].views.slice(0, state.negative ? 2 : 1);

function selection(view = mainView(), changes = {}) {
  const all = { layers: state.layers, from: 0, to: view.steps, head: state.head, native: state.native };
  const wanted = { ...all, ...changes };
  const window = view.windows(wanted)[(changes.step ?? state.step) - 1];
  if (!window) return wanted;
  const [from, to] = window;
  if (state.span === "until") return { ...wanted, from: 0, to };
  if (state.span === "from") return { ...wanted, from, to: view.steps };
  return { ...wanted, from, to };
}

const mapsOf = (run, view) => data.runs[run].views[view].maps(selection(data.runs[run].views[view]));

/** The range that the words of all prompts in sight have in common. */
function sharedSpan(view) {
  const all = runsNow().flatMap((run) => (data.runs[run].views[view] ? [mapsOf(run, view)] : []));
  const there = all.filter(Boolean);
  return [Math.min(...there.map((m) => m.low)), Math.max(...there.map((m) => m.high))];
}

/** The same words in another prompt of the pair: a term's entries there, or null. */
function entriesIn(term, run) {
  if (term.run === run) return term.entries;
  const pair = pairNow();
  const view = data.runs[run].views[term.view];
  if (!pair || !view) return null;
  const own = data.runs[term.run].views[term.view];
  const [here, there] = term.run === pair.source ? [0, 1] : [1, 0];
  const found = term.entries.map((i) => {
    const entry = own.entries[i];
    if (entry.kind !== "word") return view.entries.findIndex((e) => e.kind === entry.kind);
    const match = pair.words.find((numbers) => numbers[here] === entry.number);
    const wanted = term.view ? entry.number : match && match[there];
    return view.entries.findIndex((e) => e.kind === "word" && e.number === wanted);
  });
  const real = found.filter((i) => i >= 0);
  return real.length ? real : null;
}

/** The heat of a term in a run's picture, or null while it is read or where it has none. */
function heatOf(term, run) {
  const entries = entriesIn(term, run);
  const maps = entries && mapsOf(run, term.view);
  if (!maps) return null;
  const view = data.runs[run].views[term.view];
  const plane = state.scale === "content" ? view.share(maps, entries) : view.sum(maps, entries);
  let [low, high] = [0, 1];
  if (state.scale === "word") [low, high] = span(plane);
  if (state.scale === "shared") [low, high] = sharedSpan(term.view);
  const hue = rgb(term.hue || HUES[0]);
  return { plane, w: maps.w, h: maps.h, low, high, hue, native: state.native, grids: maps.grids };
}

const termsNow = () => (state.hover ? [state.hover] : state.pins);
const termsKept = () => (state.pins.length ? state.pins : state.last ? [state.last] : []);
const keyOf = (term) => `${term.run} ${term.view} ${term.entries.join(" ")}`;

/* --- drawing --------------------------------------------------------------------------------- */

function render() {
  const terms = termsNow();
  for (const figure of figures) {
    const heats = terms.flatMap((term) => {
      const heat = heatOf(term, figure.run);
      return heat ? [{ ...heat, term }] : [];
    });
    figure.heats = heats;
    if (figure.kind === "run") {
      const table = tables[state.colours];
      const image = overlay(figure.picture, heats, state.opacity, data.look, table);
      figure.pen.putImageData(image, 0, 0);
    }
    // Where no heat can lie, over a difference, a word shows as its outline.
    drawOutlines(figure, state.outline || figure.kind !== "run" ? heats : []);
    figure.element.classList.toggle("native", state.native && heats.length > 0);
  }
  renderLegend();
  renderPoint();
}

function outlineOf(heat) {
  const [low, high] = span(heat.plane);
  if (high <= low) return "";
  const level = low + state.threshold * (high - low);
  return (state.native ? stairs : contour)(heat.plane, heat.w, heat.h, level);
}

function drawOutlines(figure, heats) {
  figure.outlines.replaceChildren();
  for (const heat of heats) {
    const path = outlineOf(heat);
    const scale = `scale(${100 / heat.w} ${100 / heat.h})`;
    const hue = heats.length > 1 ? `rgb(${heat.hue.join(" ")})` : "#fff";
    for (const [kind, colour] of [["casing", "#000"], ["line", hue]]) {
      figure.outlines.append(
        makeSvg("path", { d: path, transform: scale, class: kind, stroke: colour }),
      );
    }
  }
}

function layersSaid() {
  const [kind, which] = state.layers.split(/ (.*)/s);
  if (!mainView().keep.includes("layer")) return "all layers";
  if (kind === "group") return `${which} layers`;
  if (kind === "grid") return `layers of ${which}`;
  return kind === "layer" ? `layer ${mainView().layers[Number(which)].short}` : "all layers";
}

function stepsSaid({ from, to } = selection()) {
  const steps = mainView().steps;
  if (from === 0 && to === steps) return `all ${steps} steps`;
  return to - from === 1 ? `step ${to} of ${steps}` : `steps ${from + 1}–${to} of ${steps}`;
}

const headsSaid = () => (state.head < 0 ? "all heads" : `head ${state.head + 1}`);

function renderLegend() {
  const shown = figures.filter((figure) => figure.kind === "run");
  const figure = shown.find((one) => one.heats.length) || shown[0];
  const heats = figure ? figure.heats : [];
  const [bar, list, text] = $("legend").children;
  $("legend").classList.toggle("several", heats.length > 1);
  const drawn = !pairNow() || ["side", "wipe"].includes(state.mode);
  bar.hidden = heats.length !== 1 || !drawn;
  list.hidden = !heats.length;
  list.replaceChildren();
  if (!drawn && !heats.length) {
    text.textContent = "Point at a word to see where it acted, as an outline.";
    return;
  }
  if (!heats.length) {
    text.textContent = termsNow().length
      ? "Reading the maps …"
      : "The picture, without heat.";
    return;
  }
  const range = (heat) => `${number(heat.low)} to ${number(heat.high)}`;
  const same = heats.every((heat) => heat.low === heats[0].low && heat.high === heats[0].high);
  for (const heat of heats) {
    const swatch = make("span", { className: "swatch" });
    swatch.style.setProperty("--hue", `rgb(${heat.hue.join(" ")})`);
    const label = make("bdi", { textContent: labelsOf(heat.term) });
    const parts = heats.length > 1 ? [swatch, label] : [label];
    list.append(make("li", {}, ...parts, same || !drawn ? "" : ` ${range(heat)}`));
  }
  const chosen = `${layersSaid()} · ${stepsSaid()} · ${headsSaid()}`;
  if (!drawn) {
    text.textContent = `outlined at ${percent(state.threshold)} of its range · ${chosen}`;
    return;
  }
  if (heats.length === 1) drawBar(bar);
  const grids = heats[0].grids.length > 4 ? "" : ` on ${heats[0].grids.join(", ")}`;
  const cells = state.native ? ` · native cells${grids}` : "";
  const scale = `${SCALES[state.scale]}${same ? `: ${range(heats[0])}` : ""}`;
  text.textContent = `${scale} · ${chosen}${cells}`;
}

/** What a term is called, in both prompts where they differ. */
function labelsOf(term) {
  const labels = runsNow().flatMap((run) => {
    if (run === term.run) return [term.label];
    const entries = entriesIn(term, run) || [];
    const there = data.runs[run].views[term.view];
    return entries.length ? [entries.map((i) => there.entries[i].text).join(" ")] : [];
  });
  const bare = (label) => label.replace(/\s+/g, " ");
  return labels.length > 1 && bare(labels[0]) !== bare(labels[1]) ? labels.join(" → ") : term.label;
}

function drawBar(canvas) {
  const key = `${state.colours} ${state.opacity}`;
  if (canvas.dataset.shows === key) return;
  canvas.dataset.shows = key;
  const pen = canvas.getContext("2d");
  const image = new ImageData(canvas.width, canvas.height);
  const table = tables[state.colours];
  const { light } = data.look;
  const grey = 176 + (176 * light - 176) * Math.min(1, state.opacity / data.look.opacity);
  for (let x = 0; x < canvas.width; x++) {
    const heat = x / (canvas.width - 1);
    const from = 3 * Math.round(heat * 255);
    const colour = [0, 1, 2].map((c) => grey + (table[from + c] - grey) * state.opacity * heat);
    for (let y = 0; y < canvas.height; y++) {
      image.data.set([...colour, 255], 4 * (y * canvas.width + x));
    }
  }
  pen.putImageData(image, 0, 0);
}

/* --- words ----------------------------------------------------------------------------------- */

function buildPrompts() {
  chips = [];
  const pair = pairNow();
  const lines = runsNow().flatMap((run, n) =>
    viewsShown(run).map((view, v) => {
      const side = pair ? Object.values(SIDES)[n] : "";
      const label = v ? (side ? `${side}, negative` : "Negative") : side;
      const line = make("p", { className: "prompt", dir: "auto", role: "group" });
      line.setAttribute("aria-label", v ? `${side} negative prompt`.trim() : `${side} prompt`.trim());
      line.addEventListener("keydown", (event) => moveFocus(event, line));
      fillPrompt(line, run, v, pair && !v ? pair.changed[n ? "edited" : "source"] : []);
      const name = make("span", { className: "side", textContent: label });
      return make("div", { className: v ? "line lesser" : "line" }, ...(label ? [name] : []), line);
    }),
  );
  $("prompts").replaceChildren(...lines);
  markPins();
}

function fillPrompt(line, run, v, changed) {
  const view = data.runs[run].views[v];
  const special = (kind) => {
    const entry = view.entries.findIndex((e) => e.kind === kind);
    if (entry >= 0) line.append(chip(run, v, entry, "special"), " ");
  };
  if (state.specials) special("start");
  for (const [text, number, read] of view.pieces) {
    const entry = view.entries.findIndex((e) => e.kind === "word" && e.number === number);
    if (number < 0) {
      line.append(text);
    } else if (entry >= 0) {
      line.append(chip(run, v, entry, changed.includes(number) ? "changed" : ""));
    } else {
      const why = read ? "not recorded" : "past the last token that the model reads";
      line.append(make("s", { textContent: text, title: `“${text}” was not read: ${why}` }));
    }
  }
  if (state.specials) {
    line.append(" ");
    special("end");
    special("pad");
  }
  const first = line.querySelector("button");
  if (first) first.tabIndex = 0;
}

function chip(run, view, entry, kind) {
  const { text } = data.runs[run].views[view].entries[entry];
  const button = make("button", { type: "button", textContent: text, tabIndex: -1 });
  button.className = `word ${kind}`.trim();
  const term = { run, view, entries: [entry], label: text };
  const one = { button, term };
  chips.push(one);
  button.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && hover(term));
  button.addEventListener("pointerleave", () => hover(null));
  button.addEventListener("focus", () => {
    if (!button.matches(":focus-visible")) return;
    hover(term);
    describe(term);
  });
  button.addEventListener("blur", () => hover(null));
  button.addEventListener("click", (event) => click(one, event));
  button.addEventListener("pointerdown", (event) => startDrag(one, event));
  return button;
}

function hover(term) {
  if (drag.from && drag.moved) return;
  state.hover = term;
  if (term) state.last = term;
  render();
  nameDownloads();
}

function describe(term) {
  const heat = heatOf(term, term.run);
  if (!heat) return;
  const [low, high] = span(heat.plane);
  const at = heat.plane.indexOf(high);
  const x = ((at % heat.w) + 0.5) / heat.w;
  const y = (Math.floor(at / heat.w) + 0.5) / heat.h;
  announce(
    `${term.label}: strongest at ${percent(x)} across and ${percent(y)} down; ` +
      `from ${number(low)} to ${number(high)}.`,
  );
}

function moveFocus(event, line) {
  const words = [...line.querySelectorAll("button")];
  const at = words.indexOf(document.activeElement);
  const on = getComputedStyle(line).direction === "rtl" ? -1 : 1;
  const to = { ArrowRight: at + on, ArrowLeft: at - on, Home: 0, End: words.length - 1 }[event.key];
  if (at < 0 || to === undefined || !words[to]) return;
  event.preventDefault();
  if (event.shiftKey) extend(chips.find((one) => one.button === words[to]));
  words[at].tabIndex = -1;
  words[to].tabIndex = 0;
  words[to].focus();
}

function click(one, event) {
  if (drag.done) {
    drag.done = false;
    return;
  }
  if (event.shiftKey && extend(one)) return;
  toggle({ ...one.term });
}

/** A phrase from the word that was pinned or focused last up to this one. */
function extend(one) {
  const before = state.pins.at(-1);
  const active = chips.find(({ button }) => button === document.activeElement && button !== one.button);
  const anchor = before && before.run === one.term.run && before.view === one.term.view ? before : null;
  const from = anchor ? anchor.entries : active && active.term.entries;
  if (!from) return false;
  if (anchor) state.pins.pop();
  const ends = [...from, ...one.term.entries];
  addPin(phrase(one.term, Math.min(...ends), Math.max(...ends)));
  return true;
}

function phrase({ run, view }, first, last) {
  const { entries, pieces } = data.runs[run].views[view];
  const numbers = entries.slice(first, last + 1).map((entry) => entry.number);
  const at = (wanted) => pieces.findIndex(([, n]) => n === wanted);
  const label = numbers.includes(-1)
    ? entries.slice(first, last + 1).map((entry) => entry.text).join(" ")
    : pieces.slice(at(numbers[0]), at(numbers.at(-1)) + 1).map(([text]) => text).join("");
  const count = last - first + 1;
  return { run, view, entries: Array.from({ length: count }, (_, i) => first + i), label };
}

const drag = { from: null, to: null, moved: false, done: false };

function startDrag(one, event) {
  if (event.button) return;
  drag.from = one;
  drag.to = one;
  drag.moved = false;
  drag.done = false;
  if (event.target.hasPointerCapture(event.pointerId)) {
    event.target.releasePointerCapture(event.pointerId); // touch: moves go to what is below
  }
}

document.addEventListener("pointermove", (event) => {
  if (!drag.from) return;
  const under = document.elementFromPoint(event.clientX, event.clientY);
  const over = chips.find(({ button }) => button === under);
  if (!over || over.term.run !== drag.from.term.run || over.term.view !== drag.from.term.view) return;
  if (over !== drag.from) drag.moved = true;
  if (!drag.moved) return;
  drag.to = over;
  const ends = [drag.from, drag.to].map(({ term }) => term.entries[0]);
  const term = phrase(drag.from.term, Math.min(...ends), Math.max(...ends));
  for (const { button, term: { run, view, entries } } of chips) {
    const inside = run === term.run && view === term.view && term.entries.includes(entries[0]);
    button.classList.toggle("dragged", inside);
  }
  state.hover = term;
  render();
});

for (const end of ["pointerup", "pointercancel"]) {
  document.addEventListener(end, () => {
    if (drag.from && drag.moved && end === "pointerup") {
      const ends = [drag.from, drag.to].map(({ term }) => term.entries[0]);
      addPin(phrase(drag.from.term, Math.min(...ends), Math.max(...ends)));
      drag.done = drag.from === drag.to; // only then does a click follow
    }
    for (const { button } of chips) button.classList.remove("dragged");
    drag.from = null;
  });
}

function toggle(term) {
  const at = state.pins.findIndex((pin) => keyOf(pin) === keyOf(term));
  if (at >= 0) removePin(at);
  else addPin(term);
}

function addPin(term) {
  const free = HUES.filter((hue) => !state.pins.some((pin) => pin.hue === hue));
  const pin = { ...term, hue: free[0] || HUES[state.pins.length % HUES.length] };
  state.pins = [...state.pins.filter((one) => keyOf(one) !== keyOf(term)), pin];
  announce(`${term.label} is pinned.`);
  pinsChanged();
}

function removePin(at) {
  announce(`${state.pins[at].label} is no longer pinned.`);
  state.pins = state.pins.filter((_, i) => i !== at);
  pinsChanged();
}

function pinsChanged() {
  state.hover = null;
  markPins();
  render();
  nameDownloads();
}

function markPins() {
  for (const { button, term } of chips) {
    const own = state.pins.find((pin) => keyOf(pin) === keyOf(term));
    const within = own || state.pins.find((pin) => (entriesIn(pin, term.run) || []).includes(term.entries[0]) && pin.view === term.view);
    button.setAttribute("aria-pressed", String(Boolean(own)));
    button.classList.toggle("pinned", Boolean(within));
    button.style.setProperty("--hue", within ? within.hue : "transparent");
  }
  const items = state.pins.map((pin, i) => {
    const swatch = make("span", { className: "swatch" });
    swatch.style.setProperty("--hue", pin.hue);
    const name = make("bdi", { textContent: pin.label });
    const off = make("button", { type: "button", textContent: "×", on: { click: () => removePin(i) } });
    off.setAttribute("aria-label", `Unpin ${pin.label}`);
    return make("li", {}, swatch, name, off);
  });
  $("pins").replaceChildren(...items);
  $("pins").hidden = !items.length;
  $("hint").hidden = items.length > 0;
}

/* --- the point ------------------------------------------------------------------------------- */

function pointAt(x, y, aloud = false) {
  const inside = (part) => Math.min(0.9999, Math.max(0, part));
  state.point = x === null ? null : [inside(x), inside(y)];
  renderPoint();
  if (aloud && state.point) {
    const words = actingAt(runsNow().at(-1), 0).slice(0, 3);
    const list = words.map(({ text, share }) => `${text} ${percent(share)}`).join(", ");
    announce(`${percent(state.point[0])} across, ${percent(state.point[1])} down: ${list}.`);
  }
}

/** What acted at the point in a run's picture: the most first. */
function actingAt(run, v) {
  const maps = state.point && mapsOf(run, v);
  if (!maps) return [];
  const view = data.runs[run].views[v];
  const [x, y] = state.point;
  const at = Math.floor(y * maps.h) * maps.w + Math.floor(x * maps.w);
  const rows = view.entries.flatMap((entry, i) =>
    entry.kind === "word" || state.specials
      ? [{ entry: i, text: entry.text, kind: entry.kind, value: maps.planes[i][at] }]
      : [],
  );
  const sum = rows.reduce((total, row) => total + Math.max(0, row.value), 0);
  for (const row of rows) row.share = sum > 0 ? Math.max(0, row.value) / sum : 0;
  return rows.sort((a, b) => b.value - a.value);
}

function renderPoint() {
  const [, hint, box] = $("reading").children;
  if (!state.point && !box.firstChild) { // nothing was pointed at before either
    for (const figure of figures) figure.cross.style.display = "none";
    return;
  }
  hint.hidden = Boolean(state.point);
  for (const figure of figures) {
    figure.cross.style.display = state.point ? "" : "none";
    if (!state.point) continue;
    const [x, y] = state.point.map((part) => 100 * part);
    for (const line of figure.cross.children) {
      line.setAttribute("d", `M${x} 0V100M0 ${y}H100`);
    }
  }
  for (const { button } of chips) button.style.setProperty("--lit", "0");
  if (!state.point) {
    box.replaceChildren();
    return;
  }
  const pair = pairNow();
  const lists = runsNow().flatMap((run, n) =>
    viewsShown(run).map((_, v) => {
      const rows = actingAt(run, v);
      const most = rows.length ? Math.max(rows[0].share, 1e-9) : 1;
      for (const { button, term } of chips) {
        if (term.run !== run || term.view !== v) continue;
        const row = rows.find(({ entry }) => entry === term.entries[0]);
        if (row) button.style.setProperty("--lit", String(row.share / most));
      }
      const side = pair ? Object.values(SIDES)[n] : "";
      const name = v ? `${side} negative prompt`.trim() : side;
      const title = name ? [make("h3", { textContent: name })] : [];
      return make("div", {}, ...title, make("ol", {}, ...rows.slice(0, pair ? 5 : 8).map(readingRow)));
    }),
  );
  box.replaceChildren(...lists);
}

function readingRow({ text, share, value }) {
  const bar = make("span", { className: "bar" });
  bar.style.setProperty("--part", String(share));
  return make(
    "li",
    {},
    make("bdi", { textContent: text }),
    bar,
    make("span", { className: "share", textContent: percent(share) }),
    make("span", { className: "value", textContent: number(value), title: "probability" }),
  );
}

/* --- pictures -------------------------------------------------------------------------------- */

const pictures = new Map();

async function pictureOf(run) {
  if (!pictures.has(run)) pictures.set(run, new Picture(await readPicture(data.runs[run].picture)));
  return pictures.get(run);
}

function figure(kind, run, caption, side) {
  const canvas = make("canvas");
  const overlayed = makeSvg("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" });
  const outlines = makeSvg("g");
  const cross = makeSvg("g");
  cross.append(makeSvg("path", { class: "casing" }), makeSvg("path", { class: "line" }));
  overlayed.append(outlines, cross);
  const area = make("div", { className: "picture", tabIndex: 0, role: "application" }, canvas, overlayed);
  area.setAttribute("aria-label", `${caption || "The picture"}: arrow keys move the point`);
  const text = make("figcaption", { textContent: caption });
  const element = make("figure", { dataset: { kind: side || kind } }, area, ...(caption ? [text] : []));
  const place = (event) => {
    const box = area.getBoundingClientRect();
    pointAt((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
  };
  area.addEventListener("pointermove", place);
  area.addEventListener("pointerdown", place);
  area.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && pointAt(null));
  area.addEventListener("focus", () => {
    if (area.matches(":focus-visible") && !state.point) pointAt(0.5, 0.5, true);
  });
  area.addEventListener("keydown", (event) => movePoint(event, run));
  return { kind, run, element, area, canvas, outlines, cross, caption: text, heats: [] };
}

function movePoint(event, run) {
  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const move = moves[event.key];
  if (!move) return;
  event.preventDefault();
  const { cells: [w, h] } = data.runs[run].views[0];
  const [x, y] = state.point || [0.5, 0.5];
  const far = event.shiftKey ? 8 : 1;
  pointAt(x + (move[0] * far) / w, y + (move[1] * far) / h, true);
}

let building = 0;

async function buildFigures() {
  const mine = ++building;
  const pair = pairNow();
  const made = [];
  const runs = runsNow();
  const taken = await Promise.all(runs.map(pictureOf));
  const put = (one, image) => {
    one.canvas.width = image.width;
    one.canvas.height = image.height;
    one.pen = one.canvas.getContext("2d");
    one.pen.putImageData(image, 0, 0);
    made.push(one);
  };
  runs.forEach((run, n) => {
    const side = pair ? Object.keys(SIDES)[n] : "";
    const one = figure("run", run, pair ? SIDES[side] : "", side);
    one.picture = taken[n];
    put(one, new ImageData(Uint8ClampedArray.from(taken[n].pixels), taken[n].w, taken[n].h));
  });
  if (pair) {
    const { image, most } = difference(taken[0], taken[1], tables[data.look.colour]);
    put(figure("difference", pair.edited, `Difference: 0 to ${percent(most)} of full range`), image);
    if (pair.blend) {
      const mask = await readPicture(pair.blend.picture);
      const caption = `Bright: where the edit was let in, ${percent(pair.blend.share)} of the picture`;
      put(figure("blend", pair.edited, caption), inside(taken[1], mask));
    }
  }
  if (mine !== building) return; // another edit was chosen meanwhile
  figures = made;
  const box = $("figures");
  const { w, h } = taken[0];
  box.closest("main").style.setProperty("--ratio", String(w / h));
  box.replaceChildren(...made.map((one) => one.element));
  setMode(pair ? state.mode : "one");
  render();
  document.documentElement.dataset.ready = "yes";
}

function setMode(mode) {
  const pair = pairNow();
  if (mode === "blend" && !pair.blend) mode = "side";
  if (pair) state.mode = mode;
  $("figures").closest("main").dataset.mode = mode;
  $("wipe").hidden = mode !== "wipe";
  for (const input of $("modes").querySelectorAll("input")) {
    input.checked = input.value === mode;
    input.parentElement.hidden = input.value === "blend" && !pair.blend;
  }
  renderLegend();
}

function buildPairs() {
  if (!data.pairs.length) return;
  const modes = { side: "Side by side", wipe: "Wipe", difference: "Difference", blend: "Blend mask" };
  $("modes").hidden = false;
  for (const [value, text] of Object.entries(modes)) {
    const input = make("input", { type: "radio", name: "mode", value, on: { change: () => setMode(value) } });
    $("modes").append(make("label", {}, input, make("span", { textContent: text })));
  }
  const wipe = $("wipe").querySelector("input");
  const move = () => $("figures").style.setProperty("--wipe", `${wipe.value}%`);
  wipe.addEventListener("input", move);
  move();
  const several = data.pairs.length > 1;
  $("figures").closest("main").dataset.pairs = several ? "many" : "one";
  if (!several) return;
  $("strip").hidden = false;
  data.pairs.forEach((pair, i) => {
    const picture = make("img", { src: data.runs[pair.edited].picture, alt: "", loading: "lazy" });
    const name = make("span", { textContent: pair.label || `edit ${i + 1}` });
    const button = make("button", { type: "button", on: { click: () => choosePair(i) } }, picture, name);
    $("strip").append(button);
  });
}

function choosePair(i) {
  state.pair = i;
  state.pins = [];
  state.hover = null;
  state.last = null;
  startPair();
}

function startPair() {
  [...$("strip").children].forEach((button, i) => {
    button.setAttribute("aria-pressed", String(i === state.pair));
  });
  for (const run of runsNow()) { // before the first word is pointed at; other tables as needed
    for (const view of data.runs[run].views) view.read(view.tables[0]);
  }
  buildPrompts();
  buildControls();
  buildAbout();
  nameDownloads();
  return buildFigures();
}

/* --- controls -------------------------------------------------------------------------------- */

function option(value, text, title) {
  const one = make("option", { value, textContent: text });
  if (title) one.title = title;
  return one;
}

function buildControls() {
  const view = mainView();
  const single = view.layers.map((layer, i) =>
    option(`layer ${i}`, `${layer.short} · ${layer.grid[1]}×${layer.grid[0]}`, layer.name),
  );
  const groups = [...new Set(view.layers.map((layer) => layer.group))].filter(Boolean);
  const grids = [...new Set(view.layers.map((layer) => `${layer.grid[1]}×${layer.grid[0]}`))];
  const set = (label, options) => {
    const one = make("optgroup", { label });
    one.append(...options);
    return one;
  };
  $("layers").replaceChildren(
    option("all", "all layers"),
    set("groups", groups.map((group) => option(`group ${group}`, `${group} layers`))),
    set("by grid", grids.map((grid) => option(`grid ${grid}`, `all of ${grid}`))),
    set("single layers", single),
  );
  const heads = Array.from({ length: view.heads }, (_, i) => option(String(i), `head ${i + 1}`));
  $("head").replaceChildren(option("-1", "all heads"), ...heads);
  for (const axis of ["layer", "step", "head"]) {
    const there = view.keep.includes(axis) && (axis !== "step" || view.steps > 1);
    document.querySelector(`[data-axis=${axis}]`).hidden = !there;
  }
  $("negative-row").hidden = !runsNow().some((run) => data.runs[run].views.length > 1);
  showControls();
}

/** Bring the controls in line with what is selected, and with what the tables can tell. */
function showControls() {
  const view = mainView();
  if (!view.source(selection())) Object.assign(state, { layers: "all", step: 0, head: -1 });
  const windows = view.windows(selection());
  if (state.step > windows.length) state.step = 0;
  const can = (changes) => Boolean(view.source(selection(view, changes)));
  const stepped = state.step > 0;
  for (const one of $("layers").querySelectorAll("option")) {
    const range = selection();
    one.disabled = !can({ layers: one.value, ...(stepped ? { step: 0, from: range.from, to: range.to } : {}) });
  }
  for (const one of $("head").querySelectorAll("option")) {
    const range = selection();
    one.disabled = !can({ head: Number(one.value), ...(stepped ? { step: 0, from: range.from, to: range.to } : {}) });
  }
  $("layers").value = state.layers;
  $("head").value = String(state.head);
  $("scale").value = state.scale;
  $("step").max = String(windows.length);
  $("step").value = String(state.step);
  $("step").disabled = $("play").disabled = !windows.length;
  $("step").setAttribute("aria-valuetext", stepsSaid());
  $("step-said").textContent = stepsSaid();
  $("span").disabled = !stepped;
  $("span").value = state.span;
  $("opacity").value = String(Math.round(state.opacity * 100));
  $("opacity").setAttribute("aria-valuetext", percent(state.opacity));
  $("threshold").disabled = !state.outline;
  $("threshold").setAttribute("aria-valuetext", percent(state.threshold));
  $("threshold-said").textContent = percent(state.threshold);
  $("held").textContent = held(view, windows).join(" ");
  $("held").hidden = !$("held").textContent;
}

/** What this page cannot tell apart, and why. */
function held(view, windows) {
  const lines = [];
  const averaged = ["layer", "step", "head"].filter((axis) => !view.keep.includes(axis));
  if (averaged.length) {
    const names = averaged.map((axis) => `${axis}s`).join(" and ");
    lines.push(`Not kept in this run: ${names} (recorded as their mean).`);
  }
  if (view.keep.includes("step") && !windows.length) {
    lines.push("For this choice all steps are held together.");
  } else if (windows.length && windows[0][1] - windows[0][0] > 1) {
    lines.push(`Steps are held in means of ${windows[0][1] - windows[0][0]}.`);
  }
  const choices = view.keep.flatMap((axis) => [...($({ layer: "layers" }[axis] || axis).options || [])]);
  if (choices.some((one) => one.disabled)) {
    lines.push("What is greyed out is held for all steps or heads together only.");
  }
  if (data.runs.some((run) => !run.exact)) lines.push("Pictures are compressed for this page.");
  return lines;
}

function changed(changes) {
  Object.assign(state, changes);
  showControls();
  render();
}

function bindControls() {
  const on = (id, event, act) => $(id).addEventListener(event, () => act($(id)));
  on("scale", "change", (e) => changed({ scale: e.value }));
  on("layers", "change", (e) => changed({ layers: e.value }));
  on("head", "change", (e) => changed({ head: Number(e.value) }));
  on("step", "input", (e) => changed({ step: Number(e.value) }));
  on("span", "change", (e) => changed({ span: e.value }));
  on("opacity", "input", (e) => changed({ opacity: Number(e.value) / 100 }));
  on("colours", "change", (e) => changed({ colours: e.value }));
  on("outline", "change", (e) => changed({ outline: e.checked }));
  on("threshold", "input", (e) => changed({ threshold: Number(e.value) / 100 }));
  on("native", "change", (e) => changed({ native: e.checked }));
  for (const [id, lost] of [["specials", isSpecial], ["negative", (pin) => pin.view === 1]]) {
    on(id, "change", (e) => {
      state[id] = e.checked;
      if (!e.checked) state.pins = state.pins.filter((pin) => !lost(pin));
      state.hover = state.last = null;
      buildPrompts();
      changed({});
      nameDownloads();
    });
  }
  on("play", "click", () => play());
  on("png", "click", () => keepPng());
  on("npy", "click", () => keepNpy());
  $("colours").append(...Object.keys(tables).map((name) => option(name, name)));
  $("colours").value = state.colours;
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    state.pins = [];
    pointAt(null);
    pinsChanged();
  });
}

const isSpecial = (pin) =>
  pin.entries.some((i) => data.runs[pin.run].views[pin.view].entries[i].kind !== "word");

let playing = 0;

function play() {
  const stop = () => {
    clearInterval(playing);
    playing = 0;
    $("play").textContent = "▶";
    $("play").setAttribute("aria-label", "Play the steps");
  };
  if (playing) return stop();
  const last = Number($("step").max);
  let step = state.step >= last ? 0 : state.step;
  const slow = matchMedia("(prefers-reduced-motion: reduce)").matches;
  $("play").textContent = "❚❚";
  $("play").setAttribute("aria-label", "Stop playing");
  const next = () => {
    changed({ step: ++step });
    if (step >= Number($("step").max)) stop();
  };
  playing = setInterval(next, slow ? 900 : Math.max(120, Math.min(400, 6000 / last)));
  next();
}

/* --- what can be kept ------------------------------------------------------------------------ */

function nameDownloads() {
  const terms = termsKept();
  const what = terms.length > 1 ? `${terms.length} words` : terms.length ? terms[0].label : "";
  const short = what.length > 18 ? `${what.slice(0, 17)}…` : what;
  for (const [id, kind, file] of [["png", "Overlay", "PNG"], ["npy", "Map", "NPY"]]) {
    $(id).disabled = !terms.length;
    $(id).textContent = what ? `${kind} of ${short}, ${file}` : `${kind}, ${file}`;
  }
}

function fileName(terms, figure, kind) {
  const { from, to } = selection();
  const all = from === 0 && to === mainView().steps;
  const parts = [
    terms.map((term) => term.label).join(" "),
    pairNow() ? figure.element.dataset.kind : "",
    kind === "png" ? state.scale : "",
    state.layers === "all" ? "" : layersSaid(),
    all ? "" : `steps ${from + 1}-${to}`,
    state.head < 0 ? "" : headsSaid(),
    state.native ? "native" : "",
  ];
  const name = parts.filter(Boolean).join(" ").replace(/[^\p{L}\p{M}\p{N}]+/gu, "-");
  return `${name.replace(/^-|-$/g, "").slice(0, 120)}.${kind}`;
}

function keepPng() {
  const terms = termsKept();
  for (const figure of figures.filter((one) => one.kind === "run")) {
    const heats = terms.flatMap((term) => heatOf(term, figure.run) || []);
    if (!heats.length) continue;
    const canvas = make("canvas", { width: figure.canvas.width, height: figure.canvas.height });
    const pen = canvas.getContext("2d");
    pen.putImageData(overlay(figure.picture, heats, state.opacity, data.look, tables[state.colours]), 0, 0);
    if (state.outline) {
      for (const heat of heats) inkOutline(pen, heat, heats.length > 1 ? heat.hue : [255, 255, 255]);
    }
    canvas.toBlob((blob) => keepFile(blob, fileName(terms, figure, "png")), "image/png");
  }
}

function inkOutline(pen, heat, hue) {
  const line = new Path2D();
  const scale = new DOMMatrix([pen.canvas.width / heat.w, 0, 0, pen.canvas.height / heat.h, 0, 0]);
  line.addPath(new Path2D(outlineOf(heat)), scale);
  pen.lineCap = "round";
  const thin = Math.max(1, pen.canvas.width / 320);
  for (const [colour, width] of [["#000", 3 * thin], [`rgb(${hue.join(" ")})`, 1.5 * thin]]) {
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.stroke(line);
  }
}

function keepNpy() {
  const terms = termsKept();
  for (const figure of figures.filter((one) => one.kind === "run")) {
    const heats = terms.flatMap((term) => heatOf(term, figure.run) || []);
    if (!heats.length) continue;
    const { w, h } = heats[0];
    const numbers = new Float32Array(heats.length * w * h);
    heats.forEach((heat, i) => numbers.set(heat.plane, i * w * h));
    const shape = heats.length > 1 ? [heats.length, h, w] : [h, w];
    keepFile(npyFile(numbers, shape), fileName(terms, figure, "npy"));
  }
}

/* --- settings, evidence, how to repeat ------------------------------------------------------- */

function table(caption, heads, rows) {
  const cells = (row) => row.map((text, i) => (i ? make("td", { textContent: text, dir: "auto" }) : make("th", { scope: "row", textContent: text })));
  const head = make("tr", {}, ...heads.map((text) => make("th", { scope: "col", textContent: text })));
  return make(
    "table",
    {},
    make("caption", { textContent: caption }),
    ...(heads.length ? [make("thead", {}, head)] : []),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...cells(row)))),
  );
}

function buildAbout() {
  const pair = pairNow();
  const run = data.runs[runsNow().at(-1)];
  const parts = [];
  if (pair) {
    const heads = ["Change", "of the picture", "MSE", "PSNR, dB", "SSIM"];
    parts.push(
      make(
        "section",
        { className: "evidence" },
        make("h2", { textContent: "What the edit did" }),
        make("p", { textContent: pair.why ? `${pair.why}.` : "" }),
        table("How much the picture changed", heads, pair.figures.change),
        table("What the rules did", [], pair.figures.said),
      ),
    );
  }
  if (run.repeat.length) {
    const ways = run.repeat.flatMap(([name, text, note]) => [
      make("h3", { textContent: name }),
      code(name, text),
      ...(note ? [make("p", { className: "hint", textContent: note })] : []),
    ]);
    const heading = make("h2", { textContent: pair ? "Repeat this edit" : "Repeat this run" });
    parts.push(make("section", { className: "repeat" }, heading, ...ways));
  }
  const summary = make("summary", {}, make("h2", { textContent: "Settings" }));
  const settings = table(pair ? "of the edit" : "of the run", [], run.settings);
  parts.push(make("section", {}, make("details", {}, summary, settings)));
  $("about").replaceChildren(...parts);
}

function code(name, text) {
  const block = make("pre", { tabIndex: 0, role: "region" });
  block.append(...text.split(/(?= --)/).map((part) => make("span", { textContent: part })));
  block.setAttribute("aria-label", name);
  const copy = make("button", { type: "button", textContent: "Copy" });
  copy.setAttribute("aria-label", `Copy: ${name}`);
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
      announce("Copied.");
    } catch {
      getSelection().selectAllChildren(block); // where the clipboard is closed, as in notebooks
      announce("Selected: copy it with the keyboard.");
    }
    setTimeout(() => (copy.textContent = "Copy"), 2000);
  });
  return make("div", { className: "code" }, block, copy);
}

/* --- begin ----------------------------------------------------------------------------------- */

for (const run of data.runs) {
  for (const view of run.views) view.whenRead = () => render();
}
if (data.pairs.length) $("kind").textContent = data.pairs.length > 1 ? "edits" : "edit";
bindControls();
buildPairs();
startPair();
