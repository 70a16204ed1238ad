/* All words as small pictures, a word in every layer and head, and its mean at every step. */

function createOverview(model, pictures) {
  const { $, make, makeSvg, number } = dom;
  const { span, union, sum } = maps;
  const { data, state, runs, change } = model;
  const MOST = 75; // words
  const SIDE = 170; // pixels of a word's picture
  let thumbs = []; // {term, canvas, button}
  let small = null; // the picture beneath them
  let frame = 0;

  // --- words

  function build() {
    const run = model.mainRun();
    const words = [...runs[run].maps.entries.entries()].filter(([, { kind, prompt }]) => kind === "word" && !prompt);
    small = null;
    thumbs = words.slice(0, MOST).map(([entry, { text }]) => {
      const term = { run, entries: [entry], label: text };
      const canvas = make("canvas");
      const button = make("button", { type: "button", "aria-label": `${text}, its map` }, canvas, make("bdi", {}, text));
      button.addEventListener("click", () => model.toggle(term));
      button.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && change({ hover: term }));
      button.addEventListener("pointerleave", () => change({ hover: null }));
      return { term, canvas, button };
    });
    $("thumbs").replaceChildren(...thumbs.map(({ button }) => make("li", {}, button)));
    $("overview").querySelector("h2 span").textContent = words.length > MOST ? `the first ${MOST} of ${words.length}` : "";
    $("overview").hidden = !words.length;
  }

  /** Draw with the next frame: choices may change several times before. */
  function drawSoon() {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(draw);
  }

  function draw() {
    const picture = thumbs.length && pictures.pictureOf(thumbs[0].term.run);
    if (!picture) return;
    small ??= picture.shrunk(SIDE);
    for (const { term, canvas } of thumbs) {
      const heat = model.heatOf(term, term.run);
      if (!heat) return;
      Object.assign(canvas, { width: small.w, height: small.h });
      const image = new ImageData(small.w, small.h);
      drawing.overlay(small, [heat], model.palette(), image);
      canvas.getContext("2d").putImageData(image, 0, 0);
    }
  }

  function mark() {
    const shown = model.termsNow().map(model.keyOf);
    for (const { term, button } of thumbs) {
      button.setAttribute("aria-pressed", String(model.isPinned(term)));
      button.classList.toggle("shown", shown.includes(model.keyOf(term)));
    }
    drawMatrix();
    drawCurve();
  }

  // --- layers and heads

  function drawMatrix() {
    const { keep, layers } = data.maps;
    const box = $("matrix");
    const [term] = model.termsNow();
    box.hidden = model.refined() || !keep.includes("layer");
    box.querySelector("h2").textContent = keep.includes("head") ? "Layers × heads" : "Layers";
    if (box.hidden || !box.open || !term) return;
    const own = runs[term.run].maps;
    const heads = keep.includes("head") ? [-1, ...Array(own.heads).keys()] : [-1];
    const cells = layers.map((layer, i) =>
      heads.map((head) => {
        const chosen = model.selection({ layers: `layer ${i}`, head, native: true });
        const found = head < layer.heads && own.source(chosen) ? own.maps(chosen) : null;
        return found && { ...found, plane: sum(found, term.entries), layer: i, head };
      }),
    );
    const drawn = cells.flat().filter(Boolean);
    if (!drawn.length) return;
    let [low, high] = union(drawn.map(({ plane }) => span(plane)));
    if (low < 0) [low, high] = drawing.centred(low, high);
    const shown = heads.filter((head) => drawn.some((cell) => cell.head === head));
    const rows = layers.map(({ short, grid: [h, w], name }, i) => {
      const own = cells[i].filter((_, n) => shown.includes(heads[n]));
      return [make("span", { title: name }, `${short} · ${w}×${h}`), ...own.map((cell) => (cell ? matrixCell(cell, low, high) : ""))];
    });
    const titles = ["", ...shown.map((head) => (head < 0 ? "mean" : String(head)))];
    box.querySelector("div").replaceChildren(dom.table("", titles, rows));
    box.querySelector(".hint").textContent =
      `“${term.label}” on each layer's own grid, one scale: ${number(low)} to ${number(high)} · ${model.stepsText()}. ` +
      (keep.includes("head") ? "Columns are heads, counted from 0." : "Each is the mean over its heads.");
  }

  function matrixCell({ plane, w, h, layer, head }, low, high) {
    const canvas = make("canvas", { width: w, height: h });
    const table = low < 0 ? model.signed : model.colours[state.colours];
    canvas.getContext("2d").putImageData(drawing.coloured(plane, w, h, low, high, table), 0, 0);
    const name = `layer ${data.maps.layers[layer].short}, ${head < 0 ? "all heads" : `head ${head}`}`;
    const pressed = String(state.layers === `layer ${layer}` && state.head === head);
    const on = { click: () => change({ layers: `layer ${layer}`, head }) };
    return make("button", { type: "button", "aria-label": name, "aria-pressed": pressed, on }, canvas);
  }

  // --- steps

  const CURVE = { w: 320, h: 84, side: 4, edge: 6 };

  function drawCurve() {
    const { w, h, side, edge } = CURVE;
    const bounds = model.bounds();
    const steps = bounds.at(-1);
    $("curve").hidden = bounds.length < 3;
    const curves = $("curve").hidden ? [] : model.termsNow().flatMap((term) => {
      const means = model.atEachStep(term.run, `mean ${term.entries}`, (found) => {
        const plane = sum(found, term.entries);
        return plane.reduce((total, value) => total + value, 0) / plane.length;
      });
      return means ? [{ term, means }] : [];
    });
    $("curve").classList.toggle("unseen", !curves.length);
    if (!curves.length) return;
    const [least, most] = span([0, ...curves.flatMap(({ means }) => means)]);
    const x = (step) => side + (step / steps) * (w - 2 * side);
    const y = (value) => h - edge - ((value - least) / (most - least || 1)) * (h - 2 * edge);
    const [from, to] = model.stepsNow();
    const band = { class: "band", x: x(from), y: 0, width: x(to) - x(from), height: h };
    const lines = curves.map(({ term, means }) => {
      const points = means.map((value, i) => `${x((bounds[i] + bounds[i + 1]) / 2).toFixed(1)} ${y(value).toFixed(1)}`);
      const stroke = curves.length > 1 ? term.hue : "currentColor";
      return makeSvg("path", { class: "line", d: `M${points.join("L")}`, stroke, "data-word": term.label });
    });
    $("curve").querySelector("svg").replaceChildren(
      ...(model.stepping() ? [makeSvg("rect", band)] : []),
      makeSvg("path", { class: "base", d: `M0 ${y(0)}H${w}` }),
      ...lines,
    );
    const names = curves.map(({ term }) => `“${term.label}”`).join(", ");
    $("curve").querySelector("figcaption").textContent =
      `${names} over the ${steps} steps: mean over the image, on a scale from ${number(least)} to ${number(most)}. Click for one step.`;
  }

  /** Show the step at which the curve was clicked. */
  function chooseStep(event) {
    const box = event.currentTarget.getBoundingClientRect();
    const bounds = model.bounds();
    const part = (((event.clientX - box.left) / box.width) * CURVE.w - CURVE.side) / (CURVE.w - 2 * CURVE.side);
    const at = Math.max(0, bounds.findLastIndex((bound, i) => bound <= part * bounds.at(-1) && i < bounds.length - 1));
    change({ steps: [bounds[at], bounds[at + 1]], playing: false });
    dom.announce(model.stepsText());
  }

  $("curve").querySelector("svg").addEventListener("click", chooseStep);
  $("matrix").addEventListener("toggle", drawMatrix);
  model.listen((changes) => "pair" in changes && build());
  model.listen(drawSoon, "hover", "point", "place", "pins", "outline", "threshold", "bare");
  model.listen(mark, "point", "place");
  build();
}
