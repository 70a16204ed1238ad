"""An explanation in memory and on disk: written whole, read back equal."""

from dataclasses import replace

import numpy as np
import pytest
from making import random_explanation
from msgspec import structs
from numpy.testing import assert_allclose

from heedmap.io.writing import TakenError
from heedmap.results.explanations import Explanation

C = 10


def test_a_saved_explanation_is_read_back_equal(tmp_path):
    made = random_explanation()
    folder = made.save(tmp_path / "x")
    names = {path.name for path in folder.iterdir()}
    assert names == {"explain.json", "image.png", "index.html"}
    back = Explanation.load(folder)
    assert (back.report, back.tokens, back.numbers) == (made.report, made.tokens, made.numbers)
    assert back.image.tobytes() == made.image.tobytes() and back.page() == made.page()
    with pytest.raises(TakenError):
        made.save(folder)


def test_contributions_of_all_tokens_sum_to_the_output():
    """What each token of each head brought, and the bias, is the layer's output."""
    for made in (random_explanation(), random_explanation(masked=False, edited=True)):
        bias = made.output - made.contributions.sum(axis=(0, 1))
        other = random_explanation().output - random_explanation().contributions.sum(axis=(0, 1))
        assert_allclose(bias, other, atol=1e-12)  # the same bias, whatever P
        assert_allclose(made.probabilities.sum(axis=-1), 1, rtol=1e-6)
    bare = replace(made, inputs=structs.replace(made.inputs, edited=None))
    assert_allclose(bare.probabilities[1], made.attention.probabilities, rtol=1e-12)


def test_the_output_includes_residual_factor_and_added_parts():
    made = random_explanation()
    extra = np.arange(C, dtype=np.float64)
    given = structs.replace(made.inputs, residual=extra, factor=2.0)
    other = replace(made, inputs=given)
    assert_allclose(other.output, (made.output + extra) / 2, rtol=1e-12)
    added = replace(made, inputs=structs.replace(made.inputs, added=np.ones(12)))
    assert_allclose(added.heads_output, made.heads_output + 1, rtol=1e-6)
    assert_allclose(added.output - made.output, made.inputs.weight.sum(axis=1), rtol=1e-5)
