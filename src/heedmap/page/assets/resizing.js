/* Numbers from the page's text, and resizing as Pillow does it. */

function bytesOf(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

async function inflated(text) {
  const packed = new Blob([bytesOf(text)]).stream();
  const stream = packed.pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/* --- resizing, as Pillow does it ------------------------------------------------------------- */

const FILTERS = {
  bilinear: { support: 1, at: (x) => Math.max(0, 1 - Math.abs(x)) },
  lanczos: {
    support: 3,
    at(x) {
      if (x <= -3 || x >= 3) return 0;
      if (x === 0) return 1;
      const angle = Math.PI * x;
      return (3 * Math.sin(angle) * Math.sin(angle / 3)) / (angle * angle);
    },
  },
};

const weightsSeen = new Map();

/** For each of `to` places the first of `from` cells that it reads, how many, and their weights. */
function resizeWeights(from, to, kind) {
  const key = `${from} ${to} ${kind}`;
  if (weightsSeen.has(key)) return weightsSeen.get(key);
  const filter = FILTERS[kind];
  const scale = from / to;
  const wide = Math.max(scale, 1); // where it shrinks, the filter covers what a place covers
  const support = filter.support * wide;
  const most = Math.ceil(support) * 2 + 1;
  const first = new Int32Array(to);
  const count = new Int32Array(to);
  const weights = new Float64Array(to * most);
  for (let place = 0; place < to; place++) {
    const centre = (place + 0.5) * scale;
    const low = Math.max(0, Math.trunc(centre - support + 0.5));
    const high = Math.min(from, Math.trunc(centre + support + 0.5));
    let sum = 0;
    for (let i = low; i < high; i++) {
      const weight = filter.at((i - centre + 0.5) / wide);
      weights[place * most + i - low] = weight;
      sum += weight;
    }
    for (let i = 0; i < high - low; i++) weights[place * most + i] /= sum;
    first[place] = low;
    count[place] = high - low;
  }
  const found = { first, count, weights, most };
  weightsSeen.set(key, found);
  return found;
}

/** The rows of a plane (h, w), each resized to W: (h, W). */
function widened(plane, w, h, W) {
  const { first, count, weights, most } = resizeWeights(w, W, "bilinear");
  const rows = new Float32Array(h * W);
  for (let y = 0; y < h; y++) {
    for (let x = 0; x < W; x++) {
      let sum = 0;
      const from = y * w + first[x];
      const at = x * most;
      for (let i = 0; i < count[x]; i++) sum += plane[from + i] * weights[at + i];
      rows[y * W + x] = sum;
    }
  }
  return rows;
}

/** One of the rows that `rows` (h, W) are resized to, into `out` from a place on. */
function mixRow(rows, W, down, y, out, to) {
  const at = y * down.most;
  const from = down.first[y] * W;
  if (down.count[y] <= 2) { // as it is wherever a map grows
    const one = down.weights[at];
    const two = down.count[y] === 2 ? down.weights[at + 1] : 0;
    const next = two ? from + W : from;
    for (let x = 0; x < W; x++) out[to + x] = rows[from + x] * one + rows[next + x] * two;
    return;
  }
  for (let x = 0; x < W; x++) {
    let sum = 0;
    for (let i = 0; i < down.count[y]; i++) sum += rows[from + i * W + x] * down.weights[at + i];
    out[to + x] = sum;
  }
}

/** Resize numbers (h, w) to (H, W) bilinearly. */
function resize(plane, w, h, W, H) {
  if (w === W && h === H) return plane;
  const rows = widened(plane, w, h, W);
  const down = resizeWeights(h, H, "bilinear");
  const out = new Float32Array(H * W);
  for (let y = 0; y < H; y++) mixRow(rows, W, down, y, out, y * W);
  return out;
}

/** Each place gets the cell it lies in: nothing is invented between cells. */
function spreadCells(plane, w, h, W, H) {
  const out = new Float32Array(W * H);
  for (let y = 0; y < H; y++) {
    const row = Math.floor(((y + 0.5) * h) / H) * w;
    for (let x = 0; x < W; x++) out[y * W + x] = plane[row + Math.floor(((x + 0.5) * w) / W)];
  }
  return out;
}

function span(plane) {
  let low = Infinity;
  let high = -Infinity;
  for (let i = 0; i < plane.length; i++) {
    if (plane[i] < low) low = plane[i];
    if (plane[i] > high) high = plane[i];
  }
  return [low, high];
}
