"""Small pictures of latents while they are drawn, at a cost that is bounded.

Where the latent is small the pipeline's own decoder is quick enough. Elsewhere each cell's colour
is a linear function of its channels, fitted to what this pipeline's encoder makes of colours.

Axes: B image · C channel · h, w rows and columns of the latent.
"""

import base64
import io
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from PIL import Image

from heedmap.wiring.colours import Colours, fit_colours
from heedmap.wiring.decoding import overflows, pictures_of, unscaled
from heedmap.wiring.registry import family_of

FULL = 32 * 32
"""Cells of a latent up to which the whole decoder is used."""
_SHARE = 0.2  # of the time may go into previews
_PAUSE = 0.25  # seconds from one to the next, at least
_SIDE = 256  # pixels of the short side of what is shown
_GAP = 8  # pixels between two pictures


class Previewer:
    """Turns the latents of a pipeline into small pictures, not more often than is affordable.

    Args:
        pipe: the pipeline.
        show: called with each picture, all images of a batch side by side.
        clock: seconds.
    """

    def __init__(
        self,
        pipe: Any,
        show: Callable[[Image.Image], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._vae, self._show, self._clock = family_of(pipe).decoder(pipe), show, clock
        self._next = -float("inf")

    def __call__(self, latents: torch.Tensor) -> None:
        """Show latents (B, C, h, w) of the pipeline, or skip them for want of time."""
        start = self._clock()
        if start < self._next:
            return
        self._show(picture_strip(self._pictures(latents)))
        cost = self._clock() - start
        self._next = start + cost + max(_PAUSE, cost * (1 / _SHARE - 1))

    @cached_property
    def _colours(self) -> Colours:
        return fit_colours(self._vae)

    @torch.no_grad()
    def _pictures(self, latents: torch.Tensor) -> list[Image.Image]:
        latents = unscaled(self._vae, latents)
        if latents.shape[-2] * latents.shape[-1] <= FULL and not overflows(self._vae):
            colours = pictures_of(self._vae, latents)
        else:
            colours = self._colours(latents)
        colours = torch.nan_to_num(colours).clamp(0, 1)
        pixels = (colours.movedim(1, -1) * 255).round().byte().numpy()
        return [Image.fromarray(each) for each in pixels]


def picture_strip(images: list[Image.Image]) -> Image.Image:
    """Pictures of one size side by side, the short side not over 256 pixels."""
    first = images[0]
    scale = _SIDE / min(first.size)
    size = (max(1, round(first.width * scale)), max(1, round(first.height * scale)))
    strip = Image.new("RGBA", (len(images) * (size[0] + _GAP) - _GAP, size[1]))
    for number, image in enumerate(images):
        strip.paste(image.resize(size, Image.Resampling.BILINEAR), (number * (size[0] + _GAP), 0))
    return strip


def data_url(image: Image.Image) -> str:
    """A picture as text that an `img` shows."""
    file = io.BytesIO()
    image.save(file, "WEBP", quality=80)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
