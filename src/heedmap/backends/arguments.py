"""With what a pipeline is called: its own names of what heedmap takes from a user."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

import torch
from PIL import Image

from heedmap.backends.family import parameters
from heedmap.backends.registry import family_of
from heedmap.errors import ArgumentError, ModelError, quoted
from heedmap.options import OWN_NAMES, GenerateOptions

THEIR_NAMES = {ours: theirs for theirs, ours in OWN_NAMES.items()}
"""What pipelines call "steps", "guidance", "negative", and of "size" the height."""
STEP_LISTS = ("timesteps", "sigmas")
"""Arguments that list the steps one by one, in the place of their number."""
ROWS = ("image", "mask_image", "latents")
"""Arguments of which each picture of a batch has its own row."""
CALLBACKS = ("callback", "callback_on_step_end")
_UNTOLD = ("callback", "callback_steps")
"""Arguments of older versions that a pipeline still takes, without saying so."""


def check_names(pipe: Any, given: Iterable[str], ours: Iterable[str]) -> None:
    """Raise an ArgumentError if a keyword is neither ours nor the pipeline's, with the nearest."""
    theirs = [*parameters(pipe)][1:]  # many take any name, and do nothing with it
    for name in {*given} - {*ours, *theirs, *_UNTOLD}:
        if name == "image":
            raise ArgumentError(
                f"{type(pipe).__name__} takes no argument image: it draws from a text alone; "
                "hm.edit edits a picture of your own, hm.locate looks at one"
            )
        begun = [one for one in ours if one.startswith(name)]
        near = begun or get_close_matches(name, [*ours, *theirs], n=1)
        hint = f"did you mean {near[0]}?" if near else "leave it out"
        raise ArgumentError(f"{type(pipe).__name__} takes no argument {name}: {hint}")


def for_batch(
    pipe: Any, prompts: Sequence[str], seeds: Sequence[int], options: GenerateOptions
) -> dict[str, Any]:
    """All arguments of a call that draws a picture for each prompt, from noise of its seed.

    Raises:
        ArgumentError: if an argument has neither one row nor one for each picture.
    """
    count, own = len(prompts), options.arguments

    def texts(text: str) -> str | list[str]:
        return text if count == 1 else [text] * count  # some pipelines take one text alone

    width, height = options.size or (None, None)
    said = {
        THEIR_NAMES["steps"]: options.steps,
        THEIR_NAMES["guidance"]: options.guidance,
        "width": width,
        "height": height,
        THEIR_NAMES["negative"]: None if options.negative is None else texts(options.negative),
    }
    second = own.get("prompt_2")  # which diffusers takes for one prompt
    return {
        "prompt": prompts[0] if count == 1 else list(prompts),
        "generator": list(map(noise, seeds)),
        **family_of(pipe).defaults,
        **{name: value for name, value in said.items() if value is not None},
        **own,
        **_rows(pipe, own, count),
        **({"prompt_2": texts(second)} if isinstance(second, str) else {}),
    }


def _rows(pipe: Any, own: Mapping[str, Any], count: int) -> dict[str, Any]:
    """The arguments that have rows, one for each picture of a batch.

    Pipelines differ in what they make of a single one: inpainting encodes it with the first
    picture's generator alone, so that the others start from other noise; upscalers, adapters and
    given latents fail.
    """
    if own.get("padding_mask_crop") is not None:
        return {}  # which is of one picture, and refused where it is cropped
    given = {name: own[name] for name in ROWS if own.get(name) is not None}
    made: dict[str, Any] = {}
    if "control_image" not in parameters(pipe) and isinstance(given.get("image"), list):
        # Of several nets each has a picture, for all rows; adapters do not repeat theirs.
        if hasattr(getattr(pipe, "controlnet", None), "nets"):
            made["image"] = given.pop("image")
        elif hasattr(getattr(pipe, "adapter", None), "adapters"):
            theirs = given.pop("image")
            made["image"] = [[one] * count for one in theirs] if count > 1 else theirs
    return made | {name: _repeated(name, value, count) for name, value in given.items()}


def _repeated(name: str, value: Any, count: int) -> Any:
    """One row for each of so many pictures; what has them, and what has none, as it is."""
    axes = getattr(value, "ndim", 0)
    if axes == 3 and name == "mask_image":  # (B, H, W), but for an array (H, W, 1)
        axes += value.shape[-1] != 1
    several = isinstance(value, list | tuple) or axes > 3
    rows = len(value) if several else 1
    if rows not in (1, count):
        one = "one, which holds for all" + (", or one for each" if count > 1 else "")
        raise ArgumentError(
            f"{name} has {rows} rows, and pictures drawn at once: {count}; expected {one}"
        )
    if rows == count:
        return value
    if isinstance(value, torch.Tensor) and several:
        return value.repeat(count, *[1] * (value.ndim - 1))
    return [*value] * count if several else [value] * count


def for_one_step(pipe: Any, prompt: str, size: tuple[int, int]) -> dict[str, Any]:
    """The arguments for one step of a pipeline, whatever it starts from: pictures are grey.

    Args:
        pipe: a pipeline.
        prompt: what the model reads.
        size: (width, height) in pixels.

    Raises:
        ModelError: if it takes no prompt.
    """
    takes, family = parameters(pipe), family_of(pipe)
    if "prompt" not in takes:
        raise ModelError(
            f"{type(pipe).__name__} takes no prompt: expected a pipeline that is told what to draw"
        )
    call: dict[str, Any] = {
        "prompt": prompt,
        THEIR_NAMES["steps"]: family.least_steps,
        "output_type": "latent",
        "generator": noise(0),  # torch's own stays as it is
        **family.defaults,
    }
    if "height" in takes:
        call["width"], call["height"] = size
    start = family.start_size(pipe, size)
    for name in ("image", "control_image"):
        if name in takes:
            call[name] = Image.new("RGB", start, "grey")
    if "mask_image" in takes:
        call["mask_image"] = Image.new("L", start, "white")
    if "strength" in takes:  # of a single step, a part would be none at all
        call["strength"] = 1.0
    return call


def noise(seed: int) -> torch.Generator:
    """What noise is drawn with: on the CPU, so that a seed means the same on every device."""
    return torch.Generator("cpu").manual_seed(seed)


def seed_of(generator: Any) -> Any:
    """Return the seed whose `noise` a generator draws, or of a list each; else ArgumentError."""
    if isinstance(generator, list | tuple):
        return [seed_of(one) for one in generator]
    if not isinstance(generator, torch.Generator) or generator.device.type != "cpu":
        raise ArgumentError(
            f"the generator is {quoted(getattr(generator, 'device', generator))}: expected a "
            "torch.Generator on the CPU, where heedmap draws its noise, or seed"
        )
    if not torch.equal(generator.get_state(), noise(generator.initial_seed()).get_state()):
        raise ArgumentError(
            "numbers were drawn from the generator, so no seed repeats its noise: pass a newly "
            "seeded generator, or seed"
        )
    return generator.initial_seed()


def size_of_latents(pipe: Any, arguments: Mapping[str, Any]) -> tuple[int, int] | None:
    """The (width, height) in pixels of the noise that is among arguments; None if there is none."""
    latents = arguments.get("latents")
    if not isinstance(latents, torch.Tensor) or latents.ndim < 2:
        return None
    side = family_of(pipe).cell_side(pipe)
    return latents.shape[-1] * side, latents.shape[-2] * side


@contextmanager
def without_bar(pipe: Any) -> Iterator[None]:
    """A pipeline shows no progress bar of its own while this is open."""
    before = getattr(pipe, "_progress_bar_config", None)
    pipe.set_progress_bar_config(**{**(before or {}), "disable": True})
    try:
        yield
    finally:
        if before is None:
            del pipe._progress_bar_config
        else:
            pipe._progress_bar_config = before
