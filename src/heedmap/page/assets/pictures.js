/* The pictures with their heat, the legend that says what it shows, and the words at a place. */

function createPictures(model, words) {
  const { $, make, makeSvg, announce, number, percent } = dom;
  const { data, state, runs, change } = model;
  const SCALES = { shared: "shared by all words", word: "separate for each word", raw: "raw probability" };
  const capital = (text) => text[0].toUpperCase() + text.slice(1);
  let figures = [];
  let building = 0;

  // --- pictures

  /** Read the pictures of a run, once: the picture, those of its steps, and its masks. */
  function load(run) {
    const one = runs[run];
    one.loading ??= (async () => {
      one.image = await drawing.readImage(one.picture);
      one.enlarged = drawing.Picture.enlarged(one.image);
      one.sheet = one.steps && (await drawing.readImage(one.steps.picture));
      one.loadedMasks = await Promise.all(
        one.masks.map(async ({ words, picture }) => {
          const { data: pixels, width, height } = await drawing.readImage(picture);
          return { words, w: width, h: height, plane: Float32Array.from({ length: width * height }, (_, i) => pixels[4 * i] / 255) };
        }),
      );
    })();
    return one.loading;
  }

  /** Return the step whose picture lies beneath the heat, or null if that is the finished one. */
  const stepBeneath = (run) => (state.underlay && runs[run].sheet && model.stepping() ? model.stepsNow()[1] - 1 : null);

  function pictureNow(run) {
    const { enlarged, sheet, steps } = runs[run];
    const step = stepBeneath(run);
    if (step === null) return enlarged;
    const seen = (runs[run].seen ??= new Map());
    if (!seen.has(step)) {
      const [w, h] = steps.size;
      const [left, top] = [(step % steps.across) * w, Math.floor(step / steps.across) * h];
      const pixels = new Uint8ClampedArray(w * h * 4);
      for (let y = 0; y < h; y++) {
        const from = 4 * ((top + y) * sheet.width + left);
        pixels.set(sheet.data.subarray(from, from + 4 * w), 4 * y * w);
      }
      if (seen.size > 12) seen.clear();
      const large = drawing.resizePixels(pixels, w, h, enlarged.w, enlarged.h, "bilinear");
      seen.set(step, new drawing.Picture(large, enlarged.w, enlarged.h));
    }
    return seen.get(step);
  }

  function figure(kind, run, caption, image, side = kind) {
    const canvas = make("canvas", { width: image.width, height: image.height });
    const pen = canvas.getContext("2d", { alpha: false });
    pen.putImageData(image, 0, 0);
    const [outlines, ring] = [makeSvg("g"), makeSvg("g")];
    ring.append(makeSvg("path", { class: "casing" }), makeSvg("path", { class: "line" }));
    const above = makeSvg("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" });
    above.append(outlines, ring);
    const label = `${caption || "The image"}: arrow keys move the position`;
    const area = make("div", { className: "picture", tabIndex: 0, role: "application", "aria-label": label }, canvas, above);
    const text = caption ? [make("figcaption", {}, caption)] : [];
    const element = make("figure", { dataset: { kind: side } }, area, ...text);
    const on = (name, act) => area.addEventListener(name, act);
    const point = (event) => {
      const box = area.getBoundingClientRect();
      pointAt((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
    };
    on("pointermove", point);
    on("pointerdown", point);
    on("click", () => change({ place: state.point }));
    on("pointerleave", (event) => event.pointerType === "mouse" && change({ point: null }));
    on("focus", () => area.matches(":focus-visible") && !state.point && pointAt(0.5, 0.5, true));
    on("keydown", movePoint);
    return { kind, run, side, element, canvas, pen, image, outlines, ring, heats: [] };
  }

  /** Return the image of a run that no heat is laid over. */
  function plainFigure(run, caption, n) {
    const { pixels, w, h } = runs[run].enlarged;
    return figure("plain", run, caption, new ImageData(new Uint8ClampedArray(pixels), w, h), ["plain-source", "plain-edited"][n]);
  }

  async function build() {
    const mine = ++building;
    figures = [];
    const pair = model.pair();
    const shown = model.runsNow();
    await Promise.all(shown.map(load));
    const copies = model.ablation ? shown.map((run, n) => plainFigure(run, n ? capital(pair.label) : "The image", n)) : [];
    const heated = shown.map((run, n) => {
      const { w, h } = runs[run].enlarged;
      const own = !n && pair && runs[run].settings.input_image !== null ? ": your image as the model reconstructs it" : "";
      const caption = model.ablation ? ["Heat over the image", `Heat, ${pair.label}`][n] : model.sideOf(run) + own;
      return figure("run", run, caption, new ImageData(w, h), pair ? ["source", "edited"][n] : "run");
    });
    const made = [...copies, ...heated];
    if (pair) {
      const [before, after] = shown.map((run) => runs[run].image);
      const { image, most } = drawing.difference(before, after, model.colours[model.look.colour]);
      const name = model.ablation ? "Change" : "Difference";
      made.push(figure("difference", model.mainRun(), `${name}: 0 to ${percent(most)} of full range`, image));
      if (pair.blend) {
        const mask = await drawing.readImage(pair.blend);
        const share = mask.data.filter((value, i) => i % 4 === 0 && value > 127).length / (mask.width * mask.height);
        const caption = `Bright: the region that may change, ${percent(share)} of the image`;
        made.push(figure("blend", pair.edited, caption, drawing.inside(after, mask)));
      }
    }
    const tables = model.data.maps.tables;
    await Promise.all(shown.map((run) => runs[run].maps.read(tables[0])));
    if (mine !== building) return; // another edit was chosen meanwhile
    figures = made;
    const { w, h } = runs[shown[0]].enlarged;
    const main = document.querySelector("main");
    main.style.setProperty("--ratio", String(w / h));
    (!pair && w < 0.8 * h ? main : $("stage")).append($("overview"));
    $("figures").replaceChildren(...made.map(({ element }) => element));
    drawMode();
    change({});
    document.documentElement.dataset.ready = "yes";
  }

  // --- edits

  const MODES = { all: "All four", side: "Side by side", wipe: "Wipe", difference: "Difference", blend: "Blend mask" };

  function buildModes() {
    $("modes").hidden = false;
    for (const [value, text] of Object.entries(MODES)) {
      if (value === "all" && !model.ablation) continue;
      const input = make("input", { type: "radio", name: "mode", value, on: { change: () => change({ mode: value }) } });
      $("modes").append(make("label", {}, input, make("span", {}, text)));
    }
    const wipe = $("wipe").querySelector("input");
    const move = () => $("figures").style.setProperty("--wipe", `${wipe.value}%`);
    wipe.addEventListener("input", move);
    move();
  }

  /** Return how source and edit are compared; an edit without a mask has no picture of one. */
  function modeNow() {
    const pair = model.pair();
    if (!pair) return "one";
    return state.mode === "blend" && !pair.blend ? "side" : state.mode;
  }

  function drawMode() {
    const mode = modeNow();
    document.querySelector("main").dataset.mode = mode;
    $("wipe").hidden = mode !== "wipe";
    for (const input of $("modes").querySelectorAll("input")) {
      input.checked = input.value === mode;
      input.parentElement.hidden = input.value === "blend" && !model.pair().blend;
    }
  }

  // --- heat

  function draw() {
    const terms = model.termsNow();
    for (const one of figures) {
      one.heats = terms.map((term) => model.heatOf(term, one.run)).filter(Boolean);
      if (one.kind === "run") {
        drawing.overlay(pictureNow(one.run), one.heats, model.palette(), one.image);
        one.pen.putImageData(one.image, 0, 0);
      }
      // Over a difference lies no heat: words show as outlines.
      const outlined = state.outline || ["difference", "blend"].includes(one.kind) ? one.heats : [];
      one.outlines.replaceChildren(...outlined.flatMap((heat) => outlinePaths(heat, outlined.length > 1)));
      one.element.classList.toggle("native", state.native && one.heats.length > 0);
    }
    drawMode();
    drawLegend();
  }

  function outlinePaths(heat, several) {
    const { path, w, h } = model.outlineOf(heat);
    const hue = several ? `rgb(${heat.hue.join(" ")})` : "#fff";
    const transform = `scale(${100 / w} ${100 / h})`;
    return [["casing", "#000"], ["line", hue]].map(([kind, stroke]) => makeSvg("path", { d: path, transform, class: kind, stroke }));
  }

  // --- the legend

  function drawLegend() {
    const own = figures.filter(({ kind }) => kind === "run");
    const { run, heats } = own.find((one) => one.heats.length) ?? own[0] ?? { heats: [] };
    const heated = ["one", "all", "side", "wipe"].includes(modeNow());
    const [bar, list, text] = $("legend").children;
    const one = heats.length === 1;
    bar.hidden = !one || !heated;
    if (one) drawBar(bar, heats[0].low);
    list.replaceChildren(
      ...heats.map((heat) => {
        const range = one || !heated ? "" : model.rangeText(heat);
        const scale = make("span", { className: heated ? "scale" : "swatch", vars: { "--hue": `rgb(${heat.hue.join(" ")})` } });
        const parts = [one ? "" : scale, make("bdi", {}, model.labelOf(heat.term)), range && make("small", {}, range)];
        return make("li", {}, ...parts.filter(Boolean));
      }),
    );
    const beneath = heated && run !== undefined ? beneathText(run) : "";
    const outline = state.outline || !heated || modeNow() === "all" ? [outlineText(heats)] : [];
    if (!heats.length) {
      const reading = model.termsNow().length ? "Reading the maps …" : "The image without heat.";
      text.textContent = heated ? reading + beneath : "Hover over a word to see where the model read it, as an outline.";
    } else if (heated) {
      const grids = heats[0].grids.length > 4 ? "" : `, ${heats[0].grids.join(", ")}`;
      const cells = state.native ? [`layer resolution${grids}`] : [];
      text.textContent = `${[scaleText(heats), model.shownText(), ...cells, ...outline].join(" · ")}.${beneath}`;
    } else text.textContent = [...outline, model.shownText()].join(" · ");
  }

  /** Name the scale, its range if all heats have one, and what values below 0 mean. */
  function scaleText(heats) {
    const same = heats.every(({ low, high }) => low === heats[0].low && high === heats[0].high);
    const below = heats.some(({ low }) => low < 0);
    const name = below ? SCALES[state.scale].replace(" probability", "") : SCALES[state.scale];
    const steps = !model.stepping() || state.scale === "raw" ? "" : model.steady() ? ", one scale for all steps" : ", scaled to these steps";
    const share = { all: ", share of all attention", text: ", share of the attention to the text" }[runs[model.runsNow()[0]].shareOf] ?? "";
    const blue = below ? ` (signed weight${heats.length === 1 ? ": blue is below 0" : ""})` : "";
    return `${name}${share}${steps}${same ? `: ${model.rangeText(heats[0])}` : ""}${blue}`;
  }

  function outlineText(heats) {
    const masked = heats.filter(model.maskOf).length;
    const range = "between the map’s minimum and maximum";
    const of = masked === heats.length ? "of the mask" : masked ? `of the mask, or ${range}` : range;
    return `${heats.length > 1 ? "outlines" : "outline"} at ${percent(state.threshold)} ${of}`;
  }

  function beneathText(run) {
    const step = stepBeneath(run);
    if (step === null) return "";
    const what = runs[run].steps.shows === "prediction"
      ? `the image that the model predicted at step ${step}`
      : `the noisy latents after step ${step}`;
    return ` Underneath: ${what} (approximate colours).`;
  }

  function drawBar(canvas, low) {
    const { width } = canvas;
    const grey = new Uint8ClampedArray(width * 4).fill(176);
    const plane = Float32Array.from({ length: width }, (_, x) => x / (width - 1));
    const heat = { plane, w: width, h: 1, low: low < 0 ? -1 : 0, high: 1, hue: [0, 0, 0] };
    if (low < 0) heat.plane = plane.map((value) => 2 * value - 1);
    const image = new ImageData(width, 1);
    drawing.overlay(new drawing.Picture(grey, width, 1), [heat], model.palette(), image);
    canvas.getContext("2d").putImageData(image, 0, 0);
  }

  // --- the place

  function pointAt(x, y, aloud = false) {
    const inside = (part) => Math.min(0.9999, Math.max(0, part));
    change({ point: [inside(x), inside(y)] });
    if (!aloud) return;
    const rows = model.wordsAt(model.mainRun(), 0).slice(0, 3);
    const list = rows.map(({ text, share }) => `${text} ${percent(share)}`).join(", ");
    announce(`${percent(state.point[0])} across, ${percent(state.point[1])} down: ${list}.`);
  }

  function movePoint(event) {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!move) return;
    event.preventDefault();
    const [w, h] = data.maps.cells;
    const [x, y] = model.placeNow() ?? [0.5, 0.5];
    const far = event.shiftKey ? 8 : 1;
    pointAt(x + (move[0] * far) / w, y + (move[1] * far) / h, true);
  }

  function drawPlace() {
    const place = model.placeNow();
    for (const { ring, canvas } of figures) {
      ring.style.display = place ? "" : "none";
      if (!place) continue;
      const [x, y] = place.map((part) => 100 * part);
      const [rx, ry] = [2.2, (2.2 * canvas.width) / canvas.height];
      const circle = `M${x - rx} ${y}a${rx} ${ry} 0 1 0 ${2 * rx} 0a${rx} ${ry} 0 1 0 ${-2 * rx} 0`;
      ring.setAttribute("class", state.point ? "" : "ring");
      for (const line of ring.children) line.setAttribute("d", state.point ? `M${x} 0V100M0 ${y}H100` : circle);
    }
    drawReading();
  }

  const VALUES = {
    "signed weight": "Signed weight: the probability times the word's weight; negative weights give values below 0.",
    probability: "Probability: of all attention here; the rest goes to padding and special tokens.",
    all: "Probability: of all attention here; the rest goes to the image itself and to reference images, to padding and special tokens.",
    text: "Probability: of the attention to the text here; the rest goes to padding and special tokens.",
    refined: "Refined: attention averaged over the positions that this one attends to.",
  };

  function drawReading() {
    const [head, hint, box, help] = $("reading").children;
    const shown = model.runsNow();
    const place = model.placeNow() ?? [0.5, 0.5]; // without a place, a hidden list keeps the room
    box.classList.toggle("unseen", !model.placeNow());
    const negative = shown.some((run) => runs[run].maps.prompts.some((_, prompt) => model.isSigned(prompt)));
    const value = model.refined() ? "refined" : negative ? "signed weight" : "probability";
    head.lastElementChild.textContent = `among words · ${value}`;
    hint.textContent = placeText();
    const beside = runs[shown[0]].maps.prompts.some(({ name }) => name === "concepts");
    help.textContent = `Among words: this word’s part of the attention to the prompt’s words here${beside ? "; not given for concepts" : ""}. ${VALUES[value === "probability" ? (runs[shown[0]].shareOf ?? value) : value]}`;
    const lists = shown.flatMap((run) =>
      runs[run].maps.prompts.map(({ name }, prompt) => {
        const rows = model.wordsAt(run, prompt, place).slice(0, model.pair() ? 5 : 8);
        // Concepts are not in the prompt: their bars use the scale of the prompt's words.
        const whole = name === "concepts" && model.wordsAt(run, 0, place).reduce((total, one) => total + Math.abs(one.value), 1e-9);
        const title = prompt ? words.promptName(run, prompt) : model.sideOf(run);
        return make("div", {}, ...(title && rows.length ? [make("h3", {}, title)] : []), make("ol", {}, ...rows.map((row) => readingRow(row, whole))));
      }),
    );
    box.replaceChildren(...lists);
  }

  function readingRow({ text, share, value }, whole) {
    const part = whole ? Math.min(1, Math.abs(value) / whole) : share;
    return make(
      "li",
      {},
      make("bdi", {}, text),
      make("span", { className: "bar", vars: { "--part": String(part) } }),
      make("span", { className: "share" }, whole ? "" : percent(share)),
      make("span", { className: "value" }, number(value)),
    );
  }

  function placeText() {
    const isKept = String(state.point) === String(state.place);
    if (state.point && !isKept) {
      return data.pairs.length ? "Click to keep this position." : "Click to keep this position, and to get the command that records what it reads.";
    }
    if (state.place) return "At the ring, where you clicked. Click elsewhere for another position.";
    const [term] = model.termsNow();
    if (!term) return "Hover over the image, or focus it and use the arrow keys, to list the words that were read there.";
    const found = model.strongest();
    if (!found) return `“${term.label}” was read nowhere in this view. Hover over the image to see other words.`;
    const side = found.run === term.run ? "" : ` in the ${model.sideOf(found.run).toLowerCase()}`;
    return `At the ring, where “${term.label}” ${model.located() ? "is seen" : "was read"} most${side}. Hover over the image for another position.`;
  }

  if (data.pairs.length) buildModes();
  model.listen((changes) => "pair" in changes && build());
  model.listen(draw, "point", "place", "pair");
  model.listen(drawPlace);
  return { build, figures: () => figures.filter(({ kind }) => kind === "run"), pictureOf: (run) => runs[run].enlarged };
}
