"""Text in pictures: set in lines that fit, in fonts that have every character.

Nothing is cut, and no empty box is drawn: what no font of the machine has is spelled by its number.
"""

import math
import re
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, features

__all__ = ["Text", "drawable", "fit_text"]

_RAQM = features.check("raqm")  # without it Pillow knows no direction and joins no letters
_JOINERS = "\u200c\u200d"
_ODD = re.compile("bold|black|light|thin|italic|oblique|serif|mono|cond|medium", re.IGNORECASE)
_USELESS = re.compile("last.?resort|blank|colou?r", re.IGNORECASE)  # boxes, or no outlines


@lru_cache(maxsize=4096)
def drawable(text: str) -> str:
    """Give text as it will be drawn: one line, every character in a font that has it.

    Blanks and line breaks become single spaces, invisible signs are dropped, and what no font of
    this machine can draw is spelled by its number, as in ``U+D55C·AD6D``: never an empty box.
    """
    shown, spelled = "", False
    for sign in " ".join(unicodedata.normalize("NFC", text).split()):
        if unicodedata.category(sign) == "Cf" or 0xFE00 <= ord(sign) <= 0xFE0F:
            shown += sign if sign in _JOINERS and _RAQM and shown and not spelled else ""
        elif sign == " " or _font_file(sign):
            shown += "·" + sign if spelled and sign != " " else sign
            spelled = False
        else:
            shown += ("·" if shown[-1:].strip() else "") + ("" if spelled else "U+")
            shown += f"{ord(sign):04X}"
            spelled = True
    return shown


@dataclass(frozen=True)
class Text:
    """Text set in `lines` of `size` pixels, ready to be drawn; the lines hold it whole."""

    lines: tuple[str, ...]
    size: int

    @property
    def height(self) -> int:
        """Pixels from the top of the first line to the foot of the last."""
        return len(self.lines) * round(self.size * 1.3)

    @property
    def width(self) -> int:
        """Pixels of the longest line."""
        return math.ceil(max((_length(line, self.size) for line in self.lines), default=0))

    def draw(
        self, paper: Image.Image, x: int, y: int, room: int, ink: tuple[int, int, int], middle: bool
    ) -> None:
        """Draw in a column `room` wide: in its middle, or from the side where the script begins."""
        canvas = ImageDraw.Draw(paper)
        for number, line in enumerate(self.lines):
            base = y + number * round(self.size * 1.3) + self.size
            way, slack = _way(line), room - _length(line, self.size)
            left = x + (slack / 2 if middle else slack if way == "rtl" else 0)
            for path, run in _runs(line)[:: -1 if way == "rtl" else 1]:
                font = _font(path, self.size)
                canvas.text((round(left), base), run, ink, font, anchor="ls", direction=way)
                left += font.getlength(run, direction=way)


def fit_text(text: str, width: int, *, size: int, least: int = 11, lines: int = 2) -> Text:
    """Set text in a column `width` pixels wide: never cut, whatever its length.

    Takes the largest size from `size` down to `least` at which no word is broken and `lines` lines
    are enough. Where there is none, the text runs on at `least` over as many lines as it needs, and
    words wider than the column are broken.
    """
    text = drawable(text)
    for points in range(size, least, -1):
        if len(text) * points < 4 * lines * width and all(
            _length(word, points) <= width for word in text.split()
        ):
            block = Text(_wrap(text, width, points), points)
            if len(block.lines) <= lines:
                return block
    return Text(_wrap(text, width, least), least)


def _wrap(text: str, width: int, size: int) -> tuple[str, ...]:
    lines: list[str] = []
    while text:
        ends = range(1, min(len(text), 4 * width // size + 8) + 1)
        cut = max(1, bisect_right(ends, width, key=lambda end: _length(text[:end], size)))
        if cut < len(text):  # at a space, else behind a joint such as a hyphen
            space, joint = text.rfind(" ", 1, cut + 1), max(text.rfind(j, 1, cut) for j in "-·/,")
            cut = space if space > 0 else joint + 1 if joint > cut // 2 else cut
        # A mark stays with its letter, unless there are more of them than a line takes.
        ends = (end for end in range(cut, 0, -1) if end == len(text) or not _clings(text[end]))
        cut = next(ends, cut)
        lines.append(text[:cut])
        text = text[cut:].lstrip()
    return tuple(lines)


@lru_cache(maxsize=4096)
def _length(line: str, size: int) -> float:
    """How wide a line of drawable text is, in pixels."""
    way = _way(line)
    return sum(_font(path, size).getlength(run, direction=way) for path, run in _runs(line))


def _runs(line: str) -> list[tuple[str, str]]:
    """Cut drawable text into runs of one font: (file, characters)."""
    runs: list[tuple[str, str]] = []
    for sign in line:
        path, last = _font_file(sign) or _fonts(False)[0], runs[-1][0] if runs else ""
        if last and (sign == " " or _clings(sign)) and (sign in _JOINERS or _has(last, sign)):
            path = last
        if path == last:
            runs[-1] = path, runs[-1][1] + sign
        else:
            runs.append((path, sign))
    return runs


def _clings(sign: str) -> bool:
    return sign in _JOINERS or unicodedata.category(sign)[0] == "M"


def _way(line: str) -> str | None:
    """Where a line runs, by its first strong character; None where Pillow cannot be told."""
    ways = (unicodedata.bidirectional(sign) for sign in line)
    first = next((way for way in ways if way in ("L", "R", "AL")), "L")
    return ("ltr" if first == "L" else "rtl") if _RAQM else None


@lru_cache(maxsize=65536)
def _font_file(sign: str) -> str | None:
    """The first font that draws a character; None where there is none."""
    if unicodedata.category(sign) == "Co":  # private use: no two fonts agree
        return None
    fonts = (path for others in (False, True) for path in _fonts(others))
    return next((path for path in fonts if _has(path, sign)), None)


def _has(path: str, sign: str) -> bool:
    """Whether a font draws a character: it has a glyph for it, with ink in it."""
    if ord(sign) not in _glyphs(path):
        return False
    return sign == " " or _font(path, 32).getmask(sign).getbbox() is not None


@cache
def _glyphs(path: str) -> frozenset[int]:
    """The characters that a font file has; none where the file cannot be used."""
    from matplotlib.ft2font import FT2Font

    try:
        _font(path, 32)
        return frozenset(code for code, glyph in FT2Font(path).get_charmap().items() if glyph)
    except (OSError, RuntimeError, ValueError):
        return frozenset()


@lru_cache(maxsize=256)
def _font(path: str, size: int) -> ImageFont.FreeTypeFont:
    engine = ImageFont.Layout.RAQM if _RAQM else ImageFont.Layout.BASIC
    return ImageFont.truetype(path, size, layout_engine=engine)


@cache
def _fonts(others: bool) -> tuple[str, ...]:
    """DejaVu, which matplotlib brings along; or what else there is, plain upright faces first."""
    from matplotlib import font_manager, get_data_path

    own = Path(get_data_path(), "fonts", "ttf")
    if not others:
        return (str(own / "DejaVuSans.ttf"),)
    found = [path for path in font_manager.findSystemFonts() if not _USELESS.search(path)]
    found.sort(key=lambda path: (len(_ODD.findall(Path(path).name)), "Sans" not in path, path))
    return (*found, str(own / "STIXGeneral.ttf"))
