"""What a layer computes around its softmax, against the layer's own weights."""

from contextlib import ExitStack

import torch
from diffusers.models.attention_processor import Attention
from torch.nn.functional import linear

from heedmap.backends.activations import output_projection, record_activations


def make_layer(**config) -> Attention:
    torch.manual_seed(0)
    return Attention(query_dim=12, cross_attention_dim=10, heads=3, dim_head=4, **config).eval()


@torch.no_grad()
def test_the_residual_and_the_output_factor_are_recorded():
    layer = make_layer(residual_connection=True, rescale_output_factor=2.0)
    states = torch.randn(1, 5, 12)
    text = torch.randn(1, 7, 10)
    heard = []
    with ExitStack() as stack:
        record_activations(layer, heard.append, stack.callback)
        output = layer(states, encoder_hidden_states=text)
    assert torch.equal(heard[0].residual, states) and heard[0].factor == 2
    expected = (linear(heard[0].joined, *output_projection(layer, heard[0].joined)) + states) / 2
    torch.testing.assert_close(output, expected)
