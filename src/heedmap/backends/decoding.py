"""What makes the picture of a latent, and a latent of a picture: the autoencoder of a pipeline.

Axes: B image · C channel · h, w rows and columns of the latent · H, W of the picture.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def unscaled(vae: Any, latents: torch.Tensor) -> torch.Tensor:
    """Latents of a pipeline (B, C, h, w) as its decoder takes them."""
    config = vae.config
    latents = latents.to(vae.device, vae.dtype)
    scaled = latents / getattr(config, "scaling_factor", 1.0)
    mean, spread = (getattr(config, name, None) for name in ("latents_mean", "latents_std"))
    if mean is not None and spread is not None:
        mean, spread = (latents.new_tensor(each).view(-1, 1, 1) for each in (mean, spread))
        return scaled * spread + mean
    return scaled + (getattr(config, "shift_factor", None) or 0.0)


def rescaled(vae: Any, latents: torch.Tensor) -> torch.Tensor:
    """Latents as a decoder takes them as their pipeline has them (B, C, h, w), in float32."""
    config, latents = vae.config, latents.float()
    factor = getattr(config, "scaling_factor", 1.0)
    mean, spread = (getattr(config, name, None) for name in ("latents_mean", "latents_std"))
    if mean is not None and spread is not None:
        mean, spread = (latents.new_tensor(each).view(-1, 1, 1) for each in (mean, spread))
        return (latents - mean) / spread * factor
    return (latents - (getattr(config, "shift_factor", None) or 0.0)) * factor


def overflows(vae: Any) -> bool:
    """Whether an autoencoder is in float16 and must not compute in it."""
    return vae.dtype == torch.float16 and bool(getattr(vae.config, "force_upcast", False))


def pictures_of(vae: Any, latents: torch.Tensor) -> torch.Tensor:
    """The pictures (B, 3, H, W), 0 to 1, of latents as the decoder takes them."""
    with _raised(vae):
        return vae.decode(latents.to(vae.dtype)).sample.float().cpu() / 2 + 0.5


def latents_of(vae: Any, pixels: torch.Tensor, where: torch.device | None = None) -> torch.Tensor:
    """The latents (B, C, h, w), as the decoder takes them, of pictures (B, 3, H, W), 0 to 1.

    Args:
        vae: the autoencoder.
        pixels: the pictures.
        where: it computes, if that is not where it is kept.
    """
    with _raised(vae):
        made = vae.encode((pixels * 2 - 1).to(where or vae.device, vae.dtype))
        return made.latent_dist.mode() if hasattr(made, "latent_dist") else made.latents


@contextmanager
def _raised(vae: Any) -> Iterator[None]:
    """Raise an autoencoder that `overflows` to float32, and put it back to the bit afterwards."""
    raised, dtype = overflows(vae), vae.dtype
    try:
        if raised:
            vae.to(torch.float32)
        yield
    finally:
        if raised:
            vae.to(dtype)


def channels_at_once(decoder: Any) -> int:
    """How many channels of the picture's size a decoder holds at most for each picture of a batch.

    None at all for each where it takes the pictures one by one (`enable_vae_slicing`).
    """
    if getattr(decoder, "use_slicing", False):
        return 0
    widths = getattr(decoder.config, "block_out_channels", None) or (128, 256)
    return max(widths[:2])  # the second widest stage is enlarged before it is narrowed
