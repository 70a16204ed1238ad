"""Measures of the difference of two images: MSE, PSNR and SSIM."""

import math

import numpy as np
import torch
from kornia.metrics import ssim
from PIL import Image

from heedmap.io.schemas import Change, Measures

_WINDOW = 11
"""Pixels on a side of the Gaussian windows of structural similarity, as Wang et al. (2004) have."""


def change_between(
    before: Image.Image,
    after: Image.Image,
    inside: np.ndarray,
) -> Change:
    """Measure the change of an image inside and outside of a mask, bool (H, W), of its size."""
    a = _pixels(before)
    b = _pixels(after)
    squares = ((a - b) ** 2).mean(dim=1)[0].numpy()
    similar = ssim(a, b, _WINDOW).mean(dim=1)[0].numpy()

    def measures(part: np.ndarray) -> Measures:
        share = round(float(part.mean()), 6)
        mse = psnr_db = similarity = None
        if part.any():
            mse = float(squares[part].mean())
            similarity = float(similar[part].mean())
            psnr_db = -10 * math.log10(mse) if mse else None
        return Measures(
            share,
            mse,
            psnr_db,
            similarity,
        )

    return Change(inside=measures(inside), outside=measures(~inside))


def image_difference(before: Image.Image, after: Image.Image) -> Measures:
    """Measure the difference of two images of one size."""
    everywhere = np.ones(before.size[::-1], dtype=bool)
    return change_between(before, after, everywhere).inside


def _pixels(image: Image.Image) -> torch.Tensor:
    """Return an image as float64 (1, 3, H, W), 0 to 1."""
    pixels = np.array(image.convert("RGB"), dtype=np.float64)
    return torch.from_numpy(pixels).movedim(-1, 0)[None] / 255
