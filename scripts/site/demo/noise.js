/* Noise of a seed: the numbers of torch.randn on a CPU, so that an image is Python's. */

const SIZE = 624;
const SHIFT = 397;

/** Return a function that returns the next 32 random bits of the Mersenne Twister MT19937. */
export function mersenneTwister(seed) {
  const state = new Uint32Array(SIZE); // its numbers are taken modulo 2**32
  state[0] = seed;
  for (let i = 1; i < SIZE; i++) {
    const before = state[i - 1] ^ (state[i - 1] >>> 30);
    state[i] = Math.imul(before, 1812433253) + i;
  }
  let place = SIZE;

  function renew() {
    for (let i = 0; i < SIZE; i++) {
      const joined = (state[i] & 0x80000000) | (state[(i + 1) % SIZE] & 0x7fffffff);
      const odd = joined & 1 ? 0x9908b0df : 0;
      state[i] = state[(i + SHIFT) % SIZE] ^ (joined >>> 1) ^ odd;
    }
    place = 0;
  }

  return () => {
    if (place === SIZE) renew();
    let bits = state[place++];
    bits ^= bits >>> 11;
    bits ^= (bits << 7) & 0x9d2c5680;
    bits ^= (bits << 15) & 0xefc60000;
    return (bits ^ (bits >>> 18)) >>> 0;
  };
}

/**
 * Return normally distributed numbers: Box and Muller's, as torch computes them for 16 or more.
 * Each 16 numbers come of 8 radii and 8 angles. `count` is a multiple of 16.
 */
export function normal(seed, count) {
  const next = mersenneTwister(seed);
  const round = Math.fround; // torch computes in float32
  const numbers = Float32Array.from({ length: count }, () => (next() & 0xffffff) / 2 ** 24);
  const turn = round(2 * Math.PI);
  for (let start = 0; start < count; start += 16) {
    for (let i = start; i < start + 8; i++) {
      const log = round(Math.log(1 - numbers[i]));
      const radius = round(Math.sqrt(-2 * log));
      const angle = round(turn * numbers[i + 8]);
      numbers[i] = radius * round(Math.cos(angle));
      numbers[i + 8] = radius * round(Math.sin(angle));
    }
  }
  return numbers;
}
