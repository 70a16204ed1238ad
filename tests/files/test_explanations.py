"""Arrays in a JSON file."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from heedmap.io.explanations import Packed, as_array, as_packed


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 5)])
def test_an_array_comes_back(shape):
    array = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    held = as_packed(array[..., ::-1])  # however it lies in memory
    assert held.shape == shape
    assert_array_equal(as_array(held), array[..., ::-1].astype(np.float64))


def test_it_is_what_is_documented():
    held = as_packed([1.0, -2.5])
    assert held == Packed((2,), "AACAPwAAIMA=")  # 3f800000 c0200000, little-endian
