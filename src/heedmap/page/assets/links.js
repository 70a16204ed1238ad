/* The link: what is pinned and chosen stands behind the page's address, and is read from there. */

const LINKED = {
  scale: "scale", maps: "maps", layers: "layers", head: "head", opacity: "opacity", colours: "colours",
  threshold: "threshold", mode: "mode", pair: "edit",
};
const TICKED = ["outline", "native", "specials", "negative", "together", "underlay", "captioned"];
const usual = structuredClone(Object.fromEntries(
  [...Object.keys(LINKED), ...TICKED].map((name) => [name, state[name]]),
));

function linkNow() {
  const said = new URLSearchParams();
  for (const [name, key] of Object.entries(LINKED)) {
    if (state[name] !== usual[name]) said.set(key, String(state[name]));
  }
  for (const name of TICKED) if (state[name] !== usual[name]) said.set(name, state[name] ? "1" : "0");
  if (state.steps) said.set("steps", state.steps.join("-"));
  for (const { run, view, entries } of state.pins) {
    said.append("pin", [runsNow().indexOf(run), view, entries[0], entries.at(-1)].join("."));
  }
  if (state.place) said.set("at", state.place.map((part) => part.toFixed(4)).join(","));
  if (!state.rest) said.set("bare", "1");
  return said.toString();
}

const linking = { timer: 0, kept: location.hash };

/** Bring the address in line with what is shown, not more often than browsers allow. One that has
    been typed or gone back to since is not written over: `followLink` is about to read it. */
function keepLink() {
  if (linking.timer) return;
  linking.timer = setTimeout(() => {
    linking.timer = 0;
    if (location.hash !== linking.kept) return;
    const said = linkNow();
    if (said === location.hash.slice(1)) return;
    try {
      history.replaceState(null, "", said ? `#${said}` : location.href.split("#")[0]);
      linking.kept = location.hash;
    } catch {
      // a page within a frame may have no address of its own
    }
  }, 250);
}

/** Show what another address of this page says; our own writing of it is told to nobody. */
function followLink() {
  addEventListener("hashchange", () => location.reload());
}

const within = (value, low, high) => Number.isFinite(value) && value >= low && value <= high;

/** Take what a link says; whatever of it this page has not is left as it is. */
function readLink() {
  const said = new URLSearchParams(location.hash.slice(1));
  const whole = (text) => (/^-?\d+$/.test(text || "") ? Number(text) : NaN);
  const decimal = (text) => (/^\d*\.?\d+$/.test(text || "") ? Number(text) : NaN);
  if (within(whole(said.get("edit")), 0, data.pairs.length - 1)) state.pair = whole(said.get("edit"));
  for (const name of TICKED) if (said.has(name)) state[name] = said.get(name) === "1";
  const view = mainView();
  if (said.get("maps") === "refined") state.maps = "refined";
  if (Object.hasOwn(SCALES, said.get("scale") || "")) state.scale = said.get("scale");
  if (Object.hasOwn(tables, said.get("colours") || "")) state.colours = said.get("colours");
  for (const name of ["opacity", "threshold"]) {
    if (within(decimal(said.get(name)), 0, 1)) state[name] = decimal(said.get(name));
  }
  if (within(whole(said.get("head")), 0, view.heads - 1)) state.head = whole(said.get("head"));
  if (said.has("layers") && view.chosen({ layers: said.get("layers"), head: -1 }).length) state.layers = said.get("layers");
  if (data.pairs.length && ["wipe", "difference", "blend"].includes(said.get("mode"))) state.mode = said.get("mode");
  const [from, to] = (said.get("steps") || "").split("-").map(whole);
  if (within(from, 0, view.steps - 1) && within(to, from + 1, view.steps)) state.steps = [from, to];
  const [x, y] = (said.get("at") || "").split(",").map(decimal);
  if (within(x, 0, 0.9999) && within(y, 0, 0.9999)) state.place = [x, y];
  state.bare = said.get("bare") === "1";
  for (const text of said.getAll("pin").slice(0, 16)) pinLinked(text.split(".").map(whole));
}

function pinLinked([n, v, first, last]) {
  const run = runsNow()[n];
  const view = run === undefined ? undefined : data.runs[run].views[v];
  if (!view || !within(first, 0, view.entries.length - 1) || !within(last, first, view.entries.length - 1)) return;
  if (!viewsShown(run).includes(v)) return;
  if (!state.specials && view.entries.slice(first, last + 1).some((entry) => entry.kind !== "word")) return;
  const [entry] = view.entries.slice(first);
  const plain = { run, view: v, entries: [first], label: entry.text };
  const term = first === last ? plain : phrase(plain, first, last);
  const free = HUES.filter((hue) => !state.pins.some((pin) => pin.hue === hue));
  state.pins.push({ ...term, hue: free[0] || HUES[state.pins.length % HUES.length] });
}
