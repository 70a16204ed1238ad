/* The pictures: of a run, or of an edit with difference and blend mask. */

const pictures = new Map();

async function pictureOf(run) {
  if (!pictures.has(run)) pictures.set(run, Picture.enlarged(await readPicture(data.runs[run].picture)));
  return pictures.get(run);
}

function figure(kind, run, caption, side) {
  const canvas = make("canvas");
  const overlayed = makeSvg("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" });
  const outlines = makeSvg("g");
  const cross = makeSvg("g");
  cross.append(makeSvg("path", { class: "casing" }), makeSvg("path", { class: "line" }));
  overlayed.append(outlines, cross);
  const area = make("div", { className: "picture", tabIndex: 0, role: "application" }, canvas, overlayed);
  area.setAttribute("aria-label", `${caption || "The picture"}: arrow keys move the point`);
  const text = make("figcaption", { textContent: caption });
  const element = make("figure", { dataset: { kind: side || kind } }, area, ...(caption ? [text] : []));
  const place = (event) => {
    const box = area.getBoundingClientRect();
    pointAt((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
  };
  area.addEventListener("pointermove", place);
  area.addEventListener("pointerdown", place);
  area.addEventListener("click", () => holdPlace());
  area.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && pointAt(null));
  area.addEventListener("focus", () => {
    if (area.matches(":focus-visible") && !state.point) pointAt(0.5, 0.5, true);
  });
  area.addEventListener("keydown", (event) => movePoint(event, run));
  return { kind, run, element, area, canvas, outlines, cross, caption: text, heats: [] };
}

let building = 0;

async function buildFigures() {
  const mine = ++building;
  const pair = pairNow();
  const made = [];
  const runs = runsNow();
  const taken = await Promise.all(runs.map(pictureOf));
  await Promise.all(runs.map(readSteps));
  const put = (one, image) => {
    one.canvas.width = image.width;
    one.canvas.height = image.height;
    one.image = image;
    one.pen = one.canvas.getContext("2d", { alpha: false });
    one.pen.putImageData(image, 0, 0);
    made.push(one);
  };
  runs.forEach((run, n) => {
    const side = pair ? Object.keys(SIDES)[n] : "";
    const own = side === "source" && data.runs[run].own === "edited" ? ": your picture, as it comes back" : "";
    const one = figure("run", run, pair ? `${SIDES[side]}${own}` : "", side);
    one.picture = taken[n];
    put(one, new ImageData(Uint8ClampedArray.from(taken[n].pixels), taken[n].w, taken[n].h));
  });
  if (pair) {
    const { image, most } = difference(taken[0], taken[1], tables[data.look.colour]);
    put(figure("difference", pair.edited, `Difference: 0 to ${percent(most)} of full range`), image);
    if (pair.blend) {
      const mask = await readPicture(pair.blend.picture);
      const caption = `Bright: where the edit was let in, ${percent(pair.blend.share)} of the picture`;
      put(figure("blend", pair.edited, caption), inside(taken[1], mask));
    }
  }
  if (mine !== building) return; // another edit was chosen meanwhile
  shown.figures = made;
  const box = $("figures");
  const { w, h } = taken[0];
  box.closest("main").style.setProperty("--ratio", String(w / h));
  box.closest("main").dataset.form = !pair && w < 0.8 * h ? "tall" : "wide";
  box.closest("main").toggleAttribute("data-narrow", w < 0.4 * h); // higher than a phone, if as wide
  box.replaceChildren(...made.map((one) => one.element));
  const views = runs.flatMap((run) => data.runs[run].views.flatMap((view) => view.parts));
  await Promise.all(views.map((view) => view.read(view.tables[0])));
  if (mine !== building) return;
  state.rest = state.bare ? null : strongest();
  buildOverview();
  setMode(pair ? state.mode : "one");
  showControls();
  renderPoint();
  nameDownloads();
  document.documentElement.dataset.ready = "yes";
}
