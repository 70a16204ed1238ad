"""What a pipeline's own text encoders make of concepts, for each picture of a call."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from heedmap.backends.prompt_tables import Reader, encoders, tables_read
from heedmap.backends.registry import family_of
from heedmap.errors import TraceError
from heedmap.text.concepts import asked_text, concept_places

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
