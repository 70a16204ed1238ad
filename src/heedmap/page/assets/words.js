/* The prompts as words to point at, by mouse and by keyboard. */

function buildPrompts() {
  shown.chips = [];
  const pair = pairNow();
  const lines = runsNow().flatMap((run, n) =>
    viewsShown(run).map((v) => {
      const view = viewOf({ run, view: v });
      const beside = BESIDE[view.name];
      const label = [pair ? Object.values(SIDES)[n] : "", beside].filter(Boolean).join(", ");
      const line = make("p", { className: "prompt", dir: "auto", role: "group" });
      line.setAttribute("aria-label", nameOf(view, n));
      line.addEventListener("keydown", (event) => moveFocus(event, line));
      fillPrompt(line, run, v, pair && !v ? pair.changed[n ? "edited" : "source"] : []);
      const name = make("span", { className: "side", textContent: label && label[0].toUpperCase() + label.slice(1) });
      line.classList.toggle("long", line.textContent.length > 160);
      const text = make("div", {}, line, ...notes(view.unread, v ? "" : data.runs[run].untaught));
      return make("div", { className: v ? "line lesser" : "line" }, ...(label ? [name] : []), text);
    }),
  );
  $("prompts").replaceChildren(...lines, ...notes(...(pair?.notes ?? [])));
  markPins();
}

/** What the words of a view are, of the n-th of the runs in sight: "Source negative prompt". */
function nameOf(view, n) {
  const side = pairNow() ? Object.values(SIDES)[n] : "";
  return [side, BESIDE[view.name], view.name === "concepts" ? "" : "prompt"].filter(Boolean).join(" ");
}

/** What was told when it was drawn: words not read or not taught, an edit that did little. */
function notes(...said) {
  return said.filter(Boolean).map((text) => make("p", { className: "note", textContent: text }));
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
      joinTo(line, text);
    } else if (entry >= 0) {
      line.append(chip(run, v, entry, changed.includes(number) ? "changed" : ""), ...weightOf(run, v, number));
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

/** By how much a word's attention was multiplied, where it was. */
function weightOf(run, v, wanted) {
  const pair = pairNow();
  const weights = pair && run === pair.edited ? pair.weights : data.runs[run].weights;
  const found = !v && weights.find(([word]) => word === wanted);
  return found ? [make("small", { className: "weight", textContent: `×${number(found[1])}` })] : [];
}

/** Text after a word; a comma stays with its word at the end of a line. */
function joinTo(line, text) {
  const word = line.lastElementChild;
  const close = text.match(/^\S*/)[0];
  if (!close || !word || line.lastChild !== word || word.textContent.length > 24) {
    line.append(text);
    return;
  }
  const joined = make("span", { className: "joined" });
  word.replaceWith(joined);
  joined.append(word, close);
  line.append(text.slice(close.length));
}

function chip(run, view, entry, kind) {
  const { text } = data.runs[run].views[view].entries[entry];
  const button = make("button", { type: "button", textContent: text, tabIndex: -1 });
  button.className = `word ${kind}`.trim();
  const term = { run, view, entries: [entry], label: text };
  const one = { button, term };
  shown.chips.push(one);
  button.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && hover(term));
  button.addEventListener("pointerleave", leave);
  button.addEventListener("focus", () => {
    if (!button.matches(":focus-visible")) return;
    hover(term);
    describe(term);
  });
  button.addEventListener("blur", leave);
  button.addEventListener("click", (event) => click(one, event));
  button.addEventListener("pointerdown", (event) => startDrag(one, event));
  return button;
}

const leaving = { frame: 0 };

/** Take the heat off with the next frame: on the way to another word the picture never flashes. */
function leave() {
  leaving.frame = leaving.frame || requestAnimationFrame(() => hover(null));
}

function hover(term) {
  cancelAnimationFrame(leaving.frame);
  leaving.frame = 0;
  if (drag.from && drag.moved) return;
  state.hover = term;
  if (term) state.last = term;
  render();
  renderPoint();
  nameDownloads();
}

function describe(term) {
  const heat = heatOf(term, term.run);
  if (!heat) return;
  if (!acts(heat)) {
    announce(`${term.label}: acts nowhere in what is shown.`);
    return;
  }
  const [low, high] = span(heat.plane);
  const at = peakOf(heat.plane);
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
  if (event.shiftKey) extend(shown.chips.find((one) => one.button === words[to]));
  words[at].tabIndex = -1;
  words[to].tabIndex = 0;
  words[to].focus();
}
