"""Masks: boxes and masks that a user gives, and soft masks made of heat maps.

Axes: h, w rows and columns of a grid · H, W rows and columns of the image.
"""

import base64
import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, cast

import numpy as np
from PIL import Image

from heedmap.errors import ArgumentError, quoted
from heedmap.figures.overlays import resize_map, to_rgb
from heedmap.io.settings import Mask
from heedmap.maps.recordings import Recording
from heedmap.maps.selections import Averages, Selection
from heedmap.mathematics.agreement import is_even
from heedmap.text.words import TokenTable

_MOST_PACKED = 512 * 1024  # characters of a mask in a file of settings


def packed(mask: np.ndarray) -> Mask:
    """Return a mask, bool (H, W), as a file stores it: size, SHA-256 and compressed bits."""
    height, width = mask.shape
    bits = np.packbits(mask).tobytes()
    held = base64.b64encode(zlib.compress(bits, 9)).decode("ascii")
    return Mask(
        mask=(width, height),
        share=float(mask.mean()),
        sha256=hashlib.sha256(bits).hexdigest(),
        packed=held if len(held) <= _MOST_PACKED else None,
    )


def unpacked(saved: Mask, name: str) -> np.ndarray | None:
    """Return the mask, bool (H, W), that `packed` packed; None if its bits were too many to store.

    Args:
        saved: a mask of a file.
        name: the word that the mask confines, for the error.

    Raises:
        ArgumentError: if the bits are broken.
    """
    if saved.packed is None:
        return None
    width, height = saved.mask
    try:
        bits = np.frombuffer(zlib.decompress(base64.b64decode(saved.packed)), dtype=np.uint8)
        return np.unpackbits(bits)[: width * height].reshape(height, width).astype(bool)
    except (ValueError, zlib.error) as error:
        raise ArgumentError(f"the saved mask of {name} is broken: make the run again") from error


def place(where: object, name: str) -> tuple[float, ...] | np.ndarray:
    """A box as four numbers, or a mask as bool (H, W).

    Args:
        where: a box or a mask of Python, numpy, torch or Pillow, as `Confine` takes it.
        name: of what is placed, for the error.

    Raises:
        ArgumentError: if it is neither.
    """
    if isinstance(where, Image.Image):
        if where.mode not in ("1", "L"):
            raise ArgumentError(
                f"the mask of {name} is a picture of mode {where.mode}: expected '1' or 'L', as "
                "convert('L') gives it"
            )
        found = np.asarray(where)
        found = found if found.dtype == bool else found >= 128
    else:
        if hasattr(where, "detach"):  # a tensor, of torch, which is not imported here
            where = cast(Any, where).detach().cpu()
        try:
            found = np.asarray(where)
        except (TypeError, ValueError):  # rows of different length
            found = np.empty(0, object)
    if found.ndim == 2 and found.dtype == bool:
        if not found.any():
            raise ArgumentError(
                f"the mask of {name} has nothing inside: expected True, or white, where the word "
                "shall act"
            )
        return found.copy()
    if found.shape == (4,) and found.dtype.kind in "iuf" and np.isfinite(found).all():
        return tuple(found.tolist())
    array = hasattr(where, "dtype")
    given = f"an array of {found.dtype} with shape {found.shape}" if array else quoted(where)
    raise ArgumentError(
        f"the region of {name} is {given}: expected a box (left, top, right, bottom) of four "
        "numbers, or a mask of bool (H, W); numbers become one by a threshold, as in mask > 0.5"
    )


def region(place: tuple[float, ...] | np.ndarray, width: int, height: int, name: str) -> np.ndarray:
    """How much of each pixel of a picture is inside: float32 (H, W), 0 to 1.

    Raises:
        ArgumentError: if the box does not lie in the picture, or the mask is not of its size.
    """
    if isinstance(place, tuple):
        left, top, right, bottom = place
        if not (0 <= left < right <= width and 0 <= top < bottom <= height):
            sides = [f"{side:g}" for side in place]
            raise ArgumentError(
                f"the box ({', '.join(sides)}) of {name} does not lie in the picture of {width}×"
                f"{height} pixels, or is empty: expected (left, top, right, bottom) with 0 ≤ "
                f"left < right ≤ {width} and 0 ≤ top < bottom ≤ {height}"
            )
        return np.outer(_covered(top, bottom, height), _covered(left, right, width))
    if place.shape != (height, width):
        raise ArgumentError(
            f"the mask of {name} is {place.shape[1]}×{place.shape[0]} pixels, the picture "
            f"{width}×{height}: expected a mask of the picture's size; resize it"
        )
    return place.astype(np.float32)


def _covered(start: float, end: float, pixels: int) -> np.ndarray:
    """float32 (pixels,): which share of each pixel of a side lies between two places on it."""
    edges = np.clip(np.arange(pixels + 1), start, end)
    return np.diff(edges).astype(np.float32)


SHARPNESS = 4
"""The power by which the phrase that stands out more at a place takes it. On the drawn world 2 to 8
are within a point of each other."""
REACH = 1.5
"""How far the picture's edges are looked for: cells of the refined maps, by which these are
blurred."""


@dataclass(frozen=True, eq=False)
class Mentioned:
    """Words of a run, as their tokens' positions on the K axis, which may be seen in its picture.

    Meant are the phrases that they stand in (`TokenTable.phrase`): of "red" in "a red house" that
    is "red house".
    """

    recording: Recording
    positions: tuple[int, ...]

    def seen(self, picture: Image.Image | None) -> np.ndarray:
        """Where, as float32 (H, W), 0 to 1; with edges where the picture is given."""
        return next(soft_masks(self.recording, [self.positions], picture))


def soft_masks(
    recording: Recording, mentioned: Sequence[Sequence[int]], picture: Image.Image | None
) -> Iterator[np.ndarray]:
    """How surely each pixel shows what the words at these positions say, one after the other.

    Only one is held at a time: of a large picture and a long prompt all would fill the memory. Each
    goes from 0, where it does least, to 1, where it does most. Of several phrases it is the
    greatest of theirs, so that the mask of all is what any of them has.

    Args:
        recording: which has refined maps.
        mentioned: N lists of positions of tokens on the K axis.
        picture: of the recording's size; without one there are no edges but the maps' own.

    Yields:
        float32 (H, W), 0 to 1, N times; one that is the same everywhere is 0.

    Raises:
        SelectionError: if there are no refined maps.
    """
    refined = Averages(recording.refined_alone(), Selection())
    plain = Averages(recording, Selection())
    phrases = phrase_tokens(recording.table)
    drawn = [[of.magnitude(p) for p in recording.table.phrases] for of in (refined, plain)]
    shown = contested(*map(np.array, drawn))

    def made(part: tuple[int, ...]) -> np.ndarray:
        # What names neither a thing nor a property is nobody's rival.
        own = phrases.index(part) if part in phrases else None
        small = scaled(np.abs(refined.of(part))) if own is None else shown[own]
        large = resize_map(small, recording.size)
        return scaled(large if picture is None else _edged(recording, picture, large))

    for positions in mentioned:
        yield reduce(np.maximum, map(made, meant(recording.table, positions)))


def _edged(recording: Recording, picture: Image.Image, large: np.ndarray) -> np.ndarray:
    """A map of the picture's size, brought to its edges."""
    from heedmap.mathematics.refining import guided  # it takes torch, which the maps do without

    assert recording.refined is not None
    cell = min(recording.size) / min(recording.refined.shape[:2])
    return guided(np.asarray(to_rgb(picture)), large[None], round(REACH * cell))[0]


def meant(table: TokenTable, positions: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The parts of a prompt whose masks these words have, each as its tokens' positions.

    The phrases that they stand in; where they stand in none, they themselves.
    """
    asked = set(positions)
    found = [one for one in phrase_tokens(table) if not asked.isdisjoint(one)]
    words = [w.tokens for w in table.read_words if not asked.isdisjoint(w.tokens)]
    return tuple(found or words or [tuple(positions)])


def phrase_tokens(table: TokenTable) -> list[tuple[int, ...]]:
    """The positions of each phrase's tokens, phrase by phrase."""
    return [tuple(t for word in words for t in word.tokens) for words in table.phrases]


def all_parts(table: TokenTable) -> list[tuple[int, ...]]:
    """What is masked where nothing is named: every phrase, and of concepts every one.

    Each of these was asked for, also what names neither a thing nor a property.
    """
    if table.of_concepts:
        return [word.tokens for word in table.read_words]
    return phrase_tokens(table)


def check_picture(picture: object, size: tuple[int, int]) -> None:
    """Raise an ArgumentError if a picture is given whose size is not that of the maps (W, H)."""
    if picture is None:
        return
    if not isinstance(picture, Image.Image):
        raise ArgumentError(f"the picture is {quoted(picture)}: expected a Pillow image")
    if picture.size != size:
        (width, height), (w, h) = picture.size, size
        raise ArgumentError(
            f"the picture is {width}×{height} pixels, and its maps are of {w}×{h}: expected the "
            "picture that they were recorded with"
        )


def contested(refined: np.ndarray, plain: np.ndarray) -> np.ndarray:
    """What is left of each phrase's map where another phrase stands out more.

    A map says where its own phrase acts, and is rarely 0 where another's thing is, above all where
    both are of a kind. How far a place stands above a phrase's mean, by its greatest height above
    it, tells whose the place is: what is spread out evenly, as a style is, takes nothing.

    Args:
        refined: float (N, h, w), not below 0: how much each draws, whatever its sign.
        plain: the same without being carried along self-attention, which mixes what is alike.

    Returns:
        float32 (N, h, w): the refined maps from 0 to 1, lessened.
    """
    own = np.array([scaled(one) for one in refined], np.float32)
    if len(own) < 2:
        return own
    strength = np.array([_excess(one) for one in plain]) ** SHARPNESS
    highest = np.sort(strength, axis=0)
    second, first = highest[-2], highest[-1]
    left: list[np.ndarray] = []
    for mine, values in zip(strength, own, strict=True):
        rival = np.array(np.where(mine < first, first, second), np.float64)
        taken = np.divide(rival, mine + rival, out=np.zeros_like(rival), where=rival > 0)
        left.append(values * (1 - taken))
    return np.array(left, np.float32)


def scaled(values: np.ndarray) -> np.ndarray:
    """A map from 0 at the least to 1 at the greatest value; a constant map is 0."""
    low, high = float(values.min()), float(values.max())
    return np.zeros_like(values) if is_even(values) else (values - low) / (high - low)


def _excess(values: np.ndarray) -> np.ndarray:
    """How far each place stands above the mean, by how far the highest does: 0 to 1."""
    above = np.maximum(values.astype(np.float64) - values.mean(dtype=np.float64), 0)
    return np.zeros_like(above) if is_even(values) else above / above.max()
