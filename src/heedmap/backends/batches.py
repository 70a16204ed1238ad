"""How many pictures fit into one batch, and drawing more than do in several.

What a batch takes is estimated beforehand, from the model and the size of the pictures; where the
estimate was too bold and memory runs out all the same, the batch is cut in half and drawn again.
"""

import math
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, TypeVar

import psutil
import torch

from heedmap.backends.decoding import channels_at_once
from heedmap.backends.family import device_of
from heedmap.backends.registry import family_of, usual_size
from heedmap.errors import ArgumentError, quoted

T = TypeVar("T")
R = TypeVar("R")

# How many tensors of the denoiser at its widest, and of the decoder's widest stage at the picture's
# size, are alive at once. Measured on the embedded model: 5.2 of the latter, at 256 and 512 px.
_STAGE, _PICTURE = 40, 6
_SHARE = 0.8  # of the free memory: the rest is for whatever else the machine does


def image_bytes(pipe: Any, size: tuple[int, int]) -> int:
    """About how much memory one more picture in a batch takes while it is drawn.

    The larger of two: the denoiser at its widest (a UNet's first stage), for both branches of
    guidance, and the widest stage of the decoder at the picture's size, which as a rule decides.
    Where the decoder takes pictures one by one (`enable_vae_slicing`), it does not.

    Args:
        pipe: a pipeline.
        size: (width, height) in pixels.
    """
    width, height = size
    family = family_of(pipe)
    model, decoder, side = family.denoiser(pipe), family.decoder(pipe), family.cell_side(pipe)
    cells = math.ceil(width / side) * math.ceil(height / side)
    stage = _STAGE * 2 * cells * family.width(model) * _item(model)
    if decoder is None:
        return stage
    picture = _PICTURE * width * height * channels_at_once(decoder) * _item(decoder)
    return max(stage, picture)


def free_bytes(device: torch.device) -> int:
    """The memory that is free on a device, including what torch holds there without using it."""
    if device.type == "cuda":
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + held
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return psutil.virtual_memory().available


def fitting(pipe: Any, size: tuple[int, int] | None, batch: int | None = None) -> int:
    """How many pictures are drawn at once, at least 2.

    Args:
        pipe: a pipeline.
        size: (width, height) in pixels; the model's own if None.
        batch: the user's own choice; else four fifths of the free memory are filled.

    Raises:
        ArgumentError: if `batch` is not a whole number of at least 2.
    """
    if batch is not None:
        if isinstance(batch, bool) or not isinstance(batch, Integral) or not 2 <= batch < 2**31:
            raise ArgumentError(
                f"batch is {quoted(batch)}: expected how many pictures are drawn at once, at least "
                "2 (the source and an edit)"
            )
        return int(batch)
    device = device_of(pipe)
    each = image_bytes(pipe, size or usual_size(pipe))
    return max(2, int(_SHARE * free_bytes(device) / each))


def in_batches(
    things: Sequence[T], most: int, draw: Callable[[Sequence[T], int, int], R]
) -> list[R]:
    """Draw things in as few batches as hold them, about equally full.

    Where memory runs out a batch is halved, and those after it are no larger; a thing for which
    there is no memory even alone ends in the error itself.

    Args:
        things: what is to be drawn.
        most: how many of them at once.
        draw: draws some of them; called with these, the number of batches done, and the number of
            batches in all, as far as is known then.

    Returns:
        What `draw` gave for each batch, in order.
    """
    done: list[R] = []
    at = 0
    while at < len(things):
        left = math.ceil((len(things) - at) / most)
        some = things[at : at + math.ceil((len(things) - at) / left)]
        found = _tried(lambda some=some, left=left: draw(some, len(done), left), len(some) > 1)
        if found is None:
            most = math.ceil(len(some) / 2)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            continue
        done.append(found[0])
        at += len(some)
    return done


def _tried(draw: Callable[[], R], again: bool) -> tuple[R] | None:
    """What was drawn, or None where memory ran out and there is another try.

    A function of its own: when it returns, nothing holds the failed batch's tensors any more.
    """
    try:
        return (draw(),)
    except (MemoryError, RuntimeError) as error:
        if not (again and _is_memory(error)):
            raise
        return None


def _is_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    said = str(error).lower()
    return any(s in said for s in ("out of memory", "not enough memory", "can't allocate memory"))


def _item(module: torch.nn.Module) -> int:
    """Bytes that one number of a model takes."""
    return next(module.parameters()).element_size()
