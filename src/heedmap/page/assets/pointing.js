/* The point in the picture, and the words that acted there. */

function pointAt(x, y, aloud = false) {
  const inside = (part) => Math.min(0.9999, Math.max(0, part));
  state.point = x === null ? null : [inside(x), inside(y)];
  renderPoint();
  if (aloud && state.point) {
    const words = actingAt(runsNow().at(-1), 0).slice(0, 3);
    const list = words.map(({ text, share }) => `${text} ${percent(share)}`).join(", ");
    announce(`${percent(state.point[0])} across, ${percent(state.point[1])} down: ${list}.`);
  }
}

/** Keep the place that is pointed at, until another is. */
function holdPlace() {
  state.place = state.point;
  renderPoint();
  keepLink();
}

const total = (rows) => rows.reduce((sum, { value }) => sum + Math.abs(value), 0);

/** What acted at the point in a run's picture: the largest magnitude first. */
function actingAt(run, v) {
  const place = placeNow();
  const maps = place && mapsOf(run, v);
  if (!maps) return [];
  const view = data.runs[run].views[v];
  const [x, y] = place;
  const at = Math.floor(y * maps.h) * maps.w + Math.floor(x * maps.w);
  const rows = view.entries.flatMap((entry, i) =>
    entry.kind === "word" || state.specials
      ? [{ entry: i, text: entry.text, kind: entry.kind, value: maps.planes[i][at] }]
      : [],
  );
  const sum = total(rows);
  for (const row of rows) row.share = sum > 0 ? Math.abs(row.value) / sum : 0;
  return rows.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
}

function renderPoint() {
  const [head, hint, box, help] = $("reading").children;
  head.lastElementChild.textContent = `share · ${valueSaid()}`;
  const beside = runsNow().some((run) => viewsShown(run).some((v) => viewOf({ run, view: v }).name === "concepts"));
  const none = beside ? "; what was looked for beside it has none" : "";
  help.textContent = `Share: of what all words of the prompt draw there together${none}. ${VALUES[valueSaid()]}`;
  const place = placeNow();
  hint.textContent = placeSaid();
  for (const figure of shown.figures) {
    figure.cross.style.display = place ? "" : "none";
    if (!place) continue;
    const [x, y] = place.map((part) => 100 * part);
    const [rx, ry] = [2.2, (2.2 * figure.canvas.width) / figure.canvas.height];
    figure.cross.setAttribute("class", state.point ? "" : "ring");
    const ring = `M${x - rx} ${y}a${rx} ${ry} 0 1 0 ${2 * rx} 0a${rx} ${ry} 0 1 0 ${-2 * rx} 0`;
    for (const line of figure.cross.children) {
      line.setAttribute("d", state.point ? `M${x} 0V100M0 ${y}H100` : ring);
    }
  }
  renderExplaining();
  keepRoom(box, !place);
  help.classList.toggle("unseen", !place);
  for (const { button } of shown.chips) button.style.setProperty("--lit", "0");
  if (!place) {
    box.replaceChildren();
    return;
  }
  const pair = pairNow();
  const lists = runsNow().flatMap((run, n) =>
    viewsShown(run).map((v) => {
      const rows = actingAt(run, v);
      const view = viewOf({ run, view: v });
      const own = view.name !== "concepts";
      // What was looked for is no part of the prompt, beside whose strongest word it is seen.
      const beside = own ? [] : actingAt(run, 0);
      const most = Math.max(...[...rows, ...beside].map(({ value }) => Math.abs(value)), 1e-9);
      for (const { button, term } of shown.chips) {
        if (term.run !== run || term.view !== v) continue;
        const row = rows.find(({ entry }) => entry === term.entries[0]);
        if (row) button.style.setProperty("--lit", String(Math.abs(row.value) / most));
      }
      const name = v ? nameOf(view, n) : pair ? Object.values(SIDES)[n] : "";
      const title = name ? [make("h3", { textContent: name })] : [];
      return make("div", {}, ...title, make("ol", {}, ...rows.slice(0, pair ? 5 : 8).map((row) => readingRow(row, own ? null : total(beside)))));
    }),
  );
  box.replaceChildren(...lists);
}

/** What the number beside a share is. */
const valueSaid = () => (refined() ? "refined" : anySigned() ? "signed weight" : "probability");
const VALUES = {
  "signed weight": "Signed weight: the probability times the word's weight, below 0 where that weight is negative.",
  probability: "Probability: of all that the place attends to; the rest goes to tokens that are no words, such as the padding.",
  refined: "Refined: the mean of what the places have that this place attends to in the picture.",
};

/** Which place is read. */
function placeSaid() {
  if (state.point) return "Click to keep this place.";
  if (state.place) return "At the ring, where you clicked. Point elsewhere for another place.";
  const [term] = termsNow();
  if (!term) return "Point at the picture, or focus it and use the arrow keys: the words that acted there are listed.";
  const most = hottestNow();
  if (!most && heatOf(term, term.run)) return `“${term.label}” acts nowhere in what is shown. Point at the picture to see which words do.`;
  const side = (run) => `in the ${Object.values(SIDES)[runsNow().indexOf(run)].toLowerCase()}`;
  const other = most && most.run !== term.run ? ` ${side(most.run)}; ${side(term.run)} it acts nowhere` : "";
  return `At the ring, where “${term.label}” ${located() ? "is seen" : "acts"} most${other}. Point at the picture for another place.`;
}

/** A word's share and value; what has no share is on the scale of `beside`, what the prompt's words draw. */
function readingRow({ text, share, value }, beside) {
  const bar = make("span", { className: "bar" });
  const part = beside === null ? share : Math.min(1, Math.abs(value) / Math.max(beside, 1e-9));
  bar.style.setProperty("--part", String(part));
  return make(
    "li",
    {},
    make("bdi", { textContent: text }),
    bar,
    make("span", { className: "share", textContent: beside === null ? percent(share) : "" }),
    make("span", { className: "value", textContent: number(value), title: valueSaid() }),
  );
}

function movePoint(event, run) {
  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const move = moves[event.key];
  if (!move) return;
  event.preventDefault();
  const { cells: [w, h] } = data.runs[run].views[0];
  const [x, y] = placeNow() || [0.5, 0.5];
  const far = event.shiftKey ? 8 : 1;
  pointAt(x + (move[0] * far) / w, y + (move[1] * far) / h, true);
}
