"""What a pipeline reads: the prompts of a call, tied to the text states that the model is given.

`watch` listens to the pipeline's own `encode_prompt`. The labels of the tokens come from the ids
that the text encoders were given, and the rows of the model's batch are told apart by comparing
them with the states that came out, so neither depends on how a pipeline stacks its branches.
"""

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch

from heedmap.errors import TraceError, plural, quoted
from heedmap.text.tokens import by_position
from heedmap.text.words import TokenTable
from heedmap.wiring.families import family_of
from heedmap.wiring.patches import put


@dataclass(frozen=True, eq=False)
class Branch:
    """One branch of a call: for each image its words, and the text states (B, K, C)."""

    tables: tuple[TokenTable, ...]
    states: torch.Tensor

    def blocks_in(self, states: torch.Tensor) -> list[int]:
        """Which blocks of B rows of a model's text states (n·B, K, C) are those of this branch."""
        images = len(self.tables)
        mine = self.states.to(states)
        if mine.shape[1:] != states.shape[1:]:
            return []
        blocks = states.split(images)
        return [number for number, block in enumerate(blocks) if torch.equal(block, mine)]


@dataclass(frozen=True, eq=False)
class Encoding:
    """What one call of a pipeline reads.

    Attributes:
        conditional: the prompt's branch.
        negative: None without guidance.
        prompt_first: whether the pipeline stacks the prompt's one block before all others, as
            InstructPix2Pix does; others have the negative prompt's one before the prompt's.
    """

    conditional: Branch
    negative: Branch | None
    prompt_first: bool = False

    def blocks_in(self, states: torch.Tensor) -> dict[str, list[int]]:
        """Which blocks of a model's text states are which branch; a branch may be missing.

        A prompt may be read in several blocks: perturbed-attention guidance does so.
        """
        blocks = {"conditional": self.conditional.blocks_in(states)}
        if self.negative is not None:
            blocks["negative"] = self.negative.blocks_in(states)
            if blocks["negative"] == blocks["conditional"] and len(blocks["conditional"]) > 1:
                # Both prompts are the same text: only their order tells them apart.
                first, *others = blocks["conditional"]
                if self.prompt_first:
                    blocks = {"conditional": [first], "negative": others}
                else:
                    blocks = {"conditional": others, "negative": [first]}
        return {name: found for name, found in blocks.items() if found}


def watch(
    pipe: Any,
    prompts: Sequence[str] | None,
    negative: bool,
    begin: Callable[[Encoding], None],
    end: Callable[[], None],
) -> Callable[[], None]:
    """Call `begin` whenever the pipeline encodes its prompts, and `end` when it is done.

    Args:
        pipe: the pipeline; its method is replaced on the instance.
        prompts: the texts of `prompt_embeds`, where the pipeline is given these instead of text.
        negative: whether the words of the negative prompt are wanted; its table is by position
            otherwise.
        begin: called with what was read, before the first step.
        end: called when the pipeline lets go of its models, which it does last of all.

    Returns:
        A function that puts the method back.

    Raises:
        TraceError: if the pipeline has no method that encodes prompts.
    """
    # InstructPix2Pix has the older method only; of both, the older one calls the newer.
    name = next((n for n in ("encode_prompt", "_encode_prompt") if hasattr(pipe, n)), None)
    if name is None:
        raise TraceError(
            f"{type(pipe).__name__} has no encode_prompt: heedmap cannot tell what its model "
            "reads; expected a text-to-image pipeline of diffusers"
        )
    encode = getattr(pipe, name)
    signature = inspect.signature(encode)

    @wraps(encode)
    def watched(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        with ExitStack() as stack:
            readers = [_Reader(*pair, stack) for pair in _encoders(pipe)]
            result = encode(*args, **kwargs)
        given = bound.arguments
        if prompts is not None:
            _check_labels(pipe, encode, given, result, prompts)
        begin(_encoding(pipe, given, readers, result, prompts, negative))
        return result

    release = pipe.maybe_free_model_hooks

    @wraps(release)
    def released() -> None:
        end()
        release()

    first = put(pipe, name, watched)
    second = put(pipe, "maybe_free_model_hooks", released)

    def undo() -> None:
        second()
        first()

    return undo


def prompt_table(pipe: Any, prompt: str, arguments: Mapping[str, Any] | None = None) -> TokenTable:
    """The words and tokens of a prompt as this pipeline would read it.

    Args:
        pipe: the pipeline.
        prompt: one text.
        arguments: with which it is called; some read more or fewer tokens if they are told so.

    Raises:
        TraceError: if the pipeline has no tokenizer.
    """
    return family_of(pipe).table(pipe, _tokenizer(pipe), prompt, arguments or {})


class _Reader:
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


def _encoders(pipe: Any) -> list[tuple[Any, Any]]:
    """The tokenizers and text encoders of a pipeline that it has, in their order."""
    pairs = [
        (getattr(pipe, f"tokenizer{n}", None), getattr(pipe, f"text_encoder{n}", None))
        for n in ("", "_2")
    ]
    return [pair for pair in pairs if pair[0] is not None and pair[1] is not None]


def _tokenizer(pipe: Any) -> Any:
    """The first tokenizer of a pipeline, whose words label the maps."""
    for name in ("tokenizer", "tokenizer_2"):
        if (found := getattr(pipe, name, None)) is not None:
            return found
    raise TraceError(
        f"{type(pipe).__name__} has no tokenizer, so the words of a prompt cannot be told: load it "
        "with one, or pass prompt_embeds alone (the maps are then by position)"
    )


CLOSE = 0.05
"""Largest distance of a token's state from what its text encodes to, as a share of its length: half
types differ by about 0.01, other words by 0.2 and more."""


def _check_labels(
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
        return  # `_states` refuses these embeds
    if not _encoders(pipe):
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


def _encoding(
    pipe: Any,
    given: dict[str, Any],
    readers: list[_Reader],
    result: Any,
    prompts: Sequence[str] | None,
    wanted: bool,
) -> Encoding:
    each = int(given.get("num_images_per_prompt") or 1)
    states, negative_states = _states(pipe, result, readers, each)
    if given.get("prompt") is not None and readers:
        tables = _tables(pipe, given, "prompt", readers, call=0)
    elif prompts is not None:
        tables = [prompt_table(pipe, prompt, given) for prompt in prompts]
    else:
        tables = [by_position(states.shape[1])] * (states.shape[0] // each)
    conditional = _branch(tables, states)
    if negative_states is None:
        return Encoding(conditional, None)
    if not wanted or given.get("negative_prompt_embeds") is not None or not readers:
        negative = [by_position(states.shape[1])] * (negative_states.shape[0] // each)
    else:
        call = 1 if given.get("prompt_embeds") is None else 0
        negative = _tables(pipe, given, "negative_prompt", readers, call, count=len(tables))
    first = family_of(pipe).prompt_first(pipe, result)
    return Encoding(conditional, _branch(negative, negative_states), first)


def _states(
    pipe: Any, result: Any, readers: list[_Reader], each: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The conditional and the negative text states among what encode_prompt returned."""
    if not isinstance(result, torch.Tensor):
        return family_of(pipe).states(result)
    # The older method returns its branches in one tensor, in an order of the pipeline's own.
    if not readers or not readers[0].states:
        raise TraceError(
            "this pipeline was given prompt_embeds and mixes its branches before heedmap can tell "
            "them apart: pass the prompt as text"
        )
    found = [states.repeat_interleave(each, dim=0).to(result) for states in readers[0].states[:2]]
    return found[0], found[1] if len(found) > 1 else None


def _branch(tables: Sequence[TokenTable], states: torch.Tensor) -> Branch:
    images, tokens = states.shape[:2]
    wrong = next((t for t in tables if len(t.tokens) != tokens), None)
    if not tables or images % len(tables) or wrong is not None:
        read = f"{len(wrong.tokens)} tokens" if wrong else f"{len(tables)} prompts"
        raise TraceError(
            f"the prompts have {read}, the text states are {images} of {tokens} tokens: expected "
            "prompts that these prompt_embeds were made of, or none (labels by position)"
        )
    each = images // len(tables)
    return Branch(tuple(table for table in tables for _ in range(each)), states)


def _tables(
    pipe: Any,
    given: dict[str, Any],
    which: str,
    readers: list[_Reader],
    call: int,
    count: int | None = None,
) -> list[TokenTable]:
    """The tables of the prompts, checked against the ids that each text encoder read."""
    texts = _listed(given.get(which) or "", count)
    other = given.get(f"{which}_2") or texts  # an empty one is none
    if _listed(other, count) != texts:
        raise TraceError(
            f"{which}_2 differs from {which}: each position of the text is then one key made of "
            "two tokens, and what it draws cannot be divided among them; pass "
            f"{which} alone, or prompt_embeds (the maps are then by position)"
        )
    tables = [prompt_table(pipe, text, given) for text in texts]
    family = family_of(pipe)
    for reader in readers:
        if call >= len(reader.ids):  # a negative prompt of zeros, that no encoder read
            continue
        read = reader.ids[call]
        if len(read) != len(texts):
            raise TraceError(
                f"{which} was read as {plural(len(read), 'text')} for {len(texts)} pictures: "
                "expected a list with one for each"
            )
        expected = [family.table(pipe, reader.tokenizer, text, given) for text in texts]
        for table, mine, ids in zip(tables, expected, read, strict=True):
            places = [(token.start, token.end, token.kind) for token in table.tokens]
            if [token.id for token in mine.tokens] != ids or [
                (token.start, token.end, token.kind) for token in mine.tokens
            ] != places:
                raise TraceError(
                    "the text encoder read other tokens than the prompt "
                    f"{quoted(table.prompt)} has: heedmap cannot label its maps; pass the prompt "
                    "as plain text"
                )
    return tables


def _listed(text: str | Sequence[str], count: int | None) -> list[str]:
    return [text] * (count or 1) if isinstance(text, str) else list(text)
