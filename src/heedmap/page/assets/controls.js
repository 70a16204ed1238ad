/* The controls: their values are the choices of the model. Playing the steps; files to keep. */

function createControls(model, pictures) {
  const { $, make, announce, percent } = dom;
  const { data, state, runs, change } = model;
  const { layers, keep, steps } = data.maps;
  // Each choice has a control of its name: how its value is read and written.
  const value = { read: (e) => e.value, write: (e, choice) => (e.value = choice) };
  const whole = { read: (e) => Number(e.value), write: (e, choice) => (e.value = String(choice)) };
  const part = { read: (e) => Number(e.value) / 100, write: (e, choice) => (e.value = String(Math.round(100 * choice))) };
  const tick = { read: (e) => e.checked, write: (e, choice) => (e.checked = choice) };
  const CONTROLS = {
    scale: value, maps: value, layers: value, head: whole, opacity: part, colours: value, outline: tick,
    threshold: part, native: tick, specials: tick, together: tick, underlay: tick,
  };
  let timer = 0; // of playing

  // --- choices

  function option(text, choice, title = "") {
    return make("option", { value: choice, textContent: text, title });
  }

  function build() {
    const group = (label, options) => (options.length ? [make("optgroup", { label }, ...options)] : []);
    const stages = [...new Set(layers.map((layer) => layer.group))].filter(Boolean);
    const grids = [...new Set(layers.map(({ grid: [h, w] }) => `${w}×${h}`))];
    $("layers").append(
      option("all layers", "all"),
      ...group("groups", stages.map((stage) => option(`${stage} layers`, `group ${stage}`))),
      ...group("by grid", grids.map((grid) => option(`all of ${grid}`, `grid ${grid}`))),
      ...group("single layers", layers.map(({ short, grid: [h, w], name }, i) => option(`${short} · ${w}×${h}`, `layer ${i}`, name))),
    );
    const heads = Math.max(...layers.map((layer) => layer.heads));
    $("head").append(option("all heads", "-1"), ...Array.from({ length: heads }, (_, i) => option(`head ${i}`, String(i))));
    $("colours").append(...Object.keys(model.colours).map((name) => option(name, name)));
    for (const axis of ["layer", "step", "head"]) {
      document.querySelector(`[data-axis=${axis}]`).hidden = !keep.includes(axis) || (axis === "step" && steps < 2);
    }
    $("maps-row").hidden = data.maps.refined === null;
    $("underlay-row").hidden = runs.every((run) => !run.steps);
    for (const [name, { read }] of Object.entries(CONTROLS)) {
      $(name).addEventListener("input", () => change({ [name]: read($(name)) }));
    }
    $("maps").addEventListener("input", () => announce(`${model.shownText()}.`));
    for (const end of ["first", "last"]) $(end).addEventListener("input", () => moveEnd(end, Number($(end).value)));
    const press = (id, act) => $(id).addEventListener("click", () => {
      stop();
      act();
      announce(model.stepsText());
    });
    press("back", () => moveSteps(-1));
    press("on", () => moveSteps(1));
    press("every", () => change({ steps: null }));
    $("play").addEventListener("click", () => (timer ? stop() : play()));
    $("png").addEventListener("click", savePng);
    $("npy").addEventListener("click", saveNpy);
  }

  /** Bring the controls in line with the choices, and with what the tables have. */
  function draw() {
    const can = (changes) => runs[0].maps.source(model.selection(changes)) !== null;
    if (!model.refined() && !can({})) Object.assign(state, { layers: "all", steps: null, head: -1 });
    const refined = model.refined();
    for (const [name, { write }] of Object.entries(CONTROLS)) write($(name), state[name]);
    $("layers").value = model.layersNow();
    $("head").value = String(model.headNow());
    for (const one of $("layers").querySelectorAll("option")) one.disabled = !can({ layers: one.value });
    for (const one of $("head").options) one.disabled = !can({ head: Number(one.value) });
    for (const row of document.querySelectorAll("[data-axis]")) row.classList.toggle("idle", refined);
    for (const id of ["layers", "head", "underlay"]) $(id).disabled = refined;
    $("whole").hidden = !refined;
    $("together").disabled = refined || state.scale === "raw";
    $("threshold").disabled = !state.outline;
    $("threshold-said").textContent = percent(state.threshold);
    for (const id of ["opacity", "threshold"]) $(id).setAttribute("aria-valuetext", percent(state[id]));
    drawSteps();
    $("held").textContent = limits().join(" ");
    $("held").hidden = !$("held").textContent;
  }

  /** List what this page cannot show, and why. */
  function limits() {
    const lines = [];
    const averaged = ["layer", "step", "head"].filter((axis) => !keep.includes(axis));
    if (averaged.length) lines.push(`Averaged in this run: ${averaged.map((axis) => `${axis}s`).join(" and ")}.`);
    if (keep.includes("step") && steps > 1 && !model.refined()) {
      const [, first] = model.bounds();
      if (first === steps) lines.push("This page holds the mean over all steps for this selection.");
      else if (first > 1) lines.push(`This page holds means of ${first} steps; ranges start and end at multiples of ${first}.`);
    }
    const offered = ["layers", "head"].filter((id) => !$(id).closest(".row").hidden).flatMap((id) => [...$(id).options]);
    if (!model.refined() && offered.some((one) => one.disabled)) {
      lines.push("Greyed-out options need all steps or all heads.");
    }
    if (data.runs.some((run) => !run.exact)) lines.push("Images are compressed on this page.");
    return lines;
  }

  // --- steps

  /** Return the shown range as places in the bounds: [first, last]. */
  const placesNow = (bounds) => model.stepsNow().map((step) => bounds.indexOf(step));

  /** Show a range by its places in the bounds. */
  function showSteps(first, last) {
    const bounds = model.bounds();
    change({ steps: first === 0 && last === bounds.length - 1 ? null : [bounds[first], bounds[last]] });
  }

  /** Move one end of the range; the other gives way. */
  function moveEnd(end, to) {
    stop();
    const bounds = model.bounds();
    const [first, last] = placesNow(bounds);
    const at = end === "first" ? Math.min(to, bounds.length - 2) : Math.max(to, 1);
    if (end === "first") showSteps(at, Math.max(last, at + 1));
    else showSteps(Math.min(first, at - 1), at);
  }

  /** Move the range by one; of all steps the first or the last is next. */
  function moveSteps(by) {
    const bounds = model.bounds();
    const most = bounds.length - 1;
    const [first, last] = placesNow(bounds);
    if (last - first === most) return by > 0 ? showSteps(0, 1) : showSteps(most - 1, most);
    const moved = Math.max(-first, Math.min(most - last, by));
    return showSteps(first + moved, last + moved);
  }

  function drawSteps() {
    const bounds = model.bounds();
    const most = bounds.length - 1;
    const places = placesNow(bounds);
    const [from, to] = model.stepsNow();
    ["first", "last"].forEach((id, i) => {
      Object.assign($(id), { max: String(most), value: String(places[i]), disabled: most < 2 });
      $(id).setAttribute("aria-valuetext", `${i ? "to" : "from"} step ${i ? to - 1 : from} of 0–${steps - 1}`);
    });
    for (const id of ["back", "play", "on"]) $(id).disabled = most < 2;
    $("every").disabled = !model.stepping();
    $("range").style.setProperty("--from", String(places[0] / most));
    $("range").style.setProperty("--to", String(places[1] / most));
    $("range").classList.toggle("disabled", most < 2);
    $("steps-said").textContent = model.stepsText();
  }

  function stop() {
    clearInterval(timer);
    timer = 0;
    $("play").textContent = "▶";
    $("play").setAttribute("aria-label", "Play the steps");
  }

  /** Let the range, or a single step, walk to the last step. */
  function play() {
    const bounds = model.bounds();
    const most = bounds.length - 1;
    let [first, last] = placesNow(bounds);
    const width = last - first < most ? last - first : 1;
    if (last === most) first = -1; // begin again
    const slow = matchMedia("(prefers-reduced-motion: reduce)").matches;
    $("play").textContent = "❚❚";
    $("play").setAttribute("aria-label", "Stop playing");
    const next = () => {
      first++;
      showSteps(first, first + width);
      if (first + width >= model.bounds().length - 1) stop();
    };
    timer = setInterval(next, slow ? 900 : Math.max(120, Math.min(400, 6000 / most)));
    next();
  }

  // --- files

  function nameFiles() {
    const terms = model.termsNow();
    const name = terms.length > 1 ? `${terms.length} words` : terms[0]?.label ?? "";
    const short = name.length > 18 ? `${name.slice(0, 17)}…` : name;
    for (const [id, kind, file] of [["png", "overlay", "PNG"], ["npy", "map", "NPY"]]) {
      $(id).disabled = !terms.length;
      $(id).textContent = `Save ${kind}${name ? ` of ${short}` : ""} (${file})`;
    }
  }

  function save(blob, { side }, kind) {
    const [from, to] = model.stepsNow();
    const parts = [
      model.termsNow().map((term) => term.label).join(" "),
      model.pair() ? side : "",
      kind === "png" ? state.scale : "",
      model.refined() ? "refined" : "",
      model.layersNow() === "all" ? "" : model.layersText(),
      !model.stepping() ? "" : to - from === 1 ? `step ${from}` : `steps ${from}-${to - 1}`,
      model.headNow() < 0 ? "" : model.headsText(),
      state.native ? "native" : "",
    ];
    const name = parts.filter(Boolean).join(" ").replace(/[^\p{L}\p{M}\p{N}]+/gu, "-").replace(/^-|-$/g, "");
    const link = make("a", { href: URL.createObjectURL(blob), download: `${name.slice(0, 120) || "map"}.${kind}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  }

  function savePng() {
    for (const figure of pictures.figures().filter(({ heats }) => heats.length)) {
      const canvas = make("canvas", { width: figure.canvas.width, height: figure.canvas.height });
      canvas.getContext("2d").drawImage(figure.canvas, 0, 0);
      for (const heat of state.outline ? figure.heats : []) {
        drawing.ink(canvas, model.outlineOf(heat), figure.heats.length > 1 ? `rgb(${heat.hue.join(" ")})` : "#fff");
      }
      canvas.toBlob((blob) => save(blob, figure, "png"), "image/png");
    }
  }

  function saveNpy() {
    for (const figure of pictures.figures().filter(({ heats }) => heats.length)) {
      const [{ w, h }] = figure.heats;
      const numbers = figure.heats.flatMap(({ plane }) => [...plane]);
      const shape = [...(figure.heats.length > 1 ? [figure.heats.length] : []), h, w].join(", ");
      let head = `{'descr': '<f4', 'fortran_order': False, 'shape': (${shape}), }`;
      head = `${head.padEnd(Math.ceil((head.length + 11) / 64) * 64 - 11)}\n`;
      const magic = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, head.length & 255, head.length >> 8];
      const little = new DataView(new ArrayBuffer(4 * numbers.length));
      numbers.forEach((number, i) => little.setFloat32(4 * i, number, true));
      save(new Blob([Uint8Array.from(magic), head, little]), figure, "npy");
    }
  }

  build();
  model.listen((changes) => changes.playing === false && stop());
  model.listen(draw, "hover", "point", "place", "pins", "bare");
  model.listen(nameFiles, "point", "place");
  draw();
}
