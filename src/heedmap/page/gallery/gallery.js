/* The gallery of a sweep: images load, and their list grows, as one scrolls. */

const { runs, sorts } = JSON.parse(dom.$("data").textContent);
const PART = 100; // of the list that grows
const severalModels = new Set(runs.map(({ model }) => model)).size > 1;
let found = runs;

for (const run of runs) {
  run.caption = run.source === null ? run.prompt : `${run.source} → ${run.prompt}`;
  run.text = `${run.caption} ${run.task} ${run.model} seed:${run.seed} steps:${run.steps}`.toLowerCase();
}
dom.$("sort").append(...sorts.map(([value, textContent]) => dom.make("option", { value, textContent })));

function item({ page, image, width, height, caption, model, seed, ...run }) {
  const by = dom.$("sort").value;
  const value = by in { line: 0, prompt: 0, seed: 0 } ? "" : ` · ${dom.number(run[by] ?? NaN)}`;
  const picture = dom.make("img", { loading: "lazy", decoding: "async", width, height, alt: "", src: image });
  const note = dom.make("small", {}, `${severalModels ? `${model} · ` : ""}seed ${seed}${value}`);
  return dom.make("li", {}, dom.make("a", { href: page }, picture, dom.make("bdi", {}, caption), note));
}

/** Add a part to the list while its end is near. */
const end = new IntersectionObserver(([{ isIntersecting }]) => {
  const list = dom.$("list"), rest = found.slice(list.childElementCount);
  if (!isIntersecting || !rest.length) return;
  list.append(...rest.slice(0, PART).map(item));
  observe();
}, { rootMargin: "1200px" });

function observe() { // once more: the observer is called for changes alone
  end.disconnect();
  end.observe(dom.$("more"));
}

function show() {
  const words = dom.$("filter").value.toLowerCase().split(/\s+/);
  const by = dom.$("sort").value, sign = dom.$("down").checked ? -1 : 1;
  found = runs.filter(({ text }) => words.every((word) => text.includes(word)));
  const has = ({ [by]: value }) => (value === null ? 1 : 0); // what has no value comes last
  found.sort((a, b) => has(a) - has(b) || sign * (a[by] < b[by] ? -1 : a[by] > b[by] ? 1 : 0) || a.line - b.line);
  dom.$("count").textContent = `${found.length} of ${runs.length}`;
  dom.$("list").replaceChildren(...(found.length ? [] : [dom.make("li", { className: "none" }, "No result fits the filter.")]));
  observe();
}

for (const id of ["filter", "sort", "down"]) dom.$(id).addEventListener("input", show);
show();
