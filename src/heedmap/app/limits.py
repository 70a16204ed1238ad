"""What a visitor of the app may ask for; whatever is beyond ends in one sentence."""

import math
import re
from dataclasses import dataclass

from heedmap.errors import ArgumentError, quoted

MOST_LETTERS = 2000
"""The most characters of a prompt: CLIP reads 77 tokens, long prompts of web UIs have a few times
as many."""


@dataclass(frozen=True)
class Limits:
    """What one job may cost, and how much is kept.

    Attributes:
        size: pixels on a side of a picture.
        steps: denoising steps.
        upload: bytes of a file that is uploaded.
        results: results that are kept; the oldest are deleted when there are more.
        waiting: jobs that may wait for the device.
    """

    size: int = 1024
    steps: int = 100
    upload: int = 64 * 2**20
    results: int = 500
    waiting: int = 16

    @property
    def unpacked(self) -> int:
        """Bytes that an upload may have when it is unpacked: maps pack well, but not that well."""
        return 4 * self.upload

    def check_text(self, name: str, text: str) -> None:
        """Raise an ArgumentError if a text is too long for a prompt."""
        if len(text) > MOST_LETTERS:
            raise ArgumentError(
                f"the {name} has {len(text)} characters: expected at most {MOST_LETTERS}"
            )

    def check_steps(self, steps: int) -> None:
        """Raise an ArgumentError if that many steps are too many."""
        if steps > self.steps:
            raise ArgumentError(
                f"{steps} steps are more than this server draws: expected 1 to {self.steps}"
            )

    def check_size(self, size: tuple[int, int]) -> None:
        """Raise an ArgumentError if a picture of (width, height) pixels is too large."""
        if max(size) > self.size:
            raise ArgumentError(
                f"{size[0]}×{size[1]} pixels are more than this server draws: expected at most "
                f"{self.size} on a side"
            )


def whole_number(text: object, name: str) -> int | None:
    """What a field for a whole number holds; None where it was left empty.

    Raises:
        ArgumentError: if it holds something else.
    """
    said = _said(text)
    if said == "":
        return None
    if not re.fullmatch(r"[+-]?[0-9]{1,20}", said):
        raise ArgumentError(f"{name} is {quoted(text)}: expected a whole number")
    return int(said)


def real_number(text: object, name: str) -> float | None:
    """What a field for a number holds; None where it was left empty.

    Raises:
        ArgumentError: if it holds something else.
    """
    said = _said(text)
    if said == "":
        return None
    try:
        number = float(said)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ArgumentError(f"{name} is {quoted(text)}: expected a number")
    return number


def _said(text: object) -> str:
    """A field as text; what a browser sends need not be a number only because it should be."""
    try:
        said = "" if text is None else str(text).strip()
    except ValueError:  # Python writes no whole number of more than 4300 digits
        return "?"
    return said if len(said) <= 100 else "?"  # never a part of a number
