/* The Python and the command that give what is shown. */

/** The arguments of `select` for what is chosen, as Python writes them, or refined maps. */
function selectCode() {
  if (refined()) return ".refined";
  const { layers, from, to, head } = selection();
  const view = mainView();
  const [kind, which] = layers.split(/ (.*)/s);
  const said = [];
  if (kind === "group") said.push(`layers="${which}"`);
  if (kind === "grid") said.push(`resolution=(${which.split("×").reverse().join(", ")})`);
  if (kind === "layer") said.push(`layers=${JSON.stringify(view.layers[Number(which)].short)}`);
  if (to - from < view.steps) said.push(to - from === 1 ? `steps=${from}` : `steps=slice(${from}, ${to})`);
  if (head >= 0) said.push(`heads=${head}`);
  return said.length ? `.select(${said.join(", ")})` : "";
}

/** How a term is looked up in a run's maps: {key, word} for Python and the command, or null. A word
    or phrase of which all places are meant goes by its text, another by its number. */
function lookUp(term, run) {
  const view = data.runs[run].views[term.view];
  const entries = (entriesIn(term, run) || []).map((i) => view.entries[i]);
  if (entries.length === 1 && entries[0].kind === "start") return { key: ".token(0)", word: null };
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
  const text = once.map((entry) => entry.text).join(" ");
  if (covered.join() === numbers.join()) {
    const [share, key] = [`.share(${JSON.stringify(text)})`, `[${JSON.stringify(text)}]`];
    return { key: state.scale === "content" ? share : key, word: text };
  }
  if (numbers.length === 1) return { key: `.at(${numbers[0]})`, word: `#${numbers[0]}` };
  return null;
}

/** Whether outlines are shown: over a difference they are all that is. */
const outlining = () => state.outline || !runsInSight();

function pythonShown() {
  const pair = pairNow();
  const terms = termsKept();
  const select = selectCode();
  const { scale, opacity, colours, native } = state;
  const beneath = runsNow().some((run) => stepBeneath(run) !== null);
  const asDrawn = opacity === data.look.opacity && colours === data.look.colour && !native && !steady() && !beneath;
  const named = { content: "raw", shared: pair ? "" : "shared" }[scale] ?? scale;
  const one = terms.length === 1 && asDrawn && named && !(pair && anySigned());
  const lines = runsNow().flatMap((run, n) => {
    const name = pair ? `pair.${Object.keys(SIDES)[n]}` : "run";
    return terms.flatMap((term) => {
      const found = lookUp(term, run);
      // Only a word's text, not its number, tells Python of which words it has a share.
      const own = scale !== "content" || (found && found.key.startsWith(".share"));
      const shows = one && own ? `.overlay(scale="${named}")` : ".values";
      if (!found) return [];
      const map = `${name}.${IN_PYTHON[viewOf(term).name]}${select}${found.key}`;
      return [`${map}${shows}`, ...(outlining() && own ? [`${map}.mask(${state.threshold})`] : [])];
    });
  });
  return lines.join("\n");
}

const shellQuoted = (text) => (/^[\w.,:/-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);

function commandShown() {
  const terms = termsKept();
  const { layers, from, to, head } = selection();
  const [kind, which] = layers.split(/ (.*)/s);
  const of = new Set(terms.map((term) => viewOf(term).name));
  const found = terms.map((term) => (of.size > 1 || of.has("negative") ? null : lookUp(term, term.run)));
  const cannot = pairNow() || kind === "grid" || state.scale === "content" || state.native;
  if (cannot || !found.length || found.some((one) => !one || one.word === null)) return "";
  const parts = ["heedmap inspect RUN", ...found.map(({ word }) => `--word ${shellQuoted(word)}`)];
  if (of.has("concepts")) parts.push("--concepts");
  if (refined()) parts.push("--refined");
  if (kind === "group") parts.push(`--layers ${which}`);
  if (kind === "layer") parts.push(`--layers ${shellQuoted(mainView().layers[Number(which)].short)}`);
  if (to - from < mainView().steps) parts.push(`--steps ${from}:${to}`);
  if (head >= 0) parts.push(`--heads ${head}`);
  if (state.scale !== "shared") parts.push(`--scale ${state.scale}`);
  return parts.join(" ");
}

/** What the page shows, but neither of the two can give. */
function unsaidOfShown() {
  const said = [];
  const own = (term) => (lookUp(term, term.run) || { key: "" }).key.startsWith(".share");
  if (state.scale === "content" && !termsKept().every(own)) said.push("the share among the content words");
  if (state.native) said.push("the native cells");
  if (steady()) said.push("the one scale for all steps");
  if (runsNow().some((run) => stepBeneath(run) !== null)) said.push("the picture of the step beneath");
  return said.length ? `The page makes ${said.join(" and ")} of these itself.` : "";
}

function renderRepeat() {
  const texts = { "now-python": pythonShown(), "now-command": commandShown() };
  for (const [id, text] of Object.entries(texts)) {
    if (!$(id)) return;
    $(id).hidden = !text;
    setCode($(id).querySelector("pre"), text);
  }
  $("now").hidden = !Object.values(texts).some(Boolean);
  const where = texts["now-command"] ? "RUN is the folder that this page is in." : "";
  const line = texts["now-command"] && outlining() ? "The command draws no outline." : "";
  $("now").querySelector("p").textContent = [where, line, unsaidOfShown()].filter(Boolean).join(" ");
}
