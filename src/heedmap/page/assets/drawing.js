/* Heat over a picture as heedmap.figures draws it; outlines; differences of pictures. */

const drawing = (() => {
  const { resize, spreadCells, span } = maps;

  /** The part of a range's greatest value that is rounding, as in Python. */
  const ROUNDING = 1e-5;
  /** Return what a distance from `low` is multiplied by: 0 if the range is no more than rounding. */
  const contrast = (low, high) =>
    high - low > ROUNDING * Math.max(Math.abs(low), Math.abs(high)) ? 1 / (high - low) : 0;

  /** Widen a scale until 0 is its middle, unless it has no contrast. */
  function centred(low, high) {
    const most = Math.max(-low, high);
    return contrast(low, high) ? [-most, most] : [low, high];
  }

  function resizePixels(pixels, w, h, W, H, filter) {
    if (w === W && h === H) return pixels;
    const out = new Uint8ClampedArray(W * H * 4).fill(255);
    for (let c = 0; c < 3; c++) {
      const channel = Float32Array.from({ length: w * h }, (_, i) => pixels[4 * i + c]);
      resize(channel, w, h, W, H, filter, true).forEach((value, i) => (out[4 * i + c] = value));
    }
    return out;
  }

  async function readImage(url) {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight);
    const pen = canvas.getContext("2d", { willReadFrequently: true });
    pen.drawImage(image, 0, 0);
    return pen.getImageData(0, 0, canvas.width, canvas.height);
  }

  /** A picture that heat can be laid over: RGBA pixels of (h, w). */
  class Picture {
    constructor(pixels, w, h) {
      Object.assign(this, { pixels, w, h });
    }

    /** Make a picture of at least 256 pixels on the short side. */
    static enlarged({ data, width, height }) {
      const times = Math.ceil(256 / Math.min(width, height));
      const [w, h] = [width * times, height * times];
      return new Picture(resizePixels(data, width, height, w, h, "lanczos"), w, h);
    }

    /** Return a smaller picture, of at most `side` pixels on the short side. */
    shrunk(side) {
      const part = Math.min(1, side / Math.min(this.w, this.h));
      const [w, h] = [Math.round(this.w * part), Math.round(this.h * part)];
      return new Picture(resizePixels(this.pixels, this.w, this.h, w, h, "bilinear"), w, h);
    }

    /** Return the picture as it lies under heat: RGB as floats. */
    dimmed(opacity, grey, look) {
      const key = `${opacity} ${grey}`;
      if (this.under?.key === key) return this.under.base;
      const base = new Float32Array(this.w * this.h * 3);
      const part = Math.min(1, opacity / look.opacity);
      for (let i = 0, j = 0; j < base.length; i += 4, j += 3) {
        const light = 0.299 * this.pixels[i] + 0.587 * this.pixels[i + 1] + 0.114 * this.pixels[i + 2];
        for (let c = 0; c < 3; c++) {
          const own = this.pixels[i + c];
          base[j + c] = own + ((own + (light - own) * grey) * look.light - own) * part;
        }
      }
      this.under = { key, base };
      return base;
    }
  }

  /** Lay heats {plane, w, h, low, high, native, hue} over a picture, into an ImageData of its size:
      one in the colours of a table, several each in its own hue, mixed by their values. */
  function overlay(picture, heats, { opacity, colours, signed, look }, out) {
    if (!heats.length) {
      out.data.set(picture.pixels);
      return;
    }
    const { w: W, h: H } = picture;
    const one = heats.length === 1;
    const base = picture.dimmed(opacity, one ? look.grey : look.grey_several, look);
    const layers = heats.map(({ plane, w, h, low, high, native, hue }) => {
      const unit = contrast(low, high);
      const scaled = plane.map((value) => (unit || low >= 0 ? (value - low) * unit : 0.5));
      const even = Uint8Array.from({ length: 768 }, (_, i) => hue[i % 3]);
      return {
        values: (native ? spreadCells : resize)(scaled, w, h, W, H),
        below: low < 0,
        table: one ? (low < 0 ? signed : colours) : even,
      };
    });
    const pixels = new Uint32Array(out.data.buffer);
    for (let i = 0, j = 0; i < pixels.length; i++, j += 3) {
      let clear = 1, sum = 0, r = 0, g = 0, b = 0; // this loop is hot
      for (let n = 0; n < layers.length; n++) {
        const layer = layers[n];
        const hot = layer.values[i];
        const value = hot > 0 ? (hot < 1 ? hot : 1) : 0;
        const cover = opacity * (layer.below ? Math.abs(2 * value - 1) : value);
        const from = 3 * ((value * 255 + 0.5) | 0);
        const { table } = layer;
        clear *= 1 - cover;
        sum += cover;
        r += cover * table[from];
        g += cover * table[from + 1];
        b += cover * table[from + 2];
      }
      const mix = sum > 0 ? (1 - clear) / sum : 0;
      r = base[j] * clear + r * mix + 0.5;
      g = base[j + 1] * clear + g * mix + 0.5;
      b = base[j + 2] * clear + b * mix + 0.5;
      pixels[i] = 0xff000000 | (b << 16) | (g << 8) | r;
    }
  }

  /** Return the colours of a map (h, w) on a scale, as an ImageData. */
  function coloured(plane, w, h, low, high, table) {
    const image = new ImageData(w, h);
    const unit = contrast(low, high);
    plane.forEach((value, i) => {
      const from = 3 * Math.round(Math.min(1, Math.max(0, (value - low) * unit)) * 255);
      image.data.set([table[from], table[from + 1], table[from + 2], 255], 4 * i);
    });
    return image;
  }

  /** Return the mean difference of two pictures at each pixel, coloured, and the largest. */
  function difference(before, after, table) {
    const size = Float64Array.from({ length: before.width * before.height }, (_, i) => {
      let sum = 0;
      for (let c = 4 * i; c < 4 * i + 3; c++) sum += Math.abs(before.data[c] - after.data[c]);
      return sum / 255 / 3;
    });
    const most = Math.max(1 / 255, span(size)[1]);
    return { image: coloured(size, before.width, before.height, 0, most, table), most };
  }

  /** Return a picture that is dark outside of a mask. */
  function inside(picture, mask) {
    const pixels = picture.data.map((value, i) => (i % 4 === 3 || mask.data[i - (i % 4)] > 127 ? value : value / 4));
    return new ImageData(pixels, picture.width, picture.height);
  }

  /** Return the line at which a map reaches a level: an SVG path in its cells, 0 to w and 0 to h. */
  function contour(plane, w, h, level) {
    const clamp = (value, most) => Math.min(most, Math.max(0, value));
    const at = (x, y) => plane[clamp(y, h - 1) * w + clamp(x, w - 1)] - level;
    const put = (x, y) => `${clamp(x, w).toFixed(2)} ${clamp(y, h).toFixed(2)}`;
    const path = [];
    for (let y = -1; y < h; y++) {
      for (let x = -1; x < w; x++) {
        const [a, b, c, d] = [at(x, y), at(x + 1, y), at(x + 1, y + 1), at(x, y + 1)];
        const crossings = []; // cell centres lie at half numbers; sides are top, right, bottom, left
        if (a >= 0 !== b >= 0) crossings.push(put(x + 0.5 + a / (a - b), y + 0.5));
        if (b >= 0 !== c >= 0) crossings.push(put(x + 1.5, y + 0.5 + b / (b - c)));
        if (d >= 0 !== c >= 0) crossings.push(put(x + 0.5 + d / (d - c), y + 1.5));
        if (a >= 0 !== d >= 0) crossings.push(put(x + 0.5, y + 0.5 + a / (a - d)));
        for (let i = 0; i + 1 < crossings.length; i += 2) path.push(`M${crossings[i]}L${crossings[i + 1]}`);
      }
    }
    return path.join("");
  }

  /** Draw an outline {path, w, h} onto a canvas. */
  function ink(canvas, { path, w, h }, hue) {
    const pen = canvas.getContext("2d");
    const line = new Path2D();
    line.addPath(new Path2D(path), new DOMMatrix([canvas.width / w, 0, 0, canvas.height / h, 0, 0]));
    pen.lineCap = "round";
    for (const [colour, width] of [["#000", 3], [hue, 1.5]]) {
      pen.strokeStyle = colour;
      pen.lineWidth = width * Math.max(1, canvas.width / 320);
      pen.stroke(line);
    }
  }

  return { contrast, centred, resizePixels, readImage, Picture, overlay, coloured, difference, inside, contour, ink };
})();
