/* All words at once, and a word in every layer and head: small, to choose from. */

// Pixels: a word's picture on its short side, of many words and of few, how small it may be shown,
// and how much is between two of them;
// what may stay empty beside the words before some are scrolled to; what a hole above all words
// counts more than one at a column's end; how large one must be that a run's curve is moved for it;
// what is not worth that anything moves again; and what words of another size are less worth.
const [THUMB, LARGEST, SMALLEST, GAP] = [84, 170, 56, 10];
const [BARE, APART, MOVED, STAYS, UNUSUAL] = [150, 30, 50, 40, 12];
const MANY = 24; // words
const PARTS = ["58%", "61%", "64%"]; // of the width, that a run's picture may take
const AXES = ["place", "columns", "part", "under"];
const overview = { frame: 0, run: -1, words: [], picture: null, placed: false, at: null };

function buildOverview() {
  const run = runsNow().at(-1);
  const view = data.runs[run].views[0];
  overview.run = run;
  overview.picture = null;
  overview.placed = false;
  overview.at = null;
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
  showMatrix();
}

/** Single layers and heads have maps as read, no refined ones. */
function showMatrix() {
  const view = data.runs[overview.run].views[0];
  $("matrix").hidden = refined() || !view.keep.includes("layer") || view.layers.length * view.heads < 2;
}

/** How many words there are, where not all of them are seen. */
function sayWords(scrolled) {
  const all = data.runs[overview.run].views[0].words.length;
  const there = overview.words.length;
  const first = all > there ? `the first ${there} of ${all}` : "";
  const more = scrolled ? `scroll for ${all > there ? "them" : `all ${all}`}` : "";
  $("overview").querySelector("h2 span").textContent = [first, more].filter(Boolean).join(": ");
}

/** Put the words where the two columns end most alike: below the pictures, below what stands beside
    them, or below both; as large as there is room for, or in as many whole rows. A run's picture
    takes more of the width for it, and where it is narrow its curve stands below the picture. */
function placeOverview() {
  arrange({ place: document.querySelector("main"), part: PARTS[0], under: Boolean(pairNow()) });
  if (!overview.words.length || matchMedia("(max-width: 860px)").matches) return;
  const wide = pairNow() || document.querySelector("main").dataset.form === "tall";
  // The words do not go where the curve was: it is moved for them alone.
  const fits = ({ place, under }) => wide || !under || place !== $("panel");
  const found = (wide ? PARTS.slice(0, 1) : PARTS).flatMap((part) =>
    (wide ? [Boolean(pairNow())] : [false, true]).flatMap((under) =>
      arrangements({ part, under, more: under && !wide ? MOVED : 0 }).filter(fits),
    ),
  );
  const best = found.reduce((a, b) => (b.left < a.left ? b : a));
  // What a longer line of a legend would change is left as it is: nothing jumps while one points.
  const same = (one) => AXES.every((axis) => one[axis] === overview.at?.[axis]);
  const before = found.find(same);
  overview.at = before && before.left < best.left + STAYS ? before : best;
  arrange(overview.at);
}

/** The places for the words beside pictures of a width, each with the room that is left there. */
function arrangements({ more, ...how }) {
  const main = document.querySelector("main");
  arrange({ place: main, ...how });
  const room = tallOf($("panel")) - tallOf($("stage"));
  const found = [{ place: main, ...how, left: Math.abs(room) + APART + more }];
  const place = $(room > 0 ? "stage" : "panel");
  for (const columns of columnsFor({ place, ...how })) {
    arrange({ place, columns, ...how });
    const left = tallOf($("panel")) - tallOf($("stage"));
    const one = { place, columns, ...how, ...cutOff(room > 0 ? left : -left) };
    one.left += more + (columns ? UNUSUAL : 0);
    if (!columns || !one.room) found.push(one); // none is scrolled away for larger ones
  }
  return found;
}

const tallOf = (element) => element.getBoundingClientRect().height;

function arrange({ place, columns, room, part, under }) {
  const { style } = $("thumbs");
  document.querySelector("main").style.setProperty("--part", part);
  if (($("curve").parentElement === $("stage")) !== under) {
    if (under) $("legend").after($("curve"), $("why"));
    else $("reading").after($("curve"), $("why"));
  }
  if ($("overview").parentElement !== place) place.append($("overview"));
  style.gridTemplateColumns = columns ? `repeat(${columns}, minmax(0, ${LARGEST}px))` : "";
  style.maxHeight = room ? `${room}px` : "";
  sayWords(Boolean(room));
}

/** In how many columns the words may stand at a place: as usual, or in as many as make them from
    SMALLEST to LARGEST. */
function columnsFor(how) {
  arrange(how);
  const wide = $("thumbs").clientWidth + GAP;
  const [least, most] = [Math.ceil(wide / (LARGEST + GAP)), Math.floor(wide / (SMALLEST + GAP))];
  return [undefined, ...[...Array(most - least + 1).keys()].map((n) => least + n)];
}

/** How much room is left, or lacking (then at most BARE, and some rows are scrolled to). */
function cutOff(left) {
  if (left >= -BARE) return { left: Math.abs(left) };
  const row = tallOf($("thumbs").firstElementChild) + parseFloat(getComputedStyle($("thumbs")).rowGap);
  const rows = Math.round(tallOf($("thumbs")) / row);
  const cut = Math.min(rows - 1, Math.ceil((-left - BARE) / row));
  return cut > 0 ? { left: Math.abs(left + cut * row), room: tallOf($("thumbs")) - cut * row } : { left: -left };
}

/** Anew whenever what stands there takes another room, unless a word is in somebody's hand. */
const beside = new ResizeObserver(() => {
  if (overview.placed && !$("overview").contains(document.activeElement)) placeOverview();
});
for (const id of ["figures", "legend", "curve", "controls"]) beside.observe($(id));

/** The run's picture as small as a word's is shown. */
function smallPicture(figure) {
  const { canvas } = figure;
  const side = overview.words.length > MANY ? THUMB : LARGEST;
  const part = Math.min(1, side / Math.min(figure.picture.w, figure.picture.h));
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
  showMatrix();
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
  let [low, high] = around(spans);
  if (low < 0) [low, high] = centred(low, high);
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
  const table = low < 0 ? SIGNED : tables[state.colours];
  plane.forEach((value, i) => {
    const part = (value - low) * contrast(low, high);
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
