"""What a pipeline reads: the prompts of a call, tied to the text states that the model is given.

`watch` listens to the pipeline's own `encode_prompt`. The labels of the tokens come from the ids
that the text encoders were given (`prompt_tables`), and the rows of the model's batch are told
apart by comparing them with the states that came out, so neither depends on how a pipeline stacks
its branches.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import torch

from heedmap.backends.concept_states import ConceptStates, read_concepts
from heedmap.backends.patches import put
from heedmap.backends.prompt_tables import Reader, check_labels, encoders, prompt_table, tables_read
from heedmap.backends.registry import encoding_method, family_of
from heedmap.errors import TraceError
from heedmap.options import GenerateOptions
from heedmap.text.tokens import by_position
from heedmap.text.words import TokenTable


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
