"""What a pipeline's autoencoder takes and gives: held against a code that is worked out by hand."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from diffusers.models.autoencoders.vq_model import VQEncoderOutput
from families.checking import paint
from making import random_pipeline

from heedmap.backends.autoencoders import fit_colours, latents_of, pictures_of, rescaled, unscaled


def autoencoder(**config: Any) -> Any:
    return SimpleNamespace(config=SimpleNamespace(**config), dtype=torch.float32, device="cpu")


def test_latents_are_unscaled_before_decoding():
    code = torch.rand(2, 3, 5, 7)
    mean = torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1)
    spread = torch.tensor([2.0, 4.0, 8.0]).view(3, 1, 1)
    normal = autoencoder(
        scaling_factor=0.5, latents_mean=[1.0, 2.0, 3.0], latents_std=[2.0, 4.0, 8.0]
    )
    assert torch.allclose(unscaled(normal, (code - mean) / spread * 0.5), code, atol=1e-6)


def test_scaling_undoes_unscaling():
    code = torch.rand(2, 3, 5, 7)
    mean = [1.0, 2.0, 3.0]
    spread = [2.0, 4.0, 8.0]
    for vae in (
        autoencoder(scaling_factor=0.18215, shift_factor=None, latents_mean=None),
        autoencoder(scaling_factor=0.5, latents_mean=mean, latents_std=spread),
    ):
        assert torch.allclose(unscaled(vae, rescaled(vae, code)), code, atol=1e-5)
    shifted = autoencoder(scaling_factor=0.5, shift_factor=0.25)
    assert torch.allclose(rescaled(shifted, code), (code - 0.25) * 0.5)


def test_autoencoders_without_a_distribution_are_encoded():
    made = SimpleNamespace(encode=lambda x: VQEncoderOutput(x[..., ::8, ::8]))
    vae = SimpleNamespace(**vars(made), **vars(autoencoder()))
    assert torch.equal(latents_of(vae, torch.ones(1, 3, 16, 16)), torch.ones(1, 3, 2, 2))


def test_decoded_latents_are_the_pipelines_picture(pipe):
    latents = torch.from_numpy(paint(pipe, "a house", output_type="latent"))
    with torch.no_grad():
        pixels = pictures_of(pipe.vae, unscaled(pipe.vae, latents)).clamp(0, 1)
    whole = (pixels.movedim(1, -1) * 255).round().byte().numpy()
    assert np.array_equal(whole, (paint(pipe, "a house") * 255).round().astype("uint8"))


def test_an_autoencoder_in_half_precision_is_restored_after_upcasting():
    vae = random_pipeline().vae.to(torch.float16)
    vae.register_to_config(force_upcast=False)
    with torch.no_grad():
        assert latents_of(vae, torch.rand(1, 3, 64, 64)).dtype == torch.float16
    vae.register_to_config(force_upcast=True)
    before = {name: value.clone() for name, value in vae.state_dict().items()}
    with torch.no_grad():
        codes = latents_of(vae, torch.rand(1, 3, 64, 64))
        assert bool(pictures_of(vae, codes.half()).isfinite().all())
    assert codes.dtype == torch.float32
    after = vae.state_dict()
    assert vae.dtype == torch.float16
    assert all(torch.equal(before[name], after[name]) for name in before)


def draw_numbers(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def test_fitted_weights_recover_a_decoder_that_mixes_neighbours():
    """A decoder that mixes each cell with those around it, four pixels a cell, is found again."""
    kernel = (
        draw_numbers(4, 3, 6, 6, seed=2) / 60
    )  # a transposed convolution: 2 pixels a cell, 3 cells

    def decode(latents: torch.Tensor) -> torch.Tensor:
        held = torch.nn.functional.pad(latents, (1, 1, 1, 1), mode="replicate")
        made = torch.nn.functional.conv_transpose2d(held, kernel, stride=2, padding=2)
        return made[..., 2:-2, 2:-2]

    known = draw_numbers(1, 4, 24, 18)
    other = draw_numbers(3, 4, 9, 14, seed=5)
    colours = fit_colours(known, decode(known), around=1)
    assert colours(other).shape == (3, 3, 18, 28)
    assert torch.allclose(colours(other), decode(other), atol=1e-4)
    assert not torch.allclose(fit_colours(known, decode(known))(other), decode(other), atol=0.02)


def test_a_ridge_keeps_fitted_weights_small_on_few_cells():
    latents = draw_numbers(1, 4, 5, 5)
    noise = draw_numbers(1, 3, 5, 5, seed=9)
    loose, held = (fit_colours(latents, noise, around=2, ridge=ridge)(latents) for ridge in (0, 9))
    assert torch.allclose(loose, noise, atol=1e-3)  # 25 cells, 100 weights: all is learned
    assert held.std() < 0.5 * loose.std()
