"""The words and tokens that a pipeline reads, which label everything that is recorded.

The tables of a call are checked against the ids that its text encoders were given.
"""

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from types import FrameType
from typing import Any

from diffusers.modular_pipelines import PipelineState
from torch import Tensor
from torch.nn.functional import pad

from heedmap.backends.base import (
    Arguments,
    Family,
    TextStates,
    Undo,
    active_calls,
    refuse_crop,
    replace_method,
)
from heedmap.backends.loading import silence_logs
from heedmap.backends.modular import encode_text, is_modular, watch_calls
from heedmap.backends.registry import encoding_method, family_of
from heedmap.errors import TraceError, quoted, warn
from heedmap.text.axis import padded
from heedmap.text.concepts import asked_text, concept_places
from heedmap.text.words import TokenTable

_IMAGES = "num_images_per_prompt"
CLOSE = 0.05
"""Largest distance of a token's state from what its text encodes to, as a share of its length: half
types differ by about 0.01, other words by 0.2 and more."""


def prompt_table(
    pipe: Any,
    prompt: str,
    arguments: Arguments | None = None,
) -> TokenTable:
    """Return the words and tokens of a prompt as a pipeline reads it in a call with arguments."""
    with silence_logs():
        family = family_of(pipe)
        return family.whole_table(prompt, family.encoding_arguments(arguments or {}))


@dataclass(eq=False)
class EncoderRecord:
    """The ids that a text encoder reads.

    Attributes:
        tokenizer: the encoder's.
        first: the first tokenizer of those that read the same positions.
        ids: by text, in all calls.
    """

    tokenizer: Any
    first: Any
    ids: list[list[int]] = field(default_factory=list)
    # Another pipeline may use the encoder in another thread.
    _thread: int = field(default_factory=threading.get_ident)

    def record(
        self,
        encoder: Any,
        args: Any,
        kwargs: Any,
    ) -> None:
        """Record the ids that the encoder is about to read."""
        if threading.get_ident() == self._thread:
            self.ids += (args[0] if args else kwargs["input_ids"]).tolist()


class EncodingCall:
    """A call of the method with which a pipeline encodes its prompts.

    Attributes:
        family: the pipeline's.
        arguments: those of the call.
        repeats: how often the pipeline repeats the text states that the method returns.
        records: one for each text encoder that is loaded with its tokenizer.
        results: the result of the call, and of a further one for each other encoder.
    """

    def __init__(
        self,
        family: Family,
        arguments: Arguments,
        repeats: int = 1,
    ) -> None:
        self.family = family
        # Z-Image writes its template into the lists of texts that it is given.
        self.arguments: Arguments = {
            name: list(value) if isinstance(value, list) else value
            for name, value in arguments.items()
        }
        self.repeats = repeats
        self.records: list[EncoderRecord] = []
        self.results: list[Any] = []

    def run(self, encode: Callable[[], Any]) -> None:
        """Call `encode`; keep its result, and the ids that the text encoders read."""
        with self.watch_encoders():
            self.results.append(encode())

    @contextmanager
    def watch_encoders(self) -> Iterator[None]:
        """Keep the ids that the text encoders read within the block."""
        pipe = self.family.pipe
        with ExitStack() as stack:
            for names in self.family.sequences:
                for name in names:
                    tokenizer = self.family.tokenizer(name)
                    part = name.replace("tokenizer", "text_encoder")
                    encoder = getattr(pipe, part, None)
                    if tokenizer is None or encoder is None:
                        continue
                    record = EncoderRecord(tokenizer, self.family.tokenizer_of(names))
                    self.records.append(record)
                    hook = encoder.register_forward_pre_hook(
                        record.record, with_kwargs=True
                    )
                    stack.callback(hook.remove)
            yield

    @property
    def images_per_prompt(self) -> int:
        """Return the number of images of each prompt."""
        return int(self.arguments.get(_IMAGES) or self.repeats)

    def text_states(self) -> TextStates:
        """Return the states of both prompts."""
        results = self.results
        if isinstance(results[0], Tensor):
            return self._mixed_states()
        if isinstance(results[0], dict):
            return self.family.states_of_blocks(results[0])
        several = self.family.encoding_calls > 1
        states = self.family.text_states(results if several else results[0])
        if self.repeats == 1:
            return states
        prompt, negative = states
        if negative is not None:
            negative = negative.repeat_interleave(self.repeats, 0)
        return prompt.repeat_interleave(self.repeats, 0), negative

    def _mixed_states(self) -> TextStates:
        """Return the states where the method returns its branches in one tensor, as a batch has."""
        mixed = self.results[0]
        if not self.arguments["do_classifier_free_guidance"]:
            return mixed, None
        if self.family.has_quirk("prompt_first"):
            prompt, negative, _ = mixed.chunk(3)
        else:
            negative, prompt = mixed.chunk(2)
        return prompt, negative

    def tables(
        self,
        which: str,
        call: int,
        count: int | None = None,
    ) -> list[TokenTable]:
        """Return the tables of the prompts, checked against the ids that each encoder read.

        Args:
            which: "prompt" or "negative_prompt".
            call: the number of the encoders' call for it.
            count: the number of prompts for which a single text stands.
        """
        family = self.family
        arguments = self.arguments
        names = [
            which + name.removeprefix("tokenizer") for name in chain(*family.sequences)
        ]
        default = arguments.get(which) or ""
        texts = _listed(arguments.get(names[0]) or default, count)
        for name in names[1:]:
            if _listed(arguments.get(name) or default, count) != texts:
                raise TraceError(
                    f"{name} differs from {which}: the text encoders then read different texts, "
                    f"and the words of one cannot label both; pass {which} alone, or "
                    "prompt_embeds (the maps are then by position)"
                )
        if which == "negative_prompt":
            arguments = {**arguments, **dict.fromkeys(family.prompt_arguments)}
        first = call * len(texts)
        for record in self.records:
            rows = record.ids[first : first + len(texts)]
            # A negative prompt of zeros is read by no encoder.
            if rows or (record.ids and any(texts)):
                _check_ids(family, record, texts, rows, arguments)
        return [family.whole_table(text, arguments) for text in texts]


def _check_ids(
    family: Family,
    record: EncoderRecord,
    texts: Sequence[str],
    ids: Sequence[Sequence[int]],
    arguments: Arguments,
) -> None:
    """Raise a TraceError unless an encoder read these texts, at the positions of their labels."""
    is_read = len(ids) == len(texts)
    for text, row in zip(texts, ids, strict=False):
        table = first = family.table(record.first, text, arguments)
        if record.tokenizer is not record.first:
            table = family.table(record.tokenizer, text, arguments)
        is_read = is_read and table.words == first.words
        places = family.axis_places(len(row), arguments)
        axis = [row[place] for place in places if row[place] not in family.off_axis]
        is_read = is_read and _is_read(family, table, axis)
    if not is_read:
        raise TraceError(
            f"a text encoder read other tokens than those of {quoted(list(texts))}: pass a plain "
            "text for each image, and load embeddings with the same number of vectors for each "
            "encoder; or pass prompt_embeds (the maps are then by position)"
        )


def _is_read(
    family: Family,
    table: TokenTable,
    ids: Sequence[int],
) -> bool:
    """Return whether a text encoder read these tokens; padding may depend on the batch."""
    tokens = [token.id for token in table.tokens]
    side = family.encoder_padding or family.pads_to_longest
    if side:
        tokens = [token.id for token in table.tokens if token.kind != "pad"]
        first = len(ids) - len(tokens) if side == "left" else 0
        ids = ids[first : first + len(tokens)]
    return tokens == ids


def _listed(text: str | Sequence[str], count: int | None) -> list[str]:
    return [text] * (count or 1) if isinstance(text, str) else list(text)


def _encode_others(
    call: EncodingCall,
    encode: Callable[..., Any],
    texts: Iterable[str],
) -> EncodingCall:
    """Encode other texts as a call encoded its prompts, one image each, without guidance."""
    arguments = dict(call.arguments)
    if call.family.needs_image:
        raise TraceError(
            f"{type(call.family.pipe).__name__} reads a text together with an image: concepts, and "
            "prompt_embeds with labels, are not yet supported there; leave them out"
        )
    for name in arguments:
        if "prompt_" in name or name.startswith("negative_"):
            arguments[name] = None
    single = {_IMAGES: 1, "do_classifier_free_guidance": False}
    arguments |= {name: single[name] for name in single.keys() & arguments.keys()}
    arguments["prompt"] = list(texts)
    other = EncodingCall(call.family, arguments)
    for number in range(call.family.encoding_calls):
        if "text_encoder_index" in arguments:
            arguments |= {"text_encoder_index": number, "max_sequence_length": None}
        other.run(partial(encode, **arguments))
    return other


def _check_labels(
    call: EncodingCall,
    encode: Callable[..., Any],
    prompts: Sequence[str],
) -> None:
    """Raise a TraceError if the text or the prompt_embeds of a call are not these prompts'."""
    labels = quoted(list(prompts))
    other = TraceError(
        f"the prompts of the trace, {labels}, are not what the pipeline was given: pass the texts "
        "that its prompt_embeds were made of, one each, or leave `prompts` out of the trace (the "
        "maps are then by position)"
    )
    texts = call.arguments.get("prompt")
    if texts is not None:
        if _listed(texts, len(prompts)) != list(prompts):
            raise other
        return
    states = call.text_states()[0].float()
    if len(states) != len(prompts) * call.images_per_prompt:
        raise other
    if not call.records:
        warn(
            f"no text encoder is loaded, so it was not checked that the prompt_embeds are of "
            f"{labels}: if they are of other texts, words are shown where others were read"
        )
        return
    expected = _encode_others(call, encode, prompts).text_states()[0].to(states)
    expected = expected.repeat_interleave(call.images_per_prompt, 0)
    if states.shape != expected.shape:
        raise other
    distances = (states - expected).norm(dim=-1)
    if not bool((distances <= CLOSE * expected.norm(dim=-1)).all()):
        raise other


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
    call: EncodingCall,
    encode: Callable[..., Any],
    concepts: Sequence[str],
    tables: Sequence[TokenTable],
) -> tuple[ConceptStates, ...]:
    """Encode concepts as the prompts of a call were encoded, for the table of each image.

    Images of one prompt share their states. The prompt of a table without words is unknown.
    """
    if not call.records:
        raise TraceError(
            f"{type(call.family.pipe).__name__} has no tokenizer or text encoder loaded, and "
            "concepts are read by the pipeline's own encoders: load it with them, or leave "
            "concepts out"
        )
    prompts = ["" if table.of_concepts else table.prompt for table in tables]
    texts = {prompt: asked_text(concepts, prompt) for prompt in dict.fromkeys(prompts)}
    encoded = _encode_others(call, encode, texts.values())
    states, _ = encoded.text_states()
    family = call.family
    has_padding = family.pads_concepts and not family.masks_padding
    labels = _fit_tables(family, encoded.tables("prompt", 0), states)
    result: dict[str, ConceptStates] = {}
    for prompt, table, rows in zip(texts, labels, states, strict=True):
        hidden = () if has_padding else table.positions("pad")
        positions = [at for at in range(len(rows)) if at not in hidden]
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
        """Return which blocks of B rows of a model's text states (n·B, K, C) are this branch's.

        Zeros behind its text are those that make it as long as the text of another branch.
        """
        branch = self.states.to(states)
        surplus = states.shape[1] - branch.shape[1]
        if surplus > 0:
            branch = pad(branch, (0, 0, 0, surplus))
        if branch.shape[1:] != states.shape[1:]:
            return []
        count = len(states) // len(branch)
        blocks = states[: count * len(branch)].unflatten(0, (count, len(branch)))
        # The host waits for the device once.
        same = (blocks == branch).flatten(1).all(dim=1).tolist()
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

    @property
    def lengths(self) -> dict[str, int]:
        """The number of tokens on the K axis of each branch."""
        branches = {"conditional": self.conditional, "negative": self.negative}
        return {
            name: branch.states.shape[1]
            for name, branch in branches.items()
            if branch is not None
        }

    def blocks_in(self, states: Tensor) -> dict[str, list[int]]:
        """Return the blocks of each branch in a model's text states.

        A branch may be missing, or have several blocks (perturbed-attention guidance).
        """
        blocks = {"conditional": self.conditional.blocks_in(states)}
        if self.negative is not None:
            blocks["negative"] = self.negative.blocks_in(states)
            same = blocks["conditional"]
            if blocks["negative"] == same and len(same) > 1:
                # Both prompts are the same text: only their order tells them apart.
                blocks = {"negative": same[:1], "conditional": same[1:]}
                if self.prompt_first:
                    blocks = {"conditional": same[:1], "negative": same[1:]}
        return {name: numbers for name, numbers in blocks.items() if numbers}


def encoding_of(encodings: Sequence[Encoding], states: Tensor) -> Encoding:
    """Return the encoding that a model's text states (B, K, C) are made of.

    There may be others, encoded by hand before or by a call that failed.

    Raises:
        TraceError: if there is none.
    """

    def rank(encoding: Encoding) -> tuple[int, int]:
        blocks = encoding.blocks_in(states)
        last = max(blocks.get("conditional", [-1]))
        return len(encoding.conditional.tables) if blocks else 0, last

    best = max(reversed(encodings), key=rank)
    if rank(best) == (0, -1):
        raise foreign_states(states)
    return best


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
    family: Family,
    prompts: Sequence[str] | None,
    negative: bool,
    begin: Callable[[Encoding], None],
    end: Callable[[], None],
    concepts: Sequence[str],
    is_sampling: Callable[[], bool],
    undo: Undo,
) -> None:
    """Call `begin` after a pipeline encodes its prompts, and `end` at the end of its call.

    Texts that are encoded after the first pass of a call, as by a callback, begin no other call.
    A modular pipeline's `begin` is called before the first pass of its model.

    Args:
        family: that of the pipeline, whose methods are replaced on the instance.
        prompts: the texts of `prompt_embeds`, if the pipeline is given these instead of text.
        negative: whether to label the words of the negative prompt, instead of their positions.
        begin: a function of the encoding.
        end: a function that is called when the pipeline releases its models, its last action.
        concepts: concepts to encode beside the prompts.
        is_sampling: returns whether a call of the pipeline is past its first pass.
        undo: takes the functions that restore the methods.
    """
    pipe = family.pipe

    def label(call: EncodingCall, encode: Callable[..., Any]) -> Encoding:
        """Label the text of a call, and encode the concepts."""
        if prompts is not None:
            _check_labels(call, encode, prompts)
        encoding = _encoding(call, prompts, negative)
        if not concepts:
            return encoding
        tables = encoding.conditional.tables
        states = read_concepts(call, encode, concepts, tables)
        return replace(encoding, concepts=states)

    if is_modular(pipe):
        _watch_blocks(family, label, begin, end, undo)
        return
    name = encoding_method(pipe)
    encode = getattr(pipe, name)
    release = pipe.maybe_free_model_hooks
    signature = inspect.signature(encode)
    call: EncodingCall | None = None
    # The encoding of the prompt, and the call of the pipeline, which may encode a negative prompt.
    last: tuple[FrameType, Encoding] | None = None

    def encode_watched(*args: Any, **kwargs: Any) -> Any:
        nonlocal call, last
        if is_sampling():
            return encode(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = bound.arguments
        if arguments.get("prompt_embeds") is not None:
            # Z-Image takes both, and does not read the text.
            arguments["prompt"] = None
        running = active_calls(pipe)
        if call is None or not arguments.get("text_encoder_index"):
            repeats = 1
            if running and _IMAGES not in arguments:
                repeats = running[0].f_locals.get(_IMAGES) or 1
            call = EncodingCall(family, arguments, repeats)
        call.run(partial(encode, *args, **kwargs))
        result = call.results[-1]
        if len(call.results) < family.encoding_calls:
            return result
        if not family.encodes_negative_apart:
            running = []
        if last is not None and running and running[0] is last[0]:
            second = _encoding(call, None, negative)
            begin(replace(last[1], negative=second.conditional))
            return result
        encoding = label(call, encode)
        last = (running[0], encoding) if running else None
        begin(encoding)
        return result

    def release_watched() -> None:
        nonlocal call, last
        call = last = None
        end()
        release()

    undo(replace_method(pipe, name, encode_watched))
    undo(replace_method(pipe, "maybe_free_model_hooks", release_watched))


def _watch_blocks(
    family: Family,
    label: Callable[[EncodingCall, Callable[..., Any]], Encoding],
    begin: Callable[[Encoding], None],
    end: Callable[[], None],
    undo: Undo,
) -> None:
    """Call `begin` before the first pass of each call of a modular pipeline, and `end` after it.

    `label` makes the encoding of a call and of the function that encodes other texts.
    """
    pipe = family.pipe
    # The call that has not run the model yet, its state, and the values of that at its begin.
    waiting: list[tuple[EncodingCall, PipelineState, Arguments]] = []

    def run(state: PipelineState, run_blocks: Callable[[], Any]) -> Any:
        initial = dict(state.values)
        call = EncodingCall(family, initial)
        waiting[:] = [(call, state, initial)]
        with call.watch_encoders():
            result = run_blocks()
        end()
        return result

    def before_pass(*_: Any) -> None:
        while waiting:
            call, state, initial = waiting.pop()
            values = state.values
            changed = [name for name in values if values[name] is not initial.get(name)]
            arguments = {**call.arguments, **{name: values[name] for name in changed}}
            if arguments.get("padding_mask_crop") is not None:
                refuse_crop()
            # Those of the user alone, not what the blocks have made of a text.
            for name in ("prompt_embeds", "negative_prompt_embeds"):
                arguments[name] = initial.get(name)
            if not any(record.ids for record in call.records):
                arguments["prompt"] = None  # its states were encoded elsewhere
            call.arguments = family.encoding_arguments(arguments)
            call.results.append(state.values)
            begin(label(call, partial(encode_text, pipe)))

    hook = family.called_model.register_forward_pre_hook(before_pass, prepend=True)
    undo(hook.remove)
    watch_calls(pipe, run, undo)


def _encoding(
    call: EncodingCall,
    prompts: Sequence[str] | None,
    label_negative: bool,
) -> Encoding:
    family = call.family
    arguments = call.arguments
    states, negative_states = call.text_states()
    if arguments.get("prompt") is not None and call.records:
        tables = call.tables("prompt", 0)
    elif prompts is not None:
        tables = [family.whole_table(prompt, arguments) for prompt in prompts]
    else:
        tables = [_unlabelled(states)] * (len(states) // call.images_per_prompt)
    conditional = _branch(family, tables, states)
    if negative_states is None:
        return Encoding(conditional, None)
    negative = [_unlabelled(negative_states)] * len(tables)
    is_text = arguments.get("negative_prompt_embeds") is None
    if label_negative and is_text and call.records:
        number = int(arguments.get("prompt_embeds") is None)
        negative = call.tables("negative_prompt", number, count=len(tables))
    return Encoding(
        conditional,
        _branch(family, negative, negative_states),
        family.has_quirk("prompt_first"),
    )


def _unlabelled(states: Tensor) -> TokenTable:
    """Return a table of text states (B, K, C) whose words are the positions of its tokens."""
    return TokenTable.of_texts(map(str, range(states.shape[1])), " ")


def _branch(
    family: Family,
    tables: Sequence[TokenTable],
    states: Tensor,
) -> Branch:
    lengths = {len(table.tokens) for table in tables}
    shifted = family.pads_to_longest == "left" and len(lengths) > 1
    tables = _fit_tables(family, tables, states)
    count = len(states) // len(tables)
    rows = tuple(table for table in tables for _ in range(count))
    # A copy, since a callback may change the pipeline's own in place.
    return Branch(rows, states.clone(), shifted)


def _fit_tables(
    family: Family,
    tables: Sequence[TokenTable],
    states: Tensor,
) -> Sequence[TokenTable]:
    """Return tables padded as their batch; TraceError unless text states (B, K, C) are theirs."""
    rows, tokens = states.shape[:2]
    side = family.pads_to_longest
    longest = max(len(table.tokens) for table in tables)
    if side and longest <= tokens:
        in_front = side == "left"
        tables = [padded(table, tokens, in_front=in_front) for table in tables]
    lengths = {len(table.tokens) for table in tables}
    if rows % len(tables) or lengths != {tokens}:
        raise TraceError(
            f"the text states are {rows} of {tokens} tokens, and {len(tables)} prompts have "
            f"{max(lengths)}: expected the prompts of these prompt_embeds, or none"
        )
    return tables
