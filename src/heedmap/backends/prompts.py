"""The words and tokens that a pipeline reads, which label everything that is recorded.

The tables of a call are checked against the ids that its text encoders were given.
"""

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from heedmap.backends.base import Family, TextStates, active_calls, replace_method
from heedmap.backends.loading import silence_logs
from heedmap.backends.registry import encoding_method, family_of
from heedmap.errors import TraceError, plural, quoted, warn
from heedmap.options import GenerateOptions
from heedmap.text.axis import padded
from heedmap.text.concepts import asked_text, concept_places
from heedmap.text.words import TokenTable

CLOSE = 0.05
"""Largest distance of a token's state from what its text encodes to, as a share of its length: half
types differ by about 0.01, other words by 0.2 and more."""


def prompt_table(
    pipe: Any, prompt: str, arguments: Mapping[str, Any] | None = None
) -> TokenTable:
    """Return the words and tokens of a prompt as a pipeline reads it in a call with arguments."""
    with silence_logs(pipe):
        return family_of(pipe).whole_table(prompt, arguments or {})


def _encoders(pipe: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield each tokenizer, the first one that reads the same positions, and the text encoder.

    A part that is not loaded is None.
    """
    for names in family_of(pipe).sequences:
        tokenizers = [getattr(pipe, name, None) for name in names]
        first = next((one for one in tokenizers if one is not None), None)
        for name, tokenizer in zip(names, tokenizers, strict=True):
            encoder = getattr(pipe, name.replace("tokenizer", "text_encoder"), None)
            yield tokenizer, first, encoder


@dataclass(eq=False)
class Reader:
    """A tokenizer, with the ids that its text encoder reads at each call, and its states.

    `first` is the first tokenizer of those that read the same positions; None for this one.
    """

    tokenizer: Any
    ids: list[list[list[int]]] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)
    first: Any = None
    # Another pipeline may use the encoder in another thread.
    _thread: int = field(default_factory=threading.get_ident)

    def record(self, encoder: Any, args: Any, kwargs: Any, output: Any) -> None:
        """Record the ids and states of a forward pass of the encoder."""
        if threading.get_ident() == self._thread:
            self.ids.append((args[0] if args else kwargs["input_ids"]).tolist())
            self.states.append(output[0])


@dataclass(eq=False)
class Reading:
    """A call of the method with which a pipeline encodes its prompts.

    Attributes:
        pipe: the pipeline.
        arguments: those of the call.
        readers: one for each text encoder that is loaded with its tokenizer.
        results: the result of the call, and of a further one for each other encoder.
    """

    pipe: Any
    arguments: Mapping[str, Any]
    readers: list[Reader] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)

    def run(self, encode: Callable[[], Any]) -> "Reading":
        """Call `encode`; keep its result, and the ids and states of the text encoders."""
        with ExitStack() as stack:
            for tokenizer, first, encoder in _encoders(self.pipe):
                if tokenizer is not None and encoder is not None:
                    reader = Reader(tokenizer, first=first)
                    self.readers.append(reader)
                    hook = encoder.register_forward_hook(
                        reader.record, with_kwargs=True
                    )
                    stack.callback(hook.remove)
            self.results.append(encode())
        return self

    @property
    def is_whole(self) -> bool:
        """True if the calls of all encoders are in it."""
        return len(self.results) == family_of(self.pipe).encoding_calls

    @property
    def images_per_prompt(self) -> int:
        """Return the number of images of each prompt."""
        return int(self.arguments.get("num_images_per_prompt") or 1)

    def text_states(self) -> TextStates:
        """Return the states of both prompts, and the prompt's mask."""
        result = self.results[0] if len(self.results) == 1 else self.results
        if isinstance(result, Tensor):
            # The older method returns its branches in one tensor, in an order of the pipeline's.
            read = self.readers[0].states[:2] if self.readers else []
            if not read:
                raise TraceError(
                    "this pipeline mixes the branches of prompt_embeds: pass the prompt as text"
                )
            states = [
                one.repeat_interleave(self.images_per_prompt, 0).to(result)
                for one in read
            ]
            return states[0], states[1] if len(states) > 1 else None, None
        try:
            prompt, negative, mask = family_of(self.pipe).text_states(result)
            if prompt.ndim == 3 and (negative is None or negative.ndim == 3):
                return prompt, negative, mask
        except (AttributeError, IndexError, KeyError, TypeError):
            pass
        raise TraceError(
            f"{type(self.pipe).__name__} does not return its text states as diffusers' pipelines "
            "do: use one with the usual form of encode_prompt, or define Family.text_states"
        )

    def tables(
        self, which: str, call: int, count: int | None = None
    ) -> list[TokenTable]:
        """Return the tables of the prompts, checked against the ids that each encoder read.

        Args:
            which: "prompt" or "negative_prompt".
            call: the number of the encoders' call for it.
            count: the number of prompts for which a single text stands.
        """
        family, arguments = family_of(self.pipe), self.arguments
        names = [
            which + name.removeprefix("tokenizer") for name in chain(*family.sequences)
        ]
        default = arguments.get(which) or ""
        texts, *others = (
            _listed(arguments.get(name) or default, count) for name in names
        )
        for name, other in zip(names[1:], others, strict=True):
            if other != texts:
                raise TraceError(
                    f"{name} differs from {which}: the text encoders then read different texts, "
                    f"and the words of one cannot label both; pass {which} alone, or "
                    "prompt_embeds (the maps are then by position)"
                )
        if which == "negative_prompt":
            arguments = family.negative_arguments(arguments)
        labels = [family.whole_table(text, arguments) for text in texts]
        for reader in self.readers:
            # A negative prompt of zeros is read by no encoder.
            if call >= len(reader.ids):
                continue
            if len(reader.ids[call]) != len(texts):
                read = plural(len(reader.ids[call]), "text")
                raise TraceError(
                    f"{which} is {read} for {len(texts)} images: expected one each"
                )
            for label, ids in zip(labels, reader.ids[call], strict=True):
                own, other = (
                    family.table(one, label.prompt, arguments)
                    for one in (reader.tokenizer, reader.first or reader.tokenizer)
                )
                if [(w.start, w.tokens) for w in own.words] != [
                    (w.start, w.tokens) for w in other.words
                ]:
                    raise TraceError(
                        f"the two text encoders read the words of {quoted(label.prompt)} at "
                        "different positions, so each position mixes two tokens, and their "
                        "attention cannot be separated: load embeddings with the same number of "
                        "vectors, or pass prompt_embeds (the maps are then by position)"
                    )
                places = family.axis_places(len(ids), arguments)
                if not _is_read(family, own, [ids[place] for place in places]):
                    raise TraceError(
                        "the text encoder read other tokens than those of the prompt "
                        f"{quoted(label.prompt)}: pass it as plain text"
                    )
        return labels


def _is_read(family: Family, table: TokenTable, ids: Sequence[int]) -> bool:
    """Return whether a text encoder read these tokens; padding may depend on the batch."""
    side, tokens = family.pads_to_longest, table.tokens
    if side:
        tokens = [token for token in tokens if token.kind != "pad"]
        ids = ids[len(ids) - len(tokens) :] if side == "left" else ids[: len(tokens)]
    return [token.id for token in tokens] == ids


def _listed(text: str | Sequence[str], count: int | None) -> list[str]:
    return [text] * (count or 1) if isinstance(text, str) else list(text)


def _encode_others(
    reading: Reading, encode: Callable[..., Any], texts: Iterable[str]
) -> Reading:
    """Encode other texts as a call encoded its prompts, one image each, without guidance."""
    arguments = {
        name: None if "prompt_" in name or name.startswith("negative_") else value
        for name, value in reading.arguments.items()
    }
    single = {"num_images_per_prompt": 1, "do_classifier_free_guidance": False}
    arguments |= {name: value for name, value in single.items() if name in arguments}
    arguments["prompt"] = list(texts)
    other = Reading(reading.pipe, arguments)
    calls = family_of(reading.pipe).encoding_calls
    for number in range(calls):
        if calls > 1:
            arguments |= {"text_encoder_index": number, "max_sequence_length": None}
        other.run(partial(encode, **arguments))
    return other


def _check_labels(
    reading: Reading, encode: Callable[..., Any], prompts: Sequence[str]
) -> None:
    labels = quoted(list(prompts))
    without = "leave `prompts` out of the trace (the maps are then by position)"
    texts, embeds = (
        reading.arguments.get(name) for name in ("prompt", "prompt_embeds")
    )
    if texts is not None:
        if _listed(texts, len(prompts)) != list(prompts):
            raise TraceError(
                f"the prompts of the trace are {labels}, and the pipeline was given "
                f"{quoted(texts)}: give the labels of prompt_embeds alone"
            )
        return
    count = 0 if embeds is None else len(embeds)
    if count != len(prompts):
        raise TraceError(
            f"the prompts of the trace are {labels}, for {count} prompt_embeds: expected one each"
        )
    if not reading.readers:
        warn(
            f"no text encoder is loaded, so it was not checked that the prompt_embeds are of "
            f"{labels}: if they are of other texts, words are shown where others were read"
        )
        return
    states = reading.text_states()[0].float()
    expected = _encode_others(reading, encode, prompts).text_states()[0].to(states)
    expected = expected.repeat_interleave(reading.images_per_prompt, 0)
    if states.shape != expected.shape or not bool(
        ((states - expected).norm(dim=-1) <= CLOSE * expected.norm(dim=-1)).all()
    ):
        raise TraceError(
            f"the prompt_embeds are not what this pipeline makes of {labels}: pass the texts that "
            f"they were made of, or {without}"
        )


@dataclass(frozen=True, eq=False)
class ConceptStates:
    """The encoded text of an image's concepts.

    Attributes:
        places: the tokens of each concept, on the K axis of the states.
        states: (K, C), the states that the model may see.
    """

    places: tuple[tuple[int, ...], ...]
    states: Tensor


def read_concepts(
    reading: Reading,
    encode: Callable[..., Any],
    concepts: Sequence[str],
    prompts: Sequence[str],
) -> tuple[ConceptStates, ...]:
    """Encode concepts as the prompts of a call were encoded, for the prompt of each image.

    A prompt is empty if it is unknown. Images of one prompt share their states.
    """
    pipe = reading.pipe
    # Most models have no second encoder, and a refiner has no first; each needs its tokenizer.
    loaded = [
        {one is not None for one in (pair[0], pair[2])} for pair in _encoders(pipe)
    ]
    if {True} not in loaded or {True, False} in loaded:
        raise TraceError(
            f"{type(pipe).__name__} has no tokenizer or text encoder loaded, and concepts are "
            "read by the pipeline's own encoders: load it with them, or leave concepts out"
        )
    texts = {prompt: asked_text(concepts, prompt) for prompt in dict.fromkeys(prompts)}
    encoded = _encode_others(reading, encode, texts.values())
    states, _, mask = encoded.text_states()
    count = states.shape[1]
    tables = _pad_to_longest(family_of(pipe), encoded.tables("prompt", 0), count)
    if len(states) != len(tables) or any(
        len(table.tokens) != count for table in tables
    ):
        raise TraceError(
            f"{type(pipe).__name__} makes states of shape {tuple(states.shape)} of {len(tables)} "
            f"texts of {len(tables[0].tokens)} tokens: leave concepts out"
        )
    result: dict[str, ConceptStates] = {}
    visible = torch.ones(states.shape[:2]) if mask is None else mask
    for prompt, table, rows, row in zip(texts, tables, states, visible, strict=True):
        positions = row.nonzero().flatten().tolist()
        places = concept_places(concepts, table)
        indices = (tuple(map(positions.index, place)) for place in places)
        result[prompt] = ConceptStates(tuple(indices), rows[positions])
    return tuple(result[prompt] for prompt in prompts)


@dataclass(frozen=True, eq=False)
class Branch:
    """One branch of a call.

    Attributes:
        tables: the words of each image.
        states: the text states (B, K, C).
        shifted: whether the batch pads some of its prompts in front, which moves their tokens.
    """

    tables: tuple[TokenTable, ...]
    states: Tensor
    shifted: bool = False

    def blocks_in(self, states: Tensor) -> list[int]:
        """Return which blocks of B rows of a model's text states (n·B, K, C) are this branch's."""
        branch = self.states.to(states)
        if branch.shape[1:] != states.shape[1:]:
            return []
        images = len(self.tables)
        whole = states[: len(states) // images * images].unflatten(0, (-1, images))
        same = (whole == branch).flatten(1).all(dim=1).tolist()
        return [number for number, is_same in enumerate(same) if is_same]


@dataclass(frozen=True, eq=False)
class Encoding:
    """The text that one call of a pipeline reads.

    Attributes:
        conditional: the prompt's branch.
        negative: the negative prompt's; None without guidance.
        prompt_first: whether the prompt's block precedes the others in a batch (InstructPix2Pix).
        concepts: those of each image; empty if there are none.
    """

    conditional: Branch
    negative: Branch | None
    prompt_first: bool = False
    concepts: tuple[ConceptStates, ...] = ()

    def blocks_in(self, states: Tensor) -> dict[str, list[int]]:
        """Return the blocks of each branch in a model's text states.

        A branch may be missing, or have several blocks (perturbed-attention guidance).
        """
        blocks = {"conditional": self.conditional.blocks_in(states)}
        if self.negative is not None:
            blocks["negative"] = self.negative.blocks_in(states)
            if (
                blocks["negative"] == blocks["conditional"]
                and len(blocks["conditional"]) > 1
            ):
                # Both prompts are the same text: only their order tells them apart.
                first, *others = blocks["conditional"]
                if self.prompt_first:
                    blocks = {"conditional": [first], "negative": others}
                else:
                    blocks = {"conditional": others, "negative": [first]}
        return {name: found for name, found in blocks.items() if found}


def encoding_of(encodings: Sequence[Encoding], states: Tensor) -> Encoding:
    """Return the encoding that a model's text states (B, K, C) are made of.

    There may be others, encoded by hand before or by a call that failed.

    Raises:
        TraceError: if there is none.
    """
    fitting = []
    for number, encoding in enumerate(encodings):
        if blocks := encoding.blocks_in(states):
            last = max(blocks.get("conditional", [-1]))
            fitting.append((len(encoding.conditional.tables), last, number))
    if not fitting:
        raise foreign_states(states)
    return encodings[max(fitting)[2]]


def foreign_states(states: Tensor) -> TraceError:
    """Return the error of text states that the pipeline did not encode."""
    return TraceError(
        f"the model was given text states of shape {tuple(states.shape)} that are not those of the "
        "prompt or the negative prompt: expected what the pipeline of this trace encoded before "
        "its first step, since maps have the labels of that text (another pipeline on the same "
        "model? a text that a callback changes?); a pipeline that also runs its model on texts or "
        "images of its own cannot be recorded"
    )


def watch(
    pipe: Any,
    prompts: Sequence[str] | None,
    negative: bool,
    begin: Callable[[Encoding], None],
    end: Callable[[], None],
    concepts: Sequence[str] = GenerateOptions.concepts,
    is_sampling: Callable[[], bool] = bool,
) -> Callable[[], None]:
    """Call `begin` after a pipeline encodes its prompts, and `end` at the end of its call.

    What is encoded after the first pass of a call, as by a callback, is no text of another call.

    Args:
        pipe: the pipeline; its methods are replaced on the instance.
        prompts: the texts of `prompt_embeds`, if the pipeline is given these instead of text.
        negative: whether to label the words of the negative prompt, instead of their positions.
        begin: a function of the encoding.
        end: a function that is called when the pipeline releases its models, its last action.
        concepts: concepts to encode beside the prompts.
        is_sampling: returns whether a call of the pipeline is past its first pass.

    Returns:
        A function that restores the methods.
    """
    name = encoding_method(pipe)
    encode, release = getattr(pipe, name), pipe.maybe_free_model_hooks
    signature = inspect.signature(encode)
    is_separate = family_of(pipe).encodes_negative_apart
    # The encoding of the prompt, and the call of the pipeline, which may encode a negative prompt.
    last: tuple[FrameType, Encoding] | None = None
    begun: Reading | None = None  # of some encoders

    def watched(*args: Any, **kwargs: Any) -> Any:
        nonlocal last, begun
        if is_sampling():
            return encode(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        is_further = begun is not None and bound.arguments.get("text_encoder_index")
        reading = begun if begun and is_further else Reading(pipe, bound.arguments)
        result = reading.run(lambda: encode(*args, **kwargs)).results[-1]
        begun = None if reading.is_whole else reading
        if begun is not None:
            return result
        reading.text_states()  # refuses what has another form
        running = active_calls(pipe) if is_separate else []
        if last is not None and running and running[0] is last[0]:
            second = _encoding(reading, None, negative)
            begin(replace(last[1], negative=second.conditional))
            return result
        if prompts is not None:
            _check_labels(reading, encode, prompts)
        encoding = _encoding(reading, prompts, negative)
        if concepts:
            labelled = prompts is not None or (
                reading.arguments.get("prompt") and reading.readers
            )
            texts = [t.prompt if labelled else "" for t in encoding.conditional.tables]
            states = read_concepts(reading, encode, concepts, texts)
            encoding = replace(encoding, concepts=states)
        last = (running[0], encoding) if running else None
        begin(encoding)
        return result

    def released() -> None:
        nonlocal last
        last = None
        end()
        release()

    stack = ExitStack()
    stack.callback(replace_method(pipe, name, watched))
    stack.callback(replace_method(pipe, "maybe_free_model_hooks", released))
    return stack.close


def _encoding(
    reading: Reading, prompts: Sequence[str] | None, label_negative: bool
) -> Encoding:
    pipe, arguments = reading.pipe, reading.arguments
    states, negative_states, _ = reading.text_states()
    if arguments.get("prompt") is not None and reading.readers:
        tables = reading.tables("prompt", 0)
    elif prompts is not None:
        tables = [prompt_table(pipe, prompt, arguments) for prompt in prompts]
    else:
        tables = [_unlabelled(states)] * (len(states) // reading.images_per_prompt)
    family = family_of(pipe)
    conditional = _branch(family, tables, states)
    if negative_states is None:
        return Encoding(conditional, None)
    negative = [_unlabelled(negative_states)] * len(tables)
    if (
        label_negative
        and arguments.get("negative_prompt_embeds") is None
        and reading.readers
    ):
        call = 1 if arguments.get("prompt_embeds") is None else 0
        negative = reading.tables("negative_prompt", call, count=len(tables))
    prompt_first = family.has_quirk("prompt_first")
    return Encoding(
        conditional, _branch(family, negative, negative_states), prompt_first
    )


def _unlabelled(states: Tensor) -> TokenTable:
    """Return a table of text states (B, K, C) whose words are the positions of its tokens."""
    return TokenTable.of_texts(map(str, range(states.shape[1])), " ")


def _branch(family: Family, tables: Sequence[TokenTable], states: Tensor) -> Branch:
    images, tokens = states.shape[:2]
    shifted = (
        family.pads_to_longest == "left"
        and len({len(one.tokens) for one in tables}) > 1
    )
    tables = _pad_to_longest(family, tables, tokens)
    wrong = next((t for t in tables if len(t.tokens) != tokens), None)
    if not tables or images % len(tables) or wrong is not None:
        size = f"{len(wrong.tokens)} tokens" if wrong else f"{len(tables)} prompts"
        raise TraceError(
            f"the prompts have {size}, the text states are {images} of {tokens} tokens: expected "
            "the prompts of these prompt_embeds, or none"
        )
    each = images // len(tables)
    # A copy, since a callback may change the pipeline's own in place.
    every = tuple(table for table in tables for _ in range(each))
    return Branch(every, states.clone(), shifted)


def _pad_to_longest(
    family: Family, tables: Sequence[TokenTable], tokens: int
) -> Sequence[TokenTable]:
    """Return tables padded as their batch, if its longest prompt has `tokens` tokens."""
    side = family.pads_to_longest
    if not side or max(len(table.tokens) for table in tables) != tokens:
        return tables
    return [padded(table, tokens, in_front=side == "left") for table in tables]
