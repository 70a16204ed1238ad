/* Heat maps of one prompt, made of what Python packed as heedmap.maps makes them. */

/** A selection is {layers, from, to, head, native}: layers "all", "group up", "grid 16×16" or
    "layer 3"; the steps from `from` up to, not including, `to`; head -1 for the mean of all. */
class View {
  constructor(data) {
    Object.assign(this, data);
    this.words = this.entries.flatMap((entry, i) => (entry.kind === "word" ? [i] : []));
    this.heads = Math.max(...this.layers.map((layer) => layer.heads));
    this.made = new Map();
    this.bounded = new Map();
    this.measured = new Map(); // what was found at each step, by what was asked
    this.whenRead = () => {};
    // Refined maps are those of the same words, and masks those of phrases: each of one layer.
    const whole = { keep: [], refined: null, masks: null };
    if (data.refined) this.refined = new View({ ...data, ...whole, ...data.refined });
    const planes = Array.from({ length: data.masks?.planes ?? 0 }, () => ({ kind: "mask" }));
    if (data.masks) this.masks = new View({ ...whole, entries: planes, steps: 1, ...data.masks });
  }

  /** All that it holds, itself among it: the maps as read, refined ones, masks. */
  get parts() {
    return [this, this.refined, this.masks].filter(Boolean);
  }

  /** The numbers of the layers of a selection. */
  chosen({ layers, head }) {
    const [kind, which] = layers.split(/ (.*)/s);
    const fits = (layer, i) =>
      kind === "all" ||
      (kind === "group" && layer.group === which) ||
      (kind === "grid" && `${layer.grid[1]}×${layer.grid[0]}` === which) ||
      (kind === "layer" && i === Number(which));
    return this.layers.flatMap((layer, i) => (fits(layer, i) && head < layer.heads ? [i] : []));
  }

  /** The parts of a table that make up a selection exactly; null where there are none. */
  within(table, selection) {
    if (selection.head >= 0 && !table.heads) return null;
    const wanted = new Set(this.chosen(selection));
    const parts = table.parts.flatMap((part, i) => (wanted.has(part.layers[0]) ? [i] : []));
    const covered = parts.flatMap((i) => table.parts[i].layers);
    if (!wanted.size || covered.length !== wanted.size) return null;
    if (covered.some((i) => !wanted.has(i))) return null;
    const windows = table.windows.flatMap(([a, b], i) =>
      a >= selection.from && b <= selection.to ? [i] : [],
    );
    const steps = windows.reduce((sum, i) => sum + table.windows[i][1] - table.windows[i][0], 0);
    return steps === selection.to - selection.from && steps ? { parts, windows, steps } : null;
  }

  /** The first table that has a selection exactly, with the parts that are needed. */
  source(selection) {
    for (const table of this.tables) {
      const taken = this.within(table, selection);
      if (taken) return { table, ...taken };
    }
    return null;
  }

  /** Where a range of steps may begin and end for these layers and this head: [0, …, steps]. */
  bounds(selection) {
    const key = `${selection.layers} ${selection.head}`;
    if (this.bounded.has(key)) return this.bounded.get(key);
    let best = [0, this.steps];
    for (const table of this.tables) {
      const all = this.within(table, { ...selection, from: 0, to: this.steps });
      if (all && table.windows.length + 1 > best.length) {
        best = [0, ...table.windows.map((window) => window[1])];
      }
    }
    this.bounded.set(key, best);
    return best;
  }

  /** The planes of every entry, {w, h, planes, low, high} with the words' common range; null while
      they are being read: `whenRead` is called when they are there. */
  maps(selection) {
    const { layers, from, to, head, native } = selection;
    const key = JSON.stringify([layers, from, to, head, native]);
    let found = this.made.get(key);
    if (!found) {
      const source = this.source(selection);
      if (!source) return null;
      if (!source.table.numbers) {
        this.read(source.table);
        return null;
      }
      found = this.make(source, selection);
      if (this.made.size > 160) this.made.delete(this.made.keys().next().value);
    } else {
      this.made.delete(key);
    }
    this.made.set(key, found);
    return found;
  }

  /** Unpack a table, once. */
  read(table) {
    table.reading = table.reading || this.unpack(table);
    return table.reading;
  }

  async unpack(table) {
    const bytes = await inflated(table.data);
    delete table.data;
    const planesOf = (part) => table.windows.length * part.heads * this.entries.length;
    const total = table.parts.reduce((sum, part) => sum + planesOf(part), 0);
    const ranges = new Float32Array(bytes.buffer, bytes.byteOffset, total * 2);
    const numbers = [];
    let at = total * 8;
    let range = 0;
    for (const part of table.parts) {
      const cells = part.grid[0] * part.grid[1];
      const count = planesOf(part) * cells;
      const wide = table.bits === 16;
      const whole = wide ? new Uint16Array(count) : new Uint8Array(count);
      for (let start = 0; start < count; start += cells) {
        let value = 0;
        for (let i = start; i < start + cells; i++) {
          value += wide ? (bytes[at + i] << 8) | bytes[at + count + i] : bytes[at + i];
          whole[i] = value; // the array's width takes it modulo 2**bits
        }
      }
      numbers.push({ whole, ranges: ranges.subarray(range, range + planesOf(part) * 2) });
      at += count * (wide ? 2 : 1);
      range += planesOf(part) * 2;
    }
    table.numbers = numbers;
    this.whenRead();
  }

  make({ table, parts, windows, steps }, selection) {
    const entries = this.entries.length;
    const grids = new Map();
    let layers = 0;
    for (const number of parts) {
      const part = table.parts[number];
      const [h, w] = part.grid;
      const cells = w * h;
      const { whole, ranges } = table.numbers[number];
      const key = `${h} ${w}`;
      if (!grids.has(key)) {
        const planes = Array.from({ length: entries }, () => new Float64Array(cells));
        grids.set(key, { w, h, planes });
      }
      const { planes } = grids.get(key);
      layers += part.layers.length;
      const all = selection.head < 0 || !table.heads;
      const heads = all ? [...Array(part.heads).keys()] : [selection.head];
      for (const window of windows) {
        const [a, b] = table.windows[window];
        const weight = (part.layers.length * (b - a)) / steps / heads.length;
        for (const head of heads) {
          for (let entry = 0; entry < entries; entry++) {
            const plane = (window * part.heads + head) * entries + entry;
            const low = ranges[2 * plane] * weight;
            const unit = ranges[2 * plane + 1] * weight;
            const sum = planes[entry];
            const start = plane * cells;
            for (let i = 0; i < cells; i++) sum[i] += low + unit * whole[start + i];
          }
        }
      }
    }
    let [w, h] = this.cells;
    if (selection.native) {
      const finest = [...grids.values()].reduce((a, b) => (b.w * b.h > a.w * a.h ? b : a));
      [w, h] = [finest.w, finest.h];
    }
    const bring = selection.native ? spreadCells : resize;
    const planes = [];
    for (let entry = 0; entry < entries; entry++) {
      const plane = new Float32Array(w * h);
      for (const grid of grids.values()) {
        const part = bring(Float32Array.from(grid.planes[entry]), grid.w, grid.h, w, h);
        for (let i = 0; i < plane.length; i++) plane[i] += part[i];
      }
      for (let i = 0; i < plane.length; i++) plane[i] /= layers;
      planes.push(plane);
    }
    const spans = this.words.map((i) => span(planes[i]));
    const low = spans.length ? Math.min(...spans.map((s) => s[0])) : 0;
    const high = spans.length ? Math.max(...spans.map((s) => s[1])) : 1;
    return { w, h, planes, low, high, grids: [...grids.values()].map((g) => `${g.w}×${g.h}`) };
  }

  /** The plane of several entries added up. */
  sum(maps, entries) {
    if (entries.length === 1) return maps.planes[entries[0]];
    const out = new Float32Array(maps.w * maps.h);
    for (const entry of entries) {
      const plane = maps.planes[entry];
      for (let i = 0; i < out.length; i++) out[i] += plane[i];
    }
    return out;
  }

  /** How much several entries draw: their magnitudes, added up. */
  drawnBy(maps, entries) {
    const out = new Float32Array(maps.w * maps.h);
    for (const entry of entries) {
      const plane = maps.planes[entry];
      for (let i = 0; i < out.length; i++) out[i] += Math.abs(plane[i]);
    }
    return out;
  }

  /** The share of these entries among the content words, at each place: 0 to 1. */
  share(maps, entries) {
    const others = this.words.filter((i) => this.entries[i].content && !entries.includes(i));
    const own = this.drawnBy(maps, entries);
    const rest = this.drawnBy(maps, others);
    return Float32Array.from(own, (value, i) => (value > 0 ? value / (value + rest[i]) : 0));
  }
}
