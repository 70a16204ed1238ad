/* Heat maps of a run: computed from the tables of page/packing.py as heedmap.maps computes them. */

const maps = (() => {
  function bytesOf(text) {
    const raw = atob(text);
    const bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return bytes;
  }

  async function inflate(text) {
    const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  // --- resizing, as Pillow does it

  const sinc = (x) => (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x));
  const FILTERS = {
    bilinear: { support: 1, at: (x) => Math.max(0, 1 - Math.abs(x)) },
    lanczos: { support: 3, at: (x) => (Math.abs(x) < 3 ? sinc(x) * sinc(x / 3) : 0) },
  };
  const weightsCache = new Map();

  /** For each of `to` places: the first of `from` cells that it reads, how many, and their weights. */
  function weightsOf(from, to, kind) {
    const key = `${from} ${to} ${kind}`;
    if (weightsCache.has(key)) return weightsCache.get(key);
    const filter = FILTERS[kind];
    const scale = from / to;
    const stretch = Math.max(scale, 1); // a filter that shrinks covers all that a place covers
    const support = filter.support * stretch;
    const most = Math.ceil(support) * 2 + 1;
    const [first, count] = [new Int32Array(to), new Int32Array(to)];
    const weights = new Float64Array(to * most);
    for (let place = 0; place < to; place++) {
      const centre = (place + 0.5) * scale;
      const low = Math.max(0, Math.trunc(centre - support + 0.5));
      const high = Math.min(from, Math.trunc(centre + support + 0.5));
      let sum = 0;
      for (let i = low; i < high; i++) {
        sum += weights[place * most + i - low] = filter.at((i - centre + 0.5) / stretch);
      }
      for (let i = 0; i < high - low; i++) weights[place * most + i] /= sum;
      first[place] = low;
      count[place] = high - low;
    }
    weightsCache.set(key, { first, count, weights, most });
    return weightsCache.get(key);
  }

  /** Resize numbers (h, w) to (H, W); `bytes` rounds them to 0 to 255 after each direction. */
  function resize(plane, w, h, W, H, filter = "bilinear", bytes = false) {
    if (w === W && h === H) return plane;
    const [across, down] = [weightsOf(w, W, filter), weightsOf(h, H, filter)];
    const settle = (numbers) => (bytes ? Float32Array.from(Uint8ClampedArray.from(numbers)) : numbers);
    const wide = new Float32Array(h * W);
    for (let y = 0; y < h; y++) {
      for (let x = 0; x < W; x++) {
        let sum = 0;
        for (let i = 0; i < across.count[x]; i++) {
          sum += plane[y * w + across.first[x] + i] * across.weights[x * across.most + i];
        }
        wide[y * W + x] = sum;
      }
    }
    const rows = settle(wide);
    const out = new Float32Array(H * W);
    for (let y = 0; y < H; y++) {
      for (let i = 0; i < down.count[y]; i++) {
        const weight = down.weights[y * down.most + i];
        for (let x = 0, from = (down.first[y] + i) * W, to = y * W; x < W; x++) out[to + x] += rows[from + x] * weight;
      }
    }
    return settle(out);
  }

  /** Give each place of (H, W) the number of the cell that it lies in. */
  function spreadCells(plane, w, h, W, H) {
    const out = new Float32Array(W * H);
    for (let y = 0; y < H; y++) {
      const row = Math.floor(((y + 0.5) * h) / H) * w;
      for (let x = 0; x < W; x++) out[y * W + x] = plane[row + Math.floor(((x + 0.5) * w) / W)];
    }
    return out;
  }

  /** Return the least and the greatest number. */
  function span(plane) {
    let [low, high] = [Infinity, -Infinity];
    for (const value of plane) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
    return [low, high];
  }

  const union = (spans) => [Math.min(...spans.map(([low]) => low)), Math.max(...spans.map(([, high]) => high))];

  /** The maps of one run. A selection is {layers, from, to, head, native}: layers "all", "group up",
      "grid 16×16" or "layer 3"; the steps from `from` up to, not including, `to`; head -1 for all. */
  class RunMaps {
    constructor(packed, run, whenRead) {
      const { layers, tables, cells, steps, keep, refined } = packed;
      Object.assign(this, { layers, tables, cells, steps, keep, run, whenRead, ...packed.runs[run] });
      this.heads = Math.max(...layers.map((layer) => layer.heads));
      this.computed = new Map();
      this.reading = new Map(); // by table: the promise of its numbers
      this.numbers = new Map(); // by table
      this.measured = new Map(); // what callers found at each step
      this.refined = refined && new RunMaps({ ...packed, ...refined, refined: null }, run, whenRead);
    }

    /** Return the numbers of the layers of a selection. */
    layersOf({ layers, head }) {
      const [kind, which] = layers.split(/ (.*)/s);
      const fits = {
        all: () => true,
        group: (layer) => layer.group === which,
        grid: (layer) => `${layer.grid[1]}×${layer.grid[0]}` === which,
        layer: (_, i) => i === Number(which),
      }[kind];
      return this.layers.flatMap((layer, i) => (fits?.(layer, i) && head < layer.heads ? [i] : []));
    }

    /** Return the first table that has a selection exactly, {table, layers, windows}, or null. */
    source(selection) {
      const layers = this.layersOf(selection);
      for (const table of layers.length ? this.tables : []) {
        if (selection.head >= 0 && !table.heads) continue;
        const inside = ([from, to]) => from >= selection.from && to <= selection.to;
        const windows = [...table.windows.keys()].filter((i) => inside(table.windows[i]));
        const steps = windows.reduce((sum, i) => sum + table.windows[i][1] - table.windows[i][0], 0);
        if (steps && steps === selection.to - selection.from) return { table, layers, windows };
      }
      return null;
    }

    /** Return where ranges of steps may begin and end for a head: [0, …, steps]. */
    bounds(head) {
      const lists = this.tables.flatMap((table) => (head < 0 || table.heads ? [table.windows] : []));
      const finest = lists.reduce((a, b) => (b.length > a.length ? b : a), [[0, this.steps]]);
      return [0, ...finest.map((window) => window[1])];
    }

    /** Return the maps of every entry, {w, h, planes, spans, grids}, with the span of the words of
        each prompt. Null if a table is not read yet: `whenRead` is called then. */
    maps(selection) {
      const { layers, from, to, head, native } = selection;
      const key = [layers, from, to, head, native].join();
      let found = this.computed.get(key);
      if (!found) {
        const source = this.source(selection);
        if (!source) return null;
        if (!this.numbers.has(source.table)) {
          this.read(source.table);
          return null;
        }
        found = this.compute(source, selection);
        if (this.computed.size > 160) this.computed.delete(this.computed.keys().next().value);
      }
      this.computed.delete(key); // the oldest entry is the least used
      this.computed.set(key, found);
      return found;
    }

    read(table) {
      if (!this.reading.has(table)) this.reading.set(table, this.unpack(table));
      return this.reading.get(table);
    }

    async unpack(table) {
      const bytes = await inflate(table.data[this.run]);
      const counts = this.layers.map(({ heads }) => table.windows.length * (table.heads ? heads : 1) * this.entries.length);
      const total = counts.reduce((sum, count) => sum + count, 0);
      const ranges = new Float32Array(bytes.buffer, 0, total * 2);
      let [at, range] = [total * 8, 0];
      const numbers = this.layers.map(({ grid: [h, w] }, i) => {
        const count = counts[i] * w * h;
        const whole = new Uint16Array(count);
        for (let place = 0, value = 0; place < count; place++, at++) {
          if (place % (w * h) === 0) value = 0;
          value += (bytes[at] << 8) | bytes[at + count];
          whole[place] = value; // the array takes it modulo 65536
        }
        at += count;
        range += counts[i] * 2;
        return { whole, ranges: ranges.subarray(range - counts[i] * 2, range) };
      });
      this.numbers.set(table, numbers);
      this.whenRead();
    }

    compute({ table, layers, windows }, { from, to, head: chosen, native }) {
      const count = this.entries.length;
      const grids = new Map();
      for (const layer of layers) {
        const { grid: [h, w], heads: own } = this.layers[layer];
        const { whole, ranges } = this.numbers.get(table)[layer];
        const key = `${w}×${h}`;
        if (!grids.has(key)) grids.set(key, { w, h, sums: Array.from({ length: count }, () => new Float64Array(w * h)) });
        const every = table.heads ? own : 1;
        const heads = chosen < 0 || !table.heads ? [...Array(every).keys()] : [chosen];
        for (const window of windows) {
          const [a, b] = table.windows[window];
          const weight = (b - a) / (to - from) / heads.length;
          for (const head of heads) {
            grids.get(key).sums.forEach((sum, entry) => {
              const plane = (window * every + head) * count + entry;
              const [low, unit] = [ranges[2 * plane] * weight, ranges[2 * plane + 1] * weight];
              for (let i = 0, at = plane * w * h; i < w * h; i++, at++) sum[i] += low + unit * whole[at];
            });
          }
        }
      }
      const every = [...grids.values()];
      const finest = every.reduce((a, b) => (b.w * b.h > a.w * a.h ? b : a));
      const [w, h] = native ? [finest.w, finest.h] : this.cells;
      const planes = this.entries.map((_, entry) => {
        const plane = new Float32Array(w * h);
        for (const grid of every) {
          const part = (native ? spreadCells : resize)(Float32Array.from(grid.sums[entry]), grid.w, grid.h, w, h);
          for (let i = 0; i < plane.length; i++) plane[i] += part[i];
        }
        return plane.map((value) => value / layers.length);
      });
      const spans = this.prompts.map((_, prompt) => {
        const words = planes.filter((_, i) => this.entries[i].kind === "word" && this.entries[i].prompt === prompt);
        return words.length ? union(words.map(span)) : [0, 1];
      });
      return { w, h, planes, spans, grids: [...grids.keys()] };
    }
  }

  /** Add up the maps of several entries. */
  function sum({ planes, w, h }, entries) {
    if (entries.length === 1) return planes[entries[0]];
    const out = new Float32Array(w * h);
    for (const entry of entries) planes[entry].forEach((value, i) => (out[i] += value));
    return out;
  }

  return { bytesOf, resize, spreadCells, span, union, sum, RunMaps };
})();
