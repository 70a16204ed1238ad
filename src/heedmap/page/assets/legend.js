/* The page drawn anew from its state, and the legend that says what it shows. */

function render() {
  const terms = termsNow();
  for (const figure of shown.figures) {
    const heats = terms.flatMap((term) => {
      const heat = heatOf(term, figure.run);
      return heat ? [{ ...heat, term }] : [];
    });
    figure.heats = heats;
    if (figure.kind === "run" && runsInSight()) {
      const picture = pictureNow(figure);
      overlay(picture, heats, state.opacity, data.look, tables[state.colours], figure.image);
      figure.pen.putImageData(figure.image, 0, 0);
    }
    // Where no heat can lie, over a difference, a word shows as its outline.
    drawOutlines(figure, state.outline || figure.kind !== "run" ? heats : []);
    figure.element.classList.toggle("native", state.native && heats.length > 0);
  }
  renderLegend();
  renderCurve();
  renderOverview();
  keepLink();
}

function layersSaid() {
  const [kind, which] = layersNow().split(/ (.*)/s);
  if (!mainView().keep.includes("layer")) return "all layers";
  if (kind === "group") return `${which} layers`;
  if (kind === "grid") return `layers of ${which}`;
  return kind === "layer" ? `layer ${mainView().layers[Number(which)].short}` : "all layers";
}

/** The steps in words, counted from 0 as everywhere: what --step and select() take. */
function stepsSaid({ from, to } = selection()) {
  const steps = mainView().steps;
  const one = stepCalled();
  if (from === 0 && to === steps) return steps === 1 ? `its one ${one}` : `all ${steps} ${one}s`;
  const some = to - from === 1 ? `${one} ${from}` : `${one}s ${from}–${to - 1}`;
  return `${some} of 0–${steps - 1}`;
}

const headsSaid = () => (headNow() < 0 ? "all heads" : `head ${headNow()}`);

/** What is shown of the run. */
function chosenSaid() {
  const parts = [layersSaid(), stepsSaid(), headsSaid()];
  return (refined() ? ["refined by self-attention", ...parts] : parts).join(" · ");
}

function renderLegend() {
  const runs = shown.figures.filter((figure) => figure.kind === "run");
  const figure = runs.find((one) => one.heats.length) || runs[0];
  const heats = figure ? figure.heats : [];
  const [bar, list, text] = $("legend").children;
  $("legend").classList.toggle("several", heats.length > 1);
  const drawn = runsInSight();
  keepRoom($("legend"), !heats.length);
  bar.hidden = heats.length !== 1 || !drawn;
  list.hidden = !heats.length;
  list.replaceChildren();
  if (!drawn && !heats.length) {
    text.textContent = "Point at a word to see where it acted, as an outline.";
    return;
  }
  const beneath = drawn && figure ? ` ${beneathSaid(figure.run)}` : "";
  if (!heats.length) {
    text.textContent = termsNow().length
      ? "Reading the maps …"
      : `The picture, without heat.${beneath}`;
    return;
  }
  const range = (heat) => `${number(heat.low)} to ${number(heat.high)}`;
  const same = heats.every((heat) => heat.low === heats[0].low && heat.high === heats[0].high);
  for (const heat of heats) {
    const scale = make("span", { className: drawn ? "scale" : "swatch" });
    scale.style.setProperty("--hue", `rgb(${heat.hue.join(" ")})`);
    const label = make("bdi", { textContent: labelsOf(heat.term) });
    const [held, title] = trustSaid(heat);
    if (heats.length === 1) list.append(make("li", {}, label, ...(held ? [make("small", { textContent: held, title })] : [])));
    else {
      const said = [drawn ? range(heat) : "", held].filter(Boolean).join(" · ");
      list.append(make("li", {}, scale, label, said ? make("small", { textContent: said, title }) : ""));
    }
  }
  const chosen = chosenSaid();
  const outlined = () => outlineSaid(runs.flatMap((one) => one.heats), heats.length > 1);
  if (!drawn) {
    text.textContent = `${outlined()} · ${chosen}`;
    return;
  }
  if (heats.length === 1) drawBar(bar, heats[0].low);
  const grids = heats[0].grids.length > 4 ? "" : ` on ${heats[0].grids.join(", ")}`;
  const cells = state.native ? ` · native cells${grids}` : "";
  const negative = heats.some((heat) => heat.low < 0);
  const below = negative ? ` (signed weight${heats.length === 1 ? ": blue is below 0" : ""})` : "";
  const scale = `${negative ? SCALES[state.scale].replace(" probability", "") : SCALES[state.scale]}${overStepsSaid()}${same ? `: ${range(heats[0])}` : ""}${below}`;
  const line = state.outline ? ` · ${outlined()}` : "";
  text.textContent = `${scale} · ${chosen}${cells}${line}.${beneath}`;
}

const TRUST = {
  stable:
    "How far the maps of the even steps and of the odd ones agree, each step with noise of its own (rank correlation). " +
    "What is stable is not therefore true.",
  cause:
    "How far the map agrees with what changes in the picture where nothing attends to the word: the rank correlation of both, " +
    "and the AUC of the map for the region that changes most (0.5 by chance).",
};

/** How far the map of a word or phrase is to be trusted, and what that means: of the whole run, and not of a share. */
function trustSaid({ of: { run, v, entries } }) {
  if (!wholeRun() || state.scale === "content") return ["", ""];
  const view = data.runs[run].views[v];
  const mine = entries.map((entry) => view.entries[entry].number);
  const found = view.trust.find(({ words }) => words.length === mine.length && words.every((n, i) => n === mine[i]));
  const said = found ? (refined() ? found.refined : found.read) : "";
  return said ? [said, TRUST[found.kind]] : ["", ""];
}

/** Whose scale it is while some of the steps are shown. */
function overStepsSaid() {
  if (!stepping() || !["shared", "word"].includes(state.scale)) return "";
  return steady() ? ", one scale for all steps" : ", these steps’ own scale";
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

function drawBar(canvas, low) {
  const key = `${low < 0 ? "signed" : state.colours} ${state.opacity}`;
  if (canvas.dataset.shows === key) return;
  canvas.dataset.shows = key;
  const pen = canvas.getContext("2d");
  const image = new ImageData(canvas.width, canvas.height);
  const table = low < 0 ? SIGNED : tables[state.colours];
  const { light } = data.look;
  const grey = 176 + (176 * light - 176) * Math.min(1, state.opacity / data.look.opacity);
  for (let x = 0; x < canvas.width; x++) {
    const place = x / (canvas.width - 1);
    const from = 3 * Math.round(place * 255);
    const colour = [0, 1, 2].map((c) => grey + (table[from + c] - grey) * state.opacity * warmth(place, low));
    for (let y = 0; y < canvas.height; y++) {
      image.data.set([...colour, 255], 4 * (y * canvas.width + x));
    }
  }
  pen.putImageData(image, 0, 0);
}
