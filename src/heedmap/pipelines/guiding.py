"""The guides of a call: checked before sampling, with the defaults of the model's generation."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from msgspec import structs

from heedmap.backends.modular import is_modular
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import family_of
from heedmap.checks import as_list
from heedmap.errors import ArgumentError, ModelError, quoted
from heedmap.io.guides import Guide, SavedGuide, SavedLoss, WordGuide
from heedmap.io.schemas import MAX_EDITS
from heedmap.mathematics.rules import rule_name
from heedmap.options import GenerateOptions
from heedmap.recording.guidance import AnyGuide, LatentGuide

DEFAULTS = Guide(step_size=0.03, iterations=2, target=0.2, end=0.5)
"""The default options of guides of UNets, chosen on the embedded model."""
JOINT_DEFAULTS = Guide(step_size=0.02, iterations=2, target=0.2, end=0.5)
"""The same where text and image share one softmax."""
_CORRECTORS = ("UniPCMultistepScheduler", "SASolverScheduler")
"""Schedulers that go on from the latents of the step before, not from those they are given."""


def checked_guides(guides: Iterable[AnyGuide]) -> tuple[AnyGuide, ...]:
    """Return the guides of a list; ArgumentError if it is not a list of guides."""
    every = as_list(guides)
    if every is None or len(every) > MAX_EDITS:
        raise ArgumentError(
            f"guide is {quoted(guides)}: expected a list of guides (at most {MAX_EDITS}), as in "
            "[Excite('cat')]"
        )
    for guide in every:
        if isinstance(guide, Guide) and guide.words:
            continue
        if isinstance(guide, type | Guide) or not callable(guide):
            raise ArgumentError(
                f"{quoted(guide)} is not a guide: expected Excite(word), Inside(word, where), "
                "Bind(word, word), Separate(word, word), or a callable loss(maps, step)"
            )
    return tuple(every)


def with_defaults(pipe: Any, guides: Sequence[AnyGuide]) -> tuple[AnyGuide, ...]:
    """Return the guides with the default options of a pipeline's generation."""
    defaults = structs.asdict(_defaults(pipe))
    result: list[AnyGuide] = []
    for guide in guides:
        if isinstance(guide, Guide):
            missing = {n: defaults[n] for n in defaults if getattr(guide, n) is None}
            guide = structs.replace(guide, **missing)
        result.append(guide)
    return tuple(result)


def _defaults(pipe: Any) -> Guide:
    return JOINT_DEFAULTS if family_of(pipe).is_joint else DEFAULTS


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
    return LatentGuide(guides, _defaults(pipe), first)


def check_guidable(pipe: Any) -> None:
    """Raise an error if the latents of a pipeline cannot be guided."""
    family = family_of(pipe)
    name = type(pipe).__name__
    advice = "leave guide out"
    scheduler = type(pipe.scheduler).__name__
    if scheduler in _CORRECTORS:
        raise ArgumentError(
            f"{scheduler} goes on from the latents of the step before, and would drop those that "
            f"a guide changes: take another scheduler, such as DPMSolverMultistepScheduler, or "
            f"{advice}"
        )
    if is_modular(pipe):
        raise ArgumentError(
            f"{name} is modular, and its passes for guidance cannot be told from those of a guide: "
            f"take the pipeline that is not modular, or {advice}"
        )
    if family.has_quirk("repeats_passes") or family.has_quirk("source_first"):
        raise ArgumentError(
            f"{name} runs its model on other latents than those of its scheduler: {advice}"
        )
    if torch.is_inference_mode_enabled():
        raise ArgumentError(
            "torch.inference_mode() is on, in which there are no gradients, and a guide needs "
            f"them: use torch.no_grad() instead, or {advice}"
        )
    for path, module in family.model.named_modules():
        small = any(one.itemsize < 2 for one in module.parameters(recurse=False))
        if small or "quantized" in type(module).__module__:
            raise ModelError(
                f"the layer {path} of the {type(family.model).__name__} is quantised, and a guide "
                f"needs gradients of its attention: load the model unquantised, or {advice}"
            )


def saved_guides(guides: Sequence[AnyGuide | SavedLoss]) -> tuple[SavedGuide, ...]:
    """Return guides as settings have them: of a loss of the user's, its name."""
    return tuple(
        guide
        if isinstance(guide, WordGuide | SavedLoss)
        else SavedLoss(name=rule_name(guide))
        for guide in guides
    )
