"""Attention on a blackboard: against numbers worked out by hand, and against torch's own."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import heedmap as hm
from heedmap.errors import ArgumentError


def random_array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def test_attention_equals_the_worked_example():
    """Q = [1, 0], K = I, V = 10·I: e^(1/√2) and e^0, over their sum."""
    found = hm.attention([1, 0], np.eye(2), 10 * np.eye(2))
    assert_allclose(found.scores, [1, 0], atol=1e-15)
    assert_allclose(found.scaled, [1 / math.sqrt(2), 0], atol=1e-15)
    assert_allclose(found.probabilities, [0.66976155, 0.33023845], atol=1e-8)
    assert_allclose(found.output, [6.69761549, 3.30238451], atol=1e-8)
    assert_allclose(found.contributions, [[6.69761549, 0], [0, 3.30238451]], atol=1e-8)
    # Without √d: e over e + 1.
    assert_allclose(found.unscaled_probabilities, [0.73105858, 0.26894142], atol=1e-8)


MASKS = {
    "none": None,
    "added": torch.tensor([0.0, 0.5, -1.0, -math.inf, 0, 0, -math.inf]),
    "boolean": torch.tensor([1, 0, 1, 1, 0, 1, 1], dtype=torch.bool),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_attention_equals_torchs_for_heads_and_batches(dtype, mask):
    """Heads and pictures before the rows, whatever the numbers are made of."""
    shapes = [(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)]
    given = [torch.tensor(random_array(*shape, seed=n)).to(dtype) for n, shape in enumerate(shapes)]
    found = hm.attention(*(one.requires_grad_() for one in given), mask)
    double = [one.detach().double() for one in given]
    added = mask
    if mask is not None:
        added = (mask if mask.dtype == torch.bool else mask.double()).expand(5, 7)
    expected = torch.nn.functional.scaled_dot_product_attention(*double, attn_mask=added)
    assert_allclose(found.output, expected.numpy(), rtol=1e-12, atol=1e-12)
    assert_allclose(found.probabilities.sum(axis=-1), 1, rtol=1e-14)
    assert_allclose(found.contributions.sum(axis=-2), found.output, rtol=1e-12, atol=1e-13)
    if mask is not None:
        hidden = ~mask if mask.dtype == torch.bool else mask == -math.inf
        assert (found.probabilities[..., hidden.numpy()] == 0).all()
        assert (found.unscaled_probabilities[..., hidden.numpy()] == 0).all()


def test_a_users_scale_and_broadcast_heads_are_computed():
    q, k, v = random_array(8, 1, 5, 4), random_array(3, 7, 4), random_array(7, 2)
    found = hm.attention(q, k, v, scale=0.3)
    for one, other in np.ndindex(8, 3):
        scores = 0.3 * q[one, 0] @ k[other].T
        p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        assert_allclose(found.probabilities[one, other], p, rtol=1e-12)
        assert_allclose(found.output[one, other], p @ v, rtol=1e-12)


def test_one_query_gives_its_row_of_many():
    q, k, v = random_array(5, 4), random_array(2, 7, 4), random_array(2, 7, 3)
    whole, one = hm.attention(q, k, v), hm.attention(q[3], k, v)
    for name in ("scores", "masked", "probabilities", "output", "contributions"):
        assert_allclose(getattr(one, name), getattr(whole, name)[:, 3], rtol=1e-13)


def test_large_scores_and_masks_do_not_overflow():
    found = hm.attention([1000.0, 0], 10 * np.eye(2), np.eye(2))
    assert_allclose(found.probabilities, [1, 0], atol=1e-12)
    found = hm.attention([1.0, 0], np.eye(2), np.eye(2), [-1e308, -1e308])
    assert found.probabilities.sum() == 1


def test_the_table_shows_each_step_of_the_computation():
    table = hm.attention([1, 0], np.eye(2), 10 * np.eye(2)).table(["red", "house"])
    assert table.splitlines() == [
        "one query of 2 numbers; 2 tokens: a key of 2 and a value of 2 each",
        "",
        "token         QKᵀ        ÷ √2  softmax: P  P without √d         P·V",
        "red    1.00000000  0.70710678  0.66976155    0.73105858  6.69761549  0.00000000",
        "house  0.00000000  0.00000000  0.33023845    0.26894142  0.00000000  3.30238451",
        "sum                            1.00000000    1.00000000  6.69761549  3.30238451",
    ]


def test_the_table_of_many_queries_is_that_of_the_first():
    found = hm.attention(
        random_array(2, 5, 4), random_array(2, 3, 4), random_array(2, 3, 9), [True, False, True]
    )
    lines = found.table().splitlines()
    assert "hidden" in lines[4]
    assert f"{found.probabilities[0, 0, 0]:.8f}" in lines[3]


@pytest.mark.parametrize(
    "given",
    [
        ([1, 0], np.eye(3), np.eye(3)),
        (np.eye(2), np.eye(2), np.eye(3)),
        ([1, math.nan], np.eye(2), np.eye(2)),
        ([1, 0], "key", np.eye(2)),
        ([1, 0], np.eye(2), np.eye(2), [True] * 3),
        ([1, 0], np.eye(2), np.eye(2), [False, False]),
    ],
)
def test_inputs_that_are_no_attention_are_refused(given):
    with pytest.raises(ArgumentError, match=r"q|k|mask"):
        hm.attention(*given)


def test_attention_by_hand_loads_no_torch():
    code = (
        "import sys, heedmap as hm; hm.attention([1, 0], [[1, 0]], [[1]]).table(); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
