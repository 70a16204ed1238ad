"""Edits of the attention of words, as `generate` takes them and `run.json` has them."""

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct, field
from msgspec.structs import force_setattr

from heedmap.checks import as_list, check_bool, check_float, check_text
from heedmap.errors import ArgumentError, format_number, quoted
from heedmap.options import (
    MAX_WEIGHT,
    Part,
    check_part,
    check_window,
    format_part,
)

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

Box = tuple[int | float, int | float, int | float, int | float]
"""(left, top, right, bottom) in pixels of an image, right and bottom excluded."""


class Mask(Struct, frozen=True):
    """A mask of a region.

    Attributes:
        size: the (width, height) in pixels.
        packed: its compressed bits, row by row from the upper left.
    """

    size: tuple[int, int] = field(name="mask")
    packed: bytes

    @classmethod
    def of(cls, inside: "np.ndarray") -> Self:
        """Return the mask of an array, bool (H, W)."""
        import numpy as np

        height, width = inside.shape
        return cls((width, height), zlib.compress(np.packbits(inside).tobytes(), 9))

    def inside(self) -> "np.ndarray":
        """Return the mask as an array, bool (H, W)."""
        import numpy as np

        width, height = self.size
        bits = np.frombuffer(zlib.decompress(self.packed), dtype=np.uint8)
        return np.unpackbits(bits, count=width * height).reshape(height, width) > 0


if TYPE_CHECKING:
    Region = Sequence[float] | np.ndarray | Image.Image | Mask
else:
    Region = Box | Mask


def parse_region(where: object, name: str) -> Box | Mask:
    """Return a box as four numbers, or a mask of numpy or Pillow as a `Mask`.

    ArgumentError if it is neither, or empty; it names the word that is confined.
    """
    import numpy as np
    from PIL import Image

    if isinstance(where, Mask):
        return where
    if isinstance(where, Image.Image) and where.mode in ("1", "L"):
        where = np.asarray(where.convert("L")) >= 128
    try:
        array = np.asarray(where)
    except (TypeError, ValueError):  # rows of different length
        array = np.empty(0, object)
    if array.ndim == 2 and array.dtype == bool:
        if not array.any():
            raise ArgumentError(f"the mask of {name} has nothing inside")
        return Mask.of(array)
    if array.shape == (4,) and array.dtype.kind in "iuf" and np.isfinite(array).all():
        return tuple(array.tolist())
    raise ArgumentError(
        f"the region of {name} is {quoted(where)}: expected a box (left, top, right, bottom) of "
        "four numbers, or a mask of bool (H, W), as in mask > 0.5 or image.convert('L')"
    )


class SiteEdit(Struct, frozen=True, kw_only=True):
    """An edit of the attention at some layers, heads and steps, or at all (None)."""

    layers: Part | None = None
    heads: Part | None = None
    steps: Part | None = None

    @property
    def selection(self) -> tuple[Any, Any, Any]:
        """The layers, heads and steps."""
        return self.layers, self.heads, self.steps

    def __post_init__(self) -> None:
        for axis in SiteEdit.__struct_fields__:
            _set(self, **{axis: check_part(axis, getattr(self, axis))})

    def __str__(self) -> str:
        parts = zip(SiteEdit.__struct_fields__, self.selection, strict=True)
        return "".join(
            f", {axis} {format_part(part)}" for axis, part in parts if part is not None
        )


class Reweight(SiteEdit, frozen=True, tag_field="kind", tag="reweight"):
    """The attention of a word or phrase times a weight, as `(word:3)` in a prompt.

        heedmap.generate(pipe, "a red house", edits=[heedmap.Reweight("red", 3)])

    Attributes:
        word: a word or phrase of the prompt, at all its places; "cat#2" is the second "cat" alone.
        weight: 1 changes nothing, 0 removes the word's attention, negative weights work against it;
            −2 to 3 is useful. In a joint softmax (SD 3, Flux) the image's attention to itself
            stays as it is, so that the sum of a row changes.
        renormalize: if True, the probabilities are divided by the sum of their magnitudes, so that
            the other tokens lose as much as the word gains; without negative weights they sum to 1.
        layers: the layers of the edit, named as in `HeatMaps.select` (no function). Default: all.
        heads: its heads, a number or a list. Default: all.
        steps: its steps: a number, a slice (saved as "0:10") or a list. Default: all.

    Raises:
        ArgumentError: if the weight is not a number from -1e6 to 1e6.
    """

    word: str
    weight: float
    renormalize: bool = False

    def __post_init__(self) -> None:
        name = quoted(check_text("the word to weight", self.word, "red"))
        weight = check_float(
            f"the weight of {name}", self.weight, least=-MAX_WEIGHT, most=MAX_WEIGHT
        )
        renormalize = check_bool(f"renormalize of {name}", self.renormalize)
        _set(self, weight=weight, renormalize=renormalize)
        SiteEdit.__post_init__(self)

    def __str__(self) -> str:
        renormalized = ", renormalized" if self.renormalize else ""
        weight = f"×{format_number(self.weight)}"
        return f"“{self.word}” {weight}{renormalized}{SiteEdit.__str__(self)}"


class Confine(SiteEdit, frozen=True, tag_field="kind", tag="confine"):
    """The attention of a word kept inside of a region of the image, which places its object.

        half = (0, 0, 64, 128)
        heedmap.generate(pipe, "a red cat in the snow", edits=[heedmap.Confine("cat", half)])

    The word is hidden from all positions outside of the region, and its attention is raised inside,
    in the first part of the run, which settles where things are (`mathematics.rules.Region`). The
    words that describe it are confined with it. The end of the text and the padding have read the
    word, so they are hidden outside as well; with several words confined, they are seen where the
    regions meet. In a joint softmax (SD 3, Flux) the image gets the share of the hidden words; a
    position from which the whole prompt is hidden reads nothing.

    Several regions of one word, as in `[Confine("cats", left), Confine("cats", right)]`, are
    united: it is seen in each, and raised by the sum of the strengths where they overlap. Regions
    for different layers, heads or steps act apart: where both act, the word is seen in the part
    that they share.

    Attributes:
        word: a word or phrase of the prompt, at all its places; "cat#2" is the second "cat" alone.
        where: a box (left, top, right, bottom) in pixels of the image, from its top left corner,
            as PIL has it, right and bottom excluded (fractions of the image are to be multiplied
            by its width and height); or a mask of the image's size: a numpy array of bool (H, W),
            True inside, or a PIL image of mode "1" or "L" (128 and above is inside). A mask is
            stored compressed: `confine.where.inside()` is the array.
        strength: added to the scores inside, in natural logarithms: 1 multiplies the odds by e.
        start: fraction of the run from which it acts, 0 to 1.
        end: fraction up to which it acts, 0 to 1.
        along: the words of the prompt that are confined with it. If None, those that describe it:
            up to two, back to the article, number, preposition, conjunction, "-ing" or sign before
            them (of English; in other languages name them), or to a word that another `Confine` of
            the run names.
        tail: if True, the end and the padding are hidden outside. Where they carry much of the rest
            of the image, False may draw it better, and place the word less surely.
        layers: the layers of the edit, named as in `HeatMaps.select` (no function). Default: all.
        heads: its heads, a number or a list. Default: all.
        steps: its steps: a number, a slice (saved as "0:10") or a list. Default: all.

    Raises:
        ArgumentError: if `where` is neither a box nor a mask, or a number is out of range.

    After Paint-with-Words (eDiff-I: Balaji et al., 2022, arXiv 2211.01324, section 4.4).
    """

    word: str
    where: Region
    strength: float = 3.0
    start: float = 0.0
    end: float = 0.6
    along: Sequence[str] | None = None
    tail: bool = True

    def __post_init__(self) -> None:
        name = quoted(check_text("the word to confine", self.word, "cat"))
        if self.along is not None:
            along = as_list(self.along)
            if along is None or not all(isinstance(word, str) for word in along):
                raise ArgumentError(
                    f"along of {name} is {quoted(self.along)}: expected a list of words, as in "
                    "['red']"
                )
            _set(self, along=tuple(along))
        start, end = check_window(f"the window of {name}", (self.start, self.end))
        strength = f"the strength of {name}"
        _set(
            self,
            where=parse_region(self.where, name),
            strength=check_float(strength, self.strength, least=-1e6, most=1e6),
            start=start,
            end=end,
            tail=check_bool(f"tail of {name}", self.tail),
        )
        SiteEdit.__post_init__(self)

    def __str__(self) -> str:
        place = "a mask"
        if isinstance(self.where, tuple):
            place = ", ".join(map(format_number, self.where))
        strength = format_number(self.strength)
        words = f"“{self.word}” confined to {place}, strength {strength}"
        return words + SiteEdit.__str__(self)


class SavedRule(Struct, frozen=True, tag_field="kind", tag="rule"):
    """The name of a rule, or of the loss of a guide, of the user's own."""

    name: str = ""

    def __str__(self) -> str:
        return f"the function {self.name}" if self.name else "a function"


def _set(edit: Struct, **values: Any) -> None:
    for name, value in values.items():
        force_setattr(edit, name, value)


WordEdit = Reweight | Confine
