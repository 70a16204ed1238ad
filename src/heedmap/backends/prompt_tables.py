"""Which words and tokens a pipeline reads of its prompts: the labels of all that is recorded.

The tables of a call are checked against the ids that its text encoders were given. A prompt is read
once: where it was before the call began, and is what the encoders were given, that table is taken.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from heedmap.backends.advice import hushed
from heedmap.backends.registry import family_of
from heedmap.errors import TraceError, plural, quoted
from heedmap.text.words import TokenTable


def prompt_table(pipe: Any, prompt: str, arguments: Mapping[str, Any] | None = None) -> TokenTable:
    """The words and tokens of a prompt as this pipeline would read it.

    Args:
        pipe: the pipeline.
        prompt: one text.
        arguments: with which it is called; some read more or fewer tokens if they are told so.

    Raises:
        TraceError: if the pipeline has no tokenizer.
    """
    with hushed(pipe):
        return family_of(pipe).table(pipe, _tokenizer(pipe), prompt, arguments or {})


class Reader:
    """A tokenizer, and what its text encoder was given and made of it while it is watched."""

    def __init__(self, tokenizer: Any, encoder: torch.nn.Module, stack: ExitStack) -> None:
        self.tokenizer = tokenizer
        self.ids: list[list[list[int]]] = []
        self.states: list[torch.Tensor] = []
        # Another pipeline may read with the same encoder, in a thread of its own.
        self._thread = threading.get_ident()
        before = encoder.register_forward_pre_hook(self._before, with_kwargs=True)
        stack.callback(before.remove)
        stack.callback(encoder.register_forward_hook(self._after).remove)

    def _before(self, _: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if threading.get_ident() == self._thread:
            self.ids.append((args[0] if args else kwargs["input_ids"]).tolist())

    def _after(self, _: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if threading.get_ident() == self._thread:
            self.states.append(output[0])


def encoders(pipe: Any) -> dict[str, tuple[Any, Any]]:
    """The tokenizers and text encoders of a pipeline that it has, by the tokenizer's name."""
    pairs = {
        name: (getattr(pipe, name, None), getattr(pipe, encoder, None))
        for name, encoder in (("tokenizer", "text_encoder"), ("tokenizer_2", "text_encoder_2"))
    }
    return {name: pair for name, pair in pairs.items() if None not in pair}


def tables_read(
    pipe: Any,
    given: Mapping[str, Any],
    which: str,
    readers: Sequence[Reader],
    call: int,
    known: Mapping[str, TokenTable],
    count: int | None = None,
) -> list[TokenTable]:
    """The tables of the prompts, checked against the ids that each text encoder read.

    Args:
        pipe: the pipeline.
        given: the arguments of `encode_prompt`.
        which: "prompt" or "negative_prompt".
        readers: the tokenizers, with what was read.
        call: which of their calls it was.
        known: tables that were made before, by prompt.
        count: how many prompts one text stands for.

    Raises:
        TraceError: if the encoders read something else than these prompts.
    """
    texts = _listed(given.get(which) or "", count)
    other = given.get(f"{which}_2") or texts  # an empty one is none
    if _listed(other, count) != texts:
        raise TraceError(
            f"{which}_2 differs from {which}: each position of the text is then one key made of "
            "two tokens, and what it draws cannot be divided among them; pass "
            f"{which} alone, or prompt_embeds (the maps are then by position)"
        )
    first, family = _tokenizer(pipe), family_of(pipe)
    made = {(id(first), text): table for text, table in known.items()}

    def table(tokenizer: Any, text: str, ids: list[int] | None) -> TokenTable:
        found = made.get((id(tokenizer), text))
        if found is None or (ids is not None and _ids(found) != ids):
            found = made[id(tokenizer), text] = family.table(pipe, tokenizer, text, given)
        return found

    # A negative prompt of zeros is read by no encoder.
    heard = [(reader.tokenizer, reader.ids[call]) for reader in readers if call < len(reader.ids)]
    for _, read in heard:
        if len(read) != len(texts):
            raise TraceError(
                f"{which} was read as {plural(len(read), 'text')} for {len(texts)} pictures: "
                "expected a list with one for each"
            )
    own = next((read for tokenizer, read in heard if tokenizer is first), [None] * len(texts))
    labels = [table(first, text, ids) for text, ids in zip(texts, own, strict=True)]
    for tokenizer, read in heard:
        for label, ids in zip(labels, read, strict=True):
            mine = table(tokenizer, label.prompt, ids)
            _check_positions(label, mine)
            if _ids(mine) != ids:
                raise TraceError(
                    "the text encoder read other tokens than the prompt "
                    f"{quoted(label.prompt)} has: heedmap cannot label its maps; pass the prompt "
                    "as plain text"
                )
    return labels


def _tokenizer(pipe: Any) -> Any:
    """The first tokenizer of a pipeline, whose words label the maps."""
    for name in ("tokenizer", "tokenizer_2"):
        if (found := getattr(pipe, name, None)) is not None:
            return found
    raise TraceError(
        f"{type(pipe).__name__} has no tokenizer, so the words of a prompt cannot be told: load "
        "it with one, or pass prompt_embeds alone (the maps are then by position)"
    )


CLOSE = 0.05
"""Largest distance of a token's state from what its text encodes to, as a share of its length: half
types differ by about 0.01, other words by 0.2 and more."""


def check_labels(
    pipe: Any,
    encode: Callable[..., Any],
    given: dict[str, Any],
    result: Any,
    prompts: Sequence[str],
) -> None:
    """Raise unless the prompts that a user says were read are those that were.

    Raises:
        TraceError: if they are not, or it cannot be known.
    """
    without = "leave `prompts` out of the trace (the maps are then by position)"
    texts = given.get("prompt")
    if texts is not None:
        if _listed(texts, len(prompts)) != list(prompts):
            raise TraceError(
                f"the trace was told that the prompts are {quoted(list(prompts))}, and the "
                f"pipeline was given {quoted(texts)}: give the labels of prompt_embeds alone"
            )
        return
    if isinstance(result, torch.Tensor):
        return  # `encodings` refuses these embeds
    if not encoders(pipe):
        raise TraceError(
            f"{type(pipe).__name__} has no text encoder, so it cannot be known whether these "
            f"prompt_embeds are of {quoted(list(prompts))}: {without}"
        )
    embeds, each = given["prompt_embeds"], int(given.get("num_images_per_prompt") or 1)
    if len(embeds) != len(prompts):
        raise TraceError(
            f"the trace was given {plural(len(prompts), 'label')} in `prompts` and the pipeline "
            f"{len(embeds)} prompt_embeds: expected one label for each"
        )
    fresh = {name: None for name in given if name.endswith("_embeds")}
    fresh |= {"prompt": list(prompts), "do_classifier_free_guidance": False}
    again = encode(**{name: value for name, value in {**given, **fresh}.items() if name in given})
    read = result[0].float()
    expected = (again if isinstance(again, torch.Tensor) else again[0]).to(read)
    off = torch.full((1,), torch.inf)
    if read.shape == expected.shape:
        off = ((read - expected).norm(dim=-1) / expected.norm(dim=-1)).amax(dim=-1)
    for number, distance in enumerate(off.tolist()):
        if not distance <= CLOSE:
            label = prompts[min(number // each, len(prompts) - 1)]
            raise TraceError(
                f"the prompt_embeds are not what this pipeline makes of {quoted(label)}, so that "
                f"label could be wrong: pass the text that they were made of, or {without}"
            )


def _ids(table: TokenTable) -> list[int]:
    return [token.id for token in table.tokens]


def _check_positions(first: TokenTable, second: TokenTable) -> None:
    """Raise a TraceError unless two encoders read each word at the same positions."""
    others = {word.start: word.tokens for word in second.words}
    for word in first.words:
        if (other := others.get(word.start, ())) != word.tokens:
            one, two = (", ".join(map(str, found)) or "none" for found in (word.tokens, other))
            raise TraceError(
                f"the two text encoders read {quoted(word.text)} at different positions ({one} and "
                f"{two}), so a position mixes two words and its attention cannot be divided "
                "between them: load an embedding with the same number of vectors for each "
                "encoder, or pass prompt_embeds (the maps are then by position)"
            )


def _listed(text: str | Sequence[str], count: int | None) -> list[str]:
    return [text] * (count or 1) if isinstance(text, str) else list(text)
