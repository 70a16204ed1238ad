/* The prompts as words to point at, by pointer and keyboard, and the words that are pinned. */

function createWords(model) {
  const { $, make, announce, number, percent } = dom;
  const { state, runs, change } = model;
  const NAMES = { prompt: "", negative: "negative", concepts: "concepts" };
  let chips = []; // {button, term}
  let anchor = null; // where a drag over several words began
  let dragged = null; // the phrase that it has reached
  let leaving = 0;

  /** Name the words of a prompt for screen readers and lists: "Source negative prompt". */
  function promptName(run, prompt) {
    const { name } = runs[run].maps.prompts[prompt];
    return [model.sideOf(run), NAMES[name], name === "concepts" ? "" : "prompt"].filter(Boolean).join(" ");
  }

  function build() {
    chips = [];
    const notes = (...texts) => texts.filter(Boolean).map((text) => make("p", { className: "note" }, text));
    const lines = model.runsNow().flatMap((run) => {
      const { prompts } = runs[run].maps;
      return prompts.map(({ name, unread }, prompt) => {
        const label = [model.sideOf(run), NAMES[name]].filter(Boolean).join(", ");
        const line = make("p", { className: "prompt", dir: "auto", role: "group", "aria-label": promptName(run, prompt) });
        line.addEventListener("keydown", (event) => moveFocus(event, line));
        fill(line, run, prompt);
        line.classList.toggle("long", line.textContent.length > 160);
        const side = make("span", { className: "side" }, label && label[0].toUpperCase() + label.slice(1));
        const text = make("div", {}, line, ...notes(unread, prompt ? "" : runs[run].untaught));
        return make("div", { className: prompt ? "line lesser" : "line" }, ...(label ? [side] : []), text);
      });
    });
    $("prompts").replaceChildren(...lines, ...notes(...(model.pair()?.notes ?? [])));
    mark();
  }

  function fill(line, run, prompt) {
    const { entries, prompts } = runs[run].maps;
    const pair = model.pair();
    const edited = pair && run === pair.edited;
    const changed = prompt || !pair ? [] : pair.changed[edited ? "edited" : "source"];
    const weights = prompt ? [] : edited ? pair.weights : runs[run].weights;
    const special = (kind) => {
      const entry = entries.findIndex((one) => one.kind === kind && one.prompt === prompt);
      if (state.specials && entry >= 0) line.append(" ", chip(run, entry, "special"), " ");
    };
    special("start");
    let word = line;
    for (const [text, wanted, read] of prompts[prompt].pieces) {
      const entry = entries.findIndex((one) => one.kind === "word" && one.prompt === prompt && one.number === wanted);
      if (wanted < 0) {
        const [close] = text.match(/^\S{0,3}/); // a comma stays with its word at the end of a line
        word.append(close);
        line.append(text.slice(close.length));
        word = line;
        continue;
      }
      const weight = weights.find(([one]) => one === wanted);
      word = make("span", { className: "joined" });
      if (entry >= 0) word.append(chip(run, entry, changed.includes(wanted) ? "changed" : ""));
      else word.append(make("s", { title: `“${text}” ${read ? "was not recorded" : "is past the last token that the model reads"}` }, text));
      if (weight) word.append(make("small", { className: "weight" }, `×${number(weight[1])}`));
      line.append(word);
    }
    special("end");
    special("pad");
    const first = line.querySelector("button");
    if (first) first.tabIndex = 0;
  }

  function chip(run, entry, kind) {
    const { text } = runs[run].maps.entries[entry];
    const term = { run, entries: [entry], label: text };
    const button = make("button", { type: "button", className: `word ${kind}`.trim(), tabIndex: -1 }, text);
    const on = (name, act) => button.addEventListener(name, act);
    on("pointerenter", (event) => {
      if (anchor && event.buttons) drag(term);
      else if (event.pointerType === "mouse") hover(term);
    });
    on("pointerleave", leave);
    on("focus", () => {
      if (!button.matches(":focus-visible")) return;
      hover(term);
      describe(term);
    });
    on("blur", leave);
    on("pointerdown", (event) => {
      anchor = event.button ? null : term;
      if (button.hasPointerCapture(event.pointerId)) button.releasePointerCapture(event.pointerId); // of a finger
    });
    on("click", ({ shiftKey }) => {
      const before = state.pins.at(-1);
      if (!shiftKey || !before || !sameLine(before, term)) return model.toggle(term);
      model.unpin(before);
      model.pin(model.phrase(run, ...(before.entries[0] < entry ? [before.entries[0], entry] : [entry, before.entries.at(-1)])));
    });
    chips.push({ button, term });
    return button;
  }

  const sameLine = (one, other) => one.run === other.run && model.entryOf(one).prompt === model.entryOf(other).prompt;

  function drag(term) {
    if (!sameLine(anchor, term)) return;
    dragged = term.entries[0] === anchor.entries[0] ? null : model.phrase(term.run, anchor.entries[0], term.entries[0]);
    hover(dragged ?? term);
  }

  for (const end of ["pointerup", "pointercancel"]) {
    document.addEventListener(end, () => {
      if (dragged && end === "pointerup") model.pin(dragged);
      anchor = dragged = null;
    });
  }

  function hover(term) {
    cancelAnimationFrame(leaving);
    leaving = 0;
    change({ hover: term });
  }

  /** Take the heat off with the next frame: between two words the picture never flashes. */
  function leave() {
    if (!dragged) leaving ||= requestAnimationFrame(() => hover(null));
  }

  function describe(term) {
    const heat = model.heatOf(term, term.run);
    const place = heat && model.peakOf(heat);
    if (!heat) return;
    const [low, high] = maps.span(heat.plane);
    announce(
      place
        ? `${term.label}: strongest at ${percent(place[0])} across and ${percent(place[1])} down; from ${number(low)} to ${number(high)}.`
        : `${term.label}: read nowhere in what is shown.`,
    );
  }

  function moveFocus(event, line) {
    const words = [...line.querySelectorAll("button")];
    const at = words.indexOf(document.activeElement);
    const forward = getComputedStyle(line).direction === "rtl" ? -1 : 1;
    const to = { ArrowRight: at + forward, ArrowLeft: at - forward, Home: 0, End: words.length - 1 }[event.key];
    if (at < 0 || !words[to]) return;
    event.preventDefault();
    words[at].tabIndex = -1;
    words[to].tabIndex = 0;
    words[to].focus();
  }

  /** Mark the pinned words, and light each word by how much it draws at the place. */
  function mark() {
    const lit = new Map();
    for (const run of model.runsNow()) {
      runs[run].maps.prompts.forEach((_, prompt) => {
        const rows = model.wordsAt(run, prompt);
        const most = Math.max(1e-9, ...(prompt ? model.wordsAt(run, 0) : []).concat(rows).map(({ value }) => Math.abs(value)));
        for (const { entry, value } of rows) lit.set(`${run} ${entry}`, Math.abs(value) / most);
      });
    }
    for (const { button, term } of chips) {
      const [entry] = term.entries;
      const holds = (pin) => model.entriesIn(pin, term.run)?.includes(entry);
      const within = state.pins.find(holds);
      button.setAttribute("aria-pressed", String(model.isPinned(term)));
      button.classList.toggle("pinned", Boolean(within));
      button.classList.toggle("dragged", Boolean(dragged?.run === term.run && dragged.entries.includes(entry)));
      button.style.setProperty("--hue", within?.hue ?? "transparent");
      button.style.setProperty("--lit", String(lit.get(`${term.run} ${entry}`) ?? 0));
    }
  }

  function drawPins() {
    const items = state.pins.map((pin) => {
      const off = make("button", { type: "button", "aria-label": `Unpin ${pin.label}`, on: { click: () => model.unpin(pin) } }, "×");
      return make("li", {}, make("span", { className: "swatch", vars: { "--hue": pin.hue } }), make("bdi", {}, pin.label), off);
    });
    $("pins").replaceChildren(...items);
    $("pins").hidden = !items.length;
    $("hint").hidden = items.length > 0;
  }

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") change({ pins: [], hover: null, bare: true, point: null, place: null });
  });
  model.listen((changes) => ("pair" in changes || "specials" in changes ? build() : mark()));
  model.listen((changes) => "pins" in changes && drawPins());
  if (model.located()) {
    $("kind").textContent = "locate";
    $("hint").textContent = $("hint").textContent.replace("where the model read it", "where it is seen");
  }
  build();
  drawPins();
  return { promptName };
}
