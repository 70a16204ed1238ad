"""Batches of images that fit into the memory of a device."""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psutil
import torch

from heedmap.backends.base import device_of
from heedmap.backends.registry import default_size

T = TypeVar("T")
R = TypeVar("R")
_NO_MEMORY = re.compile("out of memory|not enough memory|can't allocate memory", re.I)
_PICTURE = 6  # tensors of the decoder's widest stage alive at once; measured: 5.2 (256, 512 px)

_SHARE = 0.8  # of the free memory, to leave some for other programs


def image_bytes(pipe: Any, size: tuple[int, int]) -> int:
    """Estimate the memory of an image of (width, height) pixels by the decoder's widest stage."""
    config = getattr(pipe.vae, "config", None)
    widths = getattr(config, "block_out_channels", None) or (128, 256)
    # The second stage is enlarged to the image's size before it is narrowed.
    return _PICTURE * math.prod(size) * max(widths[:2]) * pipe.dtype.itemsize


def free_bytes(device: torch.device) -> int:
    """Return the free memory of a device, including what torch has reserved and not used.

    Devices other than CUDA's share the memory of the CPU.
    """
    if device.type == "cuda":
        reserved = torch.cuda.memory_reserved(device)
        unused = reserved - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    return psutil.virtual_memory().available


def max_batch(pipe: Any, size: tuple[int, int] | None) -> int:
    """Return the number of images of a (width, height) that fit into memory, at least 2."""
    each = image_bytes(pipe, size or default_size(pipe))
    return max(2, int(_SHARE * free_bytes(device_of(pipe)) / each))


def in_batches(
    things: Sequence[T],
    most: int,
    draw: Callable[[Sequence[T], int, int], R],
) -> list[R]:
    """Draw things in batches of at most `most`, about equally full; return the results.

    A batch that runs out of memory is halved, and those after it are no larger. `draw` is given
    some things, the number of batches done, and the number of those to do.
    """
    done: list[R] = []
    while things:
        batches = math.ceil(len(things) / most)
        some = things[: math.ceil(len(things) / batches)]
        try:
            done.append(draw(some, len(done), batches))
            things = things[len(some) :]
            continue
        except (MemoryError, RuntimeError) as error:
            is_memory = isinstance(error, MemoryError) or _NO_MEMORY.search(str(error))
            if len(some) == 1 or not is_memory:
                raise
            most = math.ceil(len(some) / 2)
        # After the except block nothing refers to the tensors of the failed batch any more.
        torch.cuda.empty_cache()
    return done
