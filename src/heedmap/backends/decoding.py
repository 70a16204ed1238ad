"""What makes the picture of a latent, and a latent of a picture: the autoencoder of a pipeline.

Axes: B image · C channel · h, w rows and columns of the latent · H, W of the picture.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import adaptive_avg_pool2d, pad, pixel_shuffle, pixel_unshuffle, unfold


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


@dataclass(frozen=True, eq=False)
class Colours:
    """RGB from the channels of a cell and of its neighbours.

    Attributes:
        weights: float32 (C·(2·around + 1)², 3·finer²).
        offset: float32 (3·finer²,); for 0 to 1.
        around: how many cells away on each side a neighbour may be.
        finer: pixels on the side of a cell.
    """

    weights: torch.Tensor
    offset: torch.Tensor
    around: int = 0
    finer: int = 1

    def __call__(self, latents: torch.Tensor) -> torch.Tensor:
        """The colours (B, 3, h·finer, w·finer), 0 to 1, of latents such as it was fitted to."""
        found = _neighbours(latents, self.around).float() @ self.weights + self.offset
        cells = found.transpose(1, 2).unflatten(2, latents.shape[-2:])
        return pixel_shuffle(cells, self.finer).clamp(0, 1)


def fitted(
    latents: torch.Tensor, colours: torch.Tensor, *, around: int = 0, ridge: float = 0.0
) -> Colours:
    """The linear map that fits best: least squares, with a ridge where there are few cells.

    Args:
        latents: (B, C, h, w).
        colours: of each cell, or some of each: (B, 3, h·finer, w·finer), 0 to 1.
        around: as of `Colours`.
        ridge: how dear weights are, by the variance of what they weigh.
    """
    finer = colours.shape[-1] // latents.shape[-1]
    wanted = pixel_unshuffle(colours.cpu().double(), finer).flatten(2).transpose(1, 2)
    inputs = _neighbours(latents, around)
    inputs, wanted = inputs.flatten(0, 1), wanted.flatten(0, 1)  # (B·h·w, …)
    mean, middle = inputs.mean(dim=0), wanted.mean(dim=0)
    inputs = inputs - mean
    dear = ridge * inputs.square().sum(dim=0).mean() * torch.eye(inputs.shape[1]).double()
    # Where the latents say less than they have channels, the smallest of all maps that fit.
    weights = torch.linalg.lstsq(
        inputs.T @ inputs + dear, inputs.T @ (wanted - middle), driver="gelsd"
    ).solution
    return Colours(weights.float(), (middle - mean @ weights).float(), around, finer)


def _neighbours(latents: torch.Tensor, around: int) -> torch.Tensor:
    """Each cell with its neighbours, float64 (B, h·w, C·(2·around + 1)²); borders are held."""
    held = pad(latents.cpu().double(), (around,) * 4, mode="replicate")
    return unfold(held, 2 * around + 1).transpose(1, 2)


@torch.no_grad()
def fit_colours(vae: Any) -> Colours:
    """The linear map from channels to colours that fits an autoencoder best.

    Args:
        vae: of a pipeline; it is afterwards as it was, to the bit.
    """
    chance = np.random.default_rng(0)
    fields = [
        np.asarray(
            Image.fromarray(chance.integers(0, 256, (8, 8, 3), dtype=np.uint8)).resize(
                (256, 256), Image.Resampling.BICUBIC
            )
        )
        for _ in range(4)
    ]
    pixels = torch.from_numpy(np.stack(fields)).movedim(-1, 1).float() / 255  # (B, 3, H, W)
    codes = latents_of(vae, pixels)
    cells = adaptive_avg_pool2d(pixels, (codes.shape[-2], codes.shape[-1]))
    return fitted(codes, cells)
