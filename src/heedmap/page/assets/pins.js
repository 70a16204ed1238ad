/* Words that stay: clicked, extended to phrases, dragged over, taken off. */

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
  const active = shown.chips.find(({ button }) => button === document.activeElement && button !== one.button);
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
  const over = shown.chips.find(({ button }) => button === under);
  if (!over || over.term.run !== drag.from.term.run || over.term.view !== drag.from.term.view) return;
  if (over !== drag.from) drag.moved = true;
  if (!drag.moved) return;
  drag.to = over;
  const ends = [drag.from, drag.to].map(({ term }) => term.entries[0]);
  const term = phrase(drag.from.term, Math.min(...ends), Math.max(...ends));
  for (const { button, term: { run, view, entries } } of shown.chips) {
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
    for (const { button } of shown.chips) button.classList.remove("dragged");
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
  renderPoint();
  nameDownloads();
}

function markPins() {
  for (const { button, term } of shown.chips) {
    const own = state.pins.find((pin) => keyOf(pin) === keyOf(term));
    const [entry] = term.entries;
    const holds = (pin) => pin.view === term.view && (entriesIn(pin, term.run) || []).includes(entry);
    const within = own || state.pins.find(holds);
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
