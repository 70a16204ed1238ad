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
  data.pairs.forEach((pair, i) => {
    const picture = make("img", { src: data.runs[pair.edited].picture, alt: "", loading: "lazy" });
    const name = make("span", { textContent: pair.label || `edit ${i + 1}` });
    const button = make("button", { type: "button", on: { click: () => choosePair(i) } }, picture, name);
    $("strip").append(button);
  });
}

function choosePair(i) {
  stopPlaying();
  state.pair = i;
  state.pins = [];
  state.hover = null;
  state.last = null;
  startPair();
}

function startPair() {
  [...$("strip").children].forEach((button, i) => {
    button.setAttribute("aria-pressed", String(i === state.pair));
  });
  for (const run of runsNow()) { // before the first word is pointed at; other tables as needed
    for (const view of data.runs[run].views) view.read(view.tables[0]);
  }
  buildPrompts();
  buildControls();
  buildAbout();
  nameDownloads();
  return buildFigures();
}
