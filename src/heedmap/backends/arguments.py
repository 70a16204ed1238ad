"""The arguments of a pipeline's call: their names, their rows in a batch, and their noise."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

import torch

from heedmap.backends.base import parameters
from heedmap.backends.registry import family_of
from heedmap.errors import ArgumentError, quoted
from heedmap.options import OWN_NAMES, GenerateOptions

THEIR_NAMES = {ours: theirs for theirs, ours in OWN_NAMES.items()}
"""The names that pipelines have for "steps", "guidance", "negative", and for "size" the height."""
STEP_LISTS = ("timesteps", "sigmas")
"""Arguments that list the steps one by one, in place of their number."""
_DEPRECATED = ("callback", "callback_steps")  # still taken, but not in the signature


def check_names(pipe: Any, given: Iterable[str], ours: Iterable[str]) -> None:
    """Raise an ArgumentError if a keyword is neither ours nor the pipeline's, with the nearest."""
    theirs = [*parameters(pipe)][1:]  # many take any name, and ignore it
    for name in {*given} - {*ours, *theirs, *_DEPRECATED}:
        near = [one for one in ours if one.startswith(name)]
        near = near or get_close_matches(name, [*ours, *theirs], n=1)
        hint = f"did you mean {near[0]}?" if near else "leave it out"
        if name == "image":
            hint = "it draws from a text alone; use hm.edit or hm.locate for an image of your own"
        raise ArgumentError(f"{type(pipe).__name__} takes no argument {name}: {hint}")


def for_batch(
    pipe: Any, prompts: Sequence[str], seeds: Sequence[int], options: GenerateOptions
) -> dict[str, Any]:
    """Return the arguments of a call that draws one image for each prompt and seed."""
    count, own = len(prompts), options.arguments
    width, height = options.size or (None, None)
    ours = {
        THEIR_NAMES["steps"]: options.steps,
        THEIR_NAMES["guidance"]: options.guidance,
        "width": width,
        "height": height,
        THEIR_NAMES["negative"]: options.negative,
    }
    call = {
        "prompt": prompts[0] if count == 1 else list(prompts),
        "generator": list(map(noise, seeds)),
        **family_of(pipe).defaults,
        **{name: value for name, value in ours.items() if value is not None},
        **own,
        **_rows(pipe, own, count),
    }
    for name in (THEIR_NAMES["negative"], "prompt_2"):  # which diffusers takes for one prompt
        if count > 1 and isinstance(call.get(name), str):
            call[name] = [call[name]] * count
    return call


def _rows(pipe: Any, own: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return the arguments that need one row for each image of a batch.

    Inpainting would encode a single row with the first image's generator alone, and others fail.
    """
    if own.get("padding_mask_crop") is not None:
        return {}  # such a call is refused later
    names = ("image", "mask_image", "latents")
    rows = {name: own[name] for name in names if own.get(name) is not None}
    nets = hasattr(getattr(pipe, "controlnet", None), "nets")
    adapters = hasattr(getattr(pipe, "adapter", None), "adapters")
    images = rows.get("image")
    if (nets or adapters) and isinstance(images, list) and "control_image" not in parameters(pipe):
        # The list has an image for each net, which holds for all rows; adapters need it repeated.
        del rows["image"]
        repeated = [[one] * count for one in images] if adapters and count > 1 else images
        return {"image": repeated, **_rows(pipe, rows, count)}
    return {name: _repeated(name, value, count) for name, value in rows.items()}


def _repeated(name: str, value: Any, count: int) -> Any:
    """Return an argument with one row for each image."""
    axes = getattr(value, "ndim", 0)
    if axes == 3 and name == "mask_image":  # (B, H, W), or an array (H, W, 1)
        axes += value.shape[-1] != 1
    several = isinstance(value, list | tuple) or axes > 3
    rows = len(value) if several else 1
    if rows not in (1, count):
        raise ArgumentError(
            f"{name} has {rows} rows for {count} images: expected one, or one for each"
        )
    if rows == count:
        return value
    if isinstance(value, torch.Tensor) and several:
        return value.repeat(count, *[1] * (value.ndim - 1))
    return [*value] * count if several else [value] * count


def noise(seed: int) -> torch.Generator:
    """Return a generator on the CPU, so that a seed gives the same noise on every device."""
    return torch.Generator("cpu").manual_seed(seed)


def seed_of(generator: Any) -> Any:
    """Return the seed of a new generator, or the seeds of a list; else raise an ArgumentError."""
    if isinstance(generator, list | tuple):
        return [seed_of(one) for one in generator]
    if not isinstance(generator, torch.Generator) or generator.device.type != "cpu":
        raise ArgumentError(
            f"the generator is {quoted(generator)}: expected a torch.Generator on the CPU, or seed"
        )
    if not torch.equal(generator.get_state(), noise(generator.initial_seed()).get_state()):
        raise ArgumentError("the generator was used before: pass a newly seeded one, or seed")
    return generator.initial_seed()


def size_of_latents(pipe: Any, arguments: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the (width, height) in pixels of the latents among arguments; None without."""
    latents = arguments.get("latents")
    if not isinstance(latents, torch.Tensor) or latents.ndim < 2:
        return None
    side = family_of(pipe).cell_side(pipe)
    return latents.shape[-1] * side, latents.shape[-2] * side


@contextmanager
def without_bar(pipe: Any) -> Iterator[None]:
    """Hide the progress bar of a pipeline within the block."""
    before = getattr(pipe, "_progress_bar_config", None)
    pipe.set_progress_bar_config(**{**(before or {}), "disable": True})
    try:
        yield
    finally:
        if before is None:
            del pipe._progress_bar_config
        else:
            pipe._progress_bar_config = before
