"""The words and tokens of a prompt as a tokenizer reads it, tied by the characters of the prompt.

A tokenizer gives the characters of each token, `split_units` those of each word. A token belongs to
the word whose characters it overlaps. In a text without spaces (Chinese, Japanese, Thai) the words
are the tokenizer's own units: the shortest whole characters that share no token with others.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

from heedmap.checks import check_text
from heedmap.errors import ModelError, quoted
from heedmap.io.schemas import MAX_PROMPT, MAX_TOKENS, TokenKind
from heedmap.text.prompts import is_unspaced, split_units
from heedmap.text.words import Token, TokenTable, Word

_NOT_SET = 2**16  # transformers writes 1e30 where a tokenizer has no limit


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A text that a pipeline makes of a prompt, and the `(start, end)` of each character."""

    text: str
    origin: Sequence[tuple[int, int]]


def tokenize(
    prompt: str,
    tokenizer: Any,
    *,
    before: str = "",
    after: str = "",
    rewritten: Rewritten | None = None,
    split: Callable[[str], Sequence[str]] | None = None,
    limit: int | None = None,
    padding: str | bool = "max_length",
    **options: Any,
) -> TokenTable:
    """Tokenize a prompt as the pipelines of diffusers do, and build its table.

    The place of a token decides its kind, not its id: Stable Diffusion 1 pads with the end token,
    Stable Diffusion 2 and SDXL's second encoder pad with "!", which a prompt may also contain.

    Args:
        prompt: one text; the empty text gives a table without words.
        tokenizer: a fast tokenizer of transformers; another one is a ModelError.
        before: an instruction, or the template of a chat, before the prompt; its tokens are of the
            kind "start".
        after: the template behind the prompt; its tokens are of the kind "end".
        rewritten: the text that is tokenized in place of the prompt; None for no change.
        split: cuts the text into the parts that are tokenized one by one; None for a single part.
        limit: number of tokens that are read, those of the tokenizer and of the template included.
            Default: the tokenizer's own.
        padding: "max_length" for padding to the limit, False for none.
        options: of the tokenizer's call.
    """
    check_text("the prompt", prompt, most=MAX_PROMPT)
    limit = _limit_of(tokenizer, limit)
    text = prompt if rewritten is None else rewritten.text
    first = len(before)
    last = first + len(text)
    options |= {"padding": padding, "max_length": limit, "truncation": True}
    whole: Any = before + text + after
    begins: dict[int | None, int] = {}  # of the characters of each part
    if split is not None:
        whole = split(whole) or [""]
        options |= {"is_split_into_words": True}
        begins = dict(enumerate(accumulate(map(len, whole), initial=0)))
    (encoding,) = tokenizer(whole, **options).encodings
    # The tokenizer's own tokens before each text.
    (letter,) = tokenizer("a").encodings
    starts = iter(["start"] * letter.special_tokens_mask.index(0))
    rows: list[tuple[int, TokenKind]] = []
    offsets: list[tuple[int, int]] = []
    # The tokens past the limit stand in further parts.
    for part in (encoding, *encoding.overflowing):
        masks = (part.special_tokens_mask, part.attention_mask)
        for token, (start, end), number, is_special, is_visible in zip(
            part.ids, part.offsets, part.word_ids, *masks, strict=True
        ):
            begin = begins.get(number, 0)
            start += begin
            end += begin
            kind: TokenKind = "text"
            if not is_visible:
                kind = "pad"
            elif is_special:
                kind = next(starts, "end")
            elif before and end <= first:
                kind = "start"
            elif after and start >= last:
                kind = "end"
            else:
                offsets.append((max(start, first) - first, min(end, last) - first))
            rows.append((token, kind))
    if rewritten is not None:
        origin = rewritten.origin
        offsets = [(origin[a][0], origin[max(a, b - 1)][1]) for a, b in offsets]
    spans = iter(_whole_spans(prompt, offsets))
    tokens: list[Token] = []
    for position, (token, kind) in enumerate(rows):
        label = f"<{kind}>"
        start = end = 0
        if kind == "text":
            start, end = next(spans)
            label = prompt[start:end]
        tokens.append(
            Token(
                position,
                token,
                label,
                start,
                end,
                kind,
            )
        )
    texts = [token for token in tokens if token.kind == "text"]
    count = len(encoding.ids)
    return TokenTable(
        prompt=prompt,
        limit=limit,
        missing=sum(token.position >= count for token in texts),
        tokens=tuple(tokens[:count]),
        words=_words(prompt, texts, count, tokenizer.unk_token_id),
    )


def _limit_of(tokenizer: Any, limit: int | None) -> int:
    """Return the number of tokens that are read; ModelError if words cannot be tied to them."""
    if not getattr(tokenizer, "is_fast", False) or tokenizer.truncation_side == "left":
        raise ModelError(
            f"the tokenizer {type(tokenizer).__name__} gives no character offsets, or cuts texts "
            "on the left, so words cannot be tied to tokens: load the model with its fast "
            "tokenizer, and truncation_side='right'"
        )
    if limit is None:
        limit = int(tokenizer.model_max_length)
    if limit > _NOT_SET:
        return 77  # CLIP's
    if limit > MAX_TOKENS:
        raise ModelError(
            f"the tokenizer reads {limit} tokens of a prompt: expected at most {MAX_TOKENS}; load "
            "it with a smaller model_max_length"
        )
    return limit


def _whole_spans(
    prompt: str, offsets: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Trim spaces off the spans, and extend them over accents that normalization merged.

    A tokenizer composes "e" + U+0301 first, and its offsets then cover the "e" alone. The
    characters after a span up to the next token or space belong to it.
    """
    spans: list[tuple[int, int]] = []
    following = group = len(prompt)
    for start, end in reversed(list(offsets)):
        if start != group:
            following = group
            group = start
        rest = re.split(r"\s", prompt[end:following], maxsplit=1)
        text = prompt[start:end] + rest[0]
        start += len(text) - len(text.lstrip())
        spans.append((start, start + len(text.strip())))
    return spans[::-1]


def _words(
    prompt: str,
    tokens: Sequence[Token],
    count: int,
    unknown: int | None,
) -> tuple[Word, ...]:
    """Give each token to the first word it overlaps; `count` tokens are read.

    CLIP has tokens for several emoji: a word without a token of its own joins the word that has
    its token. Characters of a text without spaces join where they share a token; those that share
    an unknown one are left out, since it tells nothing of them: T5 has one for a whole clause of
    Chinese. So is a word that no token overlaps, since the tokenizer dropped it.
    """
    lost: set[int] = set()
    for token in tokens:
        if token.id == unknown and token.end - token.start > 1:
            lost.update(range(token.start, token.end))
    units = [
        (start, end)
        for start, end in split_units(prompt)
        if start not in lost or not is_unspaced(prompt[start:end])
    ]
    owners: dict[int, int] = {}  # by character, the number of its unit
    for number, unit in enumerate(units):
        owners |= dict.fromkeys(range(*unit), number)
    members: list[list[Token]] = [[] for _ in units]
    sharing: set[int] = set()  # units that share a token with the unit before
    for token in tokens:
        characters = range(token.start, token.end)
        overlapped = sorted({owners[at] for at in characters if at in owners})
        if overlapped:
            members[overlapped[0]].append(token)
        sharing.update(overlapped[1:])
    groups: list[list[int]] = []
    for number, unit in enumerate(units):
        is_joined = not members[number] or is_unspaced(prompt[slice(*unit)])
        if number in sharing and is_joined:
            groups[-1].append(number)
        elif members[number]:
            groups.append([number])
    words: list[Word] = []
    for group in groups:
        start = units[group[0]][0]
        end = units[group[-1]][1]
        group_tokens = chain.from_iterable(members[number] for number in group)
        positions = [token.position for token in group_tokens]
        visible = tuple(position for position in positions if position < count)
        missing = len(positions) - len(visible)
        words.append(
            Word(
                len(words),
                prompt[start:end],
                start,
                end,
                visible,
                missing,
            )
        )
    return tuple(words)


def expanded(
    prompt: str,
    tokenizer: Any,
    expand: Callable[[str, Any], str],
) -> Rewritten | None:
    """Expand the placeholders of textual inversion; return None if the prompt has none.

    `expand` makes several placeholders of one that has several vectors, of a text and the
    tokenizer; all belong to one word.
    """
    whole = expand(prompt, tokenizer)
    if whole == prompt:
        return None
    names = sorted(tokenizer.added_tokens_encoder, key=len, reverse=True)
    pieces = re.compile("|".join([*map(re.escape, names), "."]), re.DOTALL)
    text = ""
    origin: list[tuple[int, int]] = []
    for piece in pieces.finditer(prompt):
        vectors = expand(piece[0], tokenizer)
        text += vectors
        origin += [piece.span()] * len(vectors)
    if text != whole:
        raise ModelError(
            f"the placeholders in {quoted(prompt)} cannot be tied to their vectors: expected names "
            "that do not contain each other; rename the embedding"
        )
    return Rewritten(text, origin)
