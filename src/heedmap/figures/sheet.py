"""A matplotlib Figure of pictures and text at given pixels, saved as PNG, SVG or PDF."""

import io
import threading
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from PIL import Image

from heedmap import checks
from heedmap.figures.blocks import Block, TextAt, fonts
from heedmap.figures.formats import FORMATS, format_of, png
from heedmap.io.writing import put_file

DPI = 72  # a pixel of the layout is a point
_PRINT_DPI = 144  # of the pictures in SVG and PDF files
_RULE = "#cdcdd1"  # the line around pictures
_LOCK = threading.Lock()  # rcParams are one for all threads


class Sheet(Figure):
    """A matplotlib Figure that saves itself; what has a `figure()` makes it.

    `savefig`, `text` and `add_axes` act as usual. Its one Axes, `sheet.axes[0]`, has pixels as its
    units, from the top left corner. Its `images` are the pictures, its `texts` the title and all
    other texts, in reading order.
    """

    title = ""

    @classmethod
    def of(cls, block: Block, title: str = "") -> "Sheet":
        """Draw a block on white.

        Args:
            block: the pictures and texts.
            title: of SVG and PDF files.
        """
        size = block.width / DPI, block.height / DPI
        sheet = cls(size, DPI, facecolor="white")
        sheet.title = title
        sheet.suppressComposite = True  # SVG and PDF files hold each picture by itself
        paper = sheet.add_axes((0, 0, 1, 1), xlim=(0, block.width), ylim=(block.height, 0))
        paper.set_axis_off()
        outlines: list[list[tuple[float, float]]] = []
        for item in block.items:
            if isinstance(item, TextAt):
                paper.text(
                    item.x,
                    item.y,
                    item.text,
                    color=item.colour,
                    family=list(fonts()),
                    size=item.size,
                    ha=item.ha,
                    va=item.va,
                    parse_math=False,
                    usetex=False,
                )
                continue
            left, top = item.x, item.y
            right, bottom = left + item.size[0], top + item.size[1]
            picture = item.picture
            if item.size > picture.size:  # larger ones stay as they are, for print
                picture = picture.resize(item.size, Image.Resampling.LANCZOS)
            image = AxesImage(paper, extent=(left, right, bottom, top), origin="upper")
            image.set_data(np.asarray(picture))
            paper.add_image(image)
            if item.outlined:
                corners = ((left, top), (right, top), (right, bottom), (left, bottom))
                outlines.append([*corners])
        lines = PolyCollection(outlines, facecolors="none", edgecolors=_RULE, linewidths=1)
        paper.add_collection(lines, autolim=False)
        return sheet

    def image(self) -> Image.Image:
        """Draw the figure as an RGB picture, at its `dpi`."""
        width, height = np.rint(self.get_size_inches() * self.dpi).astype(int).tolist()
        renderer = RendererAgg(width, height, self.dpi)
        self.draw(renderer)
        return Image.fromarray(np.asarray(renderer.buffer_rgba())).convert("RGB")

    def data(self, kind: str = "png") -> bytes:
        """Give the bytes of a file; the same figure has the same bytes.

        Args:
            kind: "png", "svg" or "pdf".

        Raises:
            ArgumentError: if there is no such format.
        """
        checks.one_of("kind", kind, FORMATS)
        if kind == "png":
            return png(self.image())
        date = {"svg": "Date", "pdf": "CreationDate"}[kind]
        file = io.BytesIO()
        with _LOCK, rc_context({"svg.hashsalt": "heedmap"}):
            metadata: dict[str, Any] = {"Title": self.title, date: None}
            self.savefig(file, format=kind, dpi=_PRINT_DPI, metadata=metadata)
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
