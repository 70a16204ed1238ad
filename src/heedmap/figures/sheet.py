"""A figure of pictures and lines of text at given pixels, saved as PNG, SVG or PDF.

A module of its own, since it alone imports matplotlib's figure, which takes a third of a second.
Of rcParams nothing is asked but how matplotlib writes text into an SVG or PDF (`svg.fonttype`,
`pdf.fonttype`); they are those of the whole process, so that nothing is set there but for who wants
an SVG's pictures beside it, since ours are within. pyplot is not imported.
"""

import io
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.artist import Artist
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import Normal
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from PIL import Image, ImageDraw

from heedmap import checks
from heedmap.figures.blocks import Block, LineAt, PictureAt
from heedmap.figures.formats import FORMATS, format_of, png
from heedmap.figures.lettering import drawable, font
from heedmap.files.writing import put_file

__all__ = ["Sheet"]

_DPI = 72  # a pixel is a point, and sizes of letters are in pixels
_RULE = (205, 205, 209)
_WRITING = threading.Lock()


class Sheet(Figure):
    """A figure of pictures and text, laid out in pixels; made by whatever has a `figure()`.

    It is a `matplotlib.figure.Figure` like any other: `savefig`, `text` and `add_axes` act as
    usual. At 72 dots an inch, as it comes, a picture of 256 pixels is 256 pixels wide; at more each
    is drawn again from all the pixels that it has.
    """

    title = ""

    @classmethod
    def of(cls, block: Block, title: str = "") -> "Sheet":
        """Draw a block on white.

        Args:
            block: what is to be seen, in pixels.
            title: what SVG and PDF files say that they are.
        """
        width, height = block.width / _DPI, block.height / _DPI
        sheet = cls((width, height), _DPI, facecolor="white", edgecolor="none", frameon=True)
        sheet.title = drawable(title)
        _plain(sheet.patch)
        for number, thing in enumerate(block.things):
            if isinstance(thing, PictureAt):
                sheet.add_artist(_Picture(thing, f"picture{number}"))
            else:
                sheet.add_artist(_line(thing, sheet, block.height))
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
        canvas, dpi, file = self.canvas, self.dpi, io.BytesIO()
        words = " · ".join(one.get_text() for one in self.findobj(Text))
        told: dict[str, Any] = {"Title": self.title, "Creator": None}
        # Twice as fine where a picture has more pixels than are shown, for print.
        pictures = [one for one in self.artists if isinstance(one, _Picture)]
        self.dpi = _DPI * (2 if any(one.is_shrunk for one in pictures) else 1)
        try:
            with _WRITING, _within():
                if kind == "svg":
                    from matplotlib.backends.backend_svg import FigureCanvasSVG

                    told |= {"Description": words, "Date": None, "Type": None}
                    FigureCanvasSVG(self).print_svg(file, metadata=told)
                else:
                    from matplotlib.backends.backend_pdf import FigureCanvasPdf

                    told |= {"Subject": words, "CreationDate": None, "Producer": None}
                    FigureCanvasPdf(self).print_pdf(file, metadata=told)
        finally:
            self.set_canvas(canvas)
            self.dpi = dpi
        return file.getvalue()

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write a PNG, SVG or PDF file, by its suffix, whole or not at all, and give its path.

        Args:
            path: of the file, such as "house.pdf".
            force: whether a figure that heedmap saved there, and nobody changed since, is
                replaced; no other file ever is.

        Raises:
            ArgumentError: if `path` is not a path or has another suffix, or `force` neither True
                nor False.
            RunError: if something is there already, or nothing can be written there; then nothing
                is left there either.
        """
        return put_file(path, self.data(format_of(path)), force=force)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, bytes]:
        # Jupyter asks pyplot's formatter for figures, which shows none that has no axes.
        return {"image/png": self.data()}


@contextmanager
def _within() -> Generator[None]:
    """Pictures are written into an SVG, not beside it."""
    if rcParams["svg.image_inline"]:
        yield
        return
    rcParams["svg.image_inline"] = True
    try:
        yield
    finally:
        rcParams["svg.image_inline"] = False


class _Picture(Artist):
    """A picture at its place, resized from its own pixels to those that the output has there."""

    def __init__(self, thing: PictureAt, name: str) -> None:
        super().__init__()
        _plain(self)
        self.set_gid(name)  # else SVG names it by chance
        self._thing = thing

    @property
    def is_shrunk(self) -> bool:
        return self._thing.picture.width > self._thing.size[0]

    def get_window_extent(self, renderer: RendererBase | None = None) -> Bbox:
        figure = self.get_figure(root=True)
        assert figure is not None
        x, y, (width, height) = self._thing.x, self._thing.y, self._thing.size
        top = figure.get_figheight() * _DPI - y
        ends = np.array([[x, top - height], [x + width, top]])
        return Bbox(np.rint(ends * figure.dpi / _DPI))

    def draw(self, renderer: RendererBase) -> None:
        if not self.get_visible():
            return
        place, fine = self.get_window_extent(), renderer.get_image_magnification()
        size = max(1, round(place.width * fine)), max(1, round(place.height * fine))
        picture = self._thing.picture.convert("RGB").resize(size, Image.Resampling.LANCZOS)
        if self._thing.outlined:
            wide = max(1, size[0] // self._thing.size[0])
            ends = (0, 0, size[0] - 1, size[1] - 1)
            ImageDraw.Draw(picture).rectangle(ends, outline=_RULE, width=wide)
        pen = renderer.new_gc()
        pen.set_gid(self.get_gid())  # pyright: ignore[reportArgumentType]  # of Agg alone a number
        pixels = np.asarray(picture.convert("RGBA"))[::-1]  # renderers count from the foot
        renderer.draw_image(pen, place.x0, place.y0, pixels)
        pen.restore()
        self.stale = False


class _Line(Text):
    """A line of text: letters in SVG and PDF; in pictures outlines, evenly set at all sizes."""

    def draw(self, renderer: RendererBase) -> None:
        # Outlines too where fonts are mixed: matplotlib's PDF lacks some signs of the others.
        letters = renderer.option_scale_image() and len(self.get_fontfamily()) == 1
        self.set_path_effects([] if letters else [Normal()])
        super().draw(renderer)


def _line(thing: LineAt, sheet: Figure, height: int) -> Text:
    line = _Line(
        thing.x / _DPI,
        (height - thing.y) / _DPI,
        thing.text,
        transform=sheet.dpi_scale_trans,
        color=thing.colour,
        fontproperties=font(thing.text, thing.size),
        verticalalignment="baseline",
        horizontalalignment="left",
        parse_math=False,
        usetex=False,
        antialiased=True,
    )
    _plain(line)
    return line


def _plain(artist: Artist) -> None:
    """Undo what a style may have set for whatever is drawn."""
    artist.set_sketch_params(None)
    artist.set_path_effects([])
