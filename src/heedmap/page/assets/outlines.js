/* Where a mask or a map reaches a level: as lines over the picture, and inked into one. */

/** The line at which a map reaches a level, as an SVG path in the map's cells (0 to w, 0 to h).
    The border is held, as it is in the resized map. */
function contour(plane, w, h, level) {
  const at = (x, y) =>
    plane[Math.min(h - 1, Math.max(0, y)) * w + Math.min(w - 1, Math.max(0, x))] - level;
  const path = [];
  const put = (x, y) => `${Math.min(w, Math.max(0, x)).toFixed(2)} ${Math.min(h, Math.max(0, y)).toFixed(2)}`;
  for (let y = -1; y < h; y++) {
    for (let x = -1; x < w; x++) {
      const a = at(x, y);
      const b = at(x + 1, y);
      const c = at(x + 1, y + 1);
      const d = at(x, y + 1);
      if (a >= 0 === b >= 0 && b >= 0 === c >= 0 && c >= 0 === d >= 0) continue;
      const crossings = [];
      // Cell centres lie at half numbers; sides in the order top, right, bottom, left.
      if (a >= 0 !== b >= 0) crossings.push(put(x + 0.5 + a / (a - b), y + 0.5));
      if (b >= 0 !== c >= 0) crossings.push(put(x + 1.5, y + 0.5 + b / (b - c)));
      if (d >= 0 !== c >= 0) crossings.push(put(x + 0.5 + d / (d - c), y + 1.5));
      if (a >= 0 !== d >= 0) crossings.push(put(x + 0.5, y + 0.5 + a / (a - d)));
      for (let i = 0; i + 1 < crossings.length; i += 2) {
        path.push(`M${crossings[i]}L${crossings[i + 1]}`);
      }
    }
  }
  return path.join("");
}

/** The same along the sides of cells: no line where there was no number. */
function stairs(plane, w, h, level) {
  const hot = (x, y) => x >= 0 && y >= 0 && x < w && y < h && plane[y * w + x] >= level;
  const path = [];
  for (let y = 0; y < h; y++) {
    for (let x = 0; x < w; x++) {
      if (x && hot(x, y) !== hot(x - 1, y)) path.push(`M${x} ${y}V${y + 1}`);
      if (y && hot(x, y) !== hot(x, y - 1)) path.push(`M${x} ${y}H${x + 1}`);
    }
  }
  return path.join("");
}

/** What `HeatMap.soft_mask` has of a heat's words, {plane, w, h}, made by Python; null where that is
    cut from the heat alone: of some layers, steps or heads, of a share, of tokens that are no words,
    and where the page has no masks. Of several phrases it is the greatest. */
function softMask({ of: { run, v, entries } }) {
  const { masks } = data.runs[run].views[v];
  if (!masks || !wholeRun() || state.scale === "content") return null;
  const own = entries.map((entry) => masks.of[entry]);
  if (own.some((planes) => !planes.length)) return null;
  const every = [...new Set(own.flat())];
  const phrases = every.filter((number) => number < masks.phrases);
  const found = masks.maps({ layers: "all", from: 0, to: 1, head: -1, native: true });
  if (!found) return { plane: [0], w: 1, h: 1 }; // not read yet: no outline
  const planes = (phrases.length ? phrases : every).map((number) => found.planes[number]);
  const plane = planes.reduce((most, one) => most.map((value, i) => Math.max(value, one[i])));
  return { plane, w: found.w, h: found.h };
}

/** The outline of a heat, {path, w, h}: around what `HeatMap.mask` has at the threshold. */
function outlineOf(heat) {
  const mask = softMask(heat);
  if (!mask) return { path: ownOutline(heat), w: heat.w, h: heat.h };
  const { plane, w, h } = mask;
  return { path: contour(plane, w, h, state.threshold), w, h };
}

/** Around where the heat itself is strong: a word acts as much below 0 as above it. */
function ownOutline(heat) {
  const acted = heat.plane.map(Math.abs);
  const [low, high] = span(acted);
  if (!contrast(low, high)) return "";
  const level = low + state.threshold * (high - low);
  return (state.native ? stairs : contour)(acted, heat.w, heat.h, level);
}

function drawOutlines(figure, heats) {
  figure.outlines.replaceChildren();
  for (const heat of heats) {
    const { path, w, h } = outlineOf(heat);
    const scale = `scale(${100 / w} ${100 / h})`;
    const hue = heats.length > 1 ? `rgb(${heat.hue.join(" ")})` : "#fff";
    for (const [kind, colour] of [["casing", "#000"], ["line", hue]]) {
      figure.outlines.append(
        makeSvg("path", { d: path, transform: scale, class: kind, stroke: colour }),
      );
    }
  }
}

function inkOutline(pen, heat, hue) {
  const line = new Path2D();
  const { path, w, h } = outlineOf(heat);
  const scale = new DOMMatrix([pen.canvas.width / w, 0, 0, pen.canvas.height / h, 0, 0]);
  line.addPath(new Path2D(path), scale);
  pen.lineCap = "round";
  const thin = Math.max(1, pen.canvas.width / 320);
  for (const [colour, width] of [["#000", 3 * thin], [`rgb(${hue.join(" ")})`, 1.5 * thin]]) {
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.stroke(line);
  }
}

/** What the outlines are of, in the words of the legend; `several` says whether there are some. */
function outlineSaid(heats, several) {
  const at = percent(state.threshold);
  const own = heats.filter((heat) => !softMask(heat));
  if (!own.length) return several ? `outlines: their masks at ${at}` : `outline: its mask at ${at}`;
  const alone = `where the heat itself reaches ${at} of its range`;
  if (own.length === heats.length) return `${several ? "outlines" : "outline"}: ${alone}`;
  const names = [...new Set(own.map(({ term }) => `“${term.label}”`))].join(", ");
  return `outlines: masks at ${at}; of ${names} ${alone}`;
}
