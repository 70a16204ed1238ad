"""Attention as on a blackboard: every number between Q, K, V and the output, in float64.

    hm.attention([1, 0], np.eye(2), 10 * np.eye(2)).output      # 6.69761549, 3.30238451

For anybody's Q, K and V; what a model computes is in `probabilities`. Numpy alone, no torch.
Source: Vaswani et al., 2017, arXiv 1706.03762, section 3.2.1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import Any

import numpy as np

from heedmap import checks
from heedmap.errors import ArgumentError, plural, quoted

_DIGITS = 8  # behind the point, in a table
_SHOWN = 4  # numbers of a value that stand side by side in a table; of more their length does


@dataclass(frozen=True, eq=False)
class Attention:
    """One attention taken apart; made by `attention`. All arrays are float64 and read-only.

    Axes: Q query · K token (a key and its value) · d numbers of a query and of a key · d_v numbers
    of a value; heads and the like come before them as "…". For one query of shape (d,) there is no
    axis Q.

    Attributes:
        query: (…, Q, d).
        key: (…, K, d), once for each of the values' heads.
        value: (…, K, d_v).
        scale: what QKᵀ is multiplied by, 1/√d unless given.
        mask: as it was given: added before the softmax, or boolean, True where a token may be seen.
    """

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    scale: float
    mask: np.ndarray | None = None
    _alone: bool = field(default=False, repr=False)  # one query, without an axis Q

    @cached_property
    def scores(self) -> np.ndarray:
        """QKᵀ, (…, Q, K): how well each query fits each key."""
        return _still(self._rows(self._query @ self.key.swapaxes(-1, -2)))

    @cached_property
    def scaled(self) -> np.ndarray:
        """QKᵀ · scale, that is QKᵀ/√d, (…, Q, K)."""
        return _still(self.scores * self.scale)

    @cached_property
    def masked(self) -> np.ndarray:
        """The scaled scores with the mask, (…, Q, K): -inf where a token may not be seen."""
        return _still(_hidden(self.scaled, self.mask))

    @cached_property
    def probabilities(self) -> np.ndarray:
        """P = softmax(QKᵀ/√d + M), (…, Q, K): every row sums to 1."""
        return _still(_softmax(self.masked))

    @cached_property
    def unscaled_probabilities(self) -> np.ndarray:
        """What P would be without √d, softmax(QKᵀ + M), (…, Q, K): rows that saturate."""
        return _still(_softmax(_hidden(self.scores, self.mask)))

    @cached_property
    def output(self) -> np.ndarray:
        """O = P V, (…, Q, d_v): for each query the mean of the values, weighted by its row of P."""
        p = self.probabilities[..., None, :] if self._alone else self.probabilities
        return _still(self._rows(p @ self.value))

    @cached_property
    def contributions(self) -> np.ndarray:
        """What each token brought to the output, P·V token by token, (…, Q, K, d_v).

        Summed over the tokens they are the output. Many queries and heads take much memory.
        """
        value = self.value if self._alone else self.value[..., None, :, :]
        return _still(self.probabilities[..., None] * value)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """What goes in and what comes out, by its letter on the board."""
        given = {"Q": self.query.shape, "K": self.key.shape, "V": self.value.shape}
        return {**given, "QKᵀ": self.scores.shape, "P": self.scores.shape, "PV": self.output.shape}

    def table(
        self, names: Sequence[str] | None = None, at: int | Sequence[int] | None = None
    ) -> str:
        """One row of P as a lesson: for each token its score, its share, and what it brought.

        Args:
            names: what the K tokens are called; else they are numbered.
            at: which query: its number, or with heads before it (head, …, query); the first of all
                if None.

        Raises:
            ArgumentError: if there is no such query, or another number of tokens.
        """
        title, columns, rows = self._lesson(names, at)
        every = [columns, *rows]
        wide = [max(len(row[n]) for row in every) for n in range(len(columns))]
        lines = [
            "  ".join(
                cell.ljust(width) if n == 0 else cell.rjust(width)
                for n, (cell, width) in enumerate(zip(row, wide, strict=True))
            ).rstrip()
            for row in every
        ]
        return "\n".join([title, "", *lines])

    def _repr_html_(self) -> str:
        title, columns, rows = self._lesson(None, None)
        head, *body = (
            "".join(f'<{tag} style="text-align:right">{escape(cell)}</{tag}>' for cell in row)
            for tag, row in [("th", columns), *(("td", row) for row in rows)]
        )
        rest = "".join(f"<tr>{row}</tr>" for row in body)
        return f"<p>{escape(title)}</p><table><tr>{head}</tr>{rest}</table>"

    @property
    def _query(self) -> np.ndarray:
        return self.query[..., None, :] if self._alone else self.query

    def _rows(self, made: np.ndarray) -> np.ndarray:
        return made[..., 0, :] if self._alone else made

    def _lesson(
        self, tokens: Sequence[str] | None, at: int | Sequence[int] | None
    ) -> tuple[str, list[str], list[list[str]]]:
        """A title, the columns, and a row for each token, then their sums."""
        place = self._place(at)
        count, (d, d_v) = self.key.shape[-2], (self.key.shape[-1], self.value.shape[-1])
        called = [str(one) for one in (range(count) if tokens is None else tokens)]
        if len(called) != count:
            raise ArgumentError(
                f"names holds {plural(len(called), 'name')}: expected {count}, one for each key"
            )
        root = math.isclose(self.scale, d**-0.5, rel_tol=1e-12)
        names = ["QKᵀ", f"÷ √{d}" if root else f"× {self.scale:.6g}"]
        parts = [self.scores[place], self.scaled[place]]
        if self.mask is not None:
            names, parts = [*names, "masked"], [*parts, self.masked[place]]
        names += ["softmax: P", "P without √d" if root else "P unscaled"]
        p = self.probabilities[place]
        parts += [p, self.unscaled_probabilities[place]]
        leading = self.scores.shape[: -1 if self._alone else -2]
        value = np.broadcast_to(self.value, (*leading, *self.value.shape[-2:]))
        brought = p[:, None] * value[place if self._alone else place[:-1]]
        sums = [""] * (len(parts) - 2) + [_number(row.sum()) for row in parts[-2:]]
        if d_v <= _SHOWN:
            names += ["P·V", *[""] * (d_v - 1)]
            parts += [*brought.T]
            sums += [_number(one) for one in brought.sum(axis=0)]
        else:
            names, parts = [*names, "‖P·V‖"], [*parts, np.linalg.norm(brought, axis=1)]
            sums.append(f"‖PV‖ = {_number(float(np.linalg.norm(brought.sum(axis=0))))}")
        rows = [[name, *(_number(part[n]) for part in parts)] for n, name in enumerate(called)]
        where = "" if not place or set(place) == {0} else f", number {', '.join(map(str, place))}"
        title = f"one query of {d} numbers{where}; {plural(count, 'token')}: a key of {d} and a "
        title += f"value of {d_v} each"
        return title, ["token", *names], [*rows, ["sum", *sums]]

    def _place(self, at: int | Sequence[int] | None) -> tuple[int, ...]:
        """Where a row of P is, all of its axes but the last."""
        axes = self.scores.shape[:-1]
        if at is None:
            place = (0,) * len(axes)
        else:
            given = checks.in_order(at)
            place = tuple(checks.whole("at", one) for one in ([at] if given is None else given))
        if not axes and place:
            raise ArgumentError(f"at is {quoted(at)}: there is one query alone; leave at out")
        fits = len(place) == len(axes)
        if not fits or not all(-n <= one < n for one, n in zip(place, axes, strict=True)):
            raise ArgumentError(
                f"at is {quoted(at)}: expected {plural(len(axes), 'number')} below {axes}, the "
                "number of a query, and before it those of its head and the like"
            )
        return tuple(one % n for one, n in zip(place, axes, strict=True))


def attention(q: Any, k: Any, v: Any, mask: Any = None, *, scale: float | None = None) -> Attention:
    """Take any attention apart: softmax(QKᵀ/√d + M) V, and every number on the way.

        found = hm.attention([1, 0], [[1, 0], [0, 1]], [[10, 0], [0, 10]])
        found.probabilities                 # 0.66976155, 0.33023845
        print(found.table(["first", "second"]))

    Args:
        q: (…, Q, d), or one query (d,); of numpy, torch or lists, as the others are. No axis is
            empty.
        k: (…, K, d), with leading axes (heads, pictures) that are the same or broadcast.
        v: (…, K, d_v).
        mask: added before the softmax, broadcast to (…, Q, K), -inf for what may not be seen; or
            boolean, True where a token may be seen. Hidden tokens get exactly 0. Whole numbers
            above 0 are refused: the 1 and 0 of a tokenizer are meant as booleans.
        scale: what QKᵀ is multiplied by; 1/√d if None.

    Returns:
        All of it in float64, as numpy.

    Raises:
        ArgumentError: if the shapes do not fit, something is no finite number, or a row has no
            token that may be seen.
    """
    query, key, value = (_numbers(name, one) for name, one in (("q", q), ("k", k), ("v", v)))
    alone = query.ndim == 1
    shapes = query.shape, key.shape, value.shape
    fits = query.ndim > 0 and key.ndim > 1 and value.ndim > 1
    fits = fits and min(min(shape) for shape in shapes) > 0
    fits = fits and query.shape[-1] == key.shape[-1] and key.shape[-2] == value.shape[-2]
    rows: tuple[int, ...] = () if alone else query.shape[-2:-1]
    try:
        before = np.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    except ValueError:
        fits, before = False, ()
    if not fits:
        raise ArgumentError(
            f"q, k and v have the shapes {', '.join(map(str, shapes))}: expected (…, Q, d) or "
            "(d,), (…, K, d) and (…, K, d_v) with the same d, K and leading axes; transpose one?"
        )
    whole = (*before, *rows, key.shape[-2])
    hidden = None if mask is None else _mask(mask, whole)
    factor = key.shape[-1] ** -0.5 if scale is None else checks.finite("scale", scale)
    if np.broadcast_shapes(query.shape[:-2], key.shape[:-2]) != before:
        # Values of several heads for one row of P: each head has that row.
        key = np.broadcast_to(key, (*before, *key.shape[-2:]))
    return Attention(_still(query), _still(key), _still(value), factor, hidden, alone)


# --- arrays -----------------------------------------------------------------------------------


def _array(name: str, given: Any) -> np.ndarray:
    """Whatever can be read as an array; a tensor from wherever it is, of whatever type."""
    if hasattr(given, "detach"):  # of torch, which is not imported for it
        given = given.detach().cpu()
        given = given.double() if given.is_floating_point() else given  # numpy has no bfloat16
    try:
        found = np.asarray(given)
    except (TypeError, ValueError) as error:  # rows of different lengths
        raise ArgumentError(f"{name} is {quoted(given)}: expected an array of numbers") from error
    if found.dtype.kind not in "fiub":
        raise ArgumentError(f"{name} is {quoted(given)}: expected an array of real numbers")
    return found


def _numbers(name: str, given: Any) -> np.ndarray:
    found = _array(name, given).astype(np.float64)
    if not np.isfinite(found).all():
        raise ArgumentError(f"{name} holds NaN or Inf: expected finite numbers alone")
    return found


def _mask(given: Any, whole: tuple[int, ...]) -> np.ndarray:
    found = _array("mask", given)
    if found.dtype.kind in "iu" and (found > 0).any():
        raise ArgumentError(
            f"mask is {quoted(given)}: expected booleans, True where a token may be seen, or "
            "numbers with a point that are added to the scores; pass mask.astype(bool)"
        )
    found = found.astype(bool if found.dtype == bool else np.float64)
    try:
        spread = np.broadcast_to(found, whole)
    except ValueError as error:
        raise ArgumentError(
            f"mask has the shape {found.shape}: expected one that broadcasts to that of the "
            f"scores, {whole}"
        ) from error
    if found.dtype != bool and (np.isnan(found).any() or (found == np.inf).any()):
        raise ArgumentError("mask holds NaN or +Inf: expected finite numbers, or -inf to hide")
    seen = spread if found.dtype == bool else spread > -np.inf
    if not seen.any(axis=-1).all():
        raise ArgumentError(
            "mask hides every token of a row, which then has no probabilities: leave one to be seen"
        )
    return _still(found)


def _hidden(scores: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    if mask is None:
        return scores
    return np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask


def _softmax(scores: np.ndarray) -> np.ndarray:
    # The largest is taken off first, so that no exponential is too large to be written.
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def _still(array: np.ndarray) -> np.ndarray:
    """The same, not to be written to."""
    seen = array.view()
    seen.flags.writeable = False
    return seen


def _number(value: Any) -> str:
    return f"{float(value):.{_DIGITS}f}" if math.isfinite(value) else "hidden"
