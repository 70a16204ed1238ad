/* How the number at a place comes about: the command and the Python that take it apart. */

/** What is asked of the app that the page is in, if it is in one. */
let asked = {};

/** The word that is meant at a place: the one that is shown, else the one that acts most there. */
function wordMeant() {
  const [term] = termsNow();
  const run = runsNow().at(-1);
  if (term && term.run === run && term.view === 0 && lookUp(term, run)?.word) return term;
  const [first] = actingAt(run, 0).filter(({ kind }) => kind === "word");
  return first ? { run, view: 0, entries: [first.entry], label: first.text } : null;
}

/** How a map's number and the one that is taken apart hang together. */
function meanSaid(alone) {
  const taken = "the one in which the word draws most, but no more than half. ";
  if (refined()) return `The map that is shown is refined: it has what came to this place along self-attention. What is taken apart is one of the numbers as read: ${taken}`;
  if (alone) return "";
  return `Its number in the map is a mean (${[layersSaid(), stepsSaid(), headsSaid()].join(", ")}). One of the numbers behind that mean is taken apart: where no layer, head or step is chosen, ${taken}`;
}

function renderExplaining() {
  const place = placeNow();
  const term = place && wordMeant();
  const found = term && lookUp(term, term.run);
  const none = !found || found.word === null;
  $("why").classList.toggle("unseen", none);
  if (none) return;
  const [w, h] = data.runs[term.run].size;
  const x = Math.min(w - 1, Math.floor(place[0] * w));
  const y = Math.min(h - 1, Math.floor(place[1] * h));
  const { layers, from, to, head } = selection();
  const [kind, which] = layers.split(/ (.*)/s);
  const layer = kind === "layer" ? mainView().layers[Number(which)].short : "";
  const one = to - from === 1 && mainView().keep.includes("step");
  const flags = [`--word ${shellQuoted(found.word)}`, `--at ${x},${y}`];
  const named = [JSON.stringify(found.word), `at=(${x}, ${y})`];
  if (found.word.startsWith("#")) named[0] = found.word.slice(1);
  if (layer) {
    flags.push(`--layer ${shellQuoted(layer)}`);
    named.push(`layer=${JSON.stringify(layer)}`);
  }
  if (head >= 0) {
    flags.push(`--head ${head}`);
    named.push(`head=${head}`);
  }
  if (one) {
    flags.push(`--step ${from}`);
    named.push(`step=${from}`);
  }
  asked = {
    cell: data.grid ? String(state.pair + 1) : "",
    word: found.word,
    at: `${x},${y}`,
    layer,
    head: head >= 0 ? String(head) : "",
    step: one ? String(from) : "",
  };
  const [command, python] = $("why").querySelectorAll("pre");
  const folder = `RUN${cellNow()}`;
  const { nameless } = data.runs[term.run];
  if (nameless) flags.push(nameless);
  setCode(command, [`heedmap explain ${folder}`, ...flags].join(" "));
  setCode(python, `hm.explain(pipe, ${data.grid ? `grid.cells[${state.pair}].pair.edited` : pairNow() ? "pair.edited" : "run"}, ${named.join(", ")})`);
  $("why").querySelector(".hint").textContent =
    `“${term.label}” at pixel ${x},${y} of the picture. ${meanSaid(layer && head >= 0 && one)}RUN is the folder that this page is in${nameless ? ", MODEL one of the model that drew it" : ""}.`;
}

function buildExplaining() {
  const blocks = [["As a command", ""], ["As Python", ""]].map(([name]) =>
    code(`How this number comes about, ${name.toLowerCase()}`, ""),
  );
  $("why").querySelector("div").replaceChildren(...blocks);
  $("here").addEventListener("click", () => parent.postMessage({ heedmap: "explain", ...asked }, "*"));
}
