/* The page: the form, the image, and the map of the word that is pointed at. */

import { Model } from "./model.js";
import { drawing, maps } from "./results.js";

const SIDE = 512; // pixels of the canvas
const demo = document.getElementById("demo");
const find = (name) => demo.querySelector(`#demo-${name}`);
const [form, status, bar, result, canvas, words] = ["form", "status", "progress", "result", "image", "words"].map(find);
const say = (text) => (status.textContent = text);
const share = (value) => `${(value * 100).toPrecision(2)} %`;
/** Return the prompt that heedmap.generate reads as this text: its brackets are no weights. */
const escaped = (prompt) => prompt.replace(/[()[\]]|\\(?=[\\()[\]:]|$)/g, "\\$&");

let model; // a promise
let busy = false;
let shown; // the picture that is on the canvas, and what the model found
let pinned = null; // the word whose map stays

function progress({ kind, done, total }) {
  bar.hidden = false;
  bar.max = total;
  bar.value = Math.min(done, total);
  const isLoaded = kind === "step" || done >= total;
  if (!isLoaded) say(`Downloading the model: ${(total / 1e6).toFixed(0)} MB, once.`);
  else if (kind === "download") say("Starting the model …");
  else if (done === 1) say("Drawing …"); // once: a screen reader says each change
}

async function generate() {
  const prompt = find("prompt").value.trim();
  if (busy || !prompt) return;
  busy = true;
  find("button").disabled = true;
  form.setAttribute("aria-busy", "true");
  say("Starting …");
  try {
    model ??= Model.load();
    const made = await (await model).generate(prompt, Number(find("seed").value), progress);
    await show(made);
  } catch (error) {
    model = undefined;
    say(`The demo could not run: ${error.message}. Reload the page, or use heedmap.load() in Python.`);
  }
  bar.hidden = true;
  busy = false;
  find("button").disabled = false;
  form.removeAttribute("aria-busy");
}

async function show(made) {
  const { image, prompt, seed, unknown } = made;
  const pixels = drawing.resizePixels(image.data, image.width, image.height, SIDE, SIDE, "lanczos");
  const { look } = (await model).settings;
  shown = { ...made, picture: new drawing.Picture(pixels, SIDE, SIDE), look, model: await model };
  pinned = null;
  writeWords(made);
  draw(null);
  find("python").textContent = `run = hm.generate(hm.load(), ${JSON.stringify(escaped(prompt))}, seed=${seed})`;
  result.hidden = false;
  const names = unknown.map((text) => `“${text}”`).join(", ");
  const doubt = unknown.length ? ` The model was not trained on ${names}: the map may be meaningless.` : "";
  say(`Done. Point at a word, or choose it, to see where it was read.${doubt}`);
}

/** Write the prompt with a button for each word; words past the model's limit are struck out. */
function writeWords({ prompt, words: list }) {
  words.replaceChildren();
  let at = 0;
  for (const word of list) {
    words.append(prompt.slice(at, word.start), word.tokens.length ? buttonOf(word) : struck(word));
    at = word.end;
  }
  words.append(prompt.slice(at));
}

function struck({ text }) {
  const mark = document.createElement("s");
  mark.textContent = text;
  return mark;
}

function buttonOf(word) {
  const button = document.createElement("button");
  Object.assign(button, { type: "button", textContent: word.text });
  button.setAttribute("aria-pressed", "false");
  const on = (name, act) => button.addEventListener(name, act);
  on("pointerenter", ({ pointerType }) => pointerType === "mouse" && draw(word));
  on("pointerleave", () => draw(pinned));
  on("focus", () => button.matches(":focus-visible") && draw(word));
  on("blur", () => draw(pinned));
  on("click", () => {
    pin(pinned === word ? null : word, button);
    draw(pinned);
  });
  return button;
}

function pin(word, button) {
  pinned = word;
  for (const other of words.querySelectorAll("button")) {
    other.setAttribute("aria-pressed", String(Boolean(word) && other === button));
  }
}

/** Draw the image, under the map of a word if there is one, in the colours of the map's own range. */
function draw(word) {
  const { picture, look } = shown;
  const heats = [];
  let said = "The image alone.";
  if (word) {
    const map = shown.model.mapOf(shown, word);
    const [low, high] = maps.span(map.plane);
    heats.push({ ...map, low, high, hue: [0, 0, 0] }); // hues are for several maps
    said = `“${word.text}” takes ${share(low)} (dark) to ${share(high)} (bright) of a place's attention.`;
  }
  const out = new ImageData(SIDE, SIDE);
  drawing.overlay(picture, heats, { opacity: look.opacity, colours: look.colours, look }, out);
  canvas.getContext("2d").putImageData(out, 0, 0);
  canvas.setAttribute("aria-label", `The image of “${shown.prompt}”${word ? ` under the map of “${word.text}”` : ""}`);
  find("legend").textContent = said;
}

function start() {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    generate();
  });
  demo.addEventListener("keydown", ({ key }) => {
    if (key !== "Escape" || !shown) return;
    pin(null);
    draw(null);
  });
  find("button").disabled = false;
  say(`The first image downloads the model, of ${demo.dataset.megabytes} MB. Nothing that you type is sent anywhere.`);
}

if ("WebAssembly" in globalThis) start();
else say("This browser has no WebAssembly, which the demo needs: use another browser, or heedmap.load() in Python.");
