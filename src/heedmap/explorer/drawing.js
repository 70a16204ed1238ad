/* Pictures: heat over a picture as heedmap.pictures lays it, contours, files to keep. */

/** Enlarge bytes (h, w, 4) by a whole number with Pillow's Lanczos, down to its rounding. */
function enlarge(bytes, w, h, times) {
  if (times === 1) return bytes;
  const [W, H] = [w * times, h * times];
  const ONE = 2 ** 22;
  const pass = (from, along, lines, to, stride, line, outStride, outLine, out) => {
    const { first, count, weights, most } = resizeWeights(along, to, "lanczos");
    const whole = weights.map((weight) => Math.trunc(weight * ONE + Math.sign(weight) * 0.5));
    for (let l = 0; l < lines; l++) {
      for (let place = 0; place < to; place++) {
        for (let c = 0; c < 4; c++) {
          let sum = ONE / 2;
          for (let i = 0; i < count[place]; i++) {
            sum += from[l * line + (first[place] + i) * stride + c] * whole[place * most + i];
          }
          out[l * outLine + place * outStride + c] = Math.floor(sum / ONE); // clamped: 8 bits
        }
      }
    }
    return out;
  };
  const wide = pass(bytes, w, h, W, 4, w * 4, 4, W * 4, new Uint8ClampedArray(W * h * 4));
  return pass(wide, h, W, H, W * 4, 4, W * 4, 4, new Uint8ClampedArray(W * H * 4));
}

async function readPicture(link) {
  const image = new Image();
  image.src = link;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = image.naturalWidth;
  canvas.height = image.naturalHeight;
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.drawImage(image, 0, 0);
  return pen.getImageData(0, 0, canvas.width, canvas.height);
}

/** A picture at the size that heat is laid over it: 256 pixels on the short side at least. */
class Picture {
  constructor(data) {
    const times = Math.ceil(256 / Math.min(data.width, data.height));
    this.own = data;
    this.w = data.width * times;
    this.h = data.height * times;
    this.pixels = enlarge(data.data, data.width, data.height, times);
  }

  /** The picture dimmed as it lies under heat of an opacity, RGB as floats. */
  under(opacity, look, greyed) {
    const { dimmed } = this;
    if (dimmed && dimmed.opacity === opacity && dimmed.greyed === greyed) return dimmed.base;
    const base = new Float32Array(this.w * this.h * 3);
    const part = Math.min(1, opacity / look.opacity);
    for (let i = 0, j = 0; j < base.length; i += 4, j += 3) {
      const [r, g, b] = [this.pixels[i], this.pixels[i + 1], this.pixels[i + 2]];
      const grey = 0.299 * r + 0.587 * g + 0.114 * b;
      base[j] = r + ((r + (grey - r) * greyed) * look.light - r) * part;
      base[j + 1] = g + ((g + (grey - g) * greyed) * look.light - g) * part;
      base[j + 2] = b + ((b + (grey - b) * greyed) * look.light - b) * part;
    }
    this.dimmed = { opacity, greyed, base };
    return base;
  }
}

/** Heat from 0 to 1 for each pixel of a map that is resized to (H, W). */
function heatOver({ plane, w, h, low, high, native }, W, H) {
  const heat = (native ? spreadCells : resize)(plane, w, h, W, H);
  const unit = high > low ? 1 / (high - low) : 0;
  const own = heat === plane ? Float32Array.from(plane) : heat; // of one size: not the map itself
  for (let i = 0; i < own.length; i++) {
    const value = (own[i] - low) * unit;
    own[i] = value > 0 ? (value < 1 ? value : 1) : 0;
  }
  return own;
}

/** Lay heats over a picture: one in the colours of a colour map, several each in its own hue.
    A heat is {plane, w, h, low, high, native, hue}. Pointing at a word waits for this, so it is
    written for speed: four bytes of a pixel at once. */
function overlay(picture, heats, opacity, look, table) {
  const { w: W, h: H } = picture;
  const out = new ImageData(W, H);
  if (!heats.length) {
    out.data.set(picture.pixels);
    return out;
  }
  const pixels = new Uint32Array(out.data.buffer);
  const heat = heatOver(heats[0], W, H);
  if (heats.length === 1) {
    const base = picture.under(opacity, look, look.grey);
    for (let i = 0, j = 0; i < pixels.length; i++, j += 3) {
      const value = heat[i];
      const cover = opacity * value;
      const from = 3 * ((value * 255 + 0.5) | 0);
      const r = base[j] + (table[from] - base[j]) * cover;
      const g = base[j + 1] + (table[from + 1] - base[j + 1]) * cover;
      const b = base[j + 2] + (table[from + 2] - base[j + 2]) * cover;
      pixels[i] = 0xff000000 | ((b + 0.5) << 16) | ((g + 0.5) << 8) | (r + 0.5);
    }
    return out;
  }
  // Several hues are told apart more easily where the picture has hardly any.
  const base = picture.under(opacity, look, 0.9);
  const all = [heat, ...heats.slice(1).map((one) => heatOver(one, W, H))];
  const hues = heats.map((one) => one.hue);
  for (let i = 0, j = 0; i < pixels.length; i++, j += 3) {
    let clear = 1;
    let sum = 0;
    let r = 0;
    let g = 0;
    let b = 0;
    for (let n = 0; n < all.length; n++) {
      const cover = opacity * all[n][i];
      const hue = hues[n];
      clear *= 1 - cover;
      sum += cover;
      r += cover * hue[0];
      g += cover * hue[1];
      b += cover * hue[2];
    }
    const mix = sum > 0 ? (1 - clear) / sum : 0;
    r = base[j] * clear + r * mix;
    g = base[j + 1] * clear + g * mix;
    b = base[j + 2] * clear + b * mix;
    pixels[i] = 0xff000000 | ((b + 0.5) << 16) | ((g + 0.5) << 8) | (r + 0.5);
  }
  return out;
}

/** How much each pixel differs between two pictures of one size: 0 to the largest, as heat. */
function difference(before, after, table) {
  const a = before.own.data;
  const b = after.own.data;
  const size = new Float64Array(a.length / 4);
  let most = 1 / 255;
  for (let i = 0; i < size.length; i++) {
    for (let c = 0; c < 3; c++) size[i] += Math.abs(a[4 * i + c] - b[4 * i + c]) / 255 / 3;
    if (size[i] > most) most = size[i];
  }
  const out = new ImageData(before.own.width, before.own.height);
  size.forEach((value, i) => {
    const from = 3 * Math.round((value / most) * 255);
    out.data.set([table[from], table[from + 1], table[from + 2], 255], 4 * i);
  });
  return { image: out, most };
}

/** A picture with all darkened that lies outside of a mask. */
function inside(picture, mask) {
  const out = new ImageData(picture.own.width, picture.own.height);
  for (let i = 0; i < out.data.length; i += 4) {
    const light = mask.data[i] > 127 ? 1 : 0.25;
    for (let c = 0; c < 3; c++) out.data[i + c] = picture.own.data[i + c] * light;
    out.data[i + 3] = 255;
  }
  return out;
}

/** The line at which a map reaches a level, as an SVG path in the map's cells (0 to w, 0 to h).
    The border is held, as it is in the resized map. */
function contour(plane, w, h, level) {
  const at = (x, y) =>
    plane[Math.min(h - 1, Math.max(0, y)) * w + Math.min(w - 1, Math.max(0, x))] - level;
  const path = [];
  const put = (x, y) => `${Math.min(w, Math.max(0, x)).toFixed(2)} ${Math.min(h, Math.max(0, y)).toFixed(2)}`;
  for (let y = -1; y < h; y++) {
    for (let x = -1; x < w; x++) {
      const [a, b, c, d] = [at(x, y), at(x + 1, y), at(x + 1, y + 1), at(x, y + 1)];
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

/** Numbers as a NumPy file: float32, of any shape. */
function npyFile(numbers, shape) {
  const list = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
  let head = `{'descr': '<f4', 'fortran_order': False, 'shape': (${list}), }`;
  head = head.padEnd(Math.ceil((head.length + 11) / 64) * 64 - 11) + "\n";
  const file = new Uint8Array(10 + head.length + numbers.length * 4);
  file.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, head.length & 255, head.length >> 8]);
  for (let i = 0; i < head.length; i++) file[10 + i] = head.charCodeAt(i);
  const data = new DataView(file.buffer, 10 + head.length);
  numbers.forEach((value, i) => data.setFloat32(i * 4, value, true));
  return new Blob([file], { type: "application/octet-stream" });
}

function keepFile(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}
