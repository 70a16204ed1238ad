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
from heedmap.io.schemas import Mask
from heedmap.maps.recordings import Recording
from heedmap.maps.selections import Averages, Selection
from heedmap.mathematics.maps import is_even
from heedmap.text.words import TokenTable

SHARPNESS = 4
"""The power by which the phrase that stands out more at a place takes it. On the drawn world 2 to 8
are within a point of each other."""
REACH = 1.5
"""The radius within which masks are fitted to the image's edges: cells of the refined maps, by
which these are blurred."""
_MOST_PACKED = 512 * 1024  # characters of a mask in a file of settings


# --- boxes and masks of a user ------------------------------------------------------------------


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

    Raises:
        ArgumentError: if the bits are broken; it names the word that the mask confines.
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
    """Return a box as four numbers, or a mask as bool (H, W), of numpy, torch or Pillow.

    Raises:
        ArgumentError: if it is neither, or empty; it names the word that is confined.
    """
    if isinstance(where, Image.Image) and where.mode in ("1", "L"):
        where = np.asarray(where) >= (128 if where.mode == "L" else 1)
    try:
        if hasattr(where, "detach"):  # a tensor of torch, which is not imported here
            where = cast(Any, where).detach().cpu().numpy()
        found = np.asarray(where)
    except (TypeError, ValueError):  # rows of different length
        found = np.empty(0, object)
    if found.ndim == 2 and found.dtype == bool:
        if not found.any():
            raise ArgumentError(f"the mask of {name} has nothing inside")
        return found.copy()
    if found.shape == (4,) and found.dtype.kind in "iuf" and np.isfinite(found).all():
        return tuple(found.tolist())
    given = quoted(where)
    if isinstance(where, Image.Image):
        given = f"a picture of mode {where.mode}"
    elif hasattr(where, "dtype"):
        given = f"an array of {found.dtype} with shape {found.shape}"
    raise ArgumentError(
        f"the region of {name} is {given}: expected a box (left, top, right, bottom) of four "
        "numbers, or a mask of bool (H, W), as in mask > 0.5 or picture.convert('L')"
    )


def region(place: tuple[float, ...] | np.ndarray, width: int, height: int, name: str) -> np.ndarray:
    """Return the part of each pixel of an image that is inside: float32 (H, W), 0 to 1.

    Raises:
        ArgumentError: if the box does not lie in the image, or the mask is not of its size.
    """
    if isinstance(place, tuple):
        left, top, right, bottom = place
        if not (0 <= left < right <= width and 0 <= top < bottom <= height):
            sides = ", ".join(f"{side:g}" for side in place)
            raise ArgumentError(
                f"the box ({sides}) of {name} does not lie in the picture of {width}×{height} "
                f"pixels, or is empty: expected 0 ≤ left < right ≤ {width} and 0 ≤ top < bottom ≤ "
                f"{height}"
            )
        rows, columns = np.arange(height + 1), np.arange(width + 1)
        inside = np.diff(np.clip(rows, top, bottom)), np.diff(np.clip(columns, left, right))
        return np.outer(*(one.astype(np.float32) for one in inside))
    if place.shape != (height, width):
        raise ArgumentError(
            f"the mask of {name} is {place.shape[1]}×{place.shape[0]} pixels, the picture "
            f"{width}×{height}: expected a mask of the picture's size; resize it"
        )
    return place.astype(np.float32)


# --- soft masks of words ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PhraseTokens:
    """Words of a run, as their tokens' positions; their masks are those of their phrases."""

    recording: Recording
    positions: tuple[int, ...]

    def soft_mask(self, picture: Image.Image | None) -> np.ndarray:
        """Return the soft mask, float32 (H, W), 0 to 1; with edges if the image is given."""
        return next(soft_masks(self.recording, [self.positions], picture))


def soft_masks(
    recording: Recording, words: Sequence[Sequence[int]], picture: Image.Image | None
) -> Iterator[np.ndarray]:
    """Yield for each of some words where the image shows them, one mask at a time.

    Of a large image and a long prompt all masks together would fill the memory. Each goes from 0,
    where its phrase does least, to 1, where it does most. Of several phrases it is the greatest of
    theirs, so that the mask of all is the union.

    Args:
        recording: one with refined maps.
        words: N lists of positions of tokens on the K axis.
        picture: the image, of the recording's size; without one there are no edges but the maps'.

    Yields:
        float32 (H, W), 0 to 1, N times; a constant one is 0.

    Raises:
        SelectionError: if there are no refined maps.
    """
    refined = Averages(recording.refined_alone(), Selection())
    plain = Averages(recording, Selection())
    phrases = phrase_tokens(recording.table)
    drawn = [[of.magnitude(p) for p in recording.table.phrases] for of in (refined, plain)]
    own = dict(zip(phrases, suppress_rivals(*map(np.array, drawn)), strict=True))

    def made(part: tuple[int, ...]) -> np.ndarray:
        # A word that names neither a thing nor a property is nobody's rival.
        small = own[part] if part in own else scaled(np.abs(refined.of(part)))
        large = resize_map(small, recording.size)
        return scaled(large if picture is None else _with_edges(recording, picture, large))

    for positions in words:
        yield reduce(np.maximum, map(made, phrases_of(recording.table, positions)))


def _with_edges(recording: Recording, picture: Image.Image, large: np.ndarray) -> np.ndarray:
    """Fit a map of the image's size to the image's edges."""
    from heedmap.mathematics.maps import guided  # it takes torch

    assert recording.refined is not None
    cell = min(recording.size) / min(recording.refined.shape[:2])
    return guided(np.asarray(to_rgb(picture)), large[None], round(REACH * cell))[0]


def phrases_of(table: TokenTable, positions: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the phrases that some words stand in, each as its tokens' positions.

    Where they stand in none ("at" names no thing), return the words themselves.
    """
    asked = set(positions)
    found = [one for one in phrase_tokens(table) if not asked.isdisjoint(one)]
    words = [w.tokens for w in table.read_words if not asked.isdisjoint(w.tokens)]
    return tuple(found or words or [tuple(positions)])


def phrase_tokens(table: TokenTable) -> list[tuple[int, ...]]:
    """Return the positions of each phrase's tokens, phrase by phrase."""
    return [tuple(t for word in words for t in word.tokens) for words in table.phrases]


def check_picture(picture: object, size: tuple[int, int]) -> None:
    """Raise an ArgumentError if an image is given whose size is not that of the maps (W, H)."""
    if picture is not None and (not isinstance(picture, Image.Image) or picture.size != size):
        raise ArgumentError(
            f"the picture is {quoted(picture)}: expected the Pillow image of {size[0]}×{size[1]} "
            "pixels that the maps were recorded with"
        )


def suppress_rivals(refined: np.ndarray, plain: np.ndarray) -> np.ndarray:
    """Reduce each phrase's map where another phrase stands out more.

    A map shows where its own phrase acts, and is rarely 0 on another's thing, above all where both
    are of a kind. The height of a place above a phrase's mean, by its greatest height, decides
    whose the place is: a phrase that acts evenly, as a style does, takes nothing.

    Args:
        refined: float (N, h, w), not below 0: the magnitude of each phrase's attention.
        plain: the same before refinement by self-attention, which mixes things of a kind.

    Returns:
        float32 (N, h, w): the refined maps from 0 to 1, reduced.
    """
    own = np.array([scaled(one) for one in refined], np.float32)
    if len(own) < 2:
        return own
    strength = np.array([_height(one) for one in plain]) ** SHARPNESS
    *_, second, first = np.sort(strength, axis=0)
    left: list[np.ndarray] = []
    for mine, values in zip(strength, own, strict=True):
        rival = np.array(np.where(mine < first, first, second), np.float64)
        taken = np.divide(rival, mine + rival, out=np.zeros_like(rival), where=rival > 0)
        left.append(values * (1 - taken))
    return np.array(left, np.float32)


def scaled(values: np.ndarray) -> np.ndarray:
    """Scale a map from 0 at the least to 1 at the greatest value; a constant map is 0."""
    low, high = float(values.min()), float(values.max())
    return np.zeros_like(values) if is_even(values) else (values - low) / (high - low)


def _height(values: np.ndarray) -> np.ndarray:
    """Return the height of each place above the mean, by the greatest height: 0 to 1."""
    above = np.maximum(values.astype(np.float64) - values.mean(dtype=np.float64), 0)
    return np.zeros_like(above) if is_even(values) else above / above.max()
