"""Text for figures: broken into lines that fit, in fonts that have every character.

matplotlib shapes a line and falls back over the families that it is given. Nothing is cut but what
is longer than any prompt, and no empty box is drawn: what no font of the machine has is spelled by
its number.
"""

import math
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from heedmap.errors import warn

if TYPE_CHECKING:
    from matplotlib.font_manager import FontEntry, FontProperties
    from matplotlib.ft2font import FT2Font

__all__ = ["Lines", "drawable", "fit_text", "font", "runs_left"]

_FIRST = "DejaVu Sans"  # which matplotlib brings along
_LONGEST = 1000  # signs of a text; a prompt of CLIP has some 400 at most
_JOINERS = "\u200c\u200d"
_JOINTS = re.compile(r"(?<=[-·/,])(?![\u0300-\u036f])")
# Boxes, no outlines, or glyphs under the numbers of other characters.
_USELESS = re.compile("last.?resort|blank|colou?r|^cm[a-z]+10|STIX(Non|Size)", re.IGNORECASE)


def drawable(text: str) -> str:
    """Give text as it will be drawn: one line, every character in a font that has it.

    Blanks and line breaks become single spaces, invisible signs are dropped, and what no font of
    this machine can draw is spelled by its number, as in ``U+D55C·AD6D``: never an empty box. Of a
    text beyond any prompt it is the first thousand signs: each line that is drawn takes its time.
    """
    line = " ".join(text.split())
    spelled, scripts = _spelled(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…")
    for script in sorted(scripts):
        warn(
            f"no installed font has {script} characters, so figures show their numbers: install "
            "one, such as Noto Sans CJK, and delete matplotlib's cache (matplotlib.get_cachedir())"
        )
    return spelled


@lru_cache(maxsize=4096)
def _spelled(line: str) -> tuple[str, set[str]]:
    line = "".join(filter(_is_seen, unicodedata.normalize("NFC", line))).lstrip(_JOINERS)
    parts, done, lacking = [], 0, _lacking(line)
    signs = [sign for sign, how in zip(line, lacking, strict=True) if how == "x"]
    scripts = {unicodedata.name(sign, "?").split()[0] for sign in signs if sign.isalpha()}
    for found in re.finditer(r"x[xj]*", lacking):
        start, end = found.span()
        said = "·".join(f"{ord(sign):04X}" for sign in line[start:end] if sign not in _JOINERS)
        before, after = line[:start][-1:].strip(), line[end:][:1].strip()
        parts += [line[done:start], f"{'·' if before else ''}U+{said}{'·' if after else ''}"]
        done = end
    return "".join([*parts, line[done:]]), scripts


def _lacking(line: str) -> str:
    """Of each sign: x where none draws it, j where it joins others, else a point.

    A letter and its marks are set in one font, so a mark is lacking that the letter's has not.
    """
    found, letter = "", None
    for sign in line:
        family = None if sign in _JOINERS or sign == " " else _family(sign)
        if sign in _JOINERS:
            found += "j"
        elif sign == " ":
            found, letter = f"{found}.", None
        elif unicodedata.category(sign)[0] == "M" and family and letter:
            found += "." if _has(letter, sign) else "x"
        else:
            found, letter = f"{found}{'.' if family else 'x'}", family
    return found


def _is_seen(sign: str) -> bool:
    """Whether a sign is drawn, or shapes those beside it."""
    hidden = unicodedata.category(sign) == "Cf" or 0xFE00 <= ord(sign) <= 0xFE0F
    return sign in _JOINERS or not hidden


@dataclass(frozen=True)
class Lines:
    """Drawable text broken into lines; they hold it whole.

    Attributes:
        texts: of each line.
        size: of the letters, in pixels.
    """

    texts: tuple[str, ...]
    size: int

    @property
    def widths(self) -> list[float]:
        """Pixels of each line."""
        return [_width(text) * self.size for text in self.texts]

    @property
    def width(self) -> int:
        """Pixels of the longest line."""
        return math.ceil(max(self.widths, default=0))


def fit_text(text: str, width: int, *, size: int, least: int = 11, lines: int = 2) -> Lines:
    """Break text, as it is drawable, into lines for a column `width` pixels wide.

    Takes the largest size from `size` down to `least` at which no word is broken and `lines` lines
    are enough. Where there is none, the text runs on at `least` over as many lines as it needs, and
    words wider than the column are broken.
    """
    text = drawable(text)
    if len(text) * least < 4 * lines * width:
        widest = max(map(_width, text.split()), default=0)
        for points in range(size, least, -1):
            if widest * points <= width and len(found := _filled(text, width / points)) <= lines:
                return Lines(found, points)
    return Lines(_filled(text, width / least), least)


def _filled(text: str, room: float) -> tuple[str, ...]:
    """Text in lines, each as full as the room (in sizes of a letter) allows."""
    lines, used = [""], 0.0
    for piece in _pieces(text, room):
        wide = _width(piece.rstrip())
        if used + wide > room and lines[-1]:
            lines.append("")
            used = 0.0
        lines[-1] += piece
        used += wide + (_width(" ") if piece[-1] == " " else 0)
    return tuple(line.rstrip() for line in lines if line)


def _pieces(text: str, room: float) -> Iterator[str]:
    """Words; of one wider than the room its parts between joints, or their letters."""
    for word in re.findall(r"\S+ ?", text):
        for part in [word] if _width(word.rstrip()) <= room else _JOINTS.split(word):
            if not part:  # what is split at its very end
                continue
            if _width(part.rstrip()) <= room:
                yield part
                continue
            start = 0
            for at, sign in enumerate(part):
                # A mark stays with its letter; beyond any script's number of them it may not.
                clings = sign in _JOINERS or unicodedata.category(sign)[0] == "M"
                if start < at and (not clings or at - start > 9):
                    yield part[start:at]
                    start = at
            yield part[start:]


def runs_left(line: str) -> bool:
    """Whether a line runs from right to left, by its first strong character."""
    ways = (unicodedata.bidirectional(sign) for sign in line)
    return next((way for way in ways if way in ("L", "R", "AL")), "L") != "L"


# --- fonts ------------------------------------------------------------------------------------


def font(line: str, size: float) -> "FontProperties":
    """The fonts of a line of drawable text, whatever style is set elsewhere.

    Args:
        line: the text; families that none of its characters needs are left out.
        size: in points.
    """
    from matplotlib.font_manager import FontProperties

    needed = {_family(sign) for sign in line if sign not in _JOINERS + " "} - {_FIRST, None}
    plain = {"style": "normal", "variant": "normal", "weight": 400, "stretch": "normal"}
    return FontProperties(family=[_FIRST, *sorted(filter(None, needed))], size=size, **plain)


@lru_cache(maxsize=4096)
def _width(text: str) -> float:
    """How wide drawable text is, in sizes of a letter: without hinting it grows evenly."""
    from matplotlib.textpath import text_to_path

    return text_to_path.get_text_width_height_descent(text, font(text, 100), ismath=False)[0] / 100


@lru_cache(maxsize=65536)
def _family(sign: str) -> str | None:
    """The first family that draws a character; None where there is none."""
    if unicodedata.category(sign) == "Co":  # private use: no two fonts agree
        return None
    return next((name for name in _families() if _has(name, sign)), None)


@cache
def _families() -> "dict[str, FontEntry]":
    """The upright families that matplotlib knows, by name, plain ones first."""
    from matplotlib.font_manager import fontManager

    plain = {
        entry.name: entry
        for entry in fontManager.ttflist[::-1]  # of several the first, which matplotlib takes
        if (entry.style, entry.weight, entry.stretch) == ("normal", 400, "normal")
        and not _USELESS.search(f"{entry.name} {entry.fname}")
    }
    names = sorted(plain, key=lambda name: (name != _FIRST, "Sans" not in name, name))
    return {name: plain[name] for name in names}


def _has(family: str, sign: str) -> bool:
    """Whether a family draws a character: it has a glyph for it, with ink in it."""
    if ord(sign) not in _signs(family):
        return False
    from matplotlib.ft2font import LoadFlags

    face = _face(family)
    face.set_size(32, 72)
    glyph = face.load_char(ord(sign), LoadFlags.NO_HINTING)
    return glyph.width > 0 < glyph.height


@cache
def _signs(family: str) -> frozenset[int]:
    """The characters that a family has; none where matplotlib cannot use it."""
    try:
        return frozenset(_face(family).get_charmap())
    except (OSError, RuntimeError, ValueError):
        return frozenset()


def _face(family: str) -> "FT2Font":
    from matplotlib.font_manager import FontPath, get_font

    entry = _families()[family]
    return get_font(FontPath(entry.fname, entry.index))
