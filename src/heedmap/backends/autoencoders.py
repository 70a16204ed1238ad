"""Latents and pixels: encoding, decoding, and the colours that a run's latents stand for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad, pixel_shuffle, pixel_unshuffle, unfold


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
    config = vae.config
    factor = getattr(config, "scaling_factor", 1.0)
    # Flux.2 normalizes four cells together, packed into channels.
    if hasattr(vae, "bn"):
        mean, spread = (
            vae.bn.running_mean,
            (vae.bn.running_var + config.batch_norm_eps).sqrt(),
        )
        grid = (like.shape[-2] // 2, like.shape[-1] // 2)
        packed = (
            one.to(like).view(-1, 1, 1).expand(-1, *grid) for one in (mean, spread)
        )
        shift, spread = (pixel_shuffle(one, 2) for one in packed)
        return 1.0, shift, spread
    if getattr(config, "latents_mean", None) is None:
        return factor, getattr(config, "shift_factor", None) or 0.0, 1.0
    mean, spread = config.latents_mean, config.latents_std
    return (
        factor,
        like.new_tensor(mean).view(-1, 1, 1),
        like.new_tensor(spread).view(-1, 1, 1),
    )


def is_of_frames(vae: Any) -> bool:
    """Return whether an autoencoder codes videos: Qwen-Image uses one frame."""
    return hasattr(vae.config, "temperal_downsample")


def pictures_of(vae: Any, latents: Tensor) -> Tensor:
    """Decode latents of an autoencoder to images (B, 3, H, W), 0 to 1."""
    with _upcast(vae):
        latents = latents.to(vae.dtype)
        if is_of_frames(vae):
            return (
                vae.decode(latents[:, :, None]).sample[:, :, 0].float().cpu() / 2 + 0.5
            )
        return vae.decode(latents).sample.float().cpu() / 2 + 0.5


def latents_of(vae: Any, pixels: Tensor, device: torch.device | None = None) -> Tensor:
    """Encode images (B, 3, H, W), 0 to 1, to latents of an autoencoder, on a device if given."""
    with _upcast(vae):
        pixels = (pixels * 2 - 1).to(device or vae.device, vae.dtype)
        encoded = vae.encode(pixels[:, :, None] if is_of_frames(vae) else pixels)
        latents = (
            encoded.latent_dist.mode()
            if hasattr(encoded, "latent_dist")
            else encoded[0]
        )
        return latents[:, :, 0] if is_of_frames(vae) else latents


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
    latents: Tensor, colours: Tensor, *, around: int = 0, ridge: float = 0.0
) -> Callable[[Tensor], Tensor]:
    """Fit a linear map from cells of latents, with their neighbours, to colours by least squares.

    Args:
        latents: (B, C, h, w).
        colours: (B, 3, h·finer, w·finer), 0 to 1, as the returned function gives them.
        around: the distance of the farthest neighbours, in cells.
        ridge: the penalty on weights, as a share of the mean variance of the inputs.
    """
    finer = colours.shape[-1] // latents.shape[-1]
    wanted = pixel_unshuffle(colours.cpu().double(), finer).flatten(2).transpose(1, 2)
    inputs = _neighbours(latents, around)
    inputs, wanted = inputs.flatten(0, 1), wanted.flatten(0, 1)  # (B·h·w, …)
    mean, middle = inputs.mean(dim=0), wanted.mean(dim=0)
    inputs = inputs - mean
    penalty = (
        ridge * inputs.square().sum(dim=0).mean() * torch.eye(inputs.shape[1]).double()
    )
    # "gelsd" takes the smallest of all maps that fit, where there are fewer cells than channels.
    weights = torch.linalg.lstsq(
        inputs.T @ inputs + penalty, inputs.T @ (wanted - middle), driver="gelsd"
    ).solution
    offset = (middle - mean @ weights).float()
    weights = weights.float()  # (C·(2·around + 1)², 3·finer²)

    def draw(latents: Tensor) -> Tensor:
        colours = _neighbours(latents, around).float() @ weights + offset
        cells = colours.transpose(1, 2).unflatten(2, latents.shape[-2:])
        return pixel_shuffle(cells, finer).clamp(0, 1)

    return draw


def _neighbours(latents: Tensor, around: int) -> Tensor:
    """Return each cell with its neighbours, float64 (B, h·w, C·(2·around + 1)²)."""
    padded = pad(latents.cpu().double(), (around,) * 4, mode="replicate")
    return unfold(padded, 2 * around + 1).transpose(1, 2)


T = TypeVar("T")
