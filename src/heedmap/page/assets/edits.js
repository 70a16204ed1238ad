/* Edits: how source and edit are compared, and which of several is shown. */

function setMode(mode) {
  const pair = pairNow();
  if (mode === "blend" && !pair.blend) mode = "side";
  if (pair) state.mode = mode;
  $("figures").closest("main").dataset.mode = mode;
  $("wipe").hidden = mode !== "wipe";
  for (const input of $("modes").querySelectorAll("input")) {
    input.checked = input.value === mode;
    input.parentElement.hidden = input.value === "blend" && !pair.blend;
  }
  render(); // what was hidden was not drawn meanwhile
}

function buildPairs() {
  if (!data.pairs.length) return;
  const modes = { side: "Side by side", wipe: "Wipe", difference: "Difference", blend: "Blend mask" };
  $("modes").hidden = false;
  for (const [value, text] of Object.entries(modes)) {
    const input = make("input", { type: "radio", name: "mode", value, on: { change: () => setMode(value) } });
    $("modes").append(make("label", {}, input, make("span", { textContent: text })));
  }
  const wipe = $("wipe").querySelector("input");
  const move = () => $("figures").style.setProperty("--wipe", `${wipe.value}%`);
  wipe.addEventListener("input", move);
  move();
  const several = data.pairs.length > 1;
  $("figures").closest("main").dataset.pairs = several ? "many" : "one";
  if (!several) return;
  $("strip").hidden = false;
  if (data.grid) $("strip").append(gridOfEdits());
  else $("strip").append(...data.pairs.map((pair, i) => editButton(i, pair.label || `edit ${i + 1}`)));
}

function editButton(i, name) {
  const { edited, label } = data.pairs[i];
  const picture = make("img", { src: data.runs[edited].picture, alt: name ? "" : label, loading: "lazy" });
  const said = name ? [make("span", { textContent: name })] : [];
  const click = () => choosePair(i);
  return make("button", { type: "button", dataset: { edit: String(i) }, on: { click } }, picture, ...said);
}

/** The grid as it is: what varies across and down, each cell to open; sources as pictures. */
function gridOfEdits() {
  const { columns, rows, note } = data.grid;
  const columnHead = (text) => make("th", { scope: "col", textContent: text });
  const source = (cells, n) => {
    const found = cells[n] ?? cells.find((cell) => cell !== null);
    const near = found ?? data.grid.rows.map(([, row]) => row[n]).find((cell) => cell !== null);
    const run = data.pairs[near].source;
    return make("img", { src: data.runs[run].picture, alt: "the source", loading: "lazy" });
  };
  const lines = rows.map(([name, cells]) => {
    const own = cells.map((cell, n) => make("td", {}, cell === null ? source(cells, n) : editButton(cell, "")));
    return make("tr", {}, make("th", { scope: "row", textContent: name }), ...own);
  });
  const head = make("tr", {}, make("td"), ...columns.map(columnHead));
  const caption = note ? [make("caption", { textContent: note })] : [];
  return make("table", {}, ...caption, make("thead", {}, head), make("tbody", {}, ...lines));
}

function choosePair(i) {
  stopPlaying();
  state.pair = i;
  state.pins = [];
  state.hover = state.last = state.rest = state.place = null;
  startPair();
}

function startPair() {
  for (const button of $("strip").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(Number(button.dataset.edit) === state.pair));
  }
  const label = pairNow()?.label;
  if (data.pairs.length) {
    $("kind").textContent = data.grid ? `grid of edits · ${label}` : data.pairs.length > 1 ? `edits · ${label}` : "edit";
  }
  if (located()) {
    $("kind").textContent = "locate";
    $("hint").textContent = $("hint").textContent.replace("where it acted", "where it is seen");
  }
  buildPrompts();
  buildControls();
  buildAbout();
  nameDownloads();
  return buildFigures();
}
