/* The choices of the page, the one state of it, and the maps and heats that follow from them.

   A term is one or several words of a run's prompts: {run, entries, label, hue}. A heat is the map
   of a term in a run's picture, on its scale. */

function createModel(data) {
  const { number } = dom;
  const { span, union, sum } = maps;
  const { look } = data;
  const colours = Object.fromEntries(Object.entries(look.colours).map(([name, text]) => [name, maps.bytesOf(text)]));
  const signed = maps.bytesOf(look.signed);
  const rgb = (hue) => [1, 3, 5].map((i) => parseInt(hue.slice(i, i + 2), 16));
  const { ablation } = data; // the word that was left out, {word, numbers}, or null
  const SIDES = ablation ? ["Original", "Ablation"] : ["Source", "Edit"];

  for (const [i, one] of ablation ? data.pairs.entries() : []) {
    const { word, numbers } = ablation;
    one.label = one.way === "attention" ? `no attention to “${word}”` : `“${word}” is not in the prompt`;
    [one.source, one.edited] = [0, i + 1];
    const others = data.runs[one.edited].weights.filter(([number]) => one.way === "prompt" || !numbers.includes(number));
    one.changed = { source: numbers, edited: [] };
    one.weights = one.way === "attention" ? [...others, ...numbers.map((number) => [number, 0])] : others;
  }

  const state = {
    pair: 0, // the edit that is shown, of several
    mode: ablation ? "all" : matchMedia("(max-width: 700px)").matches ? "wipe" : "side",
    scale: ablation ? "word" : "shared",
    maps: "read", // or "refined": these are of all layers, steps and heads
    layers: "all",
    head: -1,
    steps: null, // [from, to) as chosen, or null for all
    opacity: look.opacity,
    colours: look.colour,
    outline: false,
    threshold: look.threshold,
    native: false,
    specials: false,
    together: true, // one scale for all steps while some are shown
    underlay: true, // the picture at a step lies beneath its heat
    pins: [],
    hover: null,
    bare: false, // no word is shown while none is pinned or pointed at
    point: null, // [x, y] as parts of the picture: the pointer
    place: null, // [x, y] as parts of the image: the last click
  };

  // --- changes

  const listeners = [];
  /** Call a function after changes, but not after those of the ignored choices alone. */
  const listen = (draw, ...ignored) => listeners.push({ draw, ignored });

  function change(changes) {
    Object.assign(state, changes);
    const names = Object.keys(changes);
    for (const { draw, ignored } of listeners) {
      if (!names.length || names.some((name) => !ignored.includes(name))) draw(changes);
    }
  }

  const runs = data.runs.map((run, r) => ({ ...run, maps: new maps.RunMaps(data.maps, r, () => change({})) }));
  const [first] = runs; // all runs of a page have the same layers, steps and tables

  // --- what is shown

  const pair = () => data.pairs[state.pair] ?? null;
  const runsNow = () => (pair() ? [pair().source, pair().edited] : [0]);
  /** Return the run whose words are shown: the edit, but of an ablation the run with the word. */
  const mainRun = () => (ablation ? runsNow()[0] : runsNow().at(-1));
  const sideOf = (run) => (pair() ? SIDES[runsNow().indexOf(run)] : "");
  const located = () => first.settings.located !== null;
  const refined = () => state.maps === "refined" && data.maps.refined !== null;
  const layersNow = () => (refined() ? "all" : state.layers);
  const headNow = () => (refined() ? -1 : state.head);

  /** Return where a range of steps may begin and end: [0, …, all]. */
  const bounds = () => (refined() ? [0, data.maps.steps] : first.maps.bounds(state.head));

  /** Return the steps that are shown, [from, to): those chosen, as far out as the tables need. */
  function stepsNow() {
    if (!state.steps || refined()) return [0, data.maps.steps];
    const ends = bounds();
    const [from, to] = state.steps;
    return [ends.findLast((end) => end <= from) ?? 0, ends.find((end) => end >= to) ?? ends.at(-1)];
  }

  function selection(changes = {}) {
    const [from, to] = stepsNow();
    return { layers: layersNow(), from, to, head: headNow(), native: state.native, ...changes };
  }

  function stepping() {
    const [from, to] = stepsNow();
    return from > 0 || to < data.maps.steps;
  }

  /** Return whether all layers, steps and heads are shown. */
  const whole = () => layersNow() === "all" && headNow() < 0 && !stepping();
  /** Return whether the scale of some steps is that of all steps. */
  const steady = () => state.together && stepping() && state.scale !== "raw";
  const mapsOf = (run) => (refined() ? runs[run].maps.refined : runs[run].maps).maps(selection());

  /** Measure the maps of a run at each window of the steps; null while they are read. */
  function atEachStep(run, what, measure) {
    const { measured } = runs[run].maps;
    const ends = bounds();
    const key = [state.layers, state.head, state.native, what].join();
    if (measured.has(key)) return measured.get(key);
    const found = ends.slice(1).map((to, i) => {
      const one = runs[run].maps.maps(selection({ from: ends[i], to }));
      return one && measure(one);
    });
    if (found.includes(null)) return null;
    measured.set(key, found);
    return found;
  }

  // --- words

  const entryOf = (term) => runs[term.run].maps.entries[term.entries[0]];
  const keyOf = (term) => `${term.run} ${term.entries.join(" ")}`;

  /** Return the entries of a term in a run: its own, or the same words in the other prompt of an
      edit; null if there are none. */
  function entriesIn(term, run) {
    if (term.run === run) return term.entries;
    if (!pair()) return null;
    const [here, there] = term.run === pair().source ? [0, 1] : [1, 0];
    const found = term.entries.map((i) => {
      const { kind, number: own, prompt } = runs[term.run].maps.entries[i];
      const match = prompt ? [own, own] : pair().words.find((numbers) => numbers[here] === own);
      return runs[run].maps.entries.findIndex((entry) =>
        entry.kind === kind && entry.prompt === prompt && (kind !== "word" || entry.number === match?.[there]),
      );
    });
    const real = found.filter((i) => i >= 0);
    return real.length ? real : null;
  }

  /** Return the term of what stands from one entry of a prompt to another. */
  function phrase(run, start, end) {
    const { entries, prompts } = runs[run].maps;
    const [low, high] = [Math.min(start, end), Math.max(start, end)];
    const own = entries.slice(low, high + 1);
    const { pieces } = prompts[own[0].prompt];
    const at = (entry) => pieces.findIndex(([, wanted]) => wanted === entry.number);
    const label = own.some(({ kind }) => kind !== "word")
      ? own.map(({ text }) => text).join(" ")
      : pieces.slice(at(own[0]), at(own.at(-1)) + 1).map(([text]) => text).join("");
    return { run, entries: own.map((_, i) => low + i), label };
  }

  /** Return the word that is shown while none is pinned or pointed at: the one that was left out,
      or the strongest one. */
  function termAtRest() {
    const run = mainRun();
    const { entries } = runs[run].maps;
    if (ablation && !state.bare) {
      const own = ({ kind, prompt, number }) => kind === "word" && !prompt && ablation.numbers.includes(number);
      return { run, entries: [...entries.keys()].filter((i) => own(entries[i])), label: ablation.word };
    }
    const { rest } = pair() ?? runs[run];
    const entry = entries.findIndex(({ kind, prompt, number }) => kind === "word" && !prompt && number === rest);
    return state.bare || entry < 0 ? null : { run, entries: [entry], label: entries[entry].text };
  }

  function termsNow() {
    if (state.hover) return [state.hover];
    return state.pins.length ? state.pins : [termAtRest()].filter(Boolean);
  }

  /** Return the name of a term, in both prompts if they differ: "cat → dog". */
  function labelOf(term) {
    const labels = runsNow().flatMap((run) => {
      if (run === term.run) return [term.label];
      const entries = entriesIn(term, run);
      return entries ? [entries.map((i) => runs[run].maps.entries[i].text).join(" ")] : [];
    });
    const [one, other] = labels.map((label) => label.replace(/\s+/g, " "));
    return other === undefined || one === other ? term.label : labels.join(" → ");
  }

  function pin(term) {
    const free = look.hues.find((hue) => state.pins.every((one) => one.hue !== hue));
    const hue = free ?? look.hues[state.pins.length % look.hues.length];
    change({ hover: null, pins: [...state.pins.filter((one) => keyOf(one) !== keyOf(term)), { ...term, hue }] });
    dom.announce(`${term.label} is pinned.`);
  }

  function unpin(term) {
    change({ hover: null, pins: state.pins.filter((one) => keyOf(one) !== keyOf(term)) });
    dom.announce(`${term.label} is no longer pinned.`);
  }

  const isPinned = (term) => state.pins.some((one) => keyOf(one) === keyOf(term));
  const toggle = (term) => (isPinned(term) ? unpin : pin)(term);

  // --- heats

  /** Return whether a word of a prompt has values below 0, from a negative weight. */
  const isSigned = (prompt) => runsNow().some((run) => mapsOf(run)?.spans[prompt]?.[0] < 0);

  /** Return the range of a term's values, at all steps if the scale is that of all. */
  function ownSpan(run, entries, found) {
    const steps = steady() && atEachStep(run, `span ${entries}`, (one) => span(sum(one, entries)));
    return steps ? union(steps) : span(sum(found, entries));
  }

  /** Return the range that the words of a prompt have in all runs in sight, and the shown phrases,
      which may have more than any of their words. */
  function sharedSpan(prompt) {
    const spans = runsNow().flatMap((run) => {
      const found = mapsOf(run);
      if (!found?.spans[prompt]) return [];
      const steps = steady() && atEachStep(run, `shared ${prompt}`, (one) => one.spans[prompt]);
      const phrases = termsNow().filter((term) => term.entries.length > 1 && entryOf(term).prompt === prompt);
      const entries = phrases.map((term) => entriesIn(term, run)).filter(Boolean);
      return [...(steps || [found.spans[prompt]]), ...entries.map((own) => ownSpan(run, own, found))];
    });
    return union(spans);
  }

  /** Return the heat of a term in a run's picture; null while it is read, or if there is none. */
  function heatOf(term, run) {
    const entries = entriesIn(term, run);
    const found = entries && mapsOf(run);
    if (!found) return null;
    const { prompt } = entryOf(term);
    let [low, high] = [0, 1];
    if (state.scale === "word") [low, high] = ownSpan(run, entries, found);
    if (state.scale === "shared") [low, high] = sharedSpan(prompt);
    if (low < 0 || isSigned(prompt)) [low, high] = drawing.centred(low, high);
    const { w, h, grids } = found;
    const hue = rgb(term.hue ?? look.hues[0]);
    return { term, run, entries, plane: sum(found, entries), w, h, low, high, hue, native: state.native, grids };
  }

  /** Return the cell [x, y] where a heat is farthest from 0, as parts of the picture; null if it is
      0 everywhere. */
  function peakOf({ plane, w, h }) {
    const at = plane.reduce((best, value, i) => (Math.abs(value) > Math.abs(plane[best]) ? i : best), 0);
    return plane[at] ? [((at % w) + 0.5) / w, (Math.floor(at / w) + 0.5) / h] : null;
  }

  /** Return where the shown word is strongest, {run, place}: in its own picture, else in the other. */
  function strongest() {
    const [term] = termsNow();
    for (const run of term ? [term.run, ...runsNow()] : []) {
      const heat = heatOf(term, run);
      const place = heat && peakOf(heat);
      if (place) return { run, place };
    }
    return null;
  }

  /** Return the place whose words are listed: the pointer, a clicked place, or the word's peak. */
  const placeNow = () => state.point ?? state.place ?? strongest()?.place ?? null;

  /** Return the words of a prompt at the place, strongest first: {entry, text, kind, value, share}. */
  function wordsAt(run, prompt, place = placeNow()) {
    const found = place && mapsOf(run);
    if (!found) return [];
    const at = Math.floor(place[1] * found.h) * found.w + Math.floor(place[0] * found.w);
    const rows = runs[run].maps.entries.flatMap((entry, i) =>
      entry.prompt === prompt && (entry.kind === "word" || state.specials)
        ? [{ entry: i, text: entry.text, kind: entry.kind, value: found.planes[i][at] }]
        : [],
    );
    const all = rows.reduce((total, { value }) => total + Math.abs(value), 0);
    for (const row of rows) row.share = all > 0 ? Math.abs(row.value) / all : 0;
    return rows.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  }

  /** Return the mask of a heat's phrases, {plane, w, h}, if it is of the whole run and has one. */
  function maskOf({ run, entries }) {
    const words = entries.map((i) => runs[run].maps.entries[i]);
    if (!whole() || words.some(({ kind, prompt }) => kind !== "word" || prompt)) return null;
    const found = (runs[run].loadedMasks ?? []).filter((mask) => words.some((word) => mask.words.includes(word.number)));
    if (!found.length) return null;
    const plane = found[0].plane.map((_, i) => Math.max(...found.map((mask) => mask.plane[i])));
    return { ...found[0], plane };
  }

  /** Return the outline of a heat, {path, w, h}: of its mask, else of where the heat is strong. */
  function outlineOf(heat) {
    const mask = maskOf(heat);
    if (mask) return { path: drawing.contour(mask.plane, mask.w, mask.h, state.threshold), w: mask.w, h: mask.h };
    const { w, h } = heat;
    const plane = heat.plane.map(Math.abs);
    const [low, high] = span(plane);
    const level = low + state.threshold * (high - low);
    return { path: drawing.contrast(low, high) ? drawing.contour(plane, w, h, level) : "", w, h };
  }

  // --- texts

  function layersText() {
    const [kind, which] = layersNow().split(/ (.*)/s);
    if (kind === "group") return `${which} layers`;
    if (kind === "grid") return `layers of ${which}`;
    return kind === "layer" ? `layer ${data.maps.layers[Number(which)].short}` : "all layers";
  }

  /** Name the shown steps by their numbers from 0, as `select` takes them. */
  function stepsText() {
    const [from, to] = stepsNow();
    const { steps } = data.maps;
    if (!stepping()) return steps === 1 ? "the only step" : `all ${steps} steps`;
    return `${to - from === 1 ? `step ${from}` : `steps ${from}–${to - 1}`} of 0–${steps - 1}`;
  }

  const headsText = () => (headNow() < 0 ? "all heads" : `head ${headNow()}`);

  /** Name what is shown of the run. */
  const shownText = () =>
    [...(refined() ? ["refined by self-attention"] : []), layersText(), stepsText(), headsText()].join(" · ");

  const rangeText = ({ low, high }) => `${number(low)} to ${number(high)}`;

  return {
    data, state, runs, colours, signed, look, listen, change,
    ablation, pair, runsNow, mainRun, sideOf, located, refined, layersNow, headNow, bounds, stepsNow, selection, stepping, whole, steady,
    atEachStep, entryOf, keyOf, entriesIn, phrase, termsNow, labelOf, pin, unpin, toggle, isPinned,
    isSigned, heatOf, peakOf, strongest, placeNow, wordsAt, maskOf, outlineOf,
    layersText, stepsText, headsText, shownText, rangeText,
    palette: () => ({ opacity: state.opacity, colours: colours[state.colours], signed, look }),
  };
}
