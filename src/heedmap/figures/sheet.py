"""A figure of pictures and lines of text at given pixels, saved as PNG, SVG or PDF.

A module of its own, since it alone imports matplotlib's figure, which takes a fifth of a second.
Of rcParams only how matplotlib writes text into an SVG or PDF (`svg.fonttype`, `pdf.fonttype`) is
the user's. They are those of the whole process: what else decides the bytes of a file is set while
one is written, by one thread at a time. pyplot is not imported.
"""

import io
import threading
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patheffects import Normal
from matplotlib.text import Text
from matplotlib.transforms import Affine2D
from PIL import Image

from heedmap import checks
from heedmap.figures.blocks import Block, PictureAt
from heedmap.figures.formats import FORMATS, format_of, png
from heedmap.figures.lettering import drawable, font
from heedmap.figures.painting import DPI, pixels
from heedmap.files.writing import put_file

__all__ = ["Sheet"]

# Of how files are written nothing is left to a style.
_WRITTEN: dict[Any, Any] = {
    "figure.autolayout": False,
    "figure.constrained_layout.use": False,
    "savefig.bbox": None,
    "savefig.facecolor": "auto",
    "savefig.edgecolor": "auto",
    "savefig.transparent": False,
    "svg.hashsalt": "heedmap",
    "svg.image_inline": True,
}
_WRITING = threading.Lock()


class Sheet(Figure):
    """A figure of pictures and text, laid out in pixels; made by whatever has a `figure()`.

    It is a `matplotlib.figure.Figure` like any other: `savefig`, `text` and `add_axes` act as
    usual. Its one Axes, `sheet.axes[0]`, is the paper, in pixels from the top left corner: its
    `images` are the pictures and its `texts` the lines, the title first, in reading order. At 72
    dots an inch, as it comes, a picture of 256 pixels is 256 pixels wide; at more each is drawn
    again from all the pixels that it has.
    """

    title = ""

    @classmethod
    def of(cls, block: Block, title: str = "") -> "Sheet":
        """Draw a block on white.

        Args:
            block: what is to be seen, in pixels.
            title: what SVG and PDF files say that they are.
        """
        size = block.width / DPI, block.height / DPI
        plain: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "layout": "none"}
        sheet = cls(size, DPI, frameon=True, **plain)
        sheet.title = drawable(title)
        sheet.suppressComposite = True  # each picture is one in SVG and PDF too
        paper = sheet.add_axes((0, 0, 1, 1), xlim=(0, block.width), ylim=(block.height, 0))
        paper.set_axis_off()
        _plain(sheet.patch)
        for thing in block.things:
            if isinstance(thing, PictureAt):
                paper.add_image(_Picture(paper, thing))
            else:
                line = _Line(thing.x, thing.y, thing.text, color=thing.colour, clip_on=False)
                line.set(fontproperties=font(thing.text, thing.size), antialiased=True)
                line.set(parse_math=False, usetex=False)
                paper.add_artist(_plain(line))
        return sheet

    def image(self) -> Image.Image:
        """The figure as an RGB picture, at the figure's `dpi`."""
        width, height = np.rint(self.get_size_inches() * self.dpi).astype(int).tolist()
        renderer = RendererAgg(width, height, self.dpi)
        self.draw(renderer)
        return Image.fromarray(np.asarray(renderer.buffer_rgba())).convert("RGB")

    def data(self, kind: str = "png") -> bytes:
        """The bytes of a file: no date, and the same ones for the same figure.

        Args:
            kind: "png", "svg" or "pdf".

        Raises:
            ArgumentError: if there is no such format.
        """
        checks.one_of("kind", kind, FORMATS)
        if kind == "png":
            return png(self.image())
        words = " · ".join(one.get_text() for one in self.findobj(Text) if one.get_text())
        told: dict[str, Any] = {"Title": self.title, "Creator": None}
        told |= {
            "svg": {"Description": words, "Date": None, "Type": None},
            "pdf": {"Subject": words, "CreationDate": None, "Producer": None},
        }[kind]
        # Twice as fine where a picture has more pixels than are shown, for print.
        shrunk = any(one.is_shrunk for one in self.findobj(_Picture))
        file = io.BytesIO()
        with _WRITING, rc_context(_WRITTEN):
            self.savefig(file, format=kind, dpi=DPI * (1 + shrunk), metadata=told)
        return file.getvalue()

    def save(self, path: str | Path) -> Path:
        """Write a PNG, SVG or PDF file, by its suffix; an older file is replaced.

        Args:
            path: of the file, such as "house.pdf".

        Raises:
            ArgumentError: if `path` is not a path or has another suffix.
            RunError: if it cannot be written.
        """
        return put_file(path, self.data(format_of(path)))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, bytes]:
        # Jupyter has a formatter for figures only where pyplot was imported, and it crops them.
        return {"image/png": self.data()}


class _Picture(AxesImage):
    """A picture at its place, resized from its own pixels to those that the output has there."""

    def __init__(self, paper: Axes, thing: PictureAt) -> None:
        x, y, (width, height) = thing.x, thing.y, thing.size
        super().__init__(paper, origin="upper", extent=(x, x + width, y + height, y))
        self.set_data(np.asarray(thing.picture))
        self._outlined, self._width = thing.outlined, width

    @property
    def is_shrunk(self) -> bool:
        return self.get_size()[1] > self._width

    def make_image(
        self, renderer: RendererBase, magnification: float = 1.0, unsampled: bool = False
    ) -> tuple[np.ndarray, float, float, Affine2D]:
        left, low, right, high = np.rint(self.get_window_extent(renderer).extents)
        wide, tall = (max(1, round(n * magnification)) for n in (right - left, high - low))
        own = np.asarray(self.get_array())
        if own.shape[2:] != (3,) or own.dtype != np.uint8:  # not a picture any more, but a map
            own = self.to_rgba(own, bytes=True)[..., :3]
        thick = max(1, wide // self._width) if self._outlined else 0  # a pixel of the paper
        picture = pixels(Image.fromarray(own), (wide, tall), thick)
        return picture, left, low, Affine2D()


class _Line(Text):
    """A line of text: letters in SVG and PDF; in pictures outlines, evenly set at all sizes."""

    def draw(self, renderer: RendererBase) -> None:
        # Outlines too where fonts are mixed: matplotlib's PDF lacks some signs of the others.
        letters = renderer.option_scale_image() and len(self.get_fontfamily()) == 1
        self.set_path_effects([] if letters else [Normal()])
        super().draw(renderer)


def _plain(artist: Artist) -> Artist:
    """Undo what a style may have set for whatever is drawn."""
    artist.set_sketch_params(None)
    artist.set_path_effects([])
    return artist
