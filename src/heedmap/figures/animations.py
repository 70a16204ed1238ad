"""Pictures that move: frames to a GIF whose colours stay even."""

import base64
import html
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from heedmap.errors import plural, quoted
from heedmap.files.writing import put_file

__all__ = ["Animation"]

_GRAIN = 6  # of 255: about as far apart as neighbours in a palette are
_LOOKED_AT = 12  # frames that a palette is made of


@dataclass(frozen=True, eq=False)
class Animation:
    """Frames that a GIF shows one after the other, for ever.

    Attributes:
        label: what it shows.
        frames: RGB pictures of one size.
        durations: how long each stands, in milliseconds; GIFs count in tens of them.
    """

    label: str
    frames: tuple[Image.Image, ...]
    durations: tuple[int, ...]

    def __repr__(self) -> str:
        width, height = self.frames[0].size
        count = plural(len(self.frames), "frame")
        return f"<Animation {quoted(self.label)}: {count}, {width}×{height}>"

    def gif(self) -> bytes:
        """The bytes of a GIF file. All frames have one palette, so that no colour flickers."""
        palette = _palette(self.frames)
        grain = _grain(*self.frames[0].size)
        first, *others = (_reduced(frame, palette, grain) for frame in self.frames)
        file = io.BytesIO()
        first.save(
            file,
            "GIF",
            save_all=True,
            append_images=others,
            duration=list(self.durations),
            loop=0,
            disposal=1,
            optimize=False,
        )
        return file.getvalue()

    def save(self, path: str | Path) -> Path:
        """Write the GIF file, in the place of an older one, and give its path.

        Args:
            path: of the file.

        Raises:
            ArgumentError: if `path` is not a path.
            RunError: if it cannot be written.
        """
        return put_file(path, self.gif())

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.gif()).decode()
        return f'<img alt="{html.escape(self.label)}" src="data:image/gif;base64,{data}">'


def _palette(frames: tuple[Image.Image, ...]) -> Image.Image:
    """256 colours for all frames, as an image that carries them; paper is pure white."""
    apart = -(-len(frames) // _LOOKED_AT)
    pixels = np.concatenate([np.asarray(f)[::2, ::2].reshape(-1, 3) for f in frames[::apart]])
    coarse = pixels.astype(np.int32) >> 2
    _, first, counts = np.unique(
        coarse[:, 0] << 12 | coarse[:, 1] << 6 | coarse[:, 2], return_index=True, return_counts=True
    )
    # By the root of how often a colour is there: else paper and sky would take most of the palette,
    # and heat would lie in steps.
    some = np.repeat(pixels[first], np.ceil(np.sqrt(counts)).astype(int), axis=0)
    reduced = Image.fromarray(some[None]).quantize(256, Image.Quantize.MEDIANCUT, kmeans=1)
    colours = np.array(reduced.getpalette()).reshape(-1, 3)
    colours[(colours >= 250).all(axis=1)] = 255
    reduced.putpalette(colours.ravel().tolist())
    return reduced


def _grain(width: int, height: int) -> np.ndarray:
    """Bayer's even grain, (height, width, 1), from -0.5 to 0.5 times `_GRAIN`.

    It hides the steps between the colours of a palette. Diffused errors would hide them too, but
    crawl from frame to frame; this is the same in all.
    """
    rows, columns = np.mgrid[:height, :width]
    grain = np.zeros((height, width))
    for bit in range(3):  # the matrix of 8×8: the bits of x ^ y and of y, the lowest first
        x, y = columns >> bit & 1, rows >> bit & 1
        grain += ((x ^ y) * 2 + y) * 4.0 ** (2 - bit)
    return ((grain + 0.5) / 64 - 0.5)[..., None] * _GRAIN


def _reduced(frame: Image.Image, palette: Image.Image, grain: np.ndarray) -> Image.Image:
    """A frame in the colours of a palette."""
    grained = np.clip(np.rint(np.asarray(frame) + grain), 0, 255).astype(np.uint8)
    return Image.fromarray(grained).quantize(palette=palette, dither=Image.Dither.NONE)
