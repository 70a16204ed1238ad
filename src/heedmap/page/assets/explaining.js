/* The command that explains the number at a place. */

/** The place to be explained, as the app is told that shows this page. */
let asked = {};

/** Return a term as `heedmap explain --word` takes it, or null: its text if it means all places of
    these words in the prompt, else the number of its one word. */
function wordOption(term) {
  const view = viewOf(term);
  const entries = term.entries.map((i) => view.entries[i]);
  if (!entries.length || entries.some((entry) => entry.kind !== "word")) return null;
  const fold = (text) => text.normalize("NFKC").toLowerCase();
  const prompt = view.pieces.filter(([, number]) => number >= 0).map(([text]) => fold(text));
  const numbers = entries.map((entry) => entry.number);
  const once = entries.filter((_, n) => numbers[n] === numbers[0] + n); // its first place
  const wanted = once.map((entry) => fold(entry.text));
  const covered = [];
  for (let i = 0; i < prompt.length; i++) {
    if (!wanted.every((text, n) => prompt[i + n] === text)) continue;
    covered.push(...wanted.map((_, n) => i + n));
    i += wanted.length - 1; // the next place begins after it
  }
  if (covered.join() === numbers.join()) return once.map((entry) => entry.text).join(" ");
  return numbers.length === 1 ? `#${numbers[0]}` : null;
}

/** Return the word to be explained: the one that is shown, else the one that acts most here. */
function wordMeant() {
  const [term] = termsNow();
  const run = runsNow().at(-1);
  if (term && term.run === run && term.view === 0 && wordOption(term)) return term;
  const [first] = actingAt(run, 0).filter(({ kind }) => kind === "word");
  return first ? { run, view: 0, entries: [first.entry], label: first.text } : null;
}

/** Say how the number in the map depends on the one that is explained. */
function meanSaid(alone) {
  const one = "the one in which the word draws most, but no more than half. ";
  if (refined()) return `The map is refined by self-attention. One number of the maps as read is explained: ${one}`;
  if (alone) return "";
  return `Its number in the map is a mean (${[layersSaid(), stepsSaid(), headsSaid()].join(", ")}). One of the numbers behind that mean is explained: where no layer, head or step is chosen, ${one}`;
}

const shellQuoted = (text) => (/^[\w.,:/-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);

function renderExplaining() {
  const place = placeNow();
  const term = place && wordMeant();
  const word = term && wordOption(term);
  $("why").classList.toggle("unseen", !word);
  if (!word) return;
  const run = data.runs[term.run];
  const [x, y] = place.map((part, axis) => Math.min(run.size[axis] - 1, Math.floor(part * run.size[axis])));
  const { layers, from, to, head } = selection();
  const [kind, which] = layers.split(/ (.*)/s);
  const one = to - from === 1 && mainView().keep.includes("step");
  asked = {
    cell: data.grid ? String(state.pair + 1) : "",
    word,
    at: `${x},${y}`,
    layer: kind === "layer" ? mainView().layers[Number(which)].short : "",
    head: head >= 0 ? String(head) : "",
    step: one ? String(from) : "",
  };
  const options = ["word", "at", "layer", "head", "step"].filter((name) => asked[name]);
  const flags = options.map((name) => `--${name} ${shellQuoted(asked[name])}`);
  const command = [`heedmap explain FOLDER${cellNow()}`, ...flags, run.model].filter(Boolean);
  setCode($("why").querySelector("pre"), command.join(" "));
  const alone = asked.layer && asked.head && one;
  $("why").querySelector(".hint").textContent = `“${term.label}” at pixel ${x},${y}. ${meanSaid(alone)}`;
}

function buildExplaining() {
  $("why").querySelector("div").replaceChildren(code("Explain this number", ""));
  $("here").addEventListener("click", () => parent.postMessage({ heedmap: "explain", ...asked }, "*"));
}
