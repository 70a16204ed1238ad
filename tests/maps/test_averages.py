"""The means of a selection, by hand."""

from dataclasses import replace

import numpy as np
import pytest
from making import recording

from heedmap.errors import NothingRecordedError, SelectionError
from heedmap.maps.recordings import Selection


def test_layers_weigh_equally_whatever_their_number_of_heads():
    """Layers of 2, 4 and 2 heads that are 0.1, 0.4 and 0.7 everywhere: 0.4."""
    made = recording()
    arrays = [np.full_like(a, n) for a, n in zip(made.arrays, (0.1, 0.4, 0.7), strict=True)]
    of = Selection(replace(made, arrays=tuple(arrays)))
    (start, *_), word = made.positions, made.table.find("sea")
    np.testing.assert_allclose(of.mean_of([start]), np.full((64, 64), 0.4), rtol=1e-6)
    np.testing.assert_allclose(of.mean_of(word), np.full((64, 64), 0.4 * len(word)), rtol=1e-6)
    longest = max(len(w.tokens) for w in made.table.words)
    shortest = min(len(w.tokens) for w in made.table.words)
    assert of.extremes == pytest.approx((0.4 * shortest, 0.4 * longest))


def test_a_selection_is_the_mean_of_its_layers_steps_and_heads():
    made = recording()
    part = Selection(made).with_layers("up_blocks.0*", None).with_steps(1)
    part = part.with_heads([3])
    position = made.positions[1]
    found = part.mean_of([position])
    plane = made.arrays[1][1, 3, :, 1].reshape(8, 8)
    # A cell's middle has the cell's value once it is enlarged by an odd number; here between four.
    np.testing.assert_allclose(found[4:-4, 4:-4].mean(), plane.mean(), rtol=0.05)
    assert found.min() >= plane.min()
    assert found.max() <= plane.max()


def test_tokens_that_were_not_recorded_are_refused():
    made = recording()
    with pytest.raises(SelectionError):
        Selection(made).mean_of([999])
    empty = replace(made, layers=(), arrays=())
    with pytest.raises(NothingRecordedError):
        Selection(empty).mean_of([1])
