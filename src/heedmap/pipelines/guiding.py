"""The guides of a call: checked before sampling, with the defaults of the model's generation."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from msgspec import structs

from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import family_of
from heedmap.errors import ArgumentError, ModelError
from heedmap.io.guides import Guide, WordGuide
from heedmap.options import GenerateOptions
from heedmap.recording.edits import check_functions
from heedmap.recording.guidance import AnyGuide, LatentGuide

UNET = {"step_size": 0.03, "end": 0.5}
"""The default options of guides of UNets, chosen on the embedded model."""
JOINT = {"step_size": 0.02, "end": 0.3}
"""The same where text and image share one softmax."""
_CORRECTORS = {
    "UniPCMultistepScheduler",
    "SASolverScheduler",
    "DPMSolverSinglestepScheduler",
}
"""Schedulers that go on from the latents of the step before, not from those they are given."""


def checked_guides(guides: Iterable[AnyGuide]) -> tuple[AnyGuide, ...]:
    """Return the guides of a list; ArgumentError if it is not a list of guides."""
    expected = (
        "Excite(word), Inside(word, where), Bind(word, word), Separate(word, word) or callables "
        "loss(maps, step)"
    )
    return check_functions("guide", guides, WordGuide, expected)


def with_defaults(pipe: Any, guides: Sequence[Any]) -> tuple[Any, ...]:
    """Return guides; options that are None get the default of the pipeline's generation."""
    default = JOINT if family_of(pipe).is_joint else UNET
    result: list[Any] = []
    for guide in guides:
        if isinstance(guide, Guide):
            options = dict(default)
            if guide.start >= options["end"]:
                options["end"] = 1.0
            missing = {
                name: value
                for name, value in options.items()
                if getattr(guide, name) is None
            }
            guide = structs.replace(guide, **missing)
        result.append(guide)
    return tuple(result)


def latent_guide(
    pipe: Any,
    texts: Sequence[str],
    options: GenerateOptions,
    guides: Sequence[AnyGuide],
    first: int = 0,
) -> LatentGuide | None:
    """Return the guide of the images from the `first` of a call; None without guides.

    Raises:
        ArgumentError: if the call cannot be guided.
        ModelError: if the model gives no gradients.
        WordError: if a text does not have a word, or the model does not read it.
    """
    if not guides:
        return None
    check_guidable(pipe)
    for text in texts[first:]:
        table = prompt_table(pipe, text, options.arguments)
        for guide in guides:
            for word in guide.words if isinstance(guide, Guide) else ():
                table.find(word)
    (default,) = with_defaults(pipe, [Guide()])
    return LatentGuide(guides, default, first)


def check_guidable(pipe: Any) -> None:
    """Raise an error if the latents of a pipeline cannot be guided."""
    family = family_of(pipe)
    scheduler = type(pipe.scheduler).__name__
    kinds = {kind.__name__ for kind in type(pipe.scheduler).__mro__}
    if kinds & _CORRECTORS:
        raise ArgumentError(
            f"{scheduler} goes on from the latents of the step before, and would drop those that "
            "a guide changes: take another, such as DPMSolverMultistepScheduler"
        )
    quirks = map(family.has_quirk, ("repeats_passes", "source_first"))
    # Sana Sprint computes with the latents before they are changed, too.
    if any(quirks) or "SCMScheduler" in kinds:
        raise ArgumentError(
            f"{type(pipe).__name__} is modular, or takes other latents than those that a guide "
            "changes: leave guide out"
        )
    if hasattr(pipe, "set_pag_applied_layers"):
        raise ArgumentError(
            f"{type(pipe).__name__} perturbs the attention of rows that a guide does not run: take "
            "the pipeline without PAG, or leave guide out"
        )
    model = family.model
    parameters = [*model.parameters()]
    if torch.is_inference_mode_enabled() or any(
        one.is_inference() for one in parameters
    ):
        raise ArgumentError(
            "torch.inference_mode() is on, or was when the model was loaded. A guide needs "
            "gradients, which it does not allow: use torch.no_grad() instead"
        )
    if getattr(model, "is_cache_enabled", False):
        raise ModelError(
            f"the {type(model).__name__} has a cache, which the passes of a guide would fill: call "
            "its disable_cache() before"
        )
    is_quantised = any("quantized" in type(one).__module__ for one in model.modules())
    if is_quantised or any(one.itemsize < 2 for one in parameters):
        raise ModelError(
            f"the {type(model).__name__} is quantised, and a guide needs gradients of its "
            "attention: load the model unquantised"
        )
