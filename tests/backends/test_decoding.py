"""What a pipeline's autoencoder takes and gives: held against a code that is worked out by hand."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from families.checking import paint
from making import random_pipeline

from heedmap.backends.decoding import (
    channels_at_once,
    latents_of,
    overflows,
    pictures_of,
    rescaled,
    unscaled,
)


def autoencoder(**config: Any) -> Any:
    return SimpleNamespace(config=SimpleNamespace(**config), dtype=torch.float32, device="cpu")


def test_latents_are_scaled_back():
    code = torch.rand(2, 3, 5, 7)
    assert torch.equal(unscaled(autoencoder(), code), code)
    shifted = autoencoder(scaling_factor=0.5, shift_factor=0.25)
    assert torch.allclose(unscaled(shifted, (code - 0.25) * 0.5), code)
    mean = torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1)
    spread = torch.tensor([2.0, 4.0, 8.0]).view(3, 1, 1)
    normal = autoencoder(
        scaling_factor=0.5, latents_mean=[1.0, 2.0, 3.0], latents_std=[2.0, 4.0, 8.0]
    )
    assert torch.allclose(unscaled(normal, (code - mean) / spread * 0.5), code, atol=1e-6)


def test_latents_are_scaled_as_they_were():
    code = torch.rand(2, 3, 5, 7)
    mean, spread = [1.0, 2.0, 3.0], [2.0, 4.0, 8.0]
    for vae in (
        autoencoder(),
        autoencoder(scaling_factor=0.5, shift_factor=0.25),
        autoencoder(scaling_factor=0.18215, shift_factor=None, latents_mean=None),
        autoencoder(scaling_factor=0.5, latents_mean=mean, latents_std=spread),
    ):
        assert torch.allclose(unscaled(vae, rescaled(vae, code)), code, atol=1e-5)
    shifted = autoencoder(scaling_factor=0.5, shift_factor=0.25)
    assert torch.allclose(rescaled(shifted, code), (code - 0.25) * 0.5)
    assert rescaled(shifted, code.half()).dtype == torch.float32


def test_latents_of_autoencoders_that_give_them_without_a_spread():
    made = SimpleNamespace(encode=lambda x: SimpleNamespace(latents=x[..., ::8, ::8]))
    vae = SimpleNamespace(**vars(made), **vars(autoencoder()))
    assert torch.equal(latents_of(vae, torch.ones(1, 3, 16, 16)), torch.ones(1, 3, 2, 2))


def test_what_is_decoded_is_the_picture(pipe):
    latents = torch.from_numpy(paint(pipe, "a house", output_type="latent"))
    with torch.no_grad():
        pixels = pictures_of(pipe.vae, unscaled(pipe.vae, latents)).clamp(0, 1)
    whole = (pixels.movedim(1, -1) * 255).round().byte().numpy()
    assert np.array_equal(whole, (paint(pipe, "a house") * 255).round().astype("uint8"))


def test_what_is_raised_to_encode_and_decode_is_afterwards_as_it_was():
    vae = random_pipeline().vae.to(torch.float16)
    vae.register_to_config(force_upcast=False)
    assert not overflows(vae)
    vae.register_to_config(force_upcast=True)
    assert overflows(vae)
    before = {name: value.clone() for name, value in vae.state_dict().items()}
    with torch.no_grad():
        codes = latents_of(vae, torch.rand(1, 3, 64, 64))
        assert bool(pictures_of(vae, codes.half()).isfinite().all())
    assert codes.dtype == torch.float32
    after = vae.state_dict()
    assert vae.dtype == torch.float16
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not overflows(vae.to(torch.float32))


def test_channels_where_a_decoder_has_the_pictures_size():
    assert channels_at_once(autoencoder(block_out_channels=(8, 32, 99))) == 32
    assert channels_at_once(autoencoder()) == 256
    sliced = autoencoder(block_out_channels=(8, 32))
    sliced.use_slicing = True
    assert channels_at_once(sliced) == 0
