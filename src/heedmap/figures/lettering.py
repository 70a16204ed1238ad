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

if TYPE_CHECKING:
    from matplotlib.font_manager import FontEntry, FontProperties

__all__ = ["Lines", "drawable", "fit_text", "font", "runs_left"]

_FIRST = "DejaVu Sans"  # which matplotlib brings along
_LONGEST = 1000  # signs of a text; a prompt of CLIP has some 400 at most
_JOINERS = "\u200c\u200d"
# Boxes, no outlines, or glyphs under the numbers of other characters.
_USELESS = re.compile("last.?resort|blank|colou?r|^cm[a-z]+10|STIX(Non|Size)", re.IGNORECASE)


def drawable(text: str) -> str:
    """Give text as it will be drawn: one line, every character in a font that has it.

    Blanks and line breaks become single spaces, invisible signs are dropped, and what no font of
    this machine can draw is spelled by its number, as in ``U+D55C·AD6D``: never an empty box. Of a
    text beyond any prompt it is the first thousand signs: each line that is drawn takes its time.
    """
    line = " ".join(text.split())
    return _spelled(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…")


@lru_cache(maxsize=4096)
def _spelled(line: str) -> str:
    shown, spelled = [""], False
    for sign in unicodedata.normalize("NFC", line):
        if unicodedata.category(sign) == "Cf" or 0xFE00 <= ord(sign) <= 0xFE0F:
            if sign in _JOINERS and shown[-1] and not spelled:
                shown.append(sign)
        elif sign == " " or _family(sign):
            shown.append("·" + sign if spelled and sign != " " else sign)
            spelled = False
        else:
            joint = "·" if shown[-1].strip() else ""
            shown.append(f"{joint}{'' if spelled else 'U+'}{ord(sign):04X}")
            spelled = True
    return "".join(shown)


@dataclass(frozen=True)
class Lines:
    """Drawable text broken into lines; they hold it whole.

    Attributes:
        texts: of each line.
        widths: of each line, in pixels.
        size: of the letters, in pixels.
    """

    texts: tuple[str, ...]
    widths: tuple[float, ...]
    size: int

    @property
    def step(self) -> int:
        """Pixels from one line to the next."""
        return round(self.size * 1.3)

    @property
    def height(self) -> int:
        """Pixels from the top of the first line to the foot of the last."""
        return len(self.texts) * self.step

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
    words = text.split()
    points, found = least, None
    if len(text) * least < 4 * lines * width:
        for points in range(size, least, -1):
            if max(map(_width, words), default=0) * points <= width:
                found = _filled(words, width / points)
                if len(found) <= lines:
                    break
                found = None
    if found is None:
        points = least
        found = _filled([*_parts(words, width / least)], width / least)
    return Lines(tuple(found), tuple(_width(line) * points for line in found), points)


def _filled(words: list[str], room: float) -> list[str]:
    """Words in lines, each as full as the room (in sizes of a letter) allows."""
    lines: list[list[str]] = []
    used = 0.0
    for word in words:
        if lines and used + _width(" ") + _width(word) <= room:
            lines[-1].append(word)
            used += _width(" ") + _width(word)
        else:
            lines.append([word])
            used = _width(word)
    return [" ".join(line) for line in lines]


def _parts(words: list[str], room: float) -> Iterator[str]:
    """Words, those wider than the room broken: behind a joint such as a hyphen, if there is one.

    A mark stays with its letter, unless there are more of them than a line takes.
    """
    for word in words:
        start, used = 0, 0.0
        for at, sign in enumerate(word if _width(word) > room else ""):
            used += _width(sign)
            if used > room and at > start:
                joint = max(word.rfind(joint, start + (at - start) // 2, at) for joint in "-·/,")
                cut = next((c for c in range(at, start, -1) if not _clings(word[c])), at)
                cut = joint + 1 if joint >= 0 and not _clings(word[joint + 1]) else cut
                yield word[start:cut]
                # What joins or overlaps is narrower than its letters are.
                start, used = cut, sum(map(_width, word[cut : at + 1]))
        yield word[start:]


def _clings(sign: str) -> bool:
    return sign in _JOINERS or unicodedata.category(sign)[0] == "M"


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
    needed = {_family(sign) for sign in line if sign not in _JOINERS + " "} - {_FIRST, None}
    return _properties((_FIRST, *sorted(filter(None, needed))), size)


def _properties(families: tuple[str, ...], size: float) -> "FontProperties":
    from matplotlib.font_manager import FontProperties

    plain = {"style": "normal", "variant": "normal", "weight": 400, "stretch": "normal"}
    return FontProperties(family=list(families), size=size, **plain)


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
    from matplotlib.font_manager import fontManager, get_font
    from matplotlib.ft2font import LoadFlags

    face = get_font(fontManager.findfont(_properties((family,), 10), fallback_to_default=False))
    face.set_size(32, 72)
    glyph = face.load_char(ord(sign), LoadFlags.NO_HINTING)
    return glyph.width > 0 < glyph.height


@cache
def _signs(family: str) -> frozenset[int]:
    """The characters that a family has; none where matplotlib cannot use it."""
    from matplotlib.font_manager import FontPath, get_font

    entry = _families()[family]
    try:
        return frozenset(get_font(FontPath(entry.fname, entry.index)).get_charmap())
    except (OSError, RuntimeError, ValueError):
        return frozenset()
