/* The arithmetic of a denoising step, on Float32Arrays. */

/** Return the guided prediction of a batch of two: first the negative prompt, then the prompt. */
export function guided(batch, guidance) {
  const size = batch.length / 2;
  const negative = batch.subarray(0, size);
  const prompt = batch.subarray(size);
  return negative.map((value, i) => value + guidance * (prompt[i] - value));
}

/**
 * Return the latents after a step of DDIM (Song et al., 2021, arXiv 2010.02502) without added noise,
 * for a model that predicts the velocity v (Salimans and Ho, 2022, arXiv 2202.00512).
 * `alpha` and `nextAlpha` are the products of alphas before and after the step.
 */
export function ddimStep(latents, velocity, alpha, nextAlpha) {
  const [signal, noise] = [Math.sqrt(alpha), Math.sqrt(1 - alpha)];
  const [nextSignal, nextNoise] = [Math.sqrt(nextAlpha), Math.sqrt(1 - nextAlpha)];
  return latents.map((value, i) => {
    const image = signal * value - noise * velocity[i];
    const direction = signal * velocity[i] + noise * value;
    return nextSignal * image + nextNoise * direction;
  });
}

/** Return the pixels (h·w, RGBA) of a decoded image (3, h, w) from -1 to 1. */
export function pixelsOf(decoded) {
  const size = decoded.length / 3;
  const pixels = new Uint8ClampedArray(size * 4).fill(255); // it rounds and clamps
  for (let channel = 0; channel < 3; channel++) {
    for (let i = 0; i < size; i++) pixels[4 * i + channel] = (decoded[channel * size + i] / 2 + 0.5) * 255;
  }
  return pixels;
}
