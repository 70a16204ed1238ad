"""Arrays of numbers in a file that came from anywhere: read one by one, and never trusted."""

import math
import os
from typing import BinaryIO

import msgspec
import numpy as np
from msgspec import Struct

_HEADER = 2**24  # bytes in which it says what it holds
_SPARSE = 2**26  # bytes from which on a file that holds next to nothing is not read
LARGEST = 1e20
"""The largest number in a file: probabilities, or what weights and rules made of them."""


class _Entry(Struct, frozen=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class Arrays:
    """The arrays of a file of safetensors (huggingface.co/docs/safetensors), read one by one.

    The library's own reader maps the file: where somebody shortens it meanwhile, the process dies.

    Attributes:
        about: what heedmap says of them, JSON.
        names: of the arrays.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        size = int.from_bytes(file.read(8), "little")
        if size > _HEADER:
            raise ValueError("it says too much of itself")
        header = msgspec.json.decode(file.read(size), type=dict[str, msgspec.Raw])
        told = msgspec.json.decode(header.pop("__metadata__", b"{}"), type=dict[str, str])
        self.about = told.get("heedmap", "").encode()
        self._entries = {n: msgspec.json.decode(raw, type=_Entry) for n, raw in header.items()}
        self.names = self._entries.keys()
        self._begin, at = 8 + size, 0
        for begin, end in sorted(entry.data_offsets for entry in self._entries.values()):
            if begin != at or end < begin:
                raise ValueError("its arrays do not lie side by side")
            at = end
        status = os.fstat(file.fileno())
        if status.st_size != self._begin + at:
            raise ValueError("it is longer or shorter than it says")
        held = 512 * getattr(status, "st_blocks", status.st_size)
        if status.st_size > _SPARSE and held < status.st_size // 64:
            raise ValueError("most of it is a hole")

    def sound(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """An array that has this shape, of float32, and numbers that can be added up.

        Raises:
            ValueError: if it is another.
        """
        # The shape is compared before the array is read, so nothing unexpected is allocated.
        if not self._fits(name, shape):
            raise ValueError(f"{name} is of another shape or type than it says")
        array = self._read(name, shape)
        if not (array.min() >= -LARGEST and array.max() <= LARGEST):  # NaN is refused by both
            raise ValueError(f"{name} holds NaN, infinite or far too large numbers")
        return array

    def _fits(self, name: str, shape: tuple[int, ...]) -> bool:
        """Whether an array is float32 of this shape."""
        entry = self._entries[name]
        begin, end = entry.data_offsets
        whole = (*entry.shape,) == shape and end - begin == 4 * math.prod(shape)
        return whole and entry.dtype == "F32"

    def _read(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """An array that fits."""
        array = np.empty(shape, dtype="<f4")
        self._file.seek(self._begin + self._entries[name].data_offsets[0])
        if self._file.readinto(memoryview(array).cast("B")) != array.nbytes:  # pyright: ignore
            raise ValueError("it ends too early")
        return array
