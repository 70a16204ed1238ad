/* The controls, in line with what is chosen and with what the tables can tell. */

function option(value, text, title) {
  const one = make("option", { value, textContent: text });
  if (title) one.title = title;
  return one;
}

function buildControls() {
  const view = mainView();
  const single = view.layers.map((layer, i) =>
    option(`layer ${i}`, `${layer.short} · ${layer.grid[1]}×${layer.grid[0]}`, layer.name),
  );
  const groups = [...new Set(view.layers.map((layer) => layer.group))].filter(Boolean);
  const grids = [...new Set(view.layers.map((layer) => `${layer.grid[1]}×${layer.grid[0]}`))];
  const set = (label, options) => {
    const one = make("optgroup", { label });
    one.append(...options);
    return one;
  };
  $("layers").replaceChildren(
    option("all", "all layers"),
    ...(groups.length // a transformer has none
      ? [set("groups", groups.map((group) => option(`group ${group}`, `${group} layers`)))]
      : []),
    set("by grid", grids.map((grid) => option(`grid ${grid}`, `all of ${grid}`))),
    set("single layers", single),
  );
  const heads = Array.from({ length: view.heads }, (_, i) => option(String(i), `head ${i}`));
  $("head").replaceChildren(option("-1", "all heads"), ...heads);
  for (const axis of ["layer", "step", "head"]) {
    const there = view.keep.includes(axis) && (axis !== "step" || view.steps > 1);
    document.querySelector(`[data-axis=${axis}]`).hidden = !there;
  }
  $("negative-row").hidden = !runsNow().some((run) => data.runs[run].views.some(({ name }) => name === "negative"));
  showControls();
}

/** Bring the controls in line with what is selected, and with what the tables can tell. */
function showControls() {
  const can = (changes) => viewsNow().every((view) => view.source(selection(changes)));
  if (!can({})) Object.assign(state, { layers: "all", steps: null, head: -1 });
  for (const one of $("layers").querySelectorAll("option")) one.disabled = !can({ layers: one.value });
  for (const one of $("head").options) one.disabled = !can({ head: Number(one.value) });
  $("layers").value = layersNow();
  $("head").value = String(headNow());
  $("maps-row").hidden = !refinable();
  $("maps").value = refined() ? "refined" : "read";
  showWhole();
  $("scale").value = state.scale;
  $("scale").querySelector("[value=raw]").textContent = anySigned() ? "raw, −1 to 1" : "raw probability, 0 to 1";
  renderSteps();
  for (const id of ["outline", "native", "specials", "negative", "together", "underlay", "captioned"]) $(id).checked = state[id];
  $("colours").value = state.colours;
  $("threshold").value = String(Math.round(100 * state.threshold));
  $("together").disabled = refined() || !["shared", "word"].includes(state.scale);
  $("underlay").disabled = refined();
  $("underlay-row").hidden = !runsNow().some((run) => data.runs[run].steps);
  $("opacity").value = String(Math.round(state.opacity * 100));
  $("opacity").setAttribute("aria-valuetext", percent(state.opacity));
  $("threshold").disabled = !state.outline;
  $("threshold").setAttribute("aria-valuetext", percent(state.threshold));
  $("threshold-said").textContent = percent(state.threshold);
  $("held").textContent = held().join(" ");
  $("held").hidden = !$("held").textContent;
}

/** Refined maps are of the whole run: say so, where layers, steps and heads are chosen else. */
function showWhole() {
  const whole = refined();
  $("whole").hidden = !whole;
  for (const row of document.querySelectorAll("[data-axis]")) {
    row.classList.toggle("idle", whole);
    for (const one of row.querySelectorAll("select")) one.disabled = whole;
    const described = row.querySelector("select") || row;
    const help = row.dataset.axis === "step" ? "steps-help" : "";
    described.setAttribute("aria-describedby", whole ? "whole" : help);
  }
}

/** What this page cannot tell apart, and why. */
function held() {
  const lines = [];
  const view = mainView();
  const averaged = ["layer", "step", "head"].filter((axis) => !view.keep.includes(axis));
  if (averaged.length) {
    const names = averaged.map((axis) => `${axis}s`).join(" and ");
    lines.push(`Not kept in this run: ${names} (recorded as their mean).`);
  }
  const bounds = stepBounds();
  if (view.keep.includes("step") && view.steps > 1 && !refined()) {
    const [, first] = bounds;
    if (first === view.steps) lines.push("For this choice this page holds all steps together.");
    else if (first > 1) lines.push(`This page holds steps in means of ${first}: ranges begin and end with these.`);
  }
  if (view.keep.includes("step") && view.steps > 1 && !runsNow().every((run) => data.runs[run].steps)) {
    lines.push("The pictures of the steps were not kept: the finished one lies beneath each.");
  }
  const [from, to] = stepsNow();
  if (state.steps && !refined() && (from < state.steps[0] || to > state.steps[1])) {
    lines.push(`Of the steps that were chosen it cannot show less than ${stepsSaid()}.`);
  }
  const offered = ["layers", "head"].filter((id) => !$(id).closest(".row").hidden);
  const choices = offered.flatMap((id) => [...$(id).options]);
  if (choices.some((one) => one.disabled) && !refined()) {
    lines.push("What is greyed out is held for all steps or heads together only.");
  }
  if (state.outline) lines.push(...masksHeld());
  if (data.runs.some((run) => !run.exact)) lines.push("Pictures are compressed for this page.");
  return lines;
}

/** How finely the masks are held that outlines are drawn around. */
function masksHeld() {
  if (viewsNow().some((view) => view.refined && !view.masks && view.words.length)) {
    return ["The words’ masks did not fit into this page: outlines are of the heat itself."];
  }
  const [w, h] = mainView().masks?.cells ?? [];
  return w < data.runs[runsNow()[0]].size[0] ? [`This page holds masks at ${w}×${h} pixels.`] : [];
}

function changed(changes) {
  Object.assign(state, changes);
  showControls();
  render();
  renderPoint();
}

function bindControls() {
  const on = (id, event, act) => $(id).addEventListener(event, () => act($(id)));
  on("scale", "change", (e) => changed({ scale: e.value }));
  on("maps", "change", (e) => {
    stopPlaying();
    changed({ maps: e.value });
    announce(e.value === "refined" ? `${chosenSaid()}.` : `Maps as read: ${chosenSaid()}.`);
  });
  on("layers", "change", (e) => changed({ layers: e.value }));
  on("head", "change", (e) => changed({ head: Number(e.value) }));
  on("opacity", "input", (e) => changed({ opacity: Number(e.value) / 100 }));
  on("colours", "change", (e) => changed({ colours: e.value }));
  on("outline", "change", (e) => changed({ outline: e.checked }));
  on("threshold", "input", (e) => changed({ threshold: Number(e.value) / 100 }));
  on("captioned", "change", (e) => changed({ captioned: e.checked }));
  on("together", "change", (e) => changed({ together: e.checked }));
  on("underlay", "change", (e) => changed({ underlay: e.checked }));
  on("native", "change", (e) => changed({ native: e.checked }));
  for (const [id, lost] of [["specials", isSpecial], ["negative", (pin) => viewOf(pin).name === "negative"]]) {
    on(id, "change", (e) => {
      state[id] = e.checked;
      if (!e.checked) state.pins = state.pins.filter((pin) => !lost(pin));
      state.hover = state.last = null;
      buildPrompts();
      changed({});
      nameDownloads();
    });
  }
  bindSteps();
  bindCurve();
  $("matrix").addEventListener("toggle", () => renderOverview());
  on("png", "click", () => keepPng());
  on("npy", "click", () => keepNpy());
  $("colours").append(...Object.keys(tables).map((name) => option(name, name)));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    Object.assign(state, { pins: [], rest: null, last: null, bare: true, place: null });
    pointAt(null);
    pinsChanged();
  });
}

const isSpecial = (pin) =>
  pin.entries.some((i) => data.runs[pin.run].views[pin.view].entries[i].kind !== "word");
