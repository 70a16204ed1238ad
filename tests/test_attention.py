"""The attention mathematics against worked numbers, SDPA and diffusers' own scores."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedmap.attention import Scores, attend, fused, grid_of, probabilities, split_heads
from heedmap.errors import ArgumentError


def test_worked_example():
    query, key = torch.tensor([[1.0, 0.0]]), torch.eye(2)
    weights = probabilities(query, key)
    torch.testing.assert_close(weights, torch.tensor([[0.66976155, 0.33023845]]))
    output = attend(weights, 10 * torch.eye(2))
    torch.testing.assert_close(output, torch.tensor([[6.69761549, 3.30238451]]))


@pytest.mark.parametrize("scale", [None, 0.3])
def test_equals_sdpa(scale):
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 3, 20, 8), torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=scale)
    torch.testing.assert_close(attend(probabilities(q, k, scale=scale), v), expected)


def test_masked_tokens_get_exactly_nothing():
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 2, 5, 4), torch.randn(1, 2, 6, 4), torch.randn(1, 2, 6, 4)
    seen = torch.tensor([True, True, False, True, False, True])
    expected = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=seen.expand(5, 6)
    )
    weights = probabilities(q, k, mask=seen)
    assert (weights[..., ~seen] == 0).all()
    torch.testing.assert_close(attend(weights, v), expected)
    # The additive form that diffusers makes of an encoder mask.
    added = torch.where(seen, 0.0, -10_000.0)
    torch.testing.assert_close(probabilities(q, k, mask=added), weights)


@given(
    st.integers(1, 9), st.integers(1, 9), st.integers(1, 5), st.floats(0.01, 30), st.integers(0, 99)
)
def test_rows_sum_to_one(queries, keys, d, size, seed):
    generator = torch.Generator().manual_seed(seed)
    q = size * torch.randn(queries, d, generator=generator)
    k = size * torch.randn(keys, d, generator=generator)
    weights = probabilities(q.to(torch.bfloat16), k.to(torch.bfloat16))
    assert weights.dtype == torch.float32
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(queries), atol=1e-5, rtol=0)


# What the README says of each type: of the prompt's own tokens, and of all tokens.
BOUNDS = {torch.bfloat16: (1e-4, 5e-5), torch.float16: (1e-4, 5e-5), torch.float32: (5e-5, 5e-5)}


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("size", [0.1, 1.0, 3.0, 6.0])
@pytest.mark.parametrize("start", [False, True], ids=["plain", "start token"])
def test_probabilities_from_the_kernels_sum_are_as_good_as_told(dtype, size, start):
    """Beside double precision, relative to their size, over shapes of layers and prompts."""
    known = 0
    for seed, (heads, queries, d) in enumerate(
        [(8, 64, 40), (8, 256, 40), (4, 1024, 80), (2, 256, 16), (8, 64, 160), (4, 35, 8)]
    ):
        for tokens in (2, 9, 31, 77, 154, 512):
            generator = torch.Generator().manual_seed(1000 * seed + tokens)
            q = size * torch.randn(1, heads, queries, d, generator=generator)
            k, v = (torch.randn(1, heads, tokens, d, generator=generator) for _ in range(2))
            if start:  # one token draws most
                q = q + 12 * k[:, :, :1] / d**0.5
            q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
            _, log_sum = fused(q, k, v)
            if log_sum is None:  # the scores are so large that the sum is not used
                continue
            known += 1
            scores = Scores(q, k, d**-0.5, None, log_sum)
            exact = ((q.double() @ k.double().mT) * d**-0.5).softmax(-1)[0]
            own = list(range(1, min(tokens, 9)))
            for some, bound in zip((own, list(range(tokens))), BOUNDS[dtype], strict=True):
                found = scores.of(0, slice(None), some).double()
                off = (found - exact[..., some]).abs() / exact[..., some].clamp_min(1e-30)
                assert off.max() <= bound
    assert known  # else nothing was compared


def test_heads_are_cut_as_diffusers_cuts_them():
    x = torch.arange(24.0).reshape(1, 2, 12)
    assert split_heads(x, 3).shape == (1, 3, 2, 4)
    assert split_heads(x, 3)[0, 1, 0].tolist() == [4, 5, 6, 7]  # head 1 of the first position


@pytest.mark.parametrize(
    ("positions", "latent", "grid"),
    [
        (4096, (64, 64), (64, 64)),
        (48 * 64, (96, 128), (48, 64)),
        (13 * 22, (13, 22), (13, 22)),
        (7 * 11, (13, 22), (7, 11)),
        (4 * 6, (13, 22), (4, 6)),
        (1, (3, 2), (1, 1)),
    ],
)
def test_grids_are_ceil_halvings(positions, latent, grid):
    assert grid_of(positions, latent) == grid


def test_errors_name_both_shapes():
    with pytest.raises(ArgumentError, match=r"\(1, 2\) and key of shape \(3, 4\) do not fit"):
        probabilities(torch.zeros(1, 2), torch.zeros(3, 4))
    with pytest.raises(
        ArgumentError, match=r"weights of shape \(1, 2\) and value of shape \(3, 4\)"
    ):
        attend(torch.zeros(1, 2), torch.zeros(3, 4))
    with pytest.raises(ArgumentError, match=r"5 heads cannot share a tensor of shape \(1, 2, 12\)"):
        split_heads(torch.zeros(1, 2, 12), 5)
    with pytest.raises(ArgumentError, match=r"50 positions are no halving of a latent of 16×16"):
        grid_of(50, (16, 16))
