/* What is chosen: the one state of the page, and the maps and heats that follow from it. */

const data = JSON.parse(document.getElementById("data").textContent);

const HUES = data.look.hues;
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
const SIGNED = bytesOf(data.look.signed);
for (const run of data.runs) run.views = run.views.map((view) => new View(view));

const state = {
  pair: 0,
  mode: "side",
  scale: "shared",
  maps: "read", // or "refined": then all layers, steps and heads, whatever is chosen of them
  layers: "all",
  steps: null, // [from, to) as asked for, counted from 0; null for all
  head: -1,
  opacity: data.look.opacity,
  colours: data.look.colour,
  outline: false,
  threshold: data.look.threshold,
  native: false,
  specials: false,
  negative: false,
  pins: [],
  hover: null,
  last: null,
  rest: null, // the word that is shown while none is pointed at and none is pinned
  bare: false, // whether no such word is wanted
  point: null, // [x, y] as parts of the picture: where the pointer is
  place: null, // the same, of a place that was clicked
  together: true, // one scale for all steps while some are shown
  captioned: false, // whether an overlay that is kept brings its legend
  underlay: true, // the picture at a step beneath its heat
};

/** What stands on the page: its pictures and the words of its prompts, made by figure() and chip(). */
const shown = { figures: [], chips: [] };

const pairNow = () => data.pairs[state.pair] || null;
const runsNow = () => {
  const pair = pairNow();
  return pair ? [pair.source, pair.edited] : [0];
};
/** Whether the runs' own pictures are shown, not a picture made of both. */
const runsInSight = () => !pairNow() || ["side", "wipe"].includes(state.mode);
/** Where in the page's folder that lies of which is shown: of a grid, a cell. */
const cellNow = () => (data.grid ? `/cells/${String(state.pair + 1).padStart(3, "0")}` : "");
/** Whether nothing was drawn, but words were located in a picture of the user's: a step is a look. */
const located = () => data.runs[runsNow()[0]].own === "located";
const stepCalled = () => (located() ? "look" : "step");
const mainView = () => data.runs[runsNow()[0]].views[0];
const viewOf = ({ run, view }) => data.runs[run].views[view];
/** The names of the views besides the prompt. */
const BESIDE = { prompt: "", negative: "negative", concepts: "looked for" };
/** The numbers of a run's views that are shown: what was looked for, and the negative prompt on request. */
const viewsShown = (run) =>
  data.runs[run].views.flatMap(({ name }, v) => (name !== "negative" || state.negative ? [v] : []));

/** All prompts in sight: what is chosen must be there in each of them. */
const viewsNow = () => runsNow().flatMap((run) => viewsShown(run).map((view) => viewOf({ run, view })));

/** Whether all prompts in sight have refined maps, and whether these are shown. */
const refinable = () => viewsNow().every((view) => view.refined);
const refined = () => state.maps === "refined" && refinable();
/** What is shown of layers and heads: what was chosen, but of refined maps all. */
const layersNow = () => (refined() ? "all" : state.layers);
const headNow = () => (refined() ? -1 : state.head);

/** Where a range of steps may begin and end for these layers and this head: [0, …, all]. */
function stepBounds(changes = {}) {
  if (refined()) return [0, mainView().steps];
  const wanted = { layers: state.layers, head: state.head, ...changes };
  const lists = viewsNow().map((view) => view.bounds(wanted));
  const shared = lists[0].filter((bound) => lists.every((list) => list.includes(bound)));
  return shared.length > 1 ? shared : [0, mainView().steps];
}

/** The steps that are shown, [from, to): those asked for, as far out as the tables need. */
function stepsNow() {
  if (!state.steps || refined()) return [0, mainView().steps];
  const bounds = stepBounds();
  const [from, to] = state.steps;
  return [bounds.findLast((b) => b <= from) ?? 0, bounds.find((b) => b >= to) ?? bounds.at(-1)];
}

function selection(changes = {}) {
  const [from, to] = stepsNow();
  return { layers: layersNow(), from, to, head: headNow(), native: state.native, ...changes };
}

/** The maps that are shown of a prompt, as read or refined; null while they are read in. */
function mapsOf(run, v) {
  const view = data.runs[run].views[v];
  return (refined() ? view.refined : view).maps(selection());
}

/** Whether what is shown is of the whole run: all layers, steps and heads. */
const wholeRun = () => layersNow() === "all" && headNow() < 0 && !stepping();

/** Whether fewer than all steps are shown. */
const stepping = () => {
  const [from, to] = stepsNow();
  return from > 0 || to < mainView().steps;
};
/** Whether what is shown of the steps is on a scale that all of them have. */
const steady = () => state.together && stepping() && ["shared", "word"].includes(state.scale);

/** What a function finds in a view's maps at each window of the steps; null while they are read. */
function atEachStep(run, v, what, measure) {
  const view = data.runs[run].views[v];
  const bounds = stepBounds();
  const key = [state.layers, state.head, state.native, bounds.join(","), what].join(" ");
  if (view.measured.has(key)) return view.measured.get(key);
  const found = bounds.slice(1).map((to, i) => {
    const maps = view.maps(selection({ from: bounds[i], to }));
    return maps && measure(maps);
  });
  if (found.includes(null)) return null;
  view.measured.set(key, found);
  return found;
}

const around = (spans) => [Math.min(...spans.map(([low]) => low)), Math.max(...spans.map(([, high]) => high))];

/** The range that the words of all prompts in sight have in common, and phrases that are shown:
    one may draw more than any of its words. */
function sharedSpan(view, terms) {
  const runs = runsNow().filter((run) => data.runs[run].views[view]);
  const own = runs.flatMap((run) => {
    const maps = mapsOf(run, view);
    if (!maps) return [];
    const steps = steady() && atEachStep(run, view, "span", ({ low, high }) => [low, high]);
    const phrases = terms.flatMap((term) => {
      const entries = term.view === view && term.entries.length > 1 && entriesIn(term, run);
      return entries ? [ownSpan(run, view, entries, data.runs[run].views[view].sum(maps, entries))] : [];
    });
    return [...phrases, ...(steps || [[maps.low, maps.high]])];
  });
  return around(own);
}

/** A word's own range: of what is shown, or of each of the steps. */
function ownSpan(run, v, entries, plane) {
  const view = data.runs[run].views[v];
  const steps = steady() && atEachStep(run, v, `span ${entries}`, (maps) => span(view.sum(maps, entries)));
  return steps ? around(steps) : span(plane);
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

/** Whether a word of a view has values below 0, from a negative weight. */
const signed = (view) => runsNow().some((run) => data.runs[run].views[view] && mapsOf(run, view)?.low < 0);
const anySigned = () => runsNow().flatMap(viewsShown).some(signed);

/** The heat of a term in a run's picture, on one scale with the terms that are shown; null while it
    is read or where it has none. */
function heatOf(term, run, terms = termsNow()) {
  const entries = entriesIn(term, run);
  const maps = entries && mapsOf(run, term.view);
  if (!maps) return null;
  const view = data.runs[run].views[term.view];
  const plane = state.scale === "content" ? view.share(maps, entries) : view.sum(maps, entries);
  let [low, high] = [0, 1];
  if (state.scale === "word") [low, high] = ownSpan(run, term.view, entries, plane);
  if (state.scale === "shared") [low, high] = sharedSpan(term.view, terms);
  if (low < 0 || (state.scale !== "content" && signed(term.view))) [low, high] = centred(low, high);
  const hue = rgb(term.hue || HUES[0]);
  const of = { run, v: term.view, entries };
  return { plane, w: maps.w, h: maps.h, low, high, hue, native: state.native, grids: maps.grids, of };
}

const termsAtRest = () => (state.pins.length ? state.pins : state.rest ? [state.rest] : []);
const termsNow = () => (state.hover ? [state.hover] : termsAtRest());
const termsKept = () => (state.pins.length ? state.pins : [state.last || state.rest].filter(Boolean));
const keyOf = (term) => `${term.run} ${term.view} ${term.entries.join(" ")}`;
