"""Colours of latents: exact where they are a linear function, and near where they are not."""

from types import SimpleNamespace
from typing import Any

import torch

from heedmap.backends.decoding import fit_colours, fitted, unscaled

MIX = torch.tensor([[0.5, 0.1, 0.0], [0.2, -0.7, 0.3], [0.0, 0.4, 0.9], [1.0, 0.0, -0.2]])


def chance(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def test_they_are_exact_where_an_autoencoder_is_linear():
    def encode(pixels: torch.Tensor) -> Any:
        means = torch.nn.functional.avg_pool2d(pixels, 8)  # (B, 3, h, w), -1 to 1
        code = torch.einsum("cr,brhw->bchw", MIX, means) + 0.3
        return SimpleNamespace(latent_dist=SimpleNamespace(mode=lambda: code))

    config = SimpleNamespace(scaling_factor=0.5, shift_factor=0.25)
    vae = SimpleNamespace(config=config, encode=encode, dtype=torch.float32, device="cpu")
    wanted = chance(2, 3, 5, 7)
    code = torch.einsum("cr,brhw->bchw", MIX, wanted * 2 - 1) + 0.3
    scaled = (code - 0.25) * 0.5  # as a pipeline holds it
    assert torch.allclose(fit_colours(vae)(unscaled(vae, scaled)), wanted, atol=1e-3)


def test_neighbours_say_what_lies_between_cells():
    """A decoder that mixes each cell with those around it, four pixels a cell, is found again."""
    kernel = chance(4, 3, 6, 6, seed=2) / 60  # a transposed convolution: 2 pixels a cell, 3 cells

    def decode(latents: torch.Tensor) -> torch.Tensor:
        held = torch.nn.functional.pad(latents, (1, 1, 1, 1), mode="replicate")
        made = torch.nn.functional.conv_transpose2d(held, kernel, stride=2, padding=2)
        return made[..., 2:-2, 2:-2]

    known, other = chance(1, 4, 24, 18), chance(3, 4, 9, 14, seed=5)
    colours = fitted(known, decode(known), around=1)
    assert colours(other).shape == (3, 3, 18, 28)
    assert torch.allclose(colours(other), decode(other), atol=1e-4)
    assert not torch.allclose(fitted(known, decode(known))(other), decode(other), atol=0.02)


def test_a_ridge_keeps_weights_small_where_there_are_few_cells():
    latents, noise = chance(1, 4, 5, 5), chance(1, 3, 5, 5, seed=9)
    loose, held = (fitted(latents, noise, around=2, ridge=ridge) for ridge in (0.0, 9.0))
    assert torch.allclose(loose(latents), noise, atol=1e-3)  # 25 cells, 100 weights: all is learned
    assert held.weights.abs().sum() < 0.5 * loose.weights.abs().sum()
