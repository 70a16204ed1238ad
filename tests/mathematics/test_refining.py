"""How much positions belong together, beside the definition in double precision."""

import numpy as np
import pytest
import torch
from oracle import softmax

from heedmap.mathematics.probabilities import POWER, affinities


def by_definition(query, key, scale):
    """Mean over heads of rows of P^power that sum to 1."""
    raised = softmax(query, key, scale) ** POWER
    return (raised / raised.sum(-1, keepdim=True)).mean(0).numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [8**-0.5, 0.7])
def test_affinities_equal_the_definition_in_float32(dtype, scale):
    """Also with autocast."""
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(3, 20, 8, generator=generator).to(dtype) for _ in range(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = affinities(query, key, scale=scale)
    assert made.dtype == torch.float32
    exact = by_definition(query, key, scale)
    np.testing.assert_allclose(made.numpy(), exact, rtol=1e-5, atol=1e-6)


def test_affinities_equal_the_values_worked_out_by_hand():
    """Two places, one head, scores of ln 3 and 0: 3/4 and 1/4, squared 9/10 and 1/10."""
    query = torch.tensor([[[np.log(3)], [0.0]]], dtype=torch.float32)
    key = torch.tensor([[[1.0], [0.0]]])
    made = affinities(query, key, scale=1.0)
    torch.testing.assert_close(made, torch.tensor([[0.9, 0.1], [0.5, 0.5]]))
