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


@pytest.mark.parametrize(
    ("bound", "steps", "count"),
    [
        (0.6, 25, 15),  # in float32 15.000001, so once 16
        (0.28, 25, 7),  # in float64 7.000000000000001, so once 8
        (0.3, 50, 15),
        (0.1 + 0.2, 10, 3),  # 0.30000000000000004
        (1 / 3, 3, 1),
        (2 / 3, 6, 4),
        (0.8, 20, 16),
        (0.79, 20, 16),  # the step that has begun is counted
        (1e-6, 1000, 0),
        (0.0, 25, 0),
        (1.0, 25, 25),
    ],
)
def test_a_window_has_the_steps_that_begin_in_it(bound, steps, count):
    assert len(steps_within(0.0, bound, steps)) == count


@given(st.integers(1, 200), st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000))
def test_adjacent_windows_share_and_omit_no_step(steps, a, b, c):
    low, middle, high = (k / 1000 for k in sorted((a, b, c)))
    first, second = steps_within(low, middle, steps), steps_within(middle, high, steps)
    assert [*first, *second] == [*steps_within(low, high, steps)]
    assert set(first) <= set(range(steps))
