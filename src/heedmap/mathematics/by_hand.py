"""Attention as on a blackboard: every number between Q, K, V and the output, in float64 numpy.

    hm.attention([1, 0], np.eye(2), 10 * np.eye(2)).output      # 6.69761549, 3.30238451

No image is made with it.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import Any

import numpy as np

from heedmap.checks import check_float
from heedmap.errors import ArgumentError, plural, quoted
from heedmap.io.schemas import Note

_COLUMNS = 4  # numbers of a value in a table; of a longer one its length


@dataclass(frozen=True, eq=False)
class Attention:
    """One attention with all its intermediate results; made by `attention`. Arrays are float64.

    Axes: Q query · K token (a key and its value) · d numbers of a query and of a key · d_v numbers
    of a value; heads and the like come before them as "…". For one query of shape (d,) there is no
    axis Q.

    Attributes:
        query: (…, Q, d).
        key: (…, K, d).
        value: (…, K, d_v).
        scale: the factor of QKᵀ; 1/√d by default.
        mask: added to the scaled scores; or boolean, True where a token may be seen; or None.
    """

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    scale: float
    mask: np.ndarray | None = None
    _single: bool = field(default=False, repr=False)  # one query, without an axis Q

    @cached_property
    def scores(self) -> np.ndarray:
        """QKᵀ, (…, Q, K): the score of each key for each query."""
        return self._product(self.query, self.key.swapaxes(-1, -2))

    @cached_property
    def scaled(self) -> np.ndarray:
        """QKᵀ · scale, that is QKᵀ/√d, (…, Q, K)."""
        return self.scores * self.scale

    @cached_property
    def masked(self) -> np.ndarray:
        """The scaled scores with the mask, (…, Q, K): -inf where a token may not be seen."""
        return _hidden(self.scaled, self.mask)

    @cached_property
    def probabilities(self) -> np.ndarray:
        """P = softmax(QKᵀ/√d + M), (…, Q, K): every row sums to 1."""
        return _softmax(self.masked)

    @cached_property
    def unscaled_probabilities(self) -> np.ndarray:
        """P without √d, softmax(QKᵀ + M), (…, Q, K): rows that saturate."""
        return _softmax(_hidden(self.scores, self.mask))

    @cached_property
    def output(self) -> np.ndarray:
        """O = P V, (…, Q, d_v): for each query the mean of the values, weighted by its row of P."""
        return self._product(self.probabilities, self.value)

    @property
    def contributions(self) -> np.ndarray:
        """P·V token by token, (…, Q, K, d_v): the part of each token in the output.

        Their sum over the tokens is the output. Many queries and heads take much memory.
        """
        return self.probabilities[..., None] * self._for_rows(self.value)

    def table(self, names: Sequence[str] | None = None) -> str:
        """Write P of the first query as a table: each token's score, share and contribution.

        Args:
            names: names of the K tokens. Default: their numbers.

        Raises:
            ArgumentError: if the number of names is another.
        """
        place = (0,) * (self.scores.ndim - 1)
        count, d = self.key.shape[-2:]
        d_v = self.value.shape[-1]
        if names is None:
            names = [str(number) for number in range(count)]
        if len(names) != count:
            raise ArgumentError(
                f"names holds {plural(len(names), 'name')}: expected {count}, one for each key"
            )
        columns = [["token", *names, "sum"]]

        def add(title: str, numbers: np.ndarray, total: str = "") -> None:
            columns.append([title, *map(_number, numbers), total])

        is_root = math.isclose(self.scale, d**-0.5, rel_tol=1e-12)
        p = self.probabilities[place]
        unscaled = self.unscaled_probabilities[place]
        add("QKᵀ", self.scores[place])
        add(f"÷ √{d}" if is_root else f"× {self.scale:.6g}", self.scaled[place])
        if self.mask is not None:
            add("masked", self.masked[place])
        add("softmax: P", p, _number(p.sum()))
        add(
            "P without √d" if is_root else "P unscaled",
            unscaled,
            _number(unscaled.sum()),
        )
        value = np.broadcast_to(self._for_rows(self.value), (*self.scores.shape, d_v))
        parts = p[:, None] * value[place]
        if d_v > _COLUMNS:
            length = np.linalg.norm(parts.sum(axis=0))
            add("‖P·V‖", np.linalg.norm(parts, axis=1), f"‖PV‖ = {length:.8f}")
        else:
            titles = ["P·V", *[""] * d_v]
            for title, part in zip(titles, parts.T, strict=False):
                add(title, part, _number(part.sum()))
        tokens = f"{plural(count, 'token')}: a key of {d} and a value of {d_v} each"
        lines = [f"one query of {d} numbers; {tokens}", ""]
        widths = [max(map(len, column)) for column in columns]
        for row in zip(*columns, strict=True):
            cells = map(str.rjust, row[1:], widths[1:])
            lines.append("  ".join([row[0].ljust(widths[0]), *cells]).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.table())}</pre>"

    def _product(self, rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        if self._single:
            return (rows[..., None, :] @ matrix)[..., 0, :]
        return rows @ matrix

    def _for_rows(self, array: np.ndarray) -> np.ndarray:
        """Insert the axis Q before the last two."""
        return array if self._single else array[..., None, :, :]


def attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    *,
    scale: float | None = None,
) -> Attention:
    """Compute an attention with all intermediate results: softmax(QKᵀ/√d + M) V, in float64.

        found = hm.attention([1, 0], [[1, 0], [0, 1]], [[10, 0], [0, 10]])
        found.probabilities                 # 0.66976155, 0.33023845
        print(found.table(["first", "second"]))

    Args:
        q: (…, Q, d), or one query (d,); numpy, torch or lists, as the others. No axis is empty.
        k: (…, K, d), with leading axes (heads, images) that are the same or broadcast.
        v: (…, K, d_v).
        mask: added before the softmax, broadcast to (…, Q, K), -inf for hidden tokens; or boolean,
            True where a token may be seen. Hidden tokens get exactly 0. Whole numbers are refused:
            the 1 and 0 of a tokenizer are meant as booleans.
        scale: factor of QKᵀ. Default: 1/√d.

    Returns:
        The inputs, with `scores`, `probabilities`, `output` and the others of `Attention`.

    Raises:
        ArgumentError: if the shapes do not fit, something is no finite number, or a row has no
            token that may be seen.

    Source: Vaswani et al., 2017, arXiv 1706.03762, section 3.2.1.
    """
    query = _finite("q", q)
    key = _finite("k", k)
    value = _finite("v", v)
    fits = query.size and key.size and value.size and key.ndim > 1 and value.ndim > 1
    fits = fits and (*value.shape[-2:-1], *query.shape[-1:]) == key.shape[-2:]
    leading = None
    with suppress(ValueError):
        leading = np.broadcast_shapes(
            query.shape[:-2], key.shape[:-2], value.shape[:-2]
        )
    if not fits or leading is None:
        raise ArgumentError(
            f"q, k and v have the shapes {query.shape}, {key.shape}, {value.shape}: expected "
            "(…, Q, d) or (d,), (…, K, d) and (…, K, d_v) with the same d, K and leading axes; "
            "transpose one?"
        )
    count, d = key.shape[-2:]
    hidden = None
    if mask is not None:
        hidden = _mask(mask, (*leading, *query.shape[-2:-1], count))
    factor = d**-0.5 if scale is None else check_float("scale", scale)
    # Each head of the values has its own scores.
    key = np.broadcast_to(key, (*leading, count, d))
    return Attention(query, key, value, factor, hidden, query.ndim == 1)


def _array(name: str, values: Any) -> np.ndarray:
    if hasattr(values, "detach"):  # of torch, which is not imported for it
        values = values.detach().cpu()
        if values.is_floating_point():  # numpy has no bfloat16
            values = values.double()
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        array = np.array(None)
    if array.dtype.kind not in "fiub" or np.isnan(array).any():
        raise ArgumentError(
            f"{name} is {quoted(values)}: expected an array of real numbers"
        )
    return array


def _finite(name: str, values: Any) -> np.ndarray:
    array = _array(name, values).astype(np.float64)
    if np.isinf(array).any():
        raise ArgumentError(f"{name} holds Inf: expected finite numbers alone")
    return array


def _mask(values: Any, shape: tuple[int, ...]) -> np.ndarray:
    mask = _array("mask", values)
    if mask.dtype.kind in "iu" or (mask == np.inf).any():
        raise ArgumentError(
            f"mask is {quoted(values)}: expected booleans, True where a token may be seen, or "
            "floats that are added to the scores, with -inf to hide; pass mask.astype(bool)"
        )
    try:
        hidden = np.broadcast_to(_hidden(np.zeros(mask.shape), mask), shape)
    except ValueError:
        raise ArgumentError(
            f"mask has the shape {mask.shape}: expected one that broadcasts to {shape}, that of "
            "the scores"
        ) from None
    if (hidden == -np.inf).all(axis=-1).any():
        raise ArgumentError(
            "mask hides every token of a row, which then has no probabilities: leave one to be seen"
        )
    return mask


def _hidden(scores: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    if mask is None:
        return scores
    return np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask


def _softmax(scores: np.ndarray) -> np.ndarray:
    # Which cannot overflow.
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def _number(value: float) -> str:
    return f"{value:.8f}" if math.isfinite(value) else "hidden"


class LayerInputs(Note, frozen=True, kw_only=True):
    """The tensors of a layer at one position, float64. Axes: H head · K token · d · C channel.

    Where text and image share one softmax, the last of K stands for the image, together with
    reference images. Its key lies along the query, and its scaled score is the logarithm of Σ exp
    over their keys (without the scale it counts as this one key); its value is the mean of their
    values, by their attention.

    Attributes:
        query: (H, d).
        key: (H, K, d).
        value: (H, K, d_v).
        mask: (H, K), added to the scaled scores, -inf for hidden tokens; None without a mask.
        scale: the factor of QKᵀ, 1/√d.
        edited: (H, K), P after the edits; None if no edit changed it.
        added: (H·d_v), the attention to an image prompt, added to the heads; None without one.
        weight: (C, H·d_v), W_O transposed, as torch stores it: each head has d_v of its columns.
            The identity in the single blocks of Flux, which have no W_O. Of a layer with a gate
            (Krea 2) each column is multiplied by the query's.
        bias: (C); None without a bias.
        residual: (C), the input of the layer, if the layer adds it; None if it does not.
        factor: the divisor of the sum.
        output: (C), the output of the layer in the model.
    """

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    mask: np.ndarray | None
    scale: float
    edited: np.ndarray | None
    added: np.ndarray | None
    weight: np.ndarray
    bias: np.ndarray | None
    residual: np.ndarray | None
    factor: float
    output: np.ndarray
