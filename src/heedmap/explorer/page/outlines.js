/* Where a map reaches a level: as lines over the picture, and inked into one. */

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

/** Around what `HeatMap.mask` has: a word acts as much below 0 as above it. */
function outlineOf(heat) {
  const acted = heat.plane.map(Math.abs);
  const [low, high] = span(acted);
  if (high <= low) return "";
  const level = low + state.threshold * (high - low);
  return (state.native ? stairs : contour)(acted, heat.w, heat.h, level);
}

function drawOutlines(figure, heats) {
  figure.outlines.replaceChildren();
  for (const heat of heats) {
    const path = outlineOf(heat);
    const scale = `scale(${100 / heat.w} ${100 / heat.h})`;
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
  const scale = new DOMMatrix([pen.canvas.width / heat.w, 0, 0, pen.canvas.height / heat.h, 0, 0]);
  line.addPath(new Path2D(outlineOf(heat)), scale);
  pen.lineCap = "round";
  const thin = Math.max(1, pen.canvas.width / 320);
  for (const [colour, width] of [["#000", 3 * thin], [`rgb(${hue.join(" ")})`, 1.5 * thin]]) {
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.stroke(line);
  }
}
