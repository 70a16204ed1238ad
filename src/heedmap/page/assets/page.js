/* The page: edits to choose from, commands, settings, the link, and the beginning. */

const model = createModel(JSON.parse(document.getElementById("data").textContent));

/** The edits of a page to choose from, as a strip or a grid, and what each of them did. */
function createEdits({ data, state, runs, ablation, pair, listen, change }) {
  const { $, make, table } = dom;

  function button(i, name) {
    const { edited, label } = data.pairs[i];
    const picture = make("img", { src: runs[edited].picture, alt: name ? "" : label, loading: "lazy" });
    const on = { click: () => change({ pair: i, pins: [], hover: null, place: null, playing: false }) };
    return make("button", { type: "button", dataset: { edit: String(i) }, on }, picture, ...(name ? [make("span", {}, name)] : []));
  }

  /** Return the grid as it is; sources are pictures that cannot be opened. */
  function grid({ columns, rows }) {
    const source = ([, near]) =>
      make("img", { src: runs[data.pairs[near].source].picture, alt: "the source", loading: "lazy" });
    return table("", ["", ...columns], rows.map(([name, cells]) =>
      [name, ...cells.map((cell) => (cell === null ? source(cells) : button(cell, "")))],
    ));
  }

  function drawAblation({ label, why, agreement }) {
    const { mean, largest, ...maps } = agreement;
    const names = { heat: "heat", refined: "refined map", mask: "mask of the phrase" };
    const figure = (value) => (value === null ? "–" : value.toFixed(2).replace("-", "−"));
    const rows = Object.keys(names).filter((name) => maps[name]).map((name) => [names[name], figure(maps[name].auc), figure(maps[name].rank)]);
    const part = (value) => `${(100 * value).toFixed(1)}\u00a0%`;
    $("kind").textContent = `ablation · ${label}`;
    $("verdict").textContent = why;
    $("evidence").replaceChildren(
      make("h2", {}, "Does the heat say where the image changes?"),
      table("Agreement of each map with the change", ["Map", "AUC", "rank"], rows),
      table("Change of the image, of full range", [], [["mean", part(mean)], ["largest of a pixel", part(largest)]]),
      make("p", { className: "hint" }, "AUC: how well the map separates the region that changed from the rest (1: perfectly; 0.5: chance). Rank: Spearman’s correlation of map and change, −1 to 1."),
    );
  }

  function draw(changes) {
    if (!("pair" in changes)) return;
    for (const one of $("strip").querySelectorAll("button")) {
      one.setAttribute("aria-pressed", String(Number(one.dataset.edit) === state.pair));
    }
    if (ablation) return drawAblation(pair());
    const { label, why, figures } = pair();
    $("kind").textContent = data.grid ? `grid of edits · ${label}` : data.pairs.length > 1 ? `edits · ${label}` : "edit";
    $("evidence").replaceChildren(
      make("h2", {}, "Effect of the edit"),
      make("p", {}, why),
      table("Change of the image", ["Region", "share of image", "MSE", "PSNR, dB", "SSIM"], figures.change),
      table("About the edit", [], figures.attention),
    );
  }

  $("evidence").hidden = !data.pairs.length;
  $("verdict").hidden = !ablation;
  if (!data.pairs.length) return;
  document.querySelector("main").dataset.pairs = data.pairs.length > 1 ? "many" : "one";
  $("legend").after($("curve"), $("why")); // the pictures leave room there
  if (data.pairs.length > 1) {
    $("strip").hidden = false;
    if (ablation) $("strip").setAttribute("aria-label", "Ways to leave the word out");
    $("strip").append(...(data.grid ? [grid(data.grid)] : data.pairs.map(({ label }, i) => button(i, label || `edit ${i + 1}`))));
  }
  listen(draw);
  draw({ pair: state.pair });
}

/** The reference images of the run, or of the last edit, with the heat of each word. */
function showReferences({ runs }) {
  const { $, make } = dom;
  const { references } = runs.at(-1);
  const pictures = references.map((src, i) => make("img", { src, alt: `Reference image ${i + 1}, and where each word was read in it` }));
  $("references").hidden = !pictures.length;
  $("references").append(...pictures);
}

/** What the places of a run read of the image. */
function showPlaces({ data, runs }) {
  const { $, make } = dom;
  const [{ places }] = runs;
  if (!places.length || data.pairs.length) return;
  $("places").hidden = false;
  $("places").querySelector("h2").append(make("span", {}, " · each on its own scale"));
  const items = places.map(({ label, picture }) => make("li", {}, make("img", { src: picture, alt: "" }), make("bdi", {}, label)));
  $("places").querySelector("ul").append(...items);
}

/** The guides of the run, or of the last edit, with the curve of each loss: dotted before the latents were moved. */
function showGuides({ runs }) {
  const { $, make, makeSvg } = dom;
  const { guide, guides } = runs.at(-1);
  if (!guide) return;
  const line = (losses, className) => {
    const points = losses.map((loss, step) => `${(100 * step) / Math.max(losses.length - 1, 1)},${50 * (1 - loss)}`);
    return makeSvg("path", { d: `M${points.join("L")}`, class: className });
  };
  const items = guides.map((text, i) => {
    const figures = [guide.before[i][0], Math.min(...guide.after[i]), guide.after[i].at(-1)];
    const [first, least, last] = figures.map((loss) => loss.toFixed(2));
    const said = `Loss: ${first} at first, ${least} at least, ${last} at last`;
    const curve = makeSvg("svg", { viewBox: "0 0 100 50", preserveAspectRatio: "none", "aria-hidden": "true" });
    curve.append(line(guide.before[i], "before"), line(guide.after[i], "after"));
    return make("li", {}, make("bdi", {}, text), curve, make("small", {}, said));
  });
  $("guide").hidden = false;
  $("guide").querySelector("ol").append(...items);
  const hint = `The loss at each step, 0 to 1: dotted before the latents were moved, solid after. This took ${guide.passes} extra passes of the model.`;
  $("guide").querySelector("p").textContent = hint;
}

/** The settings of a run as rows of a table. */
const settingRows = (() => {
  const NAMES = {
    batch_place: "position in batch", card: "the model's card", defaults: "default values", pipeline: "the pipeline",
    located: "image searched", share_of: "values are shares of", untaught: "words not in training",
  };
  const nameOf = (key) => NAMES[key] ?? key;

  /** Write a value of JSON, the parts of lists and objects with commas between; nothing for null. */
  function textOf(value) {
    if (value === null || typeof value !== "object") return String(value ?? "");
    if (Array.isArray(value)) return value.map(textOf).join(", ");
    const parts = Object.entries(value).filter(([, part]) => part !== null);
    return parts.map(([key, part]) => `${nameOf(key)}: ${textOf(part)}`).join(", ");
  }

  return ({ settings: { text, limit, ...settings }, shareOf }) => { // without the prompt's plain text and the bytes of maps
    const { prompt, seed, size } = settings;
    const defaults = Object.entries(settings.defaults).map(([name, by]) => `${name} of ${nameOf(by)}`);
    const values = { prompt, seed, ...settings, size: size.join("×"), share_of: shareOf, defaults };
    const rows = Object.entries(values).map(([key, value]) => [nameOf(key), textOf(value)]);
    const short = (text) => (text.length < 1000 ? text : `${text.slice(0, 1000)}…`); // a mask has many bits
    return rows.filter(([, text]) => text).map(([name, text]) => [name, short(text)]);
  };
})();

/** The commands that explain the number at the place and that repeat the result; the settings. */
function createCommands(model) {
  const { $, make, table, command } = dom;
  const { data, state, runs } = model;
  const explain = command("Explain this number");
  const repeat = command("Repeat");
  const ask = command("Ask what this place reads");
  let place = {}; // of the number, for the app that shows this page
  const path = decodeURIComponent(location.pathname).replace(/^\/(?=[A-Z]:)/, "");
  let home = location.protocol === "file:" && path.endsWith("/index.html") ? path.slice(0, -"/index.html".length) : "";

  /** Return a term as `heedmap explain --word` takes it; null if it is no word of the prompt. */
  function wordOption(term) {
    const { entries } = runs[term.run].maps;
    const own = term.entries.map((i) => entries[i]);
    if (own.some(({ kind, prompt }) => kind !== "word" || prompt)) return null;
    const fold = (text) => text.normalize("NFKC").toLowerCase();
    const same = entries.filter(({ kind, prompt, text }) => kind === "word" && !prompt && fold(text) === fold(own[0].text));
    return own.length > 1 || same.length === 1 ? term.label : `#${own[0].number}`;
  }

  /** Return the word to explain: the shown one, else the strongest at the place. */
  function wordMeant() {
    const [term] = model.termsNow();
    const run = model.mainRun();
    if (term?.run === run && wordOption(term)) return term;
    const first = model.wordsAt(run, 0).find(({ kind }) => kind === "word");
    return first ? { run, entries: [first.entry], label: first.text } : null;
  }

  /** Return the folder that the commands name: that of the run within the page's folder. */
  function folderOf(run) {
    let path = home || "FOLDER";
    if (data.grid) path += `/cells/${place.cell.padStart(3, "0")}`;
    if (model.ablation) path += `/${run === model.mainRun() ? "run" : model.pair().way}`;
    return quoted(path);
  }

  const quoted = (text) => (/^[\w.,:/-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);

  function draw() {
    const at = model.placeNow();
    const term = at && wordMeant();
    $("why").classList.toggle("unseen", !term);
    if (!term) return;
    const { size, model: option } = runs[term.run];
    const pixel = at.map((part, axis) => Math.min(size[axis] - 1, Math.floor(part * size[axis]))).join();
    const [kind, which] = model.layersNow().split(/ (.*)/s);
    const [from, to] = model.stepsNow();
    place = {
      cell: data.grid ? String(state.pair + 1) : "",
      word: wordOption(term),
      at: pixel,
      layer: kind === "layer" ? data.maps.layers[Number(which)].short : "",
      head: model.headNow() >= 0 ? String(model.headNow()) : "",
      step: to - from === 1 && data.maps.keep.includes("step") ? String(from) : "",
    };
    const flags = ["word", "at", "layer", "head", "step"].filter((name) => place[name]).map((name) => `--${name} ${quoted(place[name])}`);
    explain.set([`heedmap explain ${folderOf(term.run)}`, ...flags, option].filter(Boolean).join(" "));
    const one = place.layer && place.head && place.step;
    const mean = `The map is an average (${model.shownText()}). The explanation covers one number: by default, the largest of the word’s probabilities in all layers and heads that do not exceed 0.5.`;
    $("why").querySelector(".hint").textContent = `“${term.label}” at pixel ${pixel}. ${one ? "" : mean}`;
  }

  /** Draw the command that records what the clicked place reads. */
  function drawPlace() {
    if (data.pairs.length || !state.place) return;
    const { size, model: option } = runs[0];
    const pixel = state.place.map((part, axis) => Math.floor(part * size[axis])).join();
    const folder = `places-${pixel.replace(",", "-")}`;
    $("places").hidden = false;
    $("places").querySelector(".hint").textContent = `Ask it of pixel ${pixel}, where you clicked: the image is generated again.`;
    ask.element.hidden = false;
    ask.set([`heedmap repeat ${quoted(home || "FOLDER")}`, `--place ${pixel}`, `--out ${folder}`, option].filter(Boolean).join(" "));
  }

  function drawSettings() {
    const run = runs[model.runsNow().at(-1)];
    const { model: option } = run;
    const notes = [home ? "" : "FOLDER is the folder of this page.", option ? "MODEL is a saved copy of the model." : ""];
    const folder = model.ablation ? folderOf(model.runsNow().at(-1)) : quoted(home || "FOLDER");
    repeat.set([`heedmap repeat ${folder}`, option].filter(Boolean).join(" "));
    $("repeat").replaceChildren(
      make("h2", {}, "Repeat"),
      repeat.element,
      make("p", { className: "hint" }, notes.filter(Boolean).join(" ")),
    );
    $("settings").replaceChildren(table(model.ablation ? "of the run without the word" : model.pair() ? "of the edit" : "of the run", [], settingRows(run)));
  }

  $("why").querySelector("div").replaceChildren(explain.element);
  $("here").addEventListener("click", () => parent.postMessage({ heedmap: "explain", ...place }, "*"));
  addEventListener("message", ({ source, data: said }) => {
    if (source !== parent || parent === window || typeof said?.folder !== "string" || said.folder === home) return;
    home = said.folder; // the app knows where it saved the result
    draw();
    drawPlace();
    drawSettings();
  });
  ask.element.hidden = true;
  $("places").append(ask.element);
  model.listen(draw);
  model.listen((changes) => "place" in changes && drawPlace());
  model.listen((changes) => "pair" in changes && drawSettings());
  drawSettings();
}

/** The choices and pins behind the page's address. What does not fit is left out. */
function createLink(model) {
  const { $ } = dom;
  const { data, state, runs, change } = model;
  const controls = [...$("controls").querySelectorAll("select, input")];
  const valueOf = (control) => (control.type === "checkbox" ? String(Number(control.checked)) : control.value);
  const usual = new Map(controls.map((control) => [control, valueOf(control)]));
  let timer = 0;
  let written = location.hash;

  function text() {
    const said = new URLSearchParams();
    if (state.pair) said.set("edit", String(state.pair));
    if (state.mode !== (model.ablation ? "all" : "side")) said.set("mode", state.mode);
    for (const control of controls) if (valueOf(control) !== usual.get(control)) said.set(control.id, valueOf(control));
    for (const { run, entries } of state.pins) said.append("pin", [model.runsNow().indexOf(run), entries[0], entries.at(-1)].join("."));
    if (state.place) said.set("at", state.place.map((part) => part.toFixed(4)).join());
    if (state.bare) said.set("bare", "1");
    return said.toString();
  }

  /** Write the link, not more often than browsers allow, and never over one that was typed. */
  function write() {
    timer ||= setTimeout(() => {
      timer = 0;
      if (location.hash !== written) return;
      const said = text();
      try {
        if (said !== location.hash.slice(1)) history.replaceState(null, "", said ? `#${said}` : location.href.split("#")[0]);
        written = location.hash;
      } catch {
        // a page in a frame may have no address of its own
      }
    }, 250);
  }

  function read() {
    const said = new URLSearchParams(location.hash.slice(1));
    const pair = Number(said.get("edit"));
    if (pair && data.pairs[pair]) change({ pair });
    const modes = [...$("modes").querySelectorAll("input")].map(({ value }) => value);
    if (modes.includes(said.get("mode"))) change({ mode: said.get("mode") });
    for (const control of controls.filter(({ id }) => said.has(id))) {
      const [before, wanted] = [control.value, said.get(control.id)];
      if (control.type === "checkbox") control.checked = wanted === "1";
      else if (control.type === "range" ? /^\d+$/.test(wanted) : [...control.options].some(({ value }) => value === wanted)) control.value = wanted;
      if (control.value !== before || control.type === "checkbox") control.dispatchEvent(new Event("input"));
    }
    const [x, y] = (said.get("at") ?? "").split(",").map(Number);
    if (x >= 0 && x < 1 && y >= 0 && y < 1) change({ place: [x, y] });
    if (said.get("bare") === "1") change({ bare: true });
    for (const [side, start, end] of said.getAll("pin").slice(0, 16).map((text) => text.split(".").map(Number))) {
      const run = model.runsNow()[side];
      const entries = runs[run]?.maps.entries.slice(start, end + 1) ?? [];
      const fits = entries.length && end >= start && entries.every(({ prompt }) => prompt === entries[0].prompt);
      if (fits) model.pin(model.phrase(run, start, start + entries.length - 1));
    }
  }

  addEventListener("hashchange", () => location.reload());
  read();
  model.listen(write, "point", "hover");
}

if (matchMedia("(hover: none)").matches) dom.$("hint").textContent = "Tap a word to see where the model read it; tap it again for the plain image.";
const words = createWords(model);
const pictures = createPictures(model, words);
createOverview(model, pictures);
createControls(model, pictures);
createEdits(model);
showPlaces(model);
showReferences(model);
showGuides(model);
createCommands(model);
createLink(model);
pictures.build();
dom.bindFrame();
