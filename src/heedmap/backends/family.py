"""The interface of a family of models, and the parts of its pipelines."""

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from diffusers import DiffusionPipeline
from diffusers.models.attention_processor import Attention

from heedmap.text.tokens import tokenize
from heedmap.text.words import TokenTable

Pipeline = DiffusionPipeline
"""What a user draws with; whichever it is, it is of a family."""
GridShape = tuple[int, int]
"""(h, w) of a latent, or of a layer."""
Guard = tuple[object, str, Callable[..., Any]]
"""A thing, the name of a method of it, and what stands in its place while a trace is open."""


class Family(ABC):
    """A kind of denoiser that attends to text, and how the pipelines around it are used.

    Attributes:
        told: which models these are, for whoever has another.
        component: what a pipeline calls its denoiser.
        kind: the denoiser's class.
        older_names: what that class was called in models that were published before.
        inputs: the first arguments of its forward pass, in their order.
        sample: the one of them that is the latent (B, C, h, w); the others that are read are
            "timestep" and "encoder_hidden_states", the text states (B, K, C).
        unserved: by name, the classes of pipelines with such a denoiser that cannot be recorded,
            and why.
        defaults: arguments that a pipeline is called with unless a user says otherwise: so that it
            draws the very size that it is told, and the like.
        least_steps: with how many steps every pipeline of the family draws something.
    """

    told: ClassVar[str]
    component: ClassVar[str]
    kind: ClassVar[type[torch.nn.Module]]
    older_names: ClassVar[tuple[str, ...]] = ()
    inputs: ClassVar[tuple[str, str, str]]
    sample: ClassVar[str]
    unserved: ClassVar[Mapping[str, str]] = {}
    defaults: ClassVar[Mapping[str, Any]] = {}
    least_steps: ClassVar[int] = 1

    # --- how the denoiser is built ---

    @abstractmethod
    def cross_attention(self, model: Any) -> dict[str, Attention]:
        """The layers that attend to the text and to nothing else, by dotted path, as they run."""

    @abstractmethod
    def self_attention(self, model: Any) -> dict[str, Attention]:
        """The layers in which the picture attends to itself, by dotted path."""

    @abstractmethod
    def grid(self, model: Any, name: str, latent: GridShape) -> GridShape:
        """The grid (h, w) of a layer, by its path, for a latent of (h, w).

        From how the model is built: a number of positions would not tell it, since merged tokens
        may be as many as a coarser grid has.
        """

    @abstractmethod
    def width(self, model: Any) -> int:
        """How many numbers stand for a cell of the latent where they are most."""

    def why_none(self, model: Any) -> str:
        """Why there are no layers, where there are none."""
        return "its layers attend to no text"

    def unit(self, model: Any) -> int:
        """Of how many cells each side of the latent has to be a multiple."""
        return 1

    # --- how a pipeline uses it ---

    def table(
        self, pipe: Any, tokenizer: Any, prompt: str, arguments: Mapping[str, Any]
    ) -> TokenTable:
        """The words and tokens of a prompt as a pipeline reads it when it is called like that.

        Args:
            pipe: the pipeline.
            tokenizer: one of its tokenizers.
            prompt: one text.
            arguments: of the pipeline, those that were given.
        """
        return tokenize(prompt, tokenizer)

    def states(self, encoded: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The prompt's text states and the negative prompt's among what encode_prompt returned."""
        return encoded[0], encoded[1]

    def visible(self, encoded: Any) -> torch.Tensor | None:
        """Which of the prompt's text states the denoiser may see (B, K); None where all."""
        return None

    def within(self, model: Any, states: torch.Tensor) -> torch.Tensor:
        """Text states (B, K, C) as the denoiser's layers are given them."""
        return states

    def prompt_first(self, pipe: Any, encoded: Any) -> bool:
        """Whether the prompt's block stands before those of the negative prompt in a batch."""
        return False

    def guards(self, pipe: Any) -> Iterable[Guard]:
        """What refuses a call whose maps would not lie where its picture is."""
        return ()

    def pictures(self, made: Any) -> Sequence[Any]:
        """The pictures among what a pipeline returned."""
        return made.images

    def repeats_passes(self, pipe: Any) -> bool:
        """Whether a pipeline runs its model again before the scheduler goes on.

        That is on latents that are not the picture's: the first pass counts.
        """
        return False

    def source_first(self, pipe: Any) -> bool:
        """Whether a batch reads a source's prompt before the one that is drawn.

        If both are the same text, the last rows are the picture's.
        """
        return False

    def why_unblended(self, pipe: Any) -> str | None:
        """Why a blend of latents would not reach a pipeline's picture; None where it does."""
        return None

    def start_size(self, pipe: Any, size: tuple[int, int]) -> tuple[int, int]:
        """The (width, height) of the picture that a pipeline starts from, to draw one of `size`."""
        return size

    # --- what all have in common ---

    def serves(self, model: Any) -> bool:
        """Tell whether a model is built and called as the family's class is.

        A subclass may add to the class, but not build its layers or order its inputs in its own
        way.
        """
        own = type(model)
        if own is self.kind or not isinstance(model, self.kind):
            return own is self.kind
        taken = list(inspect.signature(own.forward).parameters.values())[1:4]
        names = tuple(one.name for one in taken if one.kind is one.POSITIONAL_OR_KEYWORD)
        return own.__init__ is self.kind.__init__ and names == self.inputs[: len(names)]

    def part(self, pipe: Any) -> Any:
        """The denoiser as the pipeline calls it, in what torch.compile or peft made of it."""
        return getattr(pipe, self.component, None)

    def denoiser(self, pipe: Any) -> Any:
        """The denoiser itself; None if the pipeline has none.

        It may be within what torch.compile made of it, or what peft did.
        """
        part = as_written(self.part(pipe))
        base = getattr(part, "get_base_model", None)
        return part if base is None else base()

    def decoder(self, pipe: Any) -> Any:
        """What makes the picture of a latent; None if a pipeline has none."""
        names = ("vae", "movq", "vqvae")
        return next((part for name in names if (part := getattr(pipe, name, None))), None)

    def cell_side(self, pipe: Any) -> int:
        """Pixels of the picture on the side of a cell of the latent."""
        without = 1 if self.decoder(pipe) is None else 8
        return int(getattr(pipe, "vae_scale_factor", without))

    def passed(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[torch.Tensor, Any, torch.Tensor]:
        """The latent, the timestep and the text states of a forward pass."""
        given = {**dict(zip(self.inputs, args, strict=False)), **kwargs}
        return given[self.sample], given["timestep"], given["encoder_hidden_states"]


def made_from(pipe: Any, names: Container[str]) -> str | None:
    """Which of these classes, by name, a pipeline is of or made from; None if of none."""
    return next((kind.__name__ for kind in type(pipe).__mro__ if kind.__name__ in names), None)


def as_written(module: Any) -> Any:
    """A module as it was before `torch.compile`."""
    return getattr(module, "_orig_mod", module)


def parameters(pipe: Any) -> Mapping[str, inspect.Parameter]:
    """The arguments that a pipeline takes, by name."""
    return inspect.signature(type(pipe).__call__).parameters


def default_of(pipe: Any, argument: str) -> Any:
    """What a pipeline takes for an argument where nothing is said; None if it does not say."""
    taken = parameters(pipe).get(argument)
    return None if taken is None or taken.default is taken.empty else taken.default


_COMMIT = re.compile(r"snapshots[\\/]([0-9a-f]{40})(?:[\\/]|$)")


def parts_of(pipe: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a pipeline except schedulers; a compiled part is unwrapped."""
    for name, kind in getattr(pipe, "config", {}).items():
        part = getattr(pipe, name, None) if isinstance(kind, list | tuple) else None
        if part is not None and not name.endswith("scheduler"):
            yield name, as_written(part)
    if getattr(pipe, "watermark", None) is not None:
        yield "watermark", pipe.watermark


def device_of(pipe: Any) -> torch.device:
    """Return the device on which a pipeline computes, also if its parts are offloaded."""
    return torch.device(getattr(pipe, "_execution_device", pipe.device))


@contextmanager
def left_early(pipe: Any) -> Iterator[None]:
    """Clean up after a call of a pipeline that the block leaves early.

    Offloaded parts return to the CPU. Attention processors that the pipeline installed for the call
    (perturbed-attention guidance does) are removed.
    """
    parts = [part for _, part in parts_of(pipe) if isinstance(part, torch.nn.Module)]
    found: list[Any] = [module for part in parts for module in part.modules()]
    before = [(layer, layer.processor) for layer in found if hasattr(layer, "set_processor")]
    try:
        yield
    except BaseException:
        for layer, processor in before:
            if layer.processor is not processor:
                layer.set_processor(processor)
        free = getattr(pipe, "maybe_free_model_hooks", None)
        if free is not None:
            free()
        raise


def commit_of(pipe: Any) -> str | None:
    """Return the commit of the hub repository that a pipeline came from; None if unknown."""
    for _, part in parts_of(pipe):
        config = getattr(part, "config", None)
        commit = getattr(config, "_commit_hash", None)
        if isinstance(commit, str):
            return commit
        source = getattr(config, "_name_or_path", None) or getattr(part, "name_or_path", None)
        if path := _COMMIT.search(str(source)):
            return path[1]
    return None


def loras(pipe: Any) -> list[dict[str, Any]]:
    """Return the name, part, scale and state of each LoRA of a pipeline.

    A LoRA that was fused and then unloaded still acts; only its name is known.
    """
    found = [
        _lora(name, part, adapter)
        for name, part in parts_of(pipe)
        for adapter in getattr(part, "peft_config", None) or {}
    ]
    fused = {str(name) for name in getattr(pipe, "fused_loras", ())}
    unloaded = fused - {lora["name"] for lora in found}
    return found + [{"name": name, "fused": True} for name in sorted(unloaded)]


def _lora(name: str, part: Any, adapter: str) -> dict[str, Any]:
    layers = [
        module
        for module in part.modules()
        if isinstance(scaling := getattr(module, "scaling", None), dict) and adapter in scaling
    ]
    scales = [float(layer.scaling[adapter]) for layer in layers]
    active = any(
        adapter in layer.active_adapters and not layer.disable_adapters for layer in layers
    )
    return {
        "name": str(adapter),
        "part": name,
        "scale": scales[0] if len({*scales}) == 1 else scales,
        "active": active,
        "fused": any(adapter in layer.merged_adapters for layer in layers),
    }
