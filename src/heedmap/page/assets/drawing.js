/* Heat over a picture as heedmap.figures lays it, and how two pictures differ. */

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
  constructor(own, w, h, pixels) {
    Object.assign(this, { own, w, h, pixels });
  }

  static enlarged(own) {
    const times = Math.ceil(256 / Math.min(own.width, own.height));
    const [w, h] = [own.width * times, own.height * times];
    return new Picture(own, w, h, enlarge(own.data, own.width, own.height, times));
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

/** How far a range is varied over by rounding, by its greatest value, as in Python. */
const ROUNDING = 1e-5;
/** What a value's distance from the lowest is multiplied by: 0 where there is no more than rounding. */
const contrast = (low, high) =>
  high - low > ROUNDING * Math.max(Math.abs(low), Math.abs(high)) ? 1 / (high - low) : 0;

/** A scale widened until 0 is its middle, unless it has no contrast. */
const centred = (low, high) => {
  const most = Math.max(-low, high);
  return contrast(low, high) ? [-most, most] : [low, high];
};
/** How hot a place from 0 to 1 of a scale is: of one that begins below 0, by how far it is from the middle. */
const warmth = (place, low) => (low < 0 ? Math.abs(2 * place - 1) : place);

/** A function (y, line) that writes row y of a heat, 0 to 1, as it lies over a picture of (H, W).
    A heat is {plane, w, h, low, high, native, hue}. Scaled before it is resized, since there are
    fewer cells than pixels; clipped after it, as in Python. */
function heatRows({ plane, w, h, low, high, native }, W, H) {
  const unit = contrast(low, high);
  const scaled = plane.map((value) => (unit || low >= 0 ? (value - low) * unit : 0.5));
  const rows = native ? spreadCells(scaled, w, h, W, h) : widened(scaled, w, h, W);
  const down = native ? null : resizeWeights(h, H, "bilinear");
  const [least, most] = span(scaled); // between cells it is neither colder nor hotter
  return (y, line) => {
    if (native) {
      const from = Math.floor(((y + 0.5) * h) / H) * W;
      line.set(rows.subarray(from, from + W));
    } else {
      mixRow(rows, W, down, y, line, 0);
    }
    if (least >= 0 && most <= 1) return;
    for (let x = 0; x < W; x++) {
      const value = line[x];
      line[x] = value > 0 ? (value < 1 ? value : 1) : 0;
    }
  };
}

/** Lay heats over a picture, into an ImageData of its size: one in the colours of a colour map,
    several each in its own hue. Pointing at a word waits for this, so it goes row by row, in which
    nothing leaves the processor's cache, and writes the four bytes of a pixel at once. */
function overlay(picture, heats, opacity, look, table, out) {
  if (!heats.length) {
    out.data.set(picture.pixels);
    return;
  }
  const pixels = new Uint32Array(out.data.buffer);
  if (heats.length === 1) layOne(pixels, picture, heats[0], opacity, look, table);
  else laySeveral(pixels, picture, heats, opacity, look);
}

function layOne(pixels, picture, heat, opacity, look, unsigned) {
  const { w: W, h: H } = picture;
  const table = heat.low < 0 ? SIGNED : unsigned;
  const base = picture.under(opacity, look, look.grey);
  const row = heatRows(heat, W, H);
  const line = new Float32Array(W);
  for (let y = 0, i = 0, j = 0; y < H; y++) {
    row(y, line);
    for (let x = 0; x < W; x++, i++, j += 3) {
      const cover = opacity * warmth(line[x], heat.low);
      const from = 3 * ((line[x] * 255 + 0.5) | 0);
      const r = base[j] + (table[from] - base[j]) * cover;
      const g = base[j + 1] + (table[from + 1] - base[j + 1]) * cover;
      const b = base[j + 2] + (table[from + 2] - base[j + 2]) * cover;
      pixels[i] = 0xff000000 | ((b + 0.5) << 16) | ((g + 0.5) << 8) | (r + 0.5);
    }
  }
}

/** Where several words act, the mean of their hues by how much each acts; the picture shines
    through as if the heats lay one over the other, whichever is the first. */
function laySeveral(pixels, picture, heats, opacity, look) {
  const { w: W, h: H } = picture;
  const base = picture.under(opacity, look, look.grey_several);
  const rows = heats.map((heat) => heatRows(heat, W, H));
  const lines = heats.map(() => new Float32Array(W));
  const hues = heats.map((heat) => heat.hue);
  for (let y = 0, i = 0, j = 0; y < H; y++) {
    for (let n = 0; n < rows.length; n++) rows[n](y, lines[n]);
    for (let x = 0; x < W; x++, i++, j += 3) {
      let clear = 1;
      let sum = 0;
      let r = 0;
      let g = 0;
      let b = 0;
      for (let n = 0; n < lines.length; n++) {
        const cover = opacity * warmth(lines[n][x], heats[n].low);
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
  }
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

/** A picture that is darkened outside of a mask. */
function inside(picture, mask) {
  const out = new ImageData(picture.own.width, picture.own.height);
  for (let i = 0; i < out.data.length; i += 4) {
    const light = mask.data[i] > 127 ? 1 : 0.25;
    for (let c = 0; c < 3; c++) out.data[i + c] = picture.own.data[i + c] * light;
    out.data[i + 3] = 255;
  }
  return out;
}
