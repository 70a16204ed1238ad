"""The interface of a model family, and helpers that inspect and patch a pipeline of diffusers."""

import dis
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import update_wrapper
from types import FrameType
from typing import Any, ClassVar, Literal

import torch
from diffusers import DiffusionPipeline
from diffusers.models.attention_processor import Attention
from torch import Tensor

from heedmap.errors import ArgumentError, TraceError
from heedmap.io.reading import MAX_SIDE
from heedmap.mathematics.events import Layout, RowLayout
from heedmap.options import USUAL, EditPurpose
from heedmap.text.axis import concatenate
from heedmap.text.tokenization import Rewritten, expanded, tokenize
from heedmap.text.words import TokenTable

Pipeline = DiffusionPipeline
GridShape = tuple[int, int]
"""(h, w) of a latent or of a layer."""
Undo = Callable[[Callable[[], None]], object]
"""A function that takes a function which reverts one change, such as `ExitStack.callback`."""
TextStates = tuple[Tensor, Tensor | None, Tensor | None]
"""The text states of the prompt (B, K, C), those of the negative prompt, and the mask (B, K) of the
prompt's visible tokens, None if all are visible."""


class Family(ABC):
    """A pipeline whose denoiser is of a kind with text cross-attention.

    Attributes:
        pipe: the pipeline.
        description: the models of the family, for error messages.
        component: the name of the denoiser in a pipeline.
        model_class: the class of the denoiser; its first argument is the latent (B, C, h, w), and
            it takes "timestep" and "encoder_hidden_states", the text states (B, K, C).
        older_names: names of that class in models that were published earlier.
        unserved: reasons why pipelines cannot be recorded, by the name of their class.
        quirks: by the name of a pipeline's class "prompt_first" if the prompt precedes the negative
            prompt in its batches, "source_first" if the prompt of a source image precedes the
            prompt, "repeats_passes" if it runs the model again in a step, on other latents.
        reads_images: whether an argument "image" puts the positions of other images beside those
            of the image.
        masks_padding: whether a mask hides the padding of a prompt from the image.
        is_joint: whether text and image are keys of one softmax.
        windows: the default ends of an edit's windows, by its purpose (`heedmap.options.USUAL`).
        sequences: the tokenizers whose tokens make the K axis: one tuple for each part of the axis,
            in order, with the tokenizers that share its positions. The encoder of "tokenizer_2" is
            "text_encoder_2".
        pads_to_longest: the side on which prompts are padded to the longest of their batch alone;
            "" where they are not.
        encodes_negative_apart: whether a call of its own encodes the negative prompt.
        runs_negative_apart: whether a pass of its own runs on it.
        encoding_calls: the number of calls that encode a prompt, one for each text encoder, by its
            "text_encoder_index".
        negative_guidance: the guidance that makes a pipeline read the negative prompt.
    """

    description: ClassVar[str]
    component: ClassVar[str]
    model_class: ClassVar[type[torch.nn.Module]]
    older_names: ClassVar[tuple[str, ...]] = ()
    unserved: ClassVar[Mapping[str, str]] = {}
    quirks: ClassVar[Mapping[str, str]] = {}
    reads_images: ClassVar[bool] = False
    masks_padding: ClassVar[bool] = False
    is_joint: ClassVar[bool] = False
    windows: ClassVar[Mapping[EditPurpose | None, tuple[float, float]]] = USUAL
    sequences: ClassVar[tuple[tuple[str, ...], ...]] = (("tokenizer", "tokenizer_2"),)
    pads_to_longest: ClassVar[Literal["", "left", "right"]] = ""
    encodes_negative_apart: ClassVar[bool] = False
    runs_negative_apart: ClassVar[bool] = False
    encoding_calls: ClassVar[int] = 1
    negative_guidance: ClassVar[str] = "a guidance"

    def __init__(self, pipe: Any) -> None:
        self.pipe = pipe

    # --- the denoiser ---

    @abstractmethod
    def attention(self) -> dict[str, Attention]:
        """Return the layers of the image's attention to the text or to itself, in their order."""

    def reads_text(self, layer: Any) -> bool:
        """Return whether a layer attends to the text; else it attends to the image alone."""
        return layer.is_cross_attention

    def text_width(self, layer: Any) -> int:
        """Return the number of channels of the text states that a layer is given."""
        return layer.cross_attention_dim

    def layout(self, count: int, tokens: int, positions: int) -> Layout:
        """Return where text and image stand in a pass on `count` rows of the batch.

        Args:
            count: the rows.
            tokens: the number of text tokens that the model was given.
            positions: the number of the image's positions, where a layer has all of them.
        """
        return Layout((RowLayout(),) * count)

    def groups(self, names: Sequence[str]) -> dict[str, str]:
        """Return the group of layers that each of these is in, by dotted path, if it has one."""
        return {}

    @abstractmethod
    def grid(self, name: str, latent: GridShape) -> GridShape:
        """Return the grid (h, w) of a layer for a latent (h, w), by the model's structure."""

    @property
    def matches_flow(self) -> bool:
        """Whether a timestep is σ of latents (1 - σ) · clean + σ · noise, as in flow matching."""
        return False

    def noise_shift(self, latent: GridShape) -> float | None:
        """Return mu, the scheduler's shift of the noise of a timestep for a latent (h, w).

        None where timesteps have their own noise. Only flow matching has such shifts.
        """
        return None

    @property
    def latent_multiple(self) -> int:
        """The divisor of both sides of a latent."""
        return 1

    @property
    def usual_cells(self) -> int | Sequence[int]:
        """The cells on each side of a latent by default, or (h, w)."""
        return self.model.config.sample_size

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
        model = unwrapped(self.called_model)
        return model.get_base_model() if hasattr(model, "get_base_model") else model

    @property
    def inputs(self) -> list[str]:
        """The names of the denoiser's arguments; the first is the latent."""
        return list(inspect.signature(self.model_class.forward).parameters)[1:]

    def serves(self) -> bool:
        """Return whether the denoiser is built and called as the family's class is."""
        kind = type(self.model)
        if not issubclass(kind, self.model_class):
            return False
        first = list(inspect.signature(kind.forward).parameters.values())[1:4]
        names = [one.name for one in first if one.kind is one.POSITIONAL_OR_KEYWORD]
        return (
            kind.__init__ is self.model_class.__init__
            and names == self.inputs[: len(names)]
        )

    def named_inputs(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the denoiser's arguments in a forward pass, by name."""
        return {**dict(zip(self.inputs, args, strict=False)), **kwargs}

    def passed(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Tensor, Any, Tensor]:
        """Return the latent, the timestep and the text states of a forward pass."""
        values = self.named_inputs(args, kwargs)
        return (
            values[self.inputs[0]],
            values["timestep"],
            values["encoder_hidden_states"],
        )

    def latent(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> GridShape:
        """Return the (h, w) of the latent of a forward pass."""
        sample = self.passed(args, kwargs)[0]
        return sample.shape[-2], sample.shape[-1]

    def unpack(self, latents: Tensor, latent: GridShape) -> Tensor:
        """Return the latents of a scheduler as (B, C, h, w)."""
        return latents

    def pack(self, latents: Tensor) -> Tensor:
        """Return latents (B, C, h, w) as the scheduler has them."""
        return latents

    def repeats(self, kwargs: Mapping[str, Any]) -> bool:
        """Return whether a pass is a further one of its step, which is not recorded."""
        return False

    # --- the pipeline ---

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The arguments of the pipeline that apply unless the user passes them."""
        return {}

    def negative_arguments(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments with which the negative prompt of such a call is read."""
        return arguments

    def axis_places(self, count: int, arguments: Mapping[str, Any]) -> Sequence[int]:
        """Return the places on the K axis, among the `count` that a text encoder reads."""
        return range(count)

    def table(
        self, tokenizer: Any, prompt: str, arguments: Mapping[str, Any]
    ) -> TokenTable:
        """Return the words and tokens of a prompt as one tokenizer reads it in such a call."""
        return tokenize(prompt, tokenizer)

    def placeholders_expanded(
        self, tokenizer: Any
    ) -> Callable[[str], Rewritten | None] | None:
        """Return a function that expands the placeholders of textual inversion, if any can be."""
        convert = getattr(self.pipe, "maybe_convert_prompt", None)
        if convert is None:
            return None
        return lambda text: expanded(
            text, tokenizer, lambda piece: convert(piece, tokenizer)
        )

    def whole_table(self, prompt: str, arguments: Mapping[str, Any]) -> TokenTable:
        """Return the words and tokens of a prompt on the whole K axis in such a call."""
        parts = [self.tokenizer_of(names) for names in self.sequences]
        return concatenate([self.table(one, prompt, arguments) for one in parts])

    def tokenizer_of(self, names: Sequence[str]) -> Any:
        """Return the first tokenizer that is loaded, of these; TraceError if none is."""
        loaded = [getattr(self.pipe, name, None) for name in names]
        first = next((one for one in loaded if one is not None), None)
        if first is None:
            raise TraceError(
                f"{type(self.pipe).__name__} has no tokenizer: load it with one, or pass "
                "prompt_embeds alone (the maps are then by position)"
            )
        return first

    def text_states(self, encoded: Any) -> TextStates:
        """Return the text states among the result of `encode_prompt`, or of its several calls."""
        return encoded[0], encoded[1], None

    def guards(self) -> Iterable[tuple[object, str, Callable[..., Any]]]:
        """Yield replacements (owner, name, method) that refuse calls with misplaced maps.

        Inpainting selects a crop by one of these, and draws it enlarged.
        """
        if hasattr(self.pipe, "mask_processor"):
            yield self.pipe.mask_processor, "get_crop_region", _refuse_crop

    def why_unblended(self) -> str | None:
        """Return why blended latents would not reach the image; None if they do."""
        return None

    def pictures(self, result: Any) -> Sequence[Any]:
        """Return the images of a pipeline's result; LDM3D returns them beside depth maps."""
        return result.images if hasattr(result, "images") else result.rgb

    def has_quirk(self, quirk: str) -> bool:
        """Return whether the class of the pipeline, or a base of it, has a quirk."""
        return any(
            self.quirks.get(kind.__name__) == quirk for kind in type(self.pipe).__mro__
        )

    @property
    def decoder(self) -> Any:
        """The autoencoder; None if the pipeline has none."""
        return getattr(self.pipe, "vae", None)

    @property
    def longest_side(self) -> int:
        """The longest side of an image, in pixels."""
        return MAX_SIDE

    @property
    def cell_side(self) -> int:
        """The pixels on the side of a cell of the latent."""
        return int(getattr(self.pipe, "vae_scale_factor", 8))


def _refuse_crop(*args: Any, **kwargs: Any) -> Any:
    raise ArgumentError(
        "padding_mask_crop draws a part of the image alone, so that its maps would be misplaced: "
        "leave it out, or crop the image and the mask before"
    )


# --- the parts of a pipeline ---

_COMMIT = re.compile(r"snapshots[\\/]([0-9a-f]{40})(?:[\\/]|$)")


def unwrapped(module: Any) -> Any:
    """Return a module without the wrapper of `torch.compile`."""
    return getattr(module, "_orig_mod", module)


def parameters(pipe: Any) -> Mapping[str, inspect.Parameter]:
    """Return the arguments that a pipeline takes, by name.

    A method with `**kwargs` also takes those of the method of a base class, which it may call.
    """
    found: dict[str, inspect.Parameter] = {}
    for kind in type(pipe).__mro__:
        if "__call__" in vars(kind):
            own = inspect.signature(kind.__call__).parameters
            found = {**own, **found}
            if not any(one.kind is one.VAR_KEYWORD for one in own.values()):
                break
    return found


def default_of(pipe: Any, argument: str) -> Any:
    """Return a pipeline's default for an argument; None if it has none."""
    parameter = parameters(pipe).get(argument)
    return (
        None
        if parameter is None or parameter.default is parameter.empty
        else parameter.default
    )


def modules_of(pipe: Any) -> dict[str, torch.nn.Module]:
    """Return the models of a pipeline, by name."""
    parts = {name: unwrapped(part) for name, part in pipe.components.items()}
    return {
        name: part for name, part in parts.items() if isinstance(part, torch.nn.Module)
    }


def device_of(pipe: Any) -> torch.device:
    """Return the device on which a pipeline computes, also if its parts are offloaded."""
    return torch.device(getattr(pipe, "_execution_device", pipe.device))


def commit_of(pipe: Any) -> str | None:
    """Return the commit of the hub repository that a pipeline came from; None if unknown."""
    for model in modules_of(pipe).values():
        config = getattr(model, "config", None)
        path = _COMMIT.search(str(getattr(config, "_name_or_path", "")))
        if commit := getattr(config, "_commit_hash", None) or (path and path[1]):
            return commit
    return None


def loras(pipe: Any) -> list[dict[str, Any]]:
    """Return the name, part, scale and state of each LoRA of a pipeline.

    A LoRA that was fused and then unloaded still acts; only its name is known.
    """
    result: list[dict[str, Any]] = []
    for part, model in modules_of(pipe).items():
        for adapter in getattr(model, "peft_config", ()):
            every: list[Any] = [*model.modules()]
            scaled = [
                one for one in every if isinstance(getattr(one, "scaling", None), dict)
            ]
            layers = [layer for layer in scaled if adapter in layer.scaling]
            scales = [float(layer.scaling[adapter]) for layer in layers]
            active = (
                layer.active_adapters for layer in layers if not layer.disable_adapters
            )
            result.append(
                {
                    "name": str(adapter),
                    "part": part,
                    "scale": scales[0] if len({*scales}) == 1 else scales,
                    "active": any(adapter in names for names in active),
                    "fused": any(adapter in layer.merged_adapters for layer in layers),
                }
            )
    unloaded = {str(name) for name in getattr(pipe, "fused_loras", ())}
    unloaded -= {lora["name"] for lora in result}
    return result + [{"name": name, "fused": True} for name in sorted(unloaded)]


# --- the calls of a pipeline ---


def active_calls(pipe: Any) -> list[FrameType]:
    """Return the frames of a pipeline's running calls, the innermost first."""
    code = inspect.unwrap(type(pipe).__call__).__code__
    calls, frame = [], inspect.currentframe()
    while frame is not None:
        if frame.f_code is code and frame.f_locals.get("self") is pipe:
            calls.append(frame)
        frame = frame.f_back
    return calls


def has_returned(frame: FrameType) -> bool:
    """Return whether a finished call returned a result instead of raising an exception."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN")


def announces_end(pipe: Any) -> bool:
    """Return whether the running call will release the models at its end, as most pipelines do."""
    calls = active_calls(pipe)
    # Some do not then.
    latents = bool(calls) and calls[0].f_locals.get("output_type") == "latent"
    code = inspect.unwrap(type(pipe).__call__).__code__
    return "maybe_free_model_hooks" in code.co_names and not latents


@contextmanager
def left_early(pipe: Any) -> Iterator[None]:
    """Clean up after a call that the block leaves by an exception.

    Offloaded parts return to the CPU, and attention processors that the pipeline installed for the
    call (perturbed-attention guidance does) are removed.
    """
    modules: list[Any] = [
        one for part in modules_of(pipe).values() for one in part.modules()
    ]
    before = [
        (layer, layer.processor) for layer in modules if hasattr(layer, "set_processor")
    ]
    try:
        yield
    except BaseException:
        for layer, processor in before:
            layer.set_processor(processor)
        pipe.maybe_free_model_hooks()
        raise


class _Replacement:
    """A method of an instance in place of its own."""

    def __init__(self, owner: Any, name: str, method: Callable[..., Any]) -> None:
        update_wrapper(self, getattr(owner, name))  # diffusers inspects signatures
        self.owner, self.name, self.method = owner, name, method

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.method(*args, **kwargs)

    def __reduce__(self) -> Any:
        """Give a copy of the owner its own method."""
        return getattr, (self.owner, self.name)


def replace_method(
    owner: Any, name: str, method: Callable[..., Any]
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
