"""Pictures and texts at their places, and text wrapped to a width.

Places are in pixels from the top left corner. matplotlib is imported when text is measured, since
commands without figures do not need it.
"""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from PIL import Image

from heedmap.errors import quoted, warn

INK, SOFT = "#1d1d1f", "#636368"  # colours of captions and of notes

_LINE = 1.3  # sizes of a letter from one line to the next
_LONGEST = 1000  # characters of a text
_JOINERS = "\u200c\u200d\ufe0f"  # of Persian letters and of emoji

# The first has Latin, Greek, Cyrillic, Arabic and Hebrew, and comes with matplotlib; the others,
# where they are installed, have the scripts that it lacks.
_FONTS = (
    *("DejaVu Sans", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans CJK SC", "NanumGothic"),
    *("Noto Sans Devanagari", "Noto Sans Bengali", "Noto Sans Tamil", "Noto Sans Thai"),
    *("Malgun Gothic", "Yu Gothic", "Microsoft YaHei", "Nirmala UI", "Segoe UI Emoji"),
    *("Hiragino Sans", "Apple SD Gothic Neo", "PingFang SC", "Arial Unicode MS", "Noto Emoji"),
)


@dataclass(frozen=True)
class PictureAt:
    """A picture, and the rectangle that it fills."""

    x: float
    y: float
    picture: Image.Image
    size: tuple[int, int]
    outlined: bool = True


@dataclass(frozen=True)
class TextAt:
    """Lines of text below (`va` "top"), above ("bottom") or around ("center") a point."""

    x: float
    y: float
    text: str
    size: int
    colour: str = INK
    ha: str = "center"
    va: str = "top"


@dataclass(frozen=True)
class Block:
    """Pictures and texts at their places in a rectangle."""

    width: int
    height: int
    items: tuple[PictureAt | TextAt, ...] = ()

    @classmethod
    def of(cls, picture: Image.Image) -> "Block":
        """Hold a picture in its own pixels, without an outline."""
        return cls(*picture.size, (PictureAt(0, 0, picture, picture.size, outlined=False),))


def stack(blocks: Sequence[Block], *, gap: int = 0) -> Block:
    """Put blocks below one another, each in the middle, `gap` pixels apart."""
    width, y = max(block.width for block in blocks), 0
    items: list[PictureAt | TextAt] = []
    for block in blocks:
        items += moved(block, (width - block.width) // 2, y)
        y += block.height + gap
    return Block(width, y - gap, tuple(items))


def moved(block: Block, x: float, y: float) -> tuple[PictureAt | TextAt, ...]:
    """Move what is in a block; pictures stay on whole pixels."""
    return tuple(
        replace(item, x=math.floor(item.x + x), y=math.floor(item.y + y))
        if isinstance(item, PictureAt)
        else replace(item, x=item.x + x, y=item.y + y)
        for item in block.items
    )


@cache
def fonts() -> tuple[str, ...]:
    """List the installed families for text: matplotlib takes each character from the first."""
    from matplotlib.font_manager import fontManager

    installed = {*fontManager.get_font_names()}
    return tuple(name for name in _FONTS if name in installed)


def warn_of_boxes(text: str) -> None:
    """Warn of the characters of a text that no font has: matplotlib draws boxes for them."""
    from matplotlib.font_manager import findfont, get_font

    drawn = {code for name in fonts() for code in get_font(findfont(name)).get_charmap()}
    lacking = [c for c in dict.fromkeys("".join(_words(text))) if ord(c) not in drawn]
    if lacking := [c for c in lacking if c not in _JOINERS]:
        warn(
            f"no installed font has {quoted(''.join(lacking[:8]))}, so the figure shows boxes: "
            "install a font of that script, such as Debian's fonts-noto-cjk, and delete "
            "matplotlib's fontlist (matplotlib.get_cachedir())"
        )


def wrap(text: str, width: int, size: int) -> str:
    """Break text into lines of at most `width` pixels, in letters of `size` pixels.

    It is one paragraph; what cannot be printed is left out, and so is all after 1000 characters.
    """
    text = " ".join(_words(text))
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    wide = text_width(text) * size
    if wide <= width:
        return text
    count = max(1, int(len(text) * width / wide))
    lines = textwrap.wrap(text, count)
    while count > 1 and max(map(text_width, lines)) * size > width:  # its letters differ
        count -= 1
        lines = textwrap.wrap(text, count)
    return "\n".join(lines)


def _words(text: str) -> list[str]:
    """Split text at white space, without what cannot be printed."""
    words = ("".join(c for c in word if c.isprintable() or c in _JOINERS) for word in text.split())
    return [word for word in words if word]


def size_for(texts: Sequence[str], width: int, size: int) -> int:
    """Reduce the size of letters, to 11 at least, until the longest word fits into a column."""
    longest = max((text_width(word) for text in texts for word in _words(text)), default=0)
    return max(min(size, 11), min(size, int(width / longest) if longest else size))


def note_size(width: int) -> int:
    """Choose the size of a sheet's notes by its width."""
    return min(22, max(16, width // 75))


def text_height(lines: str, size: int) -> int:
    """Measure the height of lines of text."""
    return math.ceil(len(lines.splitlines()) * size * _LINE)


@lru_cache(maxsize=4096)
def text_width(lines: str) -> float:
    """Measure the longest line, in sizes of a letter."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    family = FontProperties(family=list(fonts()), size=100)
    widths = (
        text_to_path.get_text_width_height_descent(line, family, ismath=False)[0]
        for line in lines.splitlines()
    )
    return max(widths, default=0.0) / 100
