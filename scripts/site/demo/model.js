/* The model as the page sees it: a prompt and a seed give an image and a map of each word. */

import { maps } from "./results.js";
import { Tokenizer } from "./tokenizer.js";
import { unknownWords, wordsOf } from "./words.js";

const CELLS = 64; // of a map's side, as in heedmap.maps

export class Model {
  /** `settings` is the content of `settings.json`, `file` that of `tokenizer.json`. */
  constructor(settings, file) {
    this.settings = settings;
    this.tokenizer = new Tokenizer(file, settings.limit);
  }

  static async load() {
    const names = ["settings.json", "tokenizer.json"];
    const answers = await Promise.all(names.map((name) => fetch(new URL(name, import.meta.url))));
    return new Model(...(await Promise.all(answers.map((answer) => answer.json()))));
  }

  /**
   * Generate an image. `onProgress` is called with {kind, done, total}: "download" in bytes, then "step".
   * Returns {prompt, seed, image, words, unknown, attention}; `image` is an ImageData.
   */
  async generate(text, seed, onProgress = () => {}) {
    const prompt = text.normalize("NFC"); // as the tokenizer has it
    const { ids, tokens } = this.tokenizer.encode(prompt);
    const words = wordsOf(prompt, tokens);
    const unknown = unknownWords(words, this.settings.vocabulary);
    const negative = this.tokenizer.encode("").ids;
    const request = { settings: this.settings, negative, prompt: ids, seed };
    const { pixels, attention } = await this.ask(request, onProgress);
    const image = new ImageData(pixels, this.settings.side);
    return { prompt, seed, image, words, unknown, attention };
  }

  ask(request, onProgress) {
    this.worker ??= new Worker(new URL("worker.js", import.meta.url), { type: "module" });
    return new Promise((resolve, reject) => {
      const fail = (text) => {
        this.worker.terminate(); // the next try begins anew
        this.worker = undefined;
        reject(new Error(text));
      };
      this.worker.onmessage = ({ data }) => {
        if (data.kind === "result") resolve(data);
        else if (data.kind === "error") fail(data.text);
        else onProgress(data);
      };
      this.worker.onerror = (event) => fail(event.message || "a script was not loaded");
      this.worker.postMessage(request);
    });
  }

  /**
   * Return the map of a word, {plane, w, h}: the share of attention from each place to its tokens, the
   * mean over layers, heads and steps. It is `run.maps[word].values` in Python.
   */
  mapOf({ attention }, word) {
    const plane = new Float32Array(CELLS * CELLS);
    for (const [name, [h, w]] of Object.entries(this.settings.grids)) {
      const sum = new Float32Array(h * w);
      for (const token of word.tokens) {
        for (let i = 0; i < sum.length; i++) sum[i] += attention[name][token * h * w + i];
      }
      maps.resize(sum, w, h, CELLS, CELLS).forEach((value, i) => (plane[i] += value));
    }
    return { plane, w: CELLS, h: CELLS };
  }
}
