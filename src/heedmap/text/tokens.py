"""From a tokenizer to the table: which characters of a prompt each token covers.

Any tokenizer that gives character offsets will do; nothing of transformers is imported.
"""

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from typing import Any

from heedmap import checks
from heedmap.errors import ArgumentError, ModelError, quoted
from heedmap.io.values import MAX_PROMPT, MAX_TOKENS
from heedmap.text.prompts import split_words
from heedmap.text.words import LABELS, Token, TokenTable, Word

MAX_TABLE = 500_000  # of the table of the dynamic program: about a second


def best_matches(
    a: Sequence[Hashable],
    b: Sequence[Hashable],
    a_sizes: Sequence[int] = (),
    b_sizes: Sequence[int] = (),
    *,
    match: int,
    swap: int,
    gap: int,
    what: str,
) -> list[tuple[int, int]]:
    """Return the pairs (i, j) of equal items of the best alignment of two sequences, ascending.

    Global alignment after Needleman and Wunsch (1970). Among alignments of the same score the best
    has the most items in units that were matched whole, then the fewest seams (places where a match
    follows what is not a match; so surplus goes to the end where it can), then its surplus as early
    as possible: the words before a noun stay with the noun.

    Args:
        a: the one sequence.
        b: the other one.
        a_sizes: the lengths of the units (words, say) that make up `a`; by default all are 1.
        b_sizes: the same of `b`.
        match: score of a pair of equal items.
        swap: score of a pair of unequal ones.
        gap: score of an item without a partner.
        what: what the items are, for the message.

    Raises:
        ArgumentError: if the sequences are too long and differ too much.
    """
    if len(a) * len(b) > MAX_TABLE:
        return _inner_matches(a, b, match=match, swap=swap, gap=gap, what=what)
    return _Table(a, b, a_sizes, b_sizes, match, swap, gap).pairs()


class _Table:
    """The dynamic program: the best value of the first i items with the first j.

    Kept twice, by the last move: `kept` for a match, `changed` for another one. One integer orders
    the alignments: score, then items in whole units, then seams.
    """

    def __init__(
        self,
        a: Sequence[Hashable],
        b: Sequence[Hashable],
        a_sizes: Sequence[int],
        b_sizes: Sequence[int],
        match: int,
        swap: int,
        gap: int,
    ) -> None:
        self.a, self.b = a, b
        self.unit = len(a) + len(b) + 2
        self.match, self.swap, self.gap = (
            score * self.unit * self.unit for score in (match, swap, gap)
        )
        self.never = -(self.unit**4)
        self.a_ends, self.b_ends = _ends(a_sizes or [1] * len(a)), _ends(b_sizes or [1] * len(b))
        self.kept = [[self.never] * (len(b) + 1) for _ in range(len(a) + 1)]
        self.changed = [[self.never] * (len(b) + 1) for _ in range(len(a) + 1)]
        self.kept[0][0] = 0
        self._fill()

    def best(self, i: int, j: int, seam: int = 0) -> int:
        """Of the first i items with the first j; `seam` is taken off where no match is last."""
        return max(self.kept[i][j], self.changed[i][j] - seam)

    def matched(self, i: int, j: int) -> tuple[int, int]:
        """The value of the best match that ends at (i, j), and how many items it takes."""
        a, b = self.a, self.b
        if a[i - 1] != b[j - 1]:
            return self.never, 0
        value, size = self.best(i - 1, j - 1, seam=1) + self.match, 1
        whole = self.a_ends[i]
        if whole and whole == self.b_ends[j] and a[i - whole : i] == b[j - whole : j]:
            of_whole = self.best(i - whole, j - whole, seam=1) + whole * (self.match + self.unit)
            if of_whole >= value:
                value, size = of_whole, whole
        return value, size

    def _fill(self) -> None:
        for i in range(len(self.a) + 1):
            for j in range(len(self.b) + 1):
                options: list[int] = []
                if i:
                    options.append(self.best(i - 1, j) + self.gap)
                if j:
                    options.append(self.best(i, j - 1) + self.gap)
                if i and j:
                    options.append(self.best(i - 1, j - 1) + self.swap)
                    self.kept[i][j] = self.matched(i, j)[0]
                if options:
                    self.changed[i][j] = max(options)

    def pairs(self) -> list[tuple[int, int]]:
        """The matches of the best alignment, ascending."""
        pairs: list[tuple[int, int]] = []
        i, j = len(self.a), len(self.b)
        is_match = self.kept[i][j] >= self.changed[i][j]
        while i or j:
            if is_match:
                size = self.matched(i, j)[1]
                pairs += [(i - k, j - k) for k in range(1, size + 1)]
                i, j = i - size, j - size
                is_match = self.kept[i][j] >= self.changed[i][j] - 1
                continue
            for down, right, score in ((1, 1, self.swap), (0, 1, self.gap), (1, 0, self.gap)):
                if not (down <= i and right <= j):
                    continue
                if self.best(i - down, j - right) + score == self.changed[i][j]:
                    i, j = i - down, j - right
                    break
            is_match = self.kept[i][j] >= self.changed[i][j]
        return pairs[::-1]


def _inner_matches(
    a: Sequence[Hashable], b: Sequence[Hashable], *, match: int, swap: int, gap: int, what: str
) -> list[tuple[int, int]]:
    """The matches of long sequences: what they begin and end with alike is matched beforehand."""
    shorter = min(len(a), len(b))
    head = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    rest = shorter - head
    tail = next((i for i in range(rest) if a[-1 - i] != b[-1 - i]), rest)
    inner_a, inner_b = a[head : len(a) - tail], b[head : len(b) - tail]
    if len(inner_a) * len(inner_b) > MAX_TABLE:
        raise ArgumentError(
            f"the prompts are too long to be aligned: {len(inner_a)} {what} of the one differ from "
            f"{len(inner_b)} of the other; make both shorter"
        )
    inner = best_matches(inner_a, inner_b, match=match, swap=swap, gap=gap, what=what)
    return [
        *((i, i) for i in range(head)),
        *((i + head, j + head) for i, j in inner),
        *((len(a) - k, len(b) - k) for k in range(tail, 0, -1)),
    ]


def _ends(sizes: Sequence[int]) -> list[int]:
    """For each index the length of the unit that ends just before it, else 0."""
    ends = [0] * (sum(sizes) + 1)
    for end, size in zip(accumulate(sizes), sizes, strict=True):
        ends[end] = size
    return ends


_NOT_SET = 2**16  # transformers writes 1e30 where a tokenizer has no limit
CLIP_LIMIT = 77


def read_tokens(
    prompt: str,
    ids: Sequence[int],
    *,
    text_ids: Sequence[int],
    text_offsets: Sequence[tuple[int, int]],
    start_id: int | None,
    end_id: int | None,
) -> TokenTable:
    """Build the table of a prompt from what was encoded.

    The kinds of the tokens follow from counting, not from their ids: after the start token come as
    many text tokens as the prompt has (or fit), then one end token; the rest is padding. So it does
    not matter that the padding of Stable Diffusion 1 is the end token, and that of 2 and of SDXL's
    second encoder "!", which a user may also have typed.

    Args:
        prompt: the text.
        ids: `[K]`, the ids given to the text encoder, specials and padding included.
        text_ids: all ids of the prompt, without specials, not truncated.
        text_offsets: for each of `text_ids` the `(start, end)` characters of the prompt it covers.
        start_id: the start token, None if the tokenizer has none.
        end_id: the end token, None if the tokenizer has none.

    Raises:
        ArgumentError: if `ids` are not what this prompt encodes to; labels would be wrong.
    """
    checks.text("the prompt", prompt, most=MAX_PROMPT)
    ids, text_ids = list(ids), list(text_ids)
    lead = int(start_id is not None)
    room = max(0, len(ids) - lead - int(end_id is not None))
    count = min(len(text_ids), room)
    expected = [start_id] * lead + text_ids[:count] + [end_id] * (end_id is not None)
    if ids[: len(expected)] != expected or len(text_ids) != len(text_offsets):
        where = next((i for i, (a, b) in enumerate(zip(ids, expected, strict=False)) if a != b), 0)
        raise ArgumentError(
            f"the token ids are not those of the prompt {quoted(prompt)}, but differ at position "
            f"{where}: expected the ids that this prompt was encoded to, or its own text"
        )

    spans = _whole_spans(prompt, text_offsets)
    tokens: list[Token] = []
    for position, token_id in enumerate(ids):
        if lead <= position < lead + count:
            start, end = spans[position - lead]
            tokens.append(Token(position, token_id, prompt[start:end], start, end, "text"))
        else:
            kind = "start" if position < lead else "end" if position < len(expected) else "pad"
            tokens.append(Token(position, token_id, LABELS[kind], 0, 0, kind))
    words = tuple(
        Word(
            number,
            prompt[start:end],
            start,
            end,
            tuple(index + lead for index in members if index < count),
            sum(index >= count for index in members),
        )
        for number, (start, end, members) in enumerate(_assign(split_words(prompt), spans))
    )
    return TokenTable(prompt, len(ids), len(text_ids) - count, tuple(tokens), words)


def _whole_spans(prompt: str, offsets: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Trim spaces off the spans, and give them the accents that normalisation merged away.

    For "e" + U+0301, composed before it is tokenized, the offsets cover the "e" alone: what follows
    a span up to the next token or space is part of it.
    """
    spans: list[tuple[int, int]] = []
    following = group = len(prompt)
    for start, end in reversed(list(offsets)):
        if start != group:
            following, group = group, start
        while end < following and not prompt[end].isspace():
            end += 1
        while start < end and prompt[start].isspace():
            start += 1
        while start < end and prompt[end - 1].isspace():
            end -= 1
        spans.append((start, end))
    return spans[::-1]


def _assign(
    words: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]
) -> list[tuple[int, int, list[int]]]:
    """Give each token to the first word it overlaps.

    CLIP has tokens for repeated emoji, over several words: a word left without a token of its own
    joins the one that holds it. A word that no token touches at all was dropped by the tokenizer
    and is left out, since the model cannot know of it.
    """
    ends = [end for _, end in words]
    members: list[list[int]] = [[] for _ in words]
    holder: dict[int, int] = {}
    for index, (start, end) in enumerate(spans):
        first = other = bisect_right(ends, start)
        while other < len(words) and words[other][0] < end:
            if other == first:
                members[first].append(index)
            else:
                holder.setdefault(other, first)
            other += 1
    joined: dict[int, tuple[int, int, list[int]]] = {}
    for number, (start, end) in enumerate(words):
        if members[number]:
            joined[number] = (start, end, members[number])
        elif number in holder:
            start, _, tokens = joined[holder[number]]
            joined[holder[number]] = (start, end, tokens)
    return list(joined.values())


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What a pipeline makes of a prompt before it tokenizes it.

    Attributes:
        text: what is tokenized.
        origin: for each of its characters the `(start, end)` of the prompt that it comes from.
    """

    text: str
    origin: Sequence[tuple[int, int]]


def tokenize(
    prompt: str,
    tokenizer: Any,
    *,
    rewrite: Callable[[str], Rewritten | None] | None = None,
    limit: int | None = None,
) -> TokenTable:
    """Tokenize `prompt` as the pipelines of diffusers do, and build its table.

    Args:
        prompt: one text; the empty text gives a table without words.
        tokenizer: one of transformers, or any that gives character offsets.
        rewrite: what is made of a text before it is tokenized; None for nothing.
        limit: how many tokens are read, specials included; the tokenizer's own if None.

    Raises:
        ArgumentError: if the prompt is not a text, or too long.
        ModelError: if the tokenizer gives no character offsets.
    """
    checks.text("the prompt", prompt, most=MAX_PROMPT)
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(
            f"the tokenizer {type(tokenizer).__name__} gives no character offsets, so words cannot "
            "be tied to tokens: load the model with its fast tokenizer"
        )
    limit = int(tokenizer.model_max_length) if limit is None else limit
    if limit > _NOT_SET:
        limit = CLIP_LIMIT
    if limit > MAX_TOKENS:
        raise ModelError(
            f"the tokenizer reads {limit} tokens of a prompt: expected at most {MAX_TOKENS}; load "
            "it with a smaller model_max_length"
        )
    made = None if rewrite is None else rewrite(prompt)
    text = prompt if made is None else made.text
    (read,) = tokenizer(text, padding="max_length", max_length=limit, truncation=True).encodings
    # What is cut off is beside it, in parts of the same length, each with tokens that are no text.
    rows: list[tuple[tuple[int, int], int, int]] = [
        row
        for part in (read, *read.overflowing)
        for row in zip(part.offsets, part.ids, part.special_tokens_mask, strict=True)
        if not row[2]
    ]
    rows.sort(key=itemgetter(0))  # the parts come in another order where the beginning is cut off
    offsets = [row[0] for row in rows]
    if made is not None:
        offsets = [(made.origin[a][0], made.origin[max(a, b - 1)][1]) for a, b in offsets]
    return read_tokens(
        prompt,
        read.ids,
        text_ids=[row[1] for row in rows],
        text_offsets=offsets,
        start_id=tokenizer.bos_token_id,
        end_id=tokenizer.eos_token_id,
    )


def expanded(prompt: str, tokenizer: Any, expand: Callable[[str], str]) -> Rewritten | None:
    """A prompt with the placeholders of textual inversion expanded; None if it has none.

    Args:
        prompt: one text.
        tokenizer: knows the placeholders.
        expand: of a text; a placeholder of several vectors becomes several placeholders, all of
            which belong to the one word of the prompt.

    Raises:
        ModelError: if placeholders cannot be told apart.
    """
    whole = expand(prompt)
    if whole == prompt:
        return None
    placeholders = sorted(tokenizer.added_tokens_encoder, key=len, reverse=True)
    origin: list[tuple[int, int]] = []
    text, at = "", 0
    while at < len(prompt):
        piece = next((p for p in placeholders if prompt.startswith(p, at)), prompt[at])
        for char in expand(piece):
            text += char
            origin.append((at, at + len(piece)))
        at += len(piece)
    if text != whole:
        raise ModelError(
            f"the placeholders in {quoted(prompt)} cannot be tied to their vectors: expected names "
            "that do not contain each other; rename the embedding"
        )
    return Rewritten(text, origin)


def by_position(count: int) -> TokenTable:
    """The table of text states whose text is not known: the words are the positions.

    Args:
        count: K, the number of text tokens; the word "5" is the token at position 5.
    """
    prompt = " ".join(map(str, range(count)))
    tokens: list[Token] = []
    words: list[Word] = []
    at = 0
    for position in range(count):
        text = str(position)
        end = at + len(text)
        tokens.append(Token(position, 0, text, at, end, "text"))
        words.append(Word(position, text, at, end, (position,), 0))
        at = end + 1
    return TokenTable(prompt, count, 0, tuple(tokens), tuple(words))
