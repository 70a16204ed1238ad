"""Windows: during which steps of a run something is done.

Whoever acts for a part of a run (columns taken from a source, a word confined, self-attention
shared, latents blended) asks here, so that one window means the same steps to all of them.
"""

from fractions import Fraction
from functools import lru_cache
from math import ceil

FINEST = 10_000
"""Fractions of a run are told apart up to this denominator."""


@lru_cache(maxsize=4096)
def steps_within(start: float, end: float, steps: int) -> range:
    """The steps s of a run with `start ≤ s/steps < end`, in whole numbers.

    A bound counts as the nearest fraction p/q with q up to 10,000, which is what was meant by its
    decimal digits: 0.6 of 25 steps are 15, though `0.6 * 25` in floats may come out above 15. So
    there are ⌈end·steps⌉ − ⌈start·steps⌉ of them, and windows that meet leave no step out and take
    none twice. Prompt-to-prompt's own code (Hertz et al., 2022) rounds down instead: it takes
    cross-attention for the first ⌊f·(steps + 1)⌋ steps, self-attention for the first ⌊f·steps⌋.

    Args:
        start: the fraction of the run from which on, 0 to 1.
        end: the fraction up to which, 0 to 1.
        steps: of the whole run.

    Returns:
        The numbers of the steps, from 0; none if `end` is not above `start`.
    """
    bounds = (Fraction(float(bound)).limit_denominator(FINEST) for bound in (start, end))
    low, high = (ceil(bound * steps) for bound in bounds)
    return range(max(low, 0), min(high, steps))
