"""Windows: which steps of a run they hold, counted against exact arithmetic on what was written."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedmap.mathematics.rules import steps_within

HUNDREDTHS = range(101)


@pytest.mark.parametrize("steps", [*range(1, 101), 137, 150, 151, 199, 200])
def test_fractions_in_hundredths_give_exact_steps(steps):
    """⌈k·steps/100⌉ in whole numbers, for the float that a user's digits become."""
    for k in HUNDREDTHS:
        stop = -(-k * steps // 100)
        assert steps_within(0.0, float(Decimal(k) / 100), steps) == range(0, stop)
        assert steps_within(0.0, k / 100, steps) == range(0, stop)
        assert steps_within(0.0, float(np.float32(k / 100)), steps) == range(0, stop)
        assert steps_within(k / 100, 1.0, steps) == range(stop, steps)


@given(st.integers(1, 200), st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000))
def test_adjacent_windows_share_and_omit_no_step(steps, a, b, c):
    low, middle, high = (k / 1000 for k in sorted((a, b, c)))
    first, second = steps_within(low, middle, steps), steps_within(middle, high, steps)
    assert [*first, *second] == [*steps_within(low, high, steps)]
    assert set(first) <= set(range(steps))
