/* How much a word draws at each step: a mean over the picture, as a curve to choose steps from. */

const CURVE = { w: 320, h: 84, left: 4, right: 4, top: 6, bottom: 6 };

/** The mean probability of a term over the picture, at each window of the steps; null if unread. */
function meansOf(term) {
  const view = data.runs[term.run].views[term.view];
  return atEachStep(term.run, term.view, `mean ${term.entries}`, (maps) => {
    const plane = view.sum(maps, term.entries);
    return plane.reduce((sum, value) => sum + value, 0) / plane.length;
  });
}

function renderCurve() {
  const bounds = stepBounds();
  const there = bounds.length > 2 && !document.querySelector("[data-axis=step]").hidden;
  const terms = there ? termsNow().slice(0, HUES.length) : [];
  const curves = terms.flatMap((term) => {
    const means = meansOf(term);
    return means ? [{ term, means }] : [];
  });
  $("curve").hidden = !there;
  $("curve").classList.toggle("unseen", !curves.length);
  if (!curves.length) return;
  const { w, h, left, right, top, bottom } = CURVE;
  const steps = bounds.at(-1);
  const most = Math.max(0, ...curves.flatMap(({ means }) => means));
  const least = Math.min(0, ...curves.flatMap(({ means }) => means));
  const x = (step) => left + (step / steps) * (w - left - right);
  const y = (value) => h - bottom - ((value - least) / (most - least || 1)) * (h - top - bottom);
  const box = $("curve").querySelector("svg");
  const { from, to } = selection();
  const band = stepping()
    ? [makeSvg("rect", { class: "band", x: x(from), y: 0, width: x(to) - x(from), height: h })]
    : [];
  const base = makeSvg("path", { class: "base", d: `M0 ${y(0)}H${w}` });
  const lines = curves.flatMap(({ term, means }) => {
    const d = means.map((value, i) => `${i ? "L" : "M"}${x((bounds[i] + bounds[i + 1]) / 2).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    const hue = curves.length > 1 ? term.hue : "currentColor";
    return [makeSvg("path", { class: "line", d, stroke: hue, "data-word": term.label })];
  });
  box.replaceChildren(...band, base, ...lines);
  const names = curves.map(({ term }) => `“${term.label}”`).join(", ");
  $("curve").querySelector("figcaption").textContent =
    `${names} over the ${steps} ${stepCalled()}s: mean over the picture, on a scale from ${number(least)} to ${number(most)}`;
}

function bindCurve() {
  $("curve").querySelector("svg").addEventListener("click", (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const bounds = stepBounds();
    const part = ((event.clientX - box.left) / box.width) * CURVE.w - CURVE.left;
    const step = (part / (CURVE.w - CURVE.left - CURVE.right)) * bounds.at(-1);
    const at = Math.max(0, bounds.findLastIndex((bound, i) => bound <= step && i < bounds.length - 1));
    stopPlaying();
    showSteps(at, at + 1, bounds);
    announce(stepsSaid());
  });
}
