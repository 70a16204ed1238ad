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
  const sum = rows.reduce((total, row) => total + Math.abs(row.value), 0);
  for (const row of rows) row.share = sum > 0 ? Math.abs(row.value) / sum : 0;
  return rows.sort((a, b) => b.share - a.share);
}

function renderPoint() {
  const [head, hint, box, help] = $("reading").children;
  head.lastElementChild.textContent = `share · ${valueSaid()}`;
  help.textContent = `Share: of what all words draw there together. ${VALUES[valueSaid()]}`;
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
      const most = rows.length ? Math.max(rows[0].share, 1e-9) : 1;
      for (const { button, term } of shown.chips) {
        if (term.run !== run || term.view !== v) continue;
        const row = rows.find(({ entry }) => entry === term.entries[0]);
        if (row) button.style.setProperty("--lit", String(row.share / most));
      }
      const view = viewOf({ run, view: v });
      const name = v ? nameOf(view, n) : pair ? Object.values(SIDES)[n] : "";
      const title = name ? [make("h3", { textContent: name })] : [];
      return make("div", {}, ...title, make("ol", {}, ...rows.slice(0, pair ? 5 : 8).map(readingRow)));
    }),
  );
  box.replaceChildren(...lists);
}

/** What the number beside a share is. */
const valueSaid = () => (refined() ? "refined" : "probability");
const VALUES = {
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

function readingRow({ text, share, value }) {
  const bar = make("span", { className: "bar" });
  bar.style.setProperty("--part", String(share));
  return make(
    "li",
    {},
    make("bdi", { textContent: text }),
    bar,
    make("span", { className: "share", textContent: percent(share) }),
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
