"""What a layer computes around its softmax, against the layer's own weights."""

from contextlib import ExitStack

import pytest
import torch
from diffusers.models.attention_processor import Attention
from torch.nn.functional import linear

from heedmap.backends.activations import output_projection, record_activations


def made(**config) -> Attention:
    torch.manual_seed(0)
    return Attention(
        query_dim=12, cross_attention_dim=10, heads=3, dim_head=4, **config
    ).eval()  # fmt: skip


@pytest.mark.parametrize("fused", [False, True])
@torch.no_grad()
def test_activations_equal_the_layers_own_weights_applied_by_hand(fused):
    layer = made(bias=True)
    states, text = torch.randn(2, 5, 12), torch.randn(2, 7, 10)
    value = linear(text, layer.to_v.weight, layer.to_v.bias)
    if fused:
        layer.fuse_projections()
    heard = []
    with ExitStack() as stack:
        record_activations(layer, heard.append, stack.callback)
        output = layer(states, encoder_hidden_states=text)
        (now,) = heard
        end = output_projection(layer, now.joined)
    assert torch.equal(now.output, output)
    torch.testing.assert_close(now.value, value)
    assert now.joined.shape == (2, 5, 12)
    torch.testing.assert_close(linear(now.joined, *end), output)
    layer(states, encoder_hidden_states=text)
    assert len(heard) == 1 and not layer._forward_hooks  # nothing is left on it
    assert (now.residual, now.factor, now.adapted) == (None, 1.0, False)


@torch.no_grad()
def test_the_residual_and_the_output_factor_are_recorded():
    layer = made(residual_connection=True, rescale_output_factor=2.0)
    states, text = torch.randn(1, 5, 12), torch.randn(1, 7, 10)
    heard = []
    with ExitStack() as stack:
        record_activations(layer, heard.append, stack.callback)
        output = layer(states, encoder_hidden_states=text)
    assert torch.equal(heard[0].residual, states) and heard[0].factor == 2
    expected = (linear(heard[0].joined, *output_projection(layer, heard[0].joined)) + states) / 2
    torch.testing.assert_close(output, expected)


class Adapted(torch.nn.Module):
    """A linear map in the place of another, as a LoRA is: no weight of its own tells all."""

    def __init__(self, inner: torch.nn.Linear) -> None:
        super().__init__()
        self.inner, self.in_features = inner, inner.in_features
        self.down, self.up = torch.randn(2, inner.in_features), torch.randn(inner.out_features, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + x @ self.down.T @ self.up.T


@torch.no_grad()
def test_a_projection_with_an_adapter_is_measured():
    layer = made()
    inner = layer.to_out[0]
    layer.to_out[0] = Adapted(inner)
    heard = []
    handle = layer.to_out[0].register_forward_hook(lambda *_: heard.append(1))
    weight, bias = output_projection(layer, torch.ones(1, 5, 12))
    handle.remove()
    assert not heard  # whoever listens to the module hears nothing of it
    expected = inner.weight + layer.to_out[0].up @ layer.to_out[0].down
    torch.testing.assert_close(weight, expected)
    torch.testing.assert_close(bias, inner.bias)


def test_a_plain_projection_is_read_exactly():
    layer = made(out_bias=False).to(torch.bfloat16)
    weight, bias = output_projection(layer, torch.ones(1, 5, 12))
    assert torch.equal(weight, layer.to_out[0].weight.float()) and bias is None


def test_an_image_prompt_is_recognised_by_its_processor():
    layer = made()
    layer.processor.to_k_ip = torch.nn.ModuleList()
    heard = []
    with ExitStack() as stack:
        record_activations(layer, heard.append, stack.callback)
        layer(torch.randn(1, 5, 12), encoder_hidden_states=torch.randn(1, 7, 10))
    assert heard[0].adapted
