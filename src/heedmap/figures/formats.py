"""Pictures and figures as files: which formats there are, and the bytes of a PNG."""

import io
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from heedmap.errors import ArgumentError
from heedmap.io.reading import path_of

FORMATS = ("png", "svg", "pdf")
"""What figures are saved as."""


def format_of(path: str | Path) -> str:
    """The format of a figure's file, by the suffix of its name.

    Raises:
        ArgumentError: if it is not a path, or has no such suffix.
    """
    suffix = path_of(path).suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise ArgumentError(
            f"{path} is not a name for a figure: expected a file that ends in .png, .svg or .pdf"
        )
    return suffix


def png(image: Image.Image, text: PngInfo | None = None) -> bytes:
    """A picture as the bytes of a PNG file, with what else it tells as text."""
    file = io.BytesIO()
    # Pillow packs at 6 unless told otherwise: sheets take twice as long, and are no smaller.
    image.save(file, "PNG", compress_level=4, pnginfo=text)
    return file.getvalue()
