"""The interface of a model family, and helpers that inspect and patch a pipeline of diffusers."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, update_wrapper
from traceback import walk_stack
from types import FrameType
from typing import Any, Literal

import torch
from diffusers import DiffusionPipeline
from diffusers.models.attention_processor import Attention
from diffusers.utils.hub_utils import extract_commit_hash
from diffusers.utils.torch_utils import unwrap_module
from torch import Tensor

from heedmap.backends.modular import is_modular, text_block
from heedmap.errors import ArgumentError, TraceError
from heedmap.io.reading import MAX_SIDE
from heedmap.mathematics.events import Layout, RowLayout
from heedmap.options import DEFAULT_WINDOWS, EditPurpose
from heedmap.text.axis import arrange, concatenate, padded
from heedmap.text.tokenization import Rewritten, expanded, tokenize
from heedmap.text.words import Token, TokenTable

Pipeline = DiffusionPipeline
Arguments = Mapping[str, Any]
"""Arguments by name: of a call of the pipeline, or of a pass of the denoiser."""
GridShape = tuple[int, int]
"""(h, w) of a latent or of a layer."""
Undo = Callable[[Callable[[], None]], object]
"""A function that takes a function which reverts one change, such as `ExitStack.callback`."""
TextStates = tuple[Tensor, Tensor | None]
"""The text states of the prompt (B, K, C), and those of the negative prompt."""


class Family(ABC):
    """A pipeline whose denoiser is of a kind with text cross-attention.

    Attributes:
        pipe: the pipeline.
        component: the name of the denoiser in a pipeline.
        model_class: the class of the denoiser; its first argument is the latent (B, C, h, w), and
            it takes "timestep" and "encoder_hidden_states", the text states (B, K, C).
        block_lists: the names of its blocks, or lists of blocks, in running order.
        layer_classes: the classes of its attention layers.
        older_names: names of that class in models that were published earlier.
        prompt_first: the classes of pipelines in whose batches the prompt precedes the negative
            prompt, by name.
        source_first: those in whose batches the prompt of a source image precedes the prompt.
        repeats_passes: those that run the model again in a step, on other latents.
        unblended: those whose image is not made of the latents of their last step.
        single_prompt: those whose batches have one prompt, and whose lists of images are of
            reference images.
        reads_images: whether the pipelines also draw from a text alone where they take reference
            images.
        maps_references: whether reference images have queries, and so maps of their own.
        needs_image: whether the pipelines draw beside an image of the user's alone.
        masks_padding: whether a mask hides the padding of a prompt from the image.
        is_joint: whether text and image are keys of one softmax.
        matches_flow: whether a timestep is σ of latents (1 - σ) · clean + σ · noise, as in flow
            matching.
        patch: the side of a position, in cells, where the configuration of the model does not say.
        cells_per_side: the cells on the side of what the pipeline counts as one.
        windows: the default ends of an edit's windows, by its purpose
            (`heedmap.options.DEFAULT_WINDOWS`).
        sequences: the tokenizers whose tokens make the K axis: one tuple for each part of the axis,
            in order, with the tokenizers that share its positions. The encoder of "tokenizer_2" is
            "text_encoder_2".
        pads_to_longest: the side on which prompts are padded to the longest of their batch alone;
            "" where they are not.
        encoder_padding: the side on which the text encoder pads them, if it is another.
        token_multiple: the number of tokens to whose multiples prompts are padded on that side.
        empty_token: the id of the only token of a prompt that has no other.
        dropped: the number of the first tokens, of a template, that are not on the K axis.
        encodes_negative_apart: whether a call of its own encodes the negative prompt.
        runs_negative_apart: whether a pass of its own runs on it.
        encoding_calls: the number of calls that encode a prompt, one for each text encoder, by its
            "text_encoder_index".
        negative_place: the place of the text states of the negative prompt in the result of
            `encode_prompt`, which begins with those of the prompt; -1 if they are not there.
        pads_concepts: whether the padding that the image attends to stands behind concepts, too.
        prompt_arguments: the arguments of a call that hold for the prompt, not the negative one.
        negative_guidance: the guidance that makes a pipeline read the negative prompt.
        guidance_off: the guidance that makes a pipeline read the prompt alone.
        timestep_error: the relative error of the timesteps of `model_inputs`.
        concepts_refusal: why concepts beside the prompt cannot be recorded; "" where they can.
    """

    component: str
    model_class: type[torch.nn.Module]
    block_lists: tuple[str, ...] = ("transformer_blocks",)
    layer_classes: tuple[type[torch.nn.Module], ...] = (Attention,)
    older_names: tuple[str, ...] = ()
    prompt_first: tuple[str, ...] = ()
    source_first: tuple[str, ...] = ()
    repeats_passes: tuple[str, ...] = ()
    unblended: tuple[str, ...] = ()
    single_prompt: tuple[str, ...] = ()
    reads_images = False
    maps_references = True
    needs_image = False
    masks_padding = False
    is_joint = False
    matches_flow = False
    patch: int | None = None
    cells_per_side = 1
    windows: Mapping[EditPurpose | None, tuple[float, float]] = DEFAULT_WINDOWS
    sequences: tuple[tuple[str, ...], ...] = (("tokenizer", "tokenizer_2"),)
    pads_to_longest: Literal["", "left", "right"] = ""
    encoder_padding: Literal["", "left", "right"] = ""
    token_multiple = 1
    empty_token = 0
    dropped = 0
    encodes_negative_apart = False
    runs_negative_apart = False
    encoding_calls = 1
    negative_place = 1
    pads_concepts = True
    prompt_arguments: tuple[str, ...] = ()
    negative_guidance = "guidance_scale"
    guidance_off = 1.0
    timestep_error = 0.0
    concepts_refusal = ""

    def __init__(self, pipe: Any) -> None:
        self.pipe = pipe
        if is_modular(pipe):  # a guider runs a pass for each branch
            self.runs_negative_apart = True
            self.negative_guidance = "the guidance_scale of the guider"

    # --- the denoiser ---

    @cached_property
    def modules(self) -> dict[str, Any]:
        """All modules of the denoiser, by dotted path."""
        return dict(self.model.named_modules())

    @cached_property
    def layers(self) -> dict[str, Any]:
        """The layers of the image's attention to the text or to itself, in running order."""
        modules = self.modules.items()
        layers = {n: m for n, m in modules if isinstance(m, self.layer_classes)}
        return {
            name: layer
            for blocks in self.block_lists
            for name, layer in layers.items()
            if name.startswith(f"{blocks}.")
        }

    def reads_text(self, name: str, layer: Any) -> bool:
        """Return whether a layer attends to the text; else it attends to the image alone."""
        return layer.is_cross_attention

    def text_layers(self) -> dict[str, Attention]:
        """Return the layers that attend to the text, by dotted path, in running order."""
        layers = self.layers.items()
        return {name: layer for name, layer in layers if self.reads_text(name, layer)}

    def image_layers(self) -> dict[str, Attention]:
        """Return the layers of the image's attention to itself, by dotted path."""
        layers = self.layers.items()
        return {
            name: layer for name, layer in layers if not self.reads_text(name, layer)
        }

    def layout(
        self,
        tokens: int,
        positions: int,
        references: Sequence[int] = (),
    ) -> Layout:
        """Return where text and image stand in a pass: one row that stands for all of them.

        Args:
            tokens: the number of text tokens that the model was given.
            positions: the number of the image's positions, where a layer has all of them.
            references: the number of positions of each reference image.
        """
        return Layout()

    def row_layout(
        self,
        states: Tensor,
        tokens: int,
        positions: int,
        references: Sequence[int] = (),
    ) -> RowLayout:
        """Return where text and image stand in one row of a pass; by default all rows are alike.

        Args:
            states: the row's text states (K, C), as `model_inputs` has them.
            tokens: the number of tokens on the K axis of the row's branch.
            positions: the number of the image's positions.
            references: the number of positions of each reference image.
        """
        return self.layout(tokens, positions, references).rows[0]

    def groups(self, names: Sequence[str]) -> dict[str, str]:
        """Return the group of layers that each of these is in, by dotted path, if it has one."""
        return {}

    @abstractmethod
    def grid(self, name: str, latent: GridShape) -> GridShape:
        """Return the grid (h, w) of a layer for a latent (h, w), by the model's structure."""

    def noise_shift(self, latent: GridShape) -> float | None:
        """Return mu, the scheduler's shift of the noise of a timestep for a latent (h, w).

        None where timesteps have their own noise. Only flow matching has such shifts.
        """
        return None

    @property
    def latent_multiple(self) -> int:
        """The divisor of both sides of a latent: the side of a transformer's patch, in cells."""
        return self.patch or getattr(self.model.config, "patch_size", 1)

    def project_text(self, states: Tensor) -> Tensor:
        """Return text states (B, K, C) as the model passes them to its layers."""
        return states

    @property
    def called_model(self) -> Any:
        """The denoiser as the pipeline calls it, in the wrapper of torch.compile or peft."""
        return getattr(self.pipe, self.component, None)

    @property
    def model(self) -> Any:
        """The denoiser without such wrappers; None if the pipeline has none."""
        model = unwrap_module(self.called_model)
        return model.get_base_model() if hasattr(model, "get_base_model") else model

    @cached_property
    def inputs(self) -> list[str]:
        """The names of the denoiser's arguments; the first is the latent."""
        return list(inspect.signature(self.model_class.forward).parameters)[1:]

    def serves(self) -> bool:
        """Return whether the denoiser is built and called as the family's class is."""
        kind = type(self.model)
        if not issubclass(kind, self.model_class):
            return False
        names = inspect.getfullargspec(kind.forward).args[1:4]
        is_called_alike = names == self.inputs[: len(names)]
        return is_called_alike and kind.__init__ is self.model_class.__init__

    def model_inputs(self, inputs: Arguments) -> tuple[Tensor, Any, Tensor]:
        """Return the latent, the timestep and the text states of a forward pass."""
        return (
            inputs[self.inputs[0]],
            inputs["timestep"],
            inputs["encoder_hidden_states"],
        )

    def latent(self, inputs: Arguments) -> GridShape:
        """Return the (h, w) of the latent of a forward pass."""
        h, w = inputs[self.inputs[0]].shape[-2:]
        return h, w

    def references(self, inputs: Arguments) -> Sequence[GridShape]:
        """Return the grids (h, w) of the reference images of a pass, beside the image."""
        return ()

    def unpack(self, latents: Tensor, latent: GridShape) -> Tensor:
        """Return the latents of a scheduler as (B, C, h, w)."""
        return latents

    def pack(self, latents: Tensor) -> Tensor:
        """Return latents (B, C, h, w) as the scheduler has them."""
        return latents

    def initial(self, latents: Tensor) -> Tensor:
        """Return latents (B, C, h, w) as a call of the pipeline takes them."""
        return self.pack(latents)

    def repeats(self, inputs: Arguments) -> bool:
        """Return whether a pass is a further one of its step, which is not recorded."""
        return False

    # --- the pipeline ---

    @cached_property
    def encoder(self) -> Any:
        """The pipeline, or its block, that encodes prompts and has the settings for it."""
        return text_block(self.pipe) if is_modular(self.pipe) else self.pipe

    @property
    def defaults(self) -> Arguments:
        """The arguments of the pipeline that apply unless the user passes them."""
        return {}

    def encoding_arguments(self, arguments: Arguments) -> Arguments:
        """Return the arguments of a call of the pipeline as its `encode_prompt` is given them."""
        return arguments

    def axis_places(
        self,
        count: int,
        arguments: Arguments,
    ) -> Sequence[int]:
        """Return the places on the K axis, among the `count` that a text encoder reads."""
        return range(self.dropped, count)

    @property
    def off_axis(self) -> Collection[int]:
        """The ids of tokens that a text encoder reads and that are not on the K axis."""
        return ()

    def table(
        self,
        tokenizer: Any,
        prompt: str,
        arguments: Arguments,
    ) -> TokenTable:
        """Return the words and tokens of a prompt as one tokenizer reads it.

        The arguments are those of `encode_prompt`.
        """
        before, after = self.template(arguments, tokenizer, prompt)
        inner = getattr(tokenizer, "tokenizer", tokenizer)  # that of a processor
        is_begun = inner is not tokenizer and before.startswith(inner.bos_token or "\0")
        table = tokenize(
            prompt,
            inner,
            before=before,
            after=after,
            rewritten=self.rewrite(prompt, tokenizer),
            limit=self.limit(arguments, tokenizer) + self.dropped,
            padding=False if self.pads_to_longest else "max_length",
            add_special_tokens=not is_begun,
        )
        if not table.tokens:
            first = Token(0, self.empty_token, "<start>", 0, 0, "start")
            table = replace(table, tokens=(first,))
        table = arrange(table, self.axis_places(len(table.tokens), arguments))
        count = len(table.tokens)
        count += -count % self.token_multiple
        return padded(table, count, in_front=self.pads_to_longest == "left")

    def template(
        self,
        arguments: Arguments,
        tokenizer: Any,
        prompt: str,
        /,
    ) -> tuple[str, str]:
        """Return the texts that such a call puts before and after a prompt."""
        return "", ""

    def rewrite(self, prompt: str, tokenizer: Any) -> Rewritten | None:
        """Return the text that a call reads of a prompt; None if it is read as it is.

        The placeholders of textual inversion are expanded.
        """
        convert = getattr(self.pipe, "maybe_convert_prompt", None)
        return None if convert is None else expanded(prompt, tokenizer, convert)

    def limit(
        self,
        arguments: Arguments,
        tokenizer: Any = None,
    ) -> int:
        """Return the number of tokens that such a call reads at most, without those dropped."""
        return int(tokenizer.model_max_length)

    def whole_table(
        self,
        prompt: str,
        arguments: Arguments,
    ) -> TokenTable:
        """Return the words and tokens of a prompt on the whole K axis in such a call."""
        parts = [self.tokenizer_of(names) for names in self.sequences]
        return concatenate([self.table(one, prompt, arguments) for one in parts])

    def tokenizer(self, name: str) -> Any:
        """Return the tokenizer of this name, or that of the processor in its place; None without.

        Modular Qwen-Image-Edit has a processor alone.
        """
        processor = getattr(self.pipe, name.replace("tokenizer", "processor"), None)
        return getattr(self.pipe, name, getattr(processor, "tokenizer", None))

    def tokenizer_of(self, names: Sequence[str]) -> Any:
        """Return the first tokenizer that is loaded, of these; TraceError if none is."""
        for name in names:
            tokenizer = self.tokenizer(name)
            if tokenizer is not None:
                return tokenizer
        raise TraceError(
            f"{type(self.pipe).__name__} has no tokenizer: load it with one, or pass "
            "prompt_embeds alone (the maps are then by position)"
        )

    def text_states(self, encoded: Any) -> TextStates:
        """Return the text states among the result of `encode_prompt`, or of its several calls."""
        parts: list[Any] = [*encoded, None]
        return parts[0], parts[self.negative_place]

    def states_of_blocks(self, values: Mapping[str, Any]) -> TextStates:
        """Return the text states among the values of a modular pipeline's state."""
        return values["prompt_embeds"], values.get("negative_prompt_embeds")

    def guards(self) -> Iterable[tuple[object, str, Callable[..., Any]]]:
        """Yield replacements (owner, name, method) that refuse calls with misplaced maps.

        Inpainting selects a crop by one of these, and draws it enlarged.
        """
        if hasattr(self.pipe, "mask_processor"):
            yield self.pipe.mask_processor, "get_crop_region", refuse_crop

    def has_quirk(self, quirk: str) -> bool:
        """Return whether the class of the pipeline, or a base of it, is listed so."""
        if quirk == "repeats_passes" and is_modular(self.pipe):
            return True
        names: Sequence[str] = getattr(self, quirk)
        return any(kind.__name__ in names for kind in type(self.pipe).__mro__)

    @property
    def lists_references(self) -> bool:
        """True if a list of images is of reference images, which all rows of a batch have."""
        return self.reads_images or self.has_quirk("single_prompt")

    @property
    def longest_side(self) -> int:
        """The longest side of an image, in pixels."""
        return MAX_SIDE

    @property
    def unit(self) -> int:
        """The divisor of both sides of an image, in pixels."""
        return self.cell_side * self.latent_multiple

    @property
    def cell_side(self) -> int:
        """The pixels on the side of a cell of the latent."""
        side = int(getattr(self.pipe, "vae_scale_factor", 8))
        return side // self.cells_per_side


def refuse_crop(*args: Any, **kwargs: Any) -> Any:
    """Raise the error of a call that draws a part of the image alone."""
    raise ArgumentError(
        "padding_mask_crop draws a part of the image alone, so that its maps would be misplaced: "
        "leave it out, or crop the image and the mask before"
    )


# --- the parts of a pipeline ---


def parameters(pipe: Any) -> dict[str, Any]:
    """Return the arguments that a pipeline takes, with their defaults, None where they have none.

    A method with `**kwargs` also takes those of the method of a base class, which it may call. A
    modular pipeline takes those of its blocks.
    """
    if is_modular(pipe):
        return {one.name or one.kwargs_type: one.default for one in pipe._blocks.inputs}
    result: dict[str, Any] = {}
    for kind in type(pipe).__mro__:
        if "__call__" not in vars(kind):
            continue
        arguments = inspect.signature(kind.__call__).parameters.values()
        for one in arguments:
            default = None if one.default is one.empty else one.default
            result.setdefault(one.name, default)
        if not any(one.kind is one.VAR_KEYWORD for one in arguments):
            break
    return result


def modules_of(pipe: Any) -> dict[str, torch.nn.Module]:
    """Return the models of a pipeline, by name."""
    return {
        name: unwrap_module(part)
        for name, part in pipe.components.items()
        if isinstance(part, torch.nn.Module)
    }


def device_of(pipe: Any) -> torch.device:
    """Return the device on which a pipeline computes, also if its parts are offloaded."""
    return torch.device(getattr(pipe, "_execution_device", pipe.device))


def heads_of(layer: Any) -> int:
    """Return the number of heads of an attention layer, by either of its names in diffusers."""
    return layer.heads if hasattr(layer, "heads") else layer.num_heads


def commit_of(model: Any) -> str | None:
    """Return the commit of the hub repository that a denoiser came from; None if unknown."""
    return extract_commit_hash(str(getattr(model.config, "_name_or_path", "")))


def loras(pipe: Any) -> list[dict[str, Any]]:
    """Return the name, part, scale and state of each LoRA of a pipeline.

    A LoRA that was fused and then unloaded still acts; only its name is known.
    """
    result: list[dict[str, Any]] = []
    for part, model in modules_of(pipe).items():
        every: list[Any] = [*model.modules()]
        for adapter in getattr(model, "peft_config", ()):
            layers = [one for one in every if adapter in getattr(one, "lora_A", ())]
            scales = [float(layer.scaling[adapter]) for layer in layers]
            first = layers[0]  # diffusers sets these states in all layers
            result.append(
                {
                    "name": str(adapter),
                    "part": part,
                    "scale": scales[0] if len({*scales}) == 1 else scales,
                    "active": adapter in first.active_adapters
                    and not first.disable_adapters,
                    "fused": adapter in first.merged_adapters,
                }
            )
    unloaded = {str(name) for name in getattr(pipe, "fused_loras", ())}
    unloaded -= {lora["name"] for lora in result}
    return result + [{"name": name, "fused": True} for name in sorted(unloaded)]


# --- the calls of a pipeline ---


def active_calls(pipe: Any) -> list[FrameType]:
    """Return the frames of a pipeline's running calls, the innermost first."""
    code = inspect.unwrap(type(pipe).__call__).__code__
    stack = walk_stack(inspect.currentframe())
    frames = [frame for frame, _ in stack if frame.f_code is code]
    return [frame for frame in frames if frame.f_locals.get("self") is pipe]


@contextmanager
def left_early(pipe: Any) -> Iterator[None]:
    """Clean up after a call that the block leaves by an exception.

    Offloaded parts return to the CPU, and attention processors that the pipeline installed for the
    call (perturbed-attention guidance does) are removed.
    """
    before: dict[Any, Any] = {}
    for part in modules_of(pipe).values():
        for module in part.modules():
            if hasattr(module, "set_processor"):
                before[module] = module.processor
    try:
        yield
    except BaseException:
        for layer, processor in before.items():
            layer.set_processor(processor)
        if hasattr(pipe, "maybe_free_model_hooks"):
            pipe.maybe_free_model_hooks()
        raise


class _Replacement:
    """A method of an instance in place of its own."""

    def __init__(
        self,
        owner: Any,
        name: str,
        method: Callable[..., Any],
    ) -> None:
        update_wrapper(self, getattr(owner, name))  # diffusers inspects signatures
        self.owner = owner
        self.name = name
        self.method = method

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.method(*args, **kwargs)

    def __reduce__(self) -> Any:
        """Give a copy of the owner its own method."""
        return getattr, (self.owner, self.name)


def replace_method(
    owner: Any,
    name: str,
    method: Callable[..., Any],
) -> Callable[[], None]:
    """Replace a method of an instance; return a function that restores it.

    A method that somebody else has put there stays.
    """
    before = vars(owner).get(name)
    vars(owner)[name] = replacement = _Replacement(owner, name, method)

    def undo() -> None:
        if vars(owner).get(name) is replacement:
            vars(owner)[name] = before
            if before is None:
                del vars(owner)[name]

    return undo
