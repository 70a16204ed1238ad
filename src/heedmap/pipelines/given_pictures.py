"""A picture that a user has, as a model sees it: to be looked at, or to be edited."""

import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from math import ceil, floor, log, log10, prod, sqrt
from os import PathLike

import numpy as np
import torch
from PIL import Image, ImageOps

from heedmap.backends.arguments import THEIR_NAMES
from heedmap.backends.base import Pipeline, device_of, parameters
from heedmap.backends.latents import latents_of, pictures_of, rescaled, unscaled
from heedmap.backends.registry import family_of, unit, usual_size
from heedmap.errors import ArgumentError, ModelError, quoted, warn
from heedmap.figures.overlays import to_rgb
from heedmap.io import reading
from heedmap.io.reports import returned
from heedmap.io.settings import GivenPicture
from heedmap.io.writing import digest_of

_RESAMPLING = Image.Resampling.LANCZOS
LEAST_RETURNED = 20.0
"""Decibels (PSNR) below which an image that comes back from the autoencoder is warned of."""


@dataclass(frozen=True, eq=False)
class SeenPicture:
    """A picture that a user has, as a model sees it.

    Attributes:
        image: RGB, of the size that is asked for.
        latents: of it, (1, C, h, w), as the pipeline has them; float32.
        size: (width, height) as it was given.
    """

    image: Image.Image
    latents: torch.Tensor
    size: tuple[int, int]

    @property
    def noted(self) -> GivenPicture:
        """As settings note it."""
        return GivenPicture(size=self.size, sha256=digest_of(self.image))

    @torch.no_grad()
    def warn_if_unlike(self, pipe: Pipeline) -> None:
        """Warn if the model's autoencoder gives another image back."""
        vae = family_of(pipe).decoder(pipe)
        back = pictures_of(vae, unscaled(vae, self.latents).to(device_of(pipe)))[0].clamp(0, 1)
        mse = float(((back.movedim(0, -1).numpy() - np.array(self.image) / 255) ** 2).mean())
        if mse and (said := why_unlike(-10 * log10(mse))):
            warn(said)


def why_unlike(psnr_db: float | None) -> str:
    """Say that an image came back badly from the model's autoencoder; empty if it did not."""
    if psnr_db is None or psnr_db >= LEAST_RETURNED:
        return ""
    return (
        f"the picture {returned(psnr_db)} from the model's autoencoder, so its maps and edits are "
        f"unsure: expected {LEAST_RETURNED:g} dB or more; use one like those that the model draws"
    )


def check_pipeline(pipe: Pipeline) -> None:
    """Raise a ModelError if a pipeline cannot be shown a picture in the place of its own."""
    takes, name = parameters(pipe), type(pipe).__name__
    if "latents" not in takes or "strength" in takes or THEIR_NAMES["size"] not in takes:
        raise ModelError(
            f"{name} begins with a picture of its own: expected a pipeline of the same model that "
            "draws from a text alone, as diffusers' AutoPipelineForText2Image.from_pipe(pipe)"
        )
    if not hasattr(family_of(pipe).decoder(pipe), "encode"):
        raise ModelError(
            f"{name} has no autoencoder that encodes a picture: load the model with all its parts"
        )


def refuse_set(arguments: Iterable[str], ours: Iterable[str]) -> None:
    """Raise an ArgumentError if a pipeline's argument is given that a picture decides."""
    for name in sorted({*arguments} & {*ours}):
        raise ArgumentError(f"a picture is given, so {name} cannot be set: leave it out")


def upright_rgb(picture: object) -> Image.Image:
    """A picture of Pillow, or of a file, upright and in RGB; what is transparent is white.

    Raises:
        ArgumentError: if it is none, or cannot be read.
    """
    if isinstance(picture, str | PathLike):
        picture = reading.read_photograph(reading.path_of(picture))
    if not isinstance(picture, Image.Image):
        raise ArgumentError(
            f"the picture is {quoted(picture)}: expected a Pillow image, or the path of a file"
        )
    upright = picture
    # Of a broken note nobody knows which way it turns, and what Pillow says of it helps nobody.
    with warnings.catch_warnings(action="ignore"), suppress(Exception):
        upright = ImageOps.exif_transpose(picture)
    return to_rgb(upright)


def usual_for(pipe: Pipeline, own: tuple[int, int]) -> tuple[int, int]:
    """The (width, height) at which a picture of such a size is seen, where nobody says one.

    Raises:
        ArgumentError: if it is so long that nothing of its shape is drawn.
    """
    factor, (width, height) = unit(pipe), usual_size(pipe)
    part = width * height / (own[0] * own[1])
    w, h = own
    if any(side % factor for side in own) or not is_near_usual(pipe, own):
        exact = [side * sqrt(part) / factor for side in own]
        across, down = ({max(1, floor(side)), ceil(side)} for side in exact)

        def stretched(sides: tuple[int, int]) -> tuple[float, float]:
            """How far from the proportions, and then from the number of pixels."""
            wide, high = (log(side / like) for side, like in zip(sides, exact, strict=True))
            return round(abs(wide - high), 9), abs(wide + high)

        w, h = (side * factor for side in min(product(across, down), key=stretched))
    if max(w, h) > reading.MAX_ASPECT * min(w, h):
        raise ArgumentError(
            f"the picture is {own[0]}×{own[1]} pixels, which is too long to be seen in its "
            f"proportions: expected no side above {reading.MAX_ASPECT} times the other; cut a part "
            "out of it, or pass the size, to which it is stretched"
        )
    return w, h


def is_near_usual(pipe: Pipeline, size: tuple[int, int]) -> bool:
    """Whether a (width, height) has half to twice as many pixels as the model's own size."""
    return 0.5 <= prod(size) / prod(usual_size(pipe)) <= 2


def at_size(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    """A picture at a size (width, height)."""
    return picture if picture.size == size else picture.resize(size, _RESAMPLING)


@torch.no_grad()
def seen(pipe: Pipeline, picture: Image.Image, size: tuple[int, int]) -> SeenPicture:
    """An opened picture as a model sees it, at a size (width, height) that it draws."""
    image = at_size(picture, size)
    vae = family_of(pipe).decoder(pipe)
    pixels = torch.from_numpy(np.array(image)).movedim(-1, 0)[None] / 255
    return SeenPicture(image, rescaled(vae, latents_of(vae, pixels, device_of(pipe))), picture.size)
