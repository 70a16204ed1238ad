/* All words at once, and a word in every layer and head: small, to choose from. */

const THUMB = 84; // pixels on the short side of a word's picture
const BARE = 150; // pixels that may stay empty beside the words before some are scrolled to
const overview = { frame: 0, run: -1, words: [], picture: null, placed: false };

function buildOverview() {
  const run = runsNow().at(-1);
  const view = data.runs[run].views[0];
  overview.run = run;
  overview.picture = null;
  overview.placed = false;
  overview.words = view.words.slice(0, 75).map((entry) => {
    const term = { run, view: 0, entries: [entry], label: view.entries[entry].text };
    const canvas = make("canvas");
    const name = make("bdi", { textContent: term.label });
    const button = make("button", { type: "button", on: { click: () => toggle({ ...term }) } }, canvas, name);
    button.setAttribute("aria-label", `${term.label}, its map`);
    button.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && hover(term));
    button.addEventListener("pointerleave", leave);
    return { term, canvas, button };
  });
  $("thumbs").replaceChildren(...overview.words.map(({ button }) => make("li", {}, button)));
  sayWords(false);
  $("overview").hidden = !overview.words.length;
  if (pairNow()) $("stage").append($("curve"), $("why"));
  $("matrix").hidden = !view.keep.includes("layer") || view.layers.length * view.heads < 2;
}

/** How many words there are, where not all of them are seen. */
function sayWords(scrolled) {
  const all = data.runs[overview.run].views[0].words.length;
  const there = overview.words.length;
  const first = all > there ? `the first ${there} of ${all}` : "";
  const more = scrolled ? `scroll for ${all > there ? "them" : `all ${all}`}` : "";
  $("overview").querySelector("h2 span").textContent = [first, more].filter(Boolean).join(": ");
}

/** Put the words where there is room: below the pictures, or below what stands beside them, in as
    many whole rows as are about as tall as that; where neither has any, below both. */
function placeOverview() {
  const main = document.querySelector("main");
  main.append($("overview"));
  $("thumbs").style.removeProperty("max-height");
  if (!overview.words.length) return;
  sayWords(false);
  if (matchMedia("(max-width: 860px)").matches) return;
  const tall = (id) => $(id).getBoundingClientRect().height;
  const room = tall("panel") - tall("stage");
  if (Math.abs(room) < 130) return;
  $(room > 0 ? "stage" : "panel").append($("overview"));
  const over = Math.abs(tall("stage") - tall("panel")) * (tall("stage") > tall("panel") === room > 0 ? 1 : 0);
  const row = $("thumbs").firstElementChild.getBoundingClientRect().height + parseFloat(getComputedStyle($("thumbs")).rowGap);
  const rows = Math.round(tall("thumbs") / row);
  const cut = Math.min(rows - 1, Math.ceil((over - BARE) / row));
  if (cut <= 0) return;
  $("thumbs").style.setProperty("max-height", `${tall("thumbs") - cut * row}px`);
  sayWords(true);
}

/** Anew whenever what stands there takes another room, unless a word is in somebody's hand. */
const beside = new ResizeObserver(() => {
  if (overview.placed && !$("overview").contains(document.activeElement)) placeOverview();
});
for (const id of ["figures", "legend", "curve", "controls"]) beside.observe($(id));

/** The run's picture as small as a word's is shown. */
function smallPicture(figure) {
  const { canvas } = figure;
  const part = Math.min(1, THUMB / Math.min(figure.picture.w, figure.picture.h));
  const [w, h] = [Math.round(figure.picture.w * part), Math.round(figure.picture.h * part)];
  const own = make("canvas", { width: figure.picture.w, height: figure.picture.h });
  own.getContext("2d").putImageData(new ImageData(Uint8ClampedArray.from(figure.picture.pixels), figure.picture.w, figure.picture.h), 0, 0);
  const small = make("canvas", { width: w, height: h });
  const pen = small.getContext("2d");
  pen.imageSmoothingQuality = "high";
  pen.drawImage(canvas.width ? own : canvas, 0, 0, w, h);
  const image = pen.getImageData(0, 0, w, h);
  return new Picture(image, w, h, image.data);
}

/** Draw it with the next frame; what is chosen may change several times before. */
function renderOverview() {
  cancelAnimationFrame(overview.frame);
  overview.frame = requestAnimationFrame(drawOverview);
}

function drawOverview() {
  const figure = shown.figures.find((one) => one.kind === "run" && one.run === overview.run);
  if (!figure) return;
  overview.picture = overview.picture || smallPicture(figure);
  const { picture } = overview;
  const shownNow = termsNow().map(keyOf);
  for (const { term, canvas, button } of overview.words) {
    const heat = heatOf(term, term.run);
    if (!heat) return;
    canvas.width = picture.w;
    canvas.height = picture.h;
    const image = new ImageData(picture.w, picture.h);
    overlay(picture, [heat], state.opacity, data.look, tables[state.colours], image);
    canvas.getContext("2d").putImageData(image, 0, 0);
    button.setAttribute("aria-pressed", String(state.pins.some((pin) => keyOf(pin) === keyOf(term))));
    button.classList.toggle("shown", shownNow.includes(keyOf(term)));
  }
  if (!overview.placed) placeOverview();
  overview.placed = true; // as large as the pictures of words made it
  renderMatrix();
}

/* --- layers × heads --- */

/** The planes of a term in every layer and head that is held: {row, head, plane, w, h}. */
function cellsOf(term) {
  const view = data.runs[term.run].views[term.view];
  const byHead = view.keep.includes("head");
  const heads = byHead ? [-1, ...Array(view.heads).keys()] : [-1];
  return view.layers.flatMap((layer, i) =>
    heads.flatMap((head) => {
      const chosen = selection({ layers: `layer ${i}`, head, native: true });
      const maps = head < layer.heads && view.source(chosen) ? view.maps(chosen) : undefined;
      return maps ? [{ row: i, head, plane: view.sum(maps, term.entries), w: maps.w, h: maps.h }] : [];
    }),
  );
}

function renderMatrix() {
  const box = $("matrix");
  const [term] = termsNow();
  if (box.hidden || !box.open || !term) return;
  const view = data.runs[term.run].views[term.view];
  const cells = cellsOf(term);
  const spans = cells.map(({ plane }) => span(plane));
  const low = Math.min(...spans.map((s) => s[0]));
  const high = Math.max(...spans.map((s) => s[1]));
  const heads = [...new Set(cells.map(({ head }) => head))];
  const name = (head) => (head < 0 ? "mean" : String(head));
  const head = make("tr", {}, make("td"), ...heads.map((one) => make("th", { scope: "col", textContent: name(one) })));
  const rows = view.layers.map((layer, i) => {
    const label = make("th", { scope: "row", textContent: `${layer.short} · ${layer.grid[1]}×${layer.grid[0]}`, title: layer.name });
    const own = heads.map((one) => {
      const cell = cells.find(({ row, head }) => row === i && head === one);
      return make("td", {}, ...(cell ? [matrixCell(cell, low, high, layer.short)] : []));
    });
    return make("tr", {}, label, ...own);
  });
  box.querySelector("table").replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows));
  box.querySelector(".hint").textContent =
    `“${term.label}” on each layer's own grid, one scale: ${number(low)} to ${number(high)} · ${stepsSaid()}. ` +
    "Columns are heads, counted from 0.";
}

function matrixCell({ row, head, plane, w, h }, low, high, short) {
  const canvas = make("canvas", { width: w, height: h });
  const image = new ImageData(w, h);
  const table = tables[state.colours];
  plane.forEach((value, i) => {
    const part = high > low ? (value - low) / (high - low) : 0;
    const from = 3 * Math.round(Math.min(1, Math.max(0, part)) * 255);
    image.data.set([table[from], table[from + 1], table[from + 2], 255], 4 * i);
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
  const choose = () => changed({ layers: `layer ${row}`, head });
  const button = make("button", { type: "button", on: { click: choose } }, canvas);
  button.setAttribute("aria-label", `layer ${short}, ${head < 0 ? "all heads" : `head ${head}`}`);
  button.setAttribute("aria-pressed", String(state.layers === `layer ${row}` && state.head === head));
  return button;
}
