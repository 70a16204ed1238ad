/* The model, away from the page, which stays usable meanwhile: reads its files, generates images. */

import * as ort from "./runtime.js";
import { ddimStep, guided, pixelsOf } from "./diffusion.js";
import { normal } from "./noise.js";

let model; // a promise of {settings, text, unet, decoder}

/** Read a compressed file, and report its bytes as they come. */
async function read(name, report) {
  const answer = await fetch(new URL(`${name}.gz`, import.meta.url));
  if (!answer.ok) throw new Error(`${answer.url}: ${answer.status}`);
  const counter = new TransformStream({
    transform(chunk, controller) {
      report(chunk.length);
      controller.enqueue(chunk);
    },
  });
  const bytes = answer.body.pipeThrough(counter).pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(bytes).arrayBuffer());
}

async function load(settings) {
  let done = 0;
  const report = (bytes) => postMessage({ kind: "download", done: (done += bytes), total: settings.bytes });
  const names = ["runtime.wasm", "text.onnx", "unet.onnx", "decoder.onnx"];
  const [runtime, ...models] = await Promise.all(names.map((name) => read(name, report)));
  ort.env.wasm.numThreads = 1; // several need headers that a plain server does not send
  ort.env.wasm.wasmBinary = runtime;
  const sessions = [];
  for (const bytes of models) sessions.push(await ort.InferenceSession.create(bytes));
  const [text, unet, decoder] = sessions;
  return { settings, text, unet, decoder };
}

const float = (numbers, ...shape) => new ort.Tensor("float32", numbers, shape);

/**
 * Generate an image. Returns its pixels, and by grid the attention to each token (K, h·w): the mean
 * over steps of what the model gives, the sum over the grid's layers by the number of all layers.
 */
async function generate({ settings, text, unet, decoder }, { negative, prompt, seed }) {
  const { timesteps, alphas, guidance, limit, latent } = settings;
  const ids = BigInt64Array.from([...negative, ...prompt], BigInt);
  const encoded = await text.run({ ids: new ort.Tensor("int64", ids, [2, limit]) });
  let latents = normal(seed, latent.reduce((a, b) => a * b));
  const attention = {};
  for (const [step, timestep] of timesteps.entries()) {
    const outputs = await unet.run({
      latents: float(latents, 1, ...latent),
      timestep: float(Float32Array.of(timestep), 1),
      text: encoded.text,
    });
    const { velocity, ...grids } = outputs;
    latents = ddimStep(latents, guided(velocity.data, guidance), alphas[step], alphas[step + 1]);
    for (const [grid, { data }] of Object.entries(grids)) {
      attention[grid] ??= new Float32Array(data.length);
      data.forEach((value, i) => (attention[grid][i] += value / timesteps.length));
    }
    postMessage({ kind: "step", done: step + 1, total: timesteps.length });
  }
  const { image } = await decoder.run({ latents: float(latents, 1, ...latent) });
  return { pixels: pixelsOf(image.data), attention };
}

onmessage = async ({ data: request }) => {
  try {
    model ??= load(request.settings);
    postMessage({ kind: "result", ...(await generate(await model, request)) });
  } catch (error) {
    postMessage({ kind: "error", text: String(error.message ?? error) });
  }
};
