"""Latents and pixels: encoding, decoding, and the colours that a run's latents stand for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, pixel_shuffle, pixel_unshuffle, unfold

_OF_FRAMES = "temperal_downsample"
"""The setting of autoencoders that code videos; Qwen-Image uses one frame."""


def unscaled(vae: Any, latents: Tensor) -> Tensor:
    """Convert latents (B, C, h, w) of a pipeline to those of its autoencoder."""
    latents = latents.to(vae.device, vae.dtype)
    factor, shift, spread = _scaling(vae, latents)
    return latents / factor * spread + shift


def rescaled(vae: Any, latents: Tensor) -> Tensor:
    """Convert latents (B, C, h, w) of an autoencoder to those of its pipeline, in float32."""
    latents = latents.float()
    factor, shift, spread = _scaling(vae, latents)
    return (latents - shift) / spread * factor


def _scaling(vae: Any, like: Tensor) -> tuple[float, Any, Any]:
    """Return the factor, shift and spread of latents (B, C, h, w)."""
    config = vae.config
    # Flux.2 normalizes four cells together, packed into channels.
    if hasattr(vae, "bn"):
        shift = vae.bn.running_mean
        spread = (vae.bn.running_var + config.batch_norm_eps).sqrt()
        return 1.0, _tiled(shift, like), _tiled(spread, like)
    factor = getattr(config, "scaling_factor", 1.0)
    if getattr(config, "latents_mean", None) is None:
        return factor, getattr(config, "shift_factor", None) or 0.0, 1.0
    shift = like.new_tensor(config.latents_mean).view(-1, 1, 1)
    spread = like.new_tensor(config.latents_std).view(-1, 1, 1)
    return factor, shift, spread


def _tiled(values: Tensor, like: Tensor) -> Tensor:
    """Return values (4C) of blocks of 2×2 cells as (C, h, w), of the type of some latents."""
    block = pixel_shuffle(values.to(like).view(-1, 1, 1), 2)
    h, w = like.shape[-2:]
    return block.repeat(1, h // 2, w // 2)


def pictures_of(vae: Any, latents: Tensor) -> Tensor:
    """Decode latents of an autoencoder to images (B, 3, H, W), 0 to 1, without transparency."""
    with _upcast(vae):
        latents = latents.to(vae.dtype)
        if hasattr(vae.config, _OF_FRAMES):
            latents = latents.unsqueeze(2)
        pixels = vae.decode(latents).sample
        if pixels.ndim == 5:
            pixels = pixels.squeeze(2)
        return pixels[:, :3].float().cpu() / 2 + 0.5


def latents_of(
    vae: Any,
    pixels: Tensor,
    device: torch.device | None = None,
) -> Tensor:
    """Encode images (B, 3, H, W), 0 to 1, to latents of an autoencoder, on a device if given.

    They are opaque where the autoencoder codes transparency, too.
    """
    with _upcast(vae):
        pixels = (pixels * 2 - 1).to(device or vae.device, vae.dtype)
        if getattr(vae.config, "in_channels", 3) == 4:  # colours and opacity
            pixels = pad(pixels, (0, 0, 0, 0, 0, 1), value=1.0)
        if hasattr(vae.config, _OF_FRAMES):
            return vae.encode(pixels.unsqueeze(2)).latent_dist.mode().squeeze(2)
        encoded = vae.encode(pixels)
        if hasattr(encoded, "latent_dist"):
            return encoded.latent_dist.mode()
        return encoded[0]


@contextmanager
def _upcast(vae: Any) -> Iterator[None]:
    dtype = vae.dtype
    overflows = dtype == torch.float16 and getattr(vae.config, "force_upcast", False)
    try:
        if overflows:
            vae.to(torch.float32)
        yield
    finally:
        if overflows:
            vae.to(dtype)


def fit_colours(
    latents: Tensor,
    colours: Tensor,
    *,
    around: int = 0,
    ridge: float = 0.0,
) -> Callable[[Tensor], Tensor]:
    """Fit a linear map from cells of latents, with their neighbours, to colours by least squares.

    Args:
        latents: (B, C, h, w).
        colours: (B, 3, h·finer, w·finer), 0 to 1, as the returned function gives them.
        around: the distance of the farthest neighbours, in cells.
        ridge: the penalty on weights, as a share of the mean variance of the inputs.
    """
    finer = colours.shape[-1] // latents.shape[-1]
    inputs = _neighbours(latents, around).flatten(0, 1)  # (B·h·w, C·(2·around + 1)²)
    blocks = pixel_unshuffle(colours.cpu().double(), finer)
    targets = blocks.movedim(1, -1).flatten(0, 2)  # (B·h·w, 3·finer²)
    mean = inputs.mean(dim=0)
    middle = targets.mean(dim=0)
    inputs = inputs - mean
    squares = inputs.T @ inputs
    squares.diagonal().add_(ridge * squares.diagonal().mean())
    # "gelsd" takes the smallest of all maps that fit, where there are fewer cells than channels.
    weights = torch.linalg.lstsq(
        squares, inputs.T @ (targets - middle), driver="gelsd"
    ).solution
    offset = middle - mean @ weights

    def draw(latents: Tensor) -> Tensor:
        colours = _neighbours(latents, around) @ weights + offset
        cells = colours.transpose(1, 2).unflatten(2, latents.shape[-2:])
        return pixel_shuffle(cells, finer).clamp(0, 1).float()

    return draw


def _neighbours(latents: Tensor, around: int) -> Tensor:
    """Return each cell with its neighbours, float64 (B, h·w, C·(2·around + 1)²)."""
    padded = pad(latents.cpu().double(), (around,) * 4, mode="replicate")
    return unfold(padded, 2 * around + 1).transpose(1, 2)
