/* What is shown while nobody points: the strongest word, and the place where it acts most. */

/** How strong each content word is: the standard deviation of its map, so that one which acts
    alike everywhere is not; [entry, deviation]. Words without content count where all are such. */
function strengths(view, maps) {
  const content = view.words.filter((i) => view.entries[i].content);
  return (content.length ? content : view.words).map((i) => {
    const plane = maps.planes[i];
    const mean = plane.reduce((sum, value) => sum + value, 0) / plane.length;
    return [i, Math.sqrt(plane.reduce((sum, value) => sum + (value - mean) ** 2, 0) / plane.length)];
  });
}

/** The strongest content word over all layers, steps and heads: of an edit, of those that it
    changed, if there are any. Of an ablation's run it is what was left out. */
function strongest() {
  const pair = pairNow();
  const run = runsNow().at(-1);
  const view = data.runs[run].views[0];
  const leftOut = view.trust.find(({ kind }) => kind === "cause");
  const entries = view.words.filter((i) => leftOut?.words.includes(view.entries[i].number));
  if (entries.length) return { run, view: 0, entries, label: leftOut.called };
  const maps = view.maps({ layers: "all", from: 0, to: view.steps, head: -1, native: false });
  if (!maps) return null;
  const every = strengths(view, maps);
  const changed = pair ? every.filter(([i]) => pair.changed.edited.includes(view.entries[i].number)) : [];
  const [entry] = (changed.length ? changed : every).reduce((a, b) => (b[1] > a[1] ? b : a), [-1, -1]);
  return entry < 0 ? null : { run, view: 0, entries: [entry], label: view.entries[entry].text };
}

/** Where a plane is largest in magnitude: a word of a negative weight acts where it is lowest. */
const peakOf = (plane) =>
  plane.reduce((best, value, i) => (Math.abs(value) > Math.abs(plane[best]) ? i : best), 0);

/** Whether a word acts anywhere: one of weight 0 does not, and has no strongest place. */
const acts = (heat) => heat.plane.some((value) => value !== 0);

/** The run in whose picture the word that is shown has its peak, with its heat there: the word's own,
    or the other of an edit where it acts in that alone; null where it acts in none. */
function hottestNow() {
  const [term] = termsNow();
  if (!term || !heatOf(term, term.run)) return null;
  const heats = [term.run, ...runsNow()].map((run) => ({ run, heat: heatOf(term, run) }));
  return heats.find(({ heat }) => heat && acts(heat)) || null;
}

/** The place of the picture that is read while nobody points: one that was clicked, or the peak. */
function placeAtRest() {
  if (state.place) return state.place;
  const found = hottestNow();
  if (!found) return null;
  const { plane, w, h } = found.heat;
  const at = peakOf(plane);
  return [((at % w) + 0.5) / w, (Math.floor(at / w) + 0.5) / h];
}

const placeNow = () => state.point || placeAtRest();
