"""Maps carried along self-attention, beside the definition in double precision."""

import numpy as np
import pytest
import torch
from oracle import softmax

from heedmap.mathematics.probabilities import POWER, propagate


def by_definition(query, key, maps, power, scale):
    """Mean over heads of rows of P^power that sum to 1, times the maps."""
    raised = softmax(query, key, scale) ** power
    return (raised / raised.sum(-1, keepdim=True) @ maps.double()).mean(0).numpy()


@pytest.mark.parametrize("tokens", [1, 7, 8, 9, 77])
@pytest.mark.parametrize("scale", [8**-0.5, 0.7])
def test_propagation_equals_the_definition(tokens, scale):
    """Also for more tokens than a head has channels, which the kernels do not take at once."""
    generator = torch.Generator().manual_seed(tokens)
    query, key = (torch.randn(3, 20, 8, generator=generator) for _ in range(2))
    maps = torch.rand(20, tokens, generator=generator)
    made = propagate(query, key, maps, scale=scale)
    exact = by_definition(query, key, maps, POWER, scale)
    assert made.shape == (20, tokens)
    np.testing.assert_allclose(made.numpy(), exact, rtol=1e-5, atol=1e-6)


def test_propagation_equals_the_values_worked_out_by_hand():
    """Two places, one head, scores of ln 3 and 0: 3/4 and 1/4, squared 9/10 and 1/10."""
    query = torch.tensor([[[np.log(3)], [0.0]]], dtype=torch.float32)
    key = torch.tensor([[[1.0], [0.0]]])
    maps = torch.tensor([[1.0], [0.0]])
    made = propagate(query, key, maps, scale=1.0)
    torch.testing.assert_close(made, torch.tensor([[0.9], [0.5]]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_computed_in_float32(dtype):
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(2, 9, 4, generator=generator).to(dtype) for _ in range(2))
    maps = torch.rand(9, 3, generator=generator)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = propagate(query, key, maps, scale=0.5)
    assert made.dtype == torch.float32
    np.testing.assert_allclose(
        made.numpy(), by_definition(query, key, maps, POWER, 0.5), rtol=1e-5, atol=1e-6
    )
