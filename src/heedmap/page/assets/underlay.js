/* The picture at a step, small as it was kept, beneath the heat of that step. */

const stepSheets = new Map(); // by run: its pictures of the steps, in one
const stepsSeen = new Map(); // by run and step, as large as the run's picture

async function readSteps(run) {
  const { steps } = data.runs[run];
  if (steps && !stepSheets.has(run)) stepSheets.set(run, await readPicture(steps.picture));
}

/** The step whose picture lies beneath the heat, or null where that is the finished one. */
function stepBeneath(run) {
  const { from, to } = selection();
  const chosen = state.underlay && stepSheets.has(run) && data.runs[run].steps;
  return chosen && (from > 0 || to < mainView().steps) ? to - 1 : null;
}

function pictureNow(figure) {
  const step = stepBeneath(figure.run);
  if (step === null) return figure.picture;
  const key = `${figure.run} ${step}`;
  const found = stepsSeen.get(key) || stepPicture(figure, step);
  stepsSeen.delete(key); // the last that was seen is the last to go
  stepsSeen.set(key, found);
  if (stepsSeen.size > 12) stepsSeen.delete(stepsSeen.keys().next().value);
  return found;
}

function stepPicture({ run, picture }, step) {
  const { across, size: [w, h] } = data.runs[run].steps;
  const sheet = stepSheets.get(run);
  const [left, top] = [(step % across) * w, Math.floor(step / across) * h];
  const pixels = new Uint8ClampedArray(picture.pixels.length).fill(255);
  for (let c = 0; c < 3; c++) {
    const plane = new Float32Array(w * h);
    for (let y = 0; y < h; y++) {
      for (let x = 0; x < w; x++) {
        plane[y * w + x] = sheet.data[4 * ((top + y) * sheet.width + left + x) + c];
      }
    }
    resize(plane, w, h, picture.w, picture.h).forEach((value, i) => (pixels[4 * i + c] = value));
  }
  return new Picture(picture.own, picture.w, picture.h, pixels);
}

/** What lies beneath, in the words of the legend. */
function beneathSaid(run) {
  const step = stepBeneath(run);
  if (step === null) return "";
  const what = data.runs[run].steps.shows === "prediction"
    ? `what the model foretold the picture to be at step ${step}`
    : `the noisy latents after step ${step}`;
  return `Beneath: ${what}, in fitted colours.`;
}
