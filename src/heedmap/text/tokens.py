"""The table of a prompt, made with a tokenizer that gives character offsets."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from heedmap import checks
from heedmap.errors import ModelError, quoted
from heedmap.io.schemas import MAX_PROMPT, MAX_TOKENS
from heedmap.text.prompts import split_words
from heedmap.text.words import LABELS, Token, TokenTable, Word

_NOT_SET = 2**16  # transformers writes 1e30 where a tokenizer has no limit
_CLIP_LIMIT = 77


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The text that a pipeline makes of a prompt before it tokenizes it.

    Attributes:
        text: the text that is tokenized.
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
    """Tokenize a prompt as the pipelines of diffusers do, and build its table.

    The place of a token decides its kind, not its id: Stable Diffusion 1 pads with the end token,
    Stable Diffusion 2 and SDXL's second encoder pad with "!", which a prompt may also contain.

    Args:
        prompt: one text; the empty text gives a table without words.
        tokenizer: a fast tokenizer of transformers.
        rewrite: makes the text that is tokenized of the prompt; None for no change.
        limit: number of tokens that are read, specials included. Default: the tokenizer's own.

    Raises:
        ArgumentError: if the prompt is not a text, or too long.
        ModelError: if the tokenizer gives no character offsets, or pads or cuts on the left.
    """
    checks.text("the prompt", prompt, most=MAX_PROMPT)
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(
            f"the tokenizer {type(tokenizer).__name__} gives no character offsets, so words cannot "
            "be tied to tokens: load the model with its fast tokenizer"
        )
    limit = int(tokenizer.model_max_length) if limit is None else limit
    if limit > _NOT_SET:
        limit = _CLIP_LIMIT
    if limit > MAX_TOKENS:
        raise ModelError(
            f"the tokenizer reads {limit} tokens of a prompt: expected at most {MAX_TOKENS}; load "
            "it with a smaller model_max_length"
        )
    rewritten = None if rewrite is None else rewrite(prompt)
    text = prompt if rewritten is None else rewritten.text
    (encoding,) = tokenizer(text, padding="max_length", max_length=limit, truncation=True).encodings
    # The tokens past the limit stand in further parts.
    rows: list[tuple[tuple[int, int], int]] = [
        (offsets, token)
        for part in (encoding, *encoding.overflowing)
        for offsets, token, special in zip(
            part.offsets, part.ids, part.special_tokens_mask, strict=True
        )
        if not special
    ]
    rows.sort(key=itemgetter(0))
    offsets = [offset for offset, _ in rows]
    if rewritten is not None:
        offsets = [(rewritten.origin[a][0], rewritten.origin[max(a, b - 1)][1]) for a, b in offsets]
    spans = _whole_spans(prompt, offsets)

    lead, tail = (int(one is not None) for one in (tokenizer.bos_token_id, tokenizer.eos_token_id))
    count = min(len(rows), max(0, limit - lead - tail))
    expected = [tokenizer.bos_token_id] * lead + [token for _, token in rows[:count]]
    expected += [tokenizer.eos_token_id] * tail
    if encoding.ids[: len(expected)] != expected:
        raise ModelError(
            f"the tokenizer {type(tokenizer).__name__} does not put {quoted(prompt)} first and the "
            "padding last: load it with padding_side='right' and truncation_side='right'"
        )
    tokens: list[Token] = []
    for position, token in enumerate(encoding.ids):
        if lead <= position < lead + count:
            start, end = spans[position - lead]
            tokens.append(Token(position, token, prompt[start:end], start, end, "text"))
        else:
            kind = "start" if position < lead else "end" if position < len(expected) else "pad"
            tokens.append(Token(position, token, LABELS[kind], 0, 0, kind))
    words = [
        Word(
            number,
            prompt[start:end],
            start,
            end,
            tuple(index + lead for index in members if index < count),
            sum(index >= count for index in members),
        )
        for number, (start, end, members) in enumerate(_assign(split_words(prompt), spans))
    ]
    return TokenTable(prompt, len(tokens), len(rows) - count, tuple(tokens), tuple(words))


def _whole_spans(prompt: str, offsets: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Trim spaces off the spans, and extend them over accents that normalization merged.

    A tokenizer composes "e" + U+0301 first, and its offsets then cover the "e" alone. The
    characters after a span up to the next token or space belong to it.
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
    """Give each token to the first word it overlaps: `(start, end, tokens)` of each word.

    CLIP has tokens for several emoji: a word without a token of its own joins the word that has
    its token. A word that no token overlaps is left out, since the tokenizer dropped it.
    """
    starts, ends = [start for start, _ in words], [end for _, end in words]
    members: list[list[int]] = [[] for _ in words]
    holder: dict[int, int] = {}
    for index, (start, end) in enumerate(spans):
        overlapped = range(bisect_right(ends, start), bisect_left(starts, end))
        for number in overlapped:
            if number == overlapped[0]:
                members[number].append(index)
            else:
                holder.setdefault(number, overlapped[0])
    joined: dict[int, tuple[int, int, list[int]]] = {}
    for number, (start, end) in enumerate(words):
        if members[number]:
            joined[number] = (start, end, members[number])
        elif number in holder:
            start, _, tokens = joined[holder[number]]
            joined[holder[number]] = (start, end, tokens)
    return list(joined.values())


def expanded(prompt: str, tokenizer: Any, expand: Callable[[str], str]) -> Rewritten | None:
    """Expand the placeholders of textual inversion; return None if the prompt has none.

    Args:
        prompt: one text.
        tokenizer: knows the placeholders.
        expand: expands a text: a placeholder of several vectors becomes several placeholders, all
            of which belong to one word of the prompt.

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
        vectors = expand(piece)
        text += vectors
        origin += [(at, at + len(piece))] * len(vectors)
        at += len(piece)
    if text != whole:
        raise ModelError(
            f"the placeholders in {quoted(prompt)} cannot be tied to their vectors: expected names "
            "that do not contain each other; rename the embedding"
        )
    return Rewritten(text, origin)


def by_position(count: int) -> TokenTable:
    """Make the table of `count` text states of an unknown text: the word "5" is token 5."""
    return TokenTable.of_texts(map(str, range(count)), " ")
