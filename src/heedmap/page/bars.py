"""Numbers as text and as bars, for the tables of an explanation."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

import numpy as np

_STRIP = 512  # the most bars of a strip


@dataclass(frozen=True)
class Column:
    """A column of a table: one number for each token.

    Attributes:
        values: the numbers by position of the token; None for -inf.
        shown: the format: digits, fewer digits, or a bar.
        most: the end of the bars' scale; the largest value if None.
        sums: whether the padding shows the sum of its tokens; else it shows their range.
        rest: the number of the padding, if it is neither sum nor range.
    """

    values: Sequence[float | None]
    shown: Literal["digits", "brief", "bar", "short bar"]
    most: float | None = None
    sums: bool = True
    rest: float | None = None

    def one(self, position: int) -> str:
        """Return the cell of a token."""
        return self._cell(self.values[position])

    def several(self, positions: Sequence[int]) -> str:
        """Return the cell of the padding."""
        if self.rest is not None:
            return self._cell(self.rest)
        values = [self.values[position] for position in positions]
        there = [value for value in values if value is not None]
        if self.sums or not there:
            return self._cell(sum(there) if there else None)
        low, high = min(there), max(there)
        if "bar" in self.shown:
            return self._cell(sum(there) / len(there))
        return f"<td>{brief(low)} … {brief(high)}</td>"

    def _cell(self, value: float | None) -> str:
        if self.shown == "digits":
            return f"<td>{digits(value)}</td>"
        if self.shown == "brief":
            return f"<td>{brief(value)}</td>"
        finite = [one for one in self.values if one is not None]
        high = max(0.0, *finite, self.rest or 0.0) if self.most is None else self.most
        low = 0.0 if self.sums else min(0.0, min(finite))
        kind = "bar two" if self.shown == "short bar" else "bar"
        return f'<td class="{kind}">{bar(value or 0.0, low, high)}</td>'


def bar(value: float, low: float, high: float) -> str:
    """Return a bar from 0 to a value, clipped to a scale from `low` (at most 0) to `high`."""
    span = (high - low) or 1.0
    zero, end = -low / span * 100, (max(low, min(value, high)) - low) / span * 100
    left, wide = min(zero, end), abs(end - zero)
    line = f'<line x1="{zero:.2f}" x2="{zero:.2f}" y1="0" y2="9"/>' if low < 0 else ""
    return (
        '<svg viewBox="0 0 100 9" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect x="{left:.2f}" y="0" width="{wide:.2f}" height="9"/>{line}</svg>'
    )


def strip(numbers: np.ndarray) -> str:
    """Return bars of numbers, positive ones up and negative ones down, on their own scale."""
    some = np.asarray(numbers)[:_STRIP]
    most = float(np.abs(some).max()) or 1.0
    bars = "".join(
        f'<rect x="{n + 0.1:.1f}" y="{12 - max(one, 0):.2f}" width="0.8" height="{abs(one):.2f}"/>'
        for n, one in enumerate(some / most * 12)
    )
    return (
        f'<svg viewBox="0 0 {len(some)} 24" preserveAspectRatio="none" aria-hidden="true">'
        f'{bars}<line x1="0" x2="{len(some)}" y1="12" y2="12"/></svg>'
    )


def digits(value: float | None) -> str:
    """Format a number with eight decimals, or in exponent notation if it is small."""
    if value is None:
        return "hidden"
    size = abs(value)
    return _signed(f"{value:.3e}" if 0 < size < 1e-6 else f"{value:.8f}")


def brief(value: float | None) -> str:
    """Format a number with four significant digits."""
    if value is None:
        return "hidden"
    return _signed(f"{value:.1e}" if 0 < abs(value) < 1e-4 else f"{value:.4g}")


def html_table(head: Sequence[str], rows: Sequence[str]) -> str:
    """Return a table of HTML rows."""
    columns = "".join(f"<th>{escape(one)}</th>" for one in head)
    return f"<table><thead><tr>{columns}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _signed(number: str) -> str:
    return number.replace("-", "−")
