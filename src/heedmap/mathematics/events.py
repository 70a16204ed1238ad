"""One attention of a running model: its inputs, and the places of text and image in them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import torch
from msgspec import Struct, structs
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from heedmap.mathematics.probabilities import (
    columns,
    contiguous_columns,
    less_largest,
    log_sums,
    mask_numbers,
    probabilities,
    query_parts,
    visible_softmax,
)
from heedmap.mathematics.rules import Site

Indices = slice | Tensor
"""Positions on an axis of queries or keys: a slice, or a tensor of integers on their device."""


def take(x: Tensor, indices: Indices, dim: int = -2) -> Tensor:
    """Return entries of the last axis, or of the last but one; of a slice a view."""
    if isinstance(indices, Tensor):
        return x.index_select(dim, indices)
    if indices == slice(None):
        return x
    return x[..., indices, :] if dim == -2 else x[..., indices]


def put(x: Tensor, indices: Indices, part: Tensor) -> None:
    """Write a part into these entries of the last axis but one."""
    if isinstance(indices, Tensor):
        x.index_copy_(-2, indices, part)
    else:
        x[..., indices, :] = part


def nth(indices: Indices, numbers: Tensor) -> Tensor:
    """Return the entries with these numbers among some, as numbers on the whole axis."""
    if isinstance(indices, Tensor):
        return indices[numbers]
    return numbers + indices.start if indices.start else numbers


def first_indices(indices: Indices, count: int) -> Indices:
    """Return the first `count` of some indices."""
    if isinstance(indices, Tensor):
        return indices[:count]
    start = indices.start or 0
    return slice(start, start + count)


def _everything() -> Indices:
    return slice(None)


@dataclass(frozen=True, eq=False)
class RowLayout:
    """The places of text and images in one row of the batch.

    Attributes:
        tokens: the text's tokens among the keys.
        positions: the image's positions among the queries; in joint attention among the keys, too,
            unless `keys` says otherwise.
        references: the positions of each reference image, where it stands beside the image.
        image: the number of the image that the row is of.
        branch: "conditional", "negative", or "" if the row reads neither prompt.
        image_span: the image's positions and the padding beside them, which are keys, too; None
            without such padding.
        keys: the image's positions among the keys, where they are others than among the queries.
    """

    tokens: Indices = field(default_factory=_everything)
    positions: Indices = field(default_factory=_everything)
    references: tuple[Indices, ...] = ()
    image: int = 0
    branch: str = ""
    image_span: Indices | None = None
    keys: Indices | None = None

    @property
    def position_keys(self) -> Indices:
        """The keys of the image's positions, without its padding."""
        return self.positions if self.keys is None else self.keys

    @property
    def image_keys(self) -> Indices:
        """The image's keys, those of its padding included."""
        return self.position_keys if self.image_span is None else self.image_span


@dataclass(frozen=True, eq=False)
class Layout:
    """The places of text and image in the attention of one pass of the model.

    Attributes:
        rows: the layout of each row of the batch; a single one if it holds for all of them.
        joint: whether text and image share one softmax.
        padding: the number of keys of the image's padding.
        keys: the number of all keys, where only the image's positions are queries; the text's may
            be those of another attention of the layer, over fewer keys. None where the queries are
            those of all keys, or the keys those of the text.
    """

    rows: Sequence[RowLayout] = field(default_factory=lambda: (RowLayout(),))
    joint: bool = False
    padding: int = 0
    keys: int | None = None

    def row(self, number: int) -> RowLayout:
        """Return the layout of a row."""
        return self.rows[number] if len(self.rows) > 1 else self.rows[0]

    def rows_of(self, image: int, branch: str) -> Sequence[int]:
        """Return the numbers of the rows of an image that read a branch's text."""
        return [
            number
            for number, row in enumerate(self.rows)
            if row.image == image and row.branch == branch
        ]


@lru_cache(maxsize=64)
def _reference_layout(layout: Layout, number: int) -> Layout:
    """Return a layout with the positions of a reference image for the image's."""
    rows: list[RowLayout] = []
    for row in layout.rows:
        others = list(row.references)
        positions = others.pop(number)
        references = (row.positions, *others)
        rows.append(replace(row, positions=positions, references=references))
    return replace(layout, rows=tuple(rows))


_LOG2_E = math.log2(math.e)
_SMALL = 2**15
"""The largest tensor of a layer that is copied whole, which is less work than to take a part."""
_NO_SITE = Site("", step=0, steps=1, grid=(1, 1))
CROSS_ATTENTION = Layout()
"""All queries are the image's and all keys the text's."""
SELF_ATTENTION = Layout((RowLayout(tokens=slice(0)),), joint=True)
"""All queries and keys are the image's."""


class AttentionEvent(Struct, frozen=True, eq=False, gc=False):
    """The attention of one layer in one pass of the model.

        def entropy(event):
            for row, layout in enumerate(event.layout.rows):
                p = event.row(row).probabilities()  # (H, Q, K)

    Axes: B row of the batch · H head · N query or key of the layer · d channels of a head · Q
    position of the image · K token of the text. In cross-attention the N queries are the Q
    positions and the N keys are the K tokens; in joint attention text and image are both.

    Attributes:
        query: (B, H, N, d), as the layer used them.
        key: (B, H, N, d).
        scale: the factor of QKᵀ.
        mask: added before the softmax, or boolean, True where a key may be seen; broadcast to
            (B, H, N, N).
        log_sum: (B, H, N) float32, the logarithm of Σ exp over all keys, if the kernel gave it. In
            half-precision types it is good to 1e-4.
        value: (B, H, N, d); None where the layer computes its probabilities by
            `Attention.get_attention_scores`.
        output: (B, H, N, d), the sums of values that the layer goes on with, edited if it is; None
            where `value` is.
        layout: where text and image stand in each row.
        layer: the layer's dotted path.
        site: the layer at a step, with its grid (h, w).
        edited: the rows whose attention is edited.
    """

    query: Tensor
    key: Tensor
    scale: float
    mask: Tensor | None = None
    log_sum: Tensor | None = None
    value: Tensor | None = None
    output: Tensor | None = None
    layout: Layout = CROSS_ATTENTION
    layer: str = ""
    site: Site = _NO_SITE
    edited: Mapping[int, "EditedRow"] = {}

    def inputs(self) -> "AttentionEvent":
        """Return the event without values, outputs and edits, which need not be held."""
        return structs.replace(self, value=None, output=None, edited={})

    def row(
        self,
        number: int,
        queries: Indices | None = None,
    ) -> "RowAttention":
        """Return the attention of the image's positions in one row of the batch.

        With `queries`, it is that of these queries of the layer.
        """
        layout = self.layout.row(number)
        if queries is not None:
            layout = replace(layout, positions=queries)
        return self.row_of(number, layout, self.layout.joint)

    def of_reference(self, number: int, grid: tuple[int, int]) -> "AttentionEvent":
        """Return the event with the positions of a reference image, of this grid, for the image's.

        Edits do not act there.
        """
        return structs.replace(
            self,
            layout=_reference_layout(self.layout, number),
            site=structs.replace(self.site, grid=grid),
            edited={},
        )

    def row_of(
        self,
        number: int,
        layout: RowLayout,
        joint: bool,
    ) -> "RowAttention":
        """Return the attention of one row of the batch with a layout of its own."""
        positions = layout.positions
        query = take(self.query[number], positions)
        mask = log_sum = None
        if self.mask is not None:
            mask = self.mask.expand(*self.query.shape[:3], -1)[number]
            if mask.stride(1) == 0:  # the same for all queries
                mask = mask[:, :1].expand(*query.shape[:2], -1)
            else:
                mask = take(mask, positions)
        if self.log_sum is not None:
            log_sum = take(self.log_sum[number], positions, -1)
        return RowAttention(
            query=query,
            keys=self.key[number],
            scale=self.scale,
            layout=layout,
            joint=joint,
            visible=mask,
            log_sum=log_sum,
            values=None if self.value is None else self.value[number],
        )

    def probabilities(
        self,
        row: int,
        queries: Indices | None = None,
        keys: Indices | None = None,
        heads: slice = slice(None),
    ) -> Tensor:
        """Return probabilities without edits, exact in float32, with the graph of Q and K.

        Args:
            row: a row of the batch.
            queries: queries of the layer. Default: the positions of the image.
            keys: keys of the layer. Default: the tokens of the text.
            heads: heads of the layer.

        Returns:
            (H', Q', K'): shares of the softmax over all keys of the layer.
        """
        layout = self.layout.row(row)
        some = RowLayout(
            tokens=layout.tokens if keys is None else keys,
            positions=layout.positions if queries is None else queries,
        )
        return self.row_of(row, some, joint=True).probabilities(heads=heads)

    def with_log_sum(self) -> "AttentionEvent":
        """Return the event with its log-sum, which is computed if the kernel did not give it."""
        if self.log_sum is not None:
            return self
        with torch.autocast(self.query.device.type, enabled=False):
            rows = [
                self.row_of(number, RowLayout(), joint=True).log_sums()
                for number in range(len(self.query))
            ]
        return structs.replace(self, log_sum=torch.stack(rows))

    def token_maps(
        self,
        row: int,
        tokens: Sequence[int],
    ) -> Tensor:
        """Return where the image reads some tokens: their probabilities, the mean over heads.

        They are without edits, and keep the graph of Q and K. No tensor holds the attention of all
        positions to all keys. The map of a word is the sum of those of its tokens.

        Args:
            row: a row of the batch.
            tokens: positions on the K axis, as `TokenTable.find` returns them.

        Returns:
            (K', h, w), float32.
        """
        p = self.with_log_sum().row(row).probabilities(tokens)
        return p.mean(dim=0).mT.reshape(-1, *self.site.grid)


def numbers(mask: Tensor) -> Tensor:
    """Return a mask (H, Q, N) as numbers to add to scores, float32.

    A part that all heads or all queries share is computed once.
    """
    part = mask
    for axis in (0, 1):
        if mask.stride(axis) == 0:
            part = part.narrow(axis, 0, 1)
    return mask_numbers(part, torch.float32).float().expand(mask.shape)


@dataclass(frozen=True, eq=False)
class RowAttention:
    """The attention of an image's positions to its text, and to itself where they share a softmax.

    Attributes:
        query: (H, Q, d), of the positions.
        keys: (H, N, d), all keys of the softmax.
        scale: the factor of QKᵀ.
        layout: where text and image stand among the keys.
        joint: whether the image is among them.
        visible: the mask (H, Q, N), numbers or boolean.
        log_sum: (H, Q), if it is known.
        values: (H, N, d), if they are known.
    """

    query: Tensor
    keys: Tensor
    scale: float
    layout: RowLayout = field(default_factory=RowLayout)
    joint: bool = False
    visible: Tensor | None = None
    log_sum: Tensor | None = None
    values: Tensor | None = None

    @property
    def text_keys(self) -> Tensor:
        """The keys (H, K, d) of the text."""
        return take(self.keys, self.layout.tokens)

    @property
    def other_keys(self) -> Tensor:
        """The keys (H, N - K, d) of image, its padding and references, in joint attention."""
        return self._others(self.keys)

    @property
    def other_values(self) -> Tensor:
        """The values (H, N - K, d) of these keys."""
        assert self.values is not None
        return self._others(self.values)

    def _others(self, x: Tensor, dim: int = -2) -> Tensor:
        places = (self.layout.image_keys, *self.layout.references)
        parts = [take(x, place, dim) for place in places]
        return torch.cat(parts, dim) if len(parts) > 1 else parts[0]

    @property
    def mask(self) -> Tensor | None:
        """The mask (H, Q, N) as numbers to add; None without one."""
        return None if self.visible is None else numbers(self.visible)

    @property
    def text_mask(self) -> Tensor | None:
        """The mask (H, Q, K) of the text."""
        if self.visible is None:
            return None
        return take(numbers(self.visible), self.layout.tokens, -1)

    @property
    def other_mask(self) -> Tensor | None:
        """The mask (H, Q, N - K) of the other keys, in joint attention."""
        if self.visible is None:
            return None
        return numbers(self._others(self.visible, -1))

    def text_alone(self) -> "RowAttention":
        """Return the attention to the text in a softmax of its own."""
        visible = self.visible
        return RowAttention(
            query=self.query,
            keys=self.text_keys,
            scale=self.scale,
            visible=None if visible is None else take(visible, self.layout.tokens, -1),
        )

    def probabilities(
        self,
        tokens: Sequence[int] | None = None,
        heads: slice = slice(None),
    ) -> Tensor:
        """Return the probabilities (H', Q, K') of tokens of the text, float32.

        In joint attention they are shares of the softmax over text and image.
        """
        device = self.query.device.type
        if torch.is_autocast_enabled(device):  # it would use half precision here
            with torch.autocast(device, enabled=False):
                return self.probabilities(tokens, heads)
        query = self.query[heads].float()
        key, mask = self.text_keys[heads], self.text_mask
        mask = None if mask is None else mask[heads]
        count = key.shape[1]
        is_whole = tokens is None or list(tokens) == list(range(count))
        is_on_cpu = device == "cpu"
        # On a GPU the softmax of whole rows is a single launch.
        has_sum = self.log_sum is not None and (is_on_cpu or not is_whole)
        if not self.joint and not has_sum:
            p = probabilities(query, key, scale=self.scale, mask=mask)
            return p if is_whole else columns(p, tokens or ())
        if tokens is not None:
            key = contiguous_columns(key.mT, tokens).mT
            mask = None if mask is None else contiguous_columns(mask, tokens)
        # A kernel may give it in another order, which would be copied slowly for each key.
        bias = self.log_sums(heads).contiguous()[:, None]
        bias = bias if mask is None else bias - mask.mT
        # (H, K', Q), since a product with few columns takes a CPU twice as long.
        p = torch.baddbmm(bias, key.float(), query.mT, beta=-1, alpha=self.scale)
        if not is_on_cpu:
            return p.exp_().mT
        # Some CPUs compute powers of 2 in a quarter of the time of those of e. The scale stays
        # without the factor, so that it is rounded as in the log-sum.
        p = p.mul_(_LOG2_E).exp2_().mT
        if self.joint or not is_whole:
            return p
        # A log-sum in half precision, or of large scores, is good to 1e-4 only.
        return p / p.sum(dim=-1, keepdim=True)

    def log_sums(self, heads: slice = slice(None)) -> Tensor:
        """Return the logarithm of Σ exp over all keys in some heads, float32 (H', Q)."""
        if self.log_sum is not None:
            return self.log_sum[heads].float()
        mask = self.mask
        mask = None if mask is None else mask[heads]
        return log_sums(self.query[heads].float(), self.keys[heads], self.scale, mask)

    def parts(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield parts of the queries, and their probabilities (H, Q', N) of all keys, float32."""
        for part in query_parts(self.query, self.keys):
            visible = None if self.visible is None else self.visible[:, part]
            row = RowAttention(
                self.query[:, part], self.keys, self.scale, visible=visible
            )
            yield part, row.probabilities()

    def key_shares(self) -> Tensor:
        """Return the mean probability of each key over the queries, and the mean entropy.

        Returns:
            (H, N + 1), float32: the keys of the text, in joint attention those of the image with
            its padding and of reference images, and the entropy, with the natural logarithm.
        """
        heads, keys, _ = self.keys.shape
        total = torch.zeros(heads, keys + 1, device=self.keys.device)
        for _, p in self.parts():
            total[:, :-1] += p.sum(dim=1)
            total[:, -1] -= torch.xlogy(p, p).sum(dim=(1, 2))
        total /= self.query.shape[1]
        shares = [take(total[:, :-1], self.layout.tokens, -1), total[:, -1:]]
        if self.joint:
            shares.insert(1, self._others(total[:, :-1], -1))
        return torch.cat(shares, dim=-1)

    def whole(self, bias: Tensor | None = None) -> Tensor:
        """Return whole rows of probabilities, float32: (H, Q, K).

        In joint attention there is one more column, the last: the sum over the keys of the image
        and of reference images.

        Args:
            bias: (Q, K), added to the scores of the tokens. A position from which nothing is
                visible any more has a row of zeros.
        """
        if not self.joint and bias is None:
            return self.probabilities()
        device = self.query.device.type
        with torch.autocast(device, enabled=False):
            query = self.query.float()
            scores = query @ self.text_keys.float().mT * self.scale
            mask = self.text_mask
            scores = scores if mask is None else scores + mask
            if self.joint:
                rest = log_sums(query, self.other_keys, self.scale, self.other_mask)
                scores = torch.cat([scores, rest[..., None]], dim=-1)
            if bias is None:
                return scores.softmax(dim=-1)
            bias = pad(bias, (0, scores.shape[-1] - bias.shape[-1]))
            return visible_softmax(scores + less_largest(bias))


@dataclass(frozen=True, eq=False)
class EditedRow:
    """The attention of one row of the batch with its edits.

    Attributes:
        row: the attention without edits.
        before: P (H, Q, K) without edits, as `RowAttention.whole` has it.
        after: the same with the edits; the same tensor if no rule acted.
    """

    row: RowAttention
    before: Tensor
    after: Tensor

    @property
    def changes(self) -> bool:
        """True if a rule acted."""
        return self.after is not self.before

    def output(self) -> Tensor:
        """Return the edited output (H, Q, d), float32."""
        row = self.row
        values = row.values
        assert values is not None
        text = take(values, row.layout.tokens).float()
        if not row.joint:
            return self.after @ text
        mask = row.other_mask
        others = scaled_dot_product_attention(
            row.query,
            row.other_keys,
            row.other_values,
            attn_mask=None if mask is None else mask.to(values),
            scale=row.scale,
        )
        return self.after[..., :-1] @ text + self.after[..., -1:] * others


def merged(
    events: Sequence[AttentionEvent],
    number: int,
    stop: int | None = None,
) -> RowAttention:
    """Return one row of the batch in layers of one shape and layout, as if of one layer.

    Its heads (L·H) are those of all layers. Of the keys it has those of the text, up to the token
    `stop` of joint attention; it has no values.
    """
    first = events[0]
    if len(events) == 1:
        return first.row(number)
    layout = first.layout.row(number)
    joint = first.layout.joint
    if joint and stop is not None:
        layout = replace(layout, tokens=first_indices(layout.tokens, stop))

    def join(parts: Sequence[Tensor], indices: Indices, dim: int = -2) -> Tensor:
        if isinstance(indices, Tensor) or parts[0].numel() <= _SMALL:
            whole = torch.stack([*parts], dim=1)[number].flatten(0, 1)
            return take(whole, indices, dim)
        return torch.cat([take(part[number], indices, dim) for part in parts])

    log_sum = visible = None
    if first.log_sum is not None:
        sums = [event.log_sum for event in events if event.log_sum is not None]
        log_sum = join(sums, layout.positions, -1)
    if first.mask is not None:
        masks: list[Tensor] = []
        for event in events:
            mask = event.row_of(number, layout, joint).text_mask
            assert mask is not None
            masks.append(mask)
        if all(mask.stride(1) == 0 for mask in masks):
            masks = [mask[:, :1] for mask in masks]
        visible = torch.cat(masks)
    return RowAttention(
        query=join([event.query for event in events], layout.positions),
        keys=join([event.key for event in events], layout.tokens),
        scale=first.scale,
        joint=joint,
        visible=visible,
        log_sum=log_sum,
    )
