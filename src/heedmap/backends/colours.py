"""Pictures of latents without a decoder: colours that are a linear function of the cells around.

The function is fitted, so that no number here is that of a certain model: to what an autoencoder
makes of colours, or to a picture and the latents that it was decoded from.

Axes: B image · C channel · h, w rows and columns of the latent.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import adaptive_avg_pool2d, pad, pixel_shuffle, pixel_unshuffle, unfold

from heedmap.backends.decoding import latents_of


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
