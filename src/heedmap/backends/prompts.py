"""The words and tokens that a pipeline reads: the labels of everything that is recorded.

The tables of a call are checked against the ids that its text encoders were given.
"""

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import torch

from heedmap.backends.active_calls import hushed, put
from heedmap.backends.registry import encoding_method, family_of
from heedmap.errors import TraceError, plural, quoted
from heedmap.options import GenerateOptions
from heedmap.text.concepts import asked_text, concept_places
from heedmap.text.tokens import by_position
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


ENCODERS = {"tokenizer": "text_encoder", "tokenizer_2": "text_encoder_2"}


@dataclass(frozen=True, eq=False)
class ConceptStates:
    """The text in which the concepts of a picture are read.

    Attributes:
        places: of each concept its tokens, on the K axis of the states.
        states: (K, C), those of the text that the model may see.
    """

    places: tuple[tuple[int, ...], ...]
    states: torch.Tensor


def read_concepts(
    pipe: Any,
    encode: Callable[..., Any],
    given: Mapping[str, Any],
    concepts: Sequence[str],
    prompts: Sequence[str],
) -> tuple[ConceptStates, ...]:
    """Let a pipeline read concepts as it has just read the prompts of a call.

    Args:
        pipe: the pipeline.
        encode: its method that encodes prompts.
        given: the arguments with which it was called.
        concepts: as `text.concepts.checked_concepts` gives them.
        prompts: for each picture the text that it is drawn with; empty where nobody knows it.

    Returns:
        For each picture; pictures of one prompt share theirs.

    Raises:
        ArgumentError: if some of a concept is past the length that the encoder reads.
        TraceError: if the pipeline has no text encoder, or reads something else.
    """
    _check_encoders(pipe)
    family = family_of(pipe)
    texts = {prompt: asked_text(concepts, prompt) for prompt in dict.fromkeys(prompts)}
    asked = {**given}
    for name in given:
        if "prompt_" in name or name.startswith("negative_"):
            asked[name] = None
    alone = {"num_images_per_prompt": 1, "do_classifier_free_guidance": False}
    asked |= {name: value for name, value in alone.items() if name in given}
    asked["prompt"] = [*texts.values()]
    with ExitStack() as stack:
        readers = [Reader(*pair, stack) for pair in encoders(pipe).values()]
        made = encode(**asked)
    tables = tables_read(pipe, asked, "prompt", readers, 0, {})
    own = [concept_places(concepts, table) for table in tables]
    whole = isinstance(made, torch.Tensor)  # of the older method
    states = made if whole else family.states(made)[0]
    if states.shape[:2] != (len(tables), len(tables[0].tokens)):
        raise TraceError(
            f"{type(pipe).__name__} makes states of shape {tuple(states.shape)} of {len(tables)}"
            f" texts of {len(tables[0].tokens)} tokens, so it cannot be told which are those of "
            "a concept: leave concepts out"
        )
    mask = None if whole else family.visible(made)
    found: dict[str, ConceptStates] = {}
    for number, (prompt, places) in enumerate(zip(texts, own, strict=True)):
        seen = range(states.shape[1]) if mask is None else mask[number].nonzero().flatten().tolist()
        at = {position: place for place, position in enumerate(seen)}
        mine = states[number, list(seen)]
        placed = tuple(tuple(at[position] for position in some) for some in places)
        found[prompt] = ConceptStates(placed, mine)
    return tuple(found[prompt] for prompt in prompts)


def _check_encoders(pipe: Any) -> None:
    """Raise a TraceError unless each text encoder of a pipeline is loaded with its tokenizer."""
    there = encoders(pipe)
    lacking = [
        name
        for words, encoder in ENCODERS.items()
        for name in (words, encoder)
        if words not in there and hasattr(pipe, words) and getattr(pipe, name, None) is None
    ]
    if there and len(lacking) in (0, 2):  # a refiner has never had its first encoder
        return
    raise TraceError(
        f"{type(pipe).__name__} has no {' and no '.join(lacking[:2] or ENCODERS)} loaded, and "
        "concepts are read by the pipeline's own encoders: load it with them, or leave "
        "concepts out"
    )


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
        concepts: for each image those that are looked for beside the prompt; empty if none are.
    """

    conditional: Branch
    negative: Branch | None
    prompt_first: bool = False
    concepts: tuple[ConceptStates, ...] = ()

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
    known: Mapping[str, TokenTable] | None = None,
    concepts: Sequence[str] = GenerateOptions.concepts,
) -> Callable[[], None]:
    """Call `begin` whenever the pipeline encodes its prompts, and `end` when it is done.

    Args:
        pipe: the pipeline; its method is replaced on the instance.
        prompts: the texts of `prompt_embeds`, where the pipeline is given these instead of text.
        negative: whether the words of the negative prompt are wanted; its table is by position
            otherwise.
        begin: called with what was read, before the first step.
        end: called when the pipeline lets go of its models, which it does last of all.
        known: tables of prompts that were read before, by prompt: they are not read again.
        concepts: what is looked for beside the prompts, as `text.concepts` checks it.

    Returns:
        A function that puts the method back.

    Raises:
        ModelError: if the pipeline has no method that encodes prompts.
    """
    name = encoding_method(pipe)
    encode = getattr(pipe, name)
    signature = inspect.signature(encode)

    @wraps(encode)
    def watched(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        with ExitStack() as stack:
            readers = [Reader(*pair, stack) for pair in encoders(pipe).values()]
            result = encode(*args, **kwargs)
        _check_form(pipe, name, result)
        given = bound.arguments
        if prompts is not None:
            check_labels(pipe, encode, given, result, prompts)
        encoding = _encoding(pipe, given, readers, result, prompts, negative, known or {})
        if concepts:
            labelled = prompts is not None or (given.get("prompt") is not None and readers)
            drawn = [t.prompt if labelled else "" for t in encoding.conditional.tables]
            read = read_concepts(pipe, encode, given, concepts, drawn)
            encoding = replace(encoding, concepts=read)
        begin(encoding)
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


def _check_form(pipe: Any, name: str, result: Any) -> None:
    """Raise unless a method that encodes prompts returned text states (B, K, C)."""
    try:
        one = isinstance(result, torch.Tensor)
        states, negative = (result, None) if one else family_of(pipe).states(result)
        read = states.ndim == 3 and (negative is None or negative.ndim == 3)
    except (AttributeError, IndexError, KeyError, TypeError):
        read = False
    if not read:
        raise TraceError(
            f"{type(pipe).__name__}.{name} does not return its text states as diffusers' pipelines "
            "do, so heedmap cannot tell what its model reads: use a pipeline with the usual form"
        )


def _encoding(
    pipe: Any,
    given: dict[str, Any],
    readers: list[Reader],
    result: Any,
    prompts: Sequence[str] | None,
    wanted: bool,
    known: Mapping[str, TokenTable],
) -> Encoding:
    each = int(given.get("num_images_per_prompt") or 1)
    states, negative_states = _states(pipe, result, readers, each)
    if given.get("prompt") is not None and readers:
        tables = tables_read(pipe, given, "prompt", readers, 0, known)
    elif prompts is not None:
        made = {prompt: prompt_table(pipe, prompt, given) for prompt in dict.fromkeys(prompts)}
        tables = [made[prompt] for prompt in prompts]
    else:
        tables = [by_position(states.shape[1])] * (states.shape[0] // each)
    conditional = _branch(tables, states)
    if negative_states is None:
        return Encoding(conditional, None)
    if not wanted or given.get("negative_prompt_embeds") is not None or not readers:
        negative = [by_position(states.shape[1])] * (negative_states.shape[0] // each)
    else:
        call = 1 if given.get("prompt_embeds") is None else 0
        negative = tables_read(
            pipe, given, "negative_prompt", readers, call, known, count=len(tables)
        )
    first = family_of(pipe).prompt_first(pipe, result)
    return Encoding(conditional, _branch(negative, negative_states), first)


def _states(
    pipe: Any, result: Any, readers: list[Reader], each: int
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
    # A copy: whoever changes the pipeline's own in place does not change this one.
    return Branch(tuple(table for table in tables for _ in range(each)), states.clone())
