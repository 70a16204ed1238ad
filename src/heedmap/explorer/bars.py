"""What a board's tables are made of: numbers as text and as bars, without a style or a script."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

import numpy as np

_STRIP = 512  # bars of a strip; of more numbers the first are shown


@dataclass(frozen=True)
class Column:
    """One number for each token.

    Attributes:
        values: by the token's position; None for -inf.
        shown: as digits, as fewer of them, or as a bar.
        most: where the bars end; their largest value if None.
        sums: whether the padding is told as a sum, as shares are, or as a range.
        together: what the padding comes to where that is neither, as with lengths.
    """

    values: Sequence[float | None]
    shown: Literal["digits", "brief", "bar", "short bar"]
    most: float | None = None
    sums: bool = True
    together: float | None = None

    def one(self, position: int) -> str:
        """The cell of a token."""
        return self._cell(self.values[position])

    def several(self, positions: Sequence[int]) -> str:
        """The cell of the padding."""
        if self.together is not None:
            return self._cell(self.together)
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
        finite = [one for one in (*self.values, self.together) if one is not None]
        high = max(0.0, max(finite)) if self.most is None else self.most
        low = 0.0 if self.sums else min(0.0, min(finite))
        kind = "bar two" if self.shown == "short bar" else "bar"
        return f'<td class="{kind}">{bar(value or 0.0, low, high)}</td>'


def bar(value: float, low: float, high: float) -> str:
    """A bar from 0 to a value, on a scale from `low` (at most 0) to `high`."""
    span = (high - low) or 1.0
    zero, end = -low / span * 100, (min(value, high) - low) / span * 100
    left, wide = min(zero, end), abs(end - zero)
    line = f'<line x1="{zero:.2f}" x2="{zero:.2f}" y1="0" y2="9"/>' if low < 0 else ""
    return (
        '<svg viewBox="0 0 100 9" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect x="{left:.2f}" y="0" width="{wide:.2f}" height="9"/>{line}</svg>'
    )


def strip(numbers: np.ndarray) -> str:
    """Numbers side by side as bars up and down, on their own scale."""
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
    """A number with eight digits behind the point, or as many as tell a small one."""
    if value is None:
        return "hidden"
    size = abs(value)
    return _signed(f"{value:.3e}" if 0 < size < 1e-6 else f"{value:.8f}")


def brief(value: float | None) -> str:
    """A number with four digits that count."""
    if value is None:
        return "hidden"
    return _signed(f"{value:.1e}" if 0 < abs(value) < 1e-4 else f"{value:.4g}")


def html_table(head: Sequence[str], rows: Sequence[str]) -> str:
    """A table of rows that are HTML."""
    columns = "".join(f"<th>{escape(one)}</th>" for one in head)
    return f"<table><thead><tr>{columns}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _signed(number: str) -> str:
    return number.replace("-", "−")
