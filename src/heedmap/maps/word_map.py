"""One word's heat map: its values, its colours over the picture, its mask."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image

from heedmap import checks
from heedmap.errors import ArgumentError, quoted
from heedmap.figures import blocks, layout, overlays
from heedmap.maps.masks import Mentioned, check_picture, scaled
from heedmap.mathematics.agreement import is_even
from heedmap.options import MASK_THRESHOLD

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

    from heedmap.figures.sheet import Sheet

Scale = Literal["word", "shared", "raw"]
SCALES: dict[Scale, str] = {
    "shared": "shared by all words",
    "word": "each word its own",
    "raw": "raw probability",
}
"""What a scale is called where maps of several words are shown."""
REFINED_BY = "refined by self-attention"
"""What is said of refined maps wherever they are shown."""


def check_scale(scale: object) -> None:
    """Raise an ArgumentError unless there is such a scale."""
    checks.one_of("scale", scale, SCALES)


@dataclass(frozen=True, eq=False)
class HeatMap:
    """One word's map.

    Attributes:
        label: the word or phrase.
        values: float32 (h, w), 64 cells on the short side: the share of attention (0 to 1) that
            each place gave to the word's tokens, averaged over the selection.
        size: (W, H) of the picture in pixels.
        image: the picture, where it is known.
        shared: the lowest and the highest value among the maps of all the prompt's words in the
            same selection, for pictures that can be compared.
        mentioned: the words, where masks are to be made of more than the values.
        refined: whether it was carried along the picture's attention to itself.
        stability: of a word of `locate`, how far its maps of two halves of the looks agree, each
            with other noise: their rank correlation, -1 to 1. None where that is not known.
    """

    label: str
    values: np.ndarray
    size: tuple[int, int]
    image: Image.Image | None = None
    shared: tuple[float, float] = (0.0, 1.0)
    mentioned: Mentioned | None = None
    refined: bool = False
    stability: float | None = None

    def __repr__(self) -> str:
        (height, width), low, high = self.values.shape, self.values.min(), self.values.max()
        refined = ", refined" if self.refined else ""
        said = f"{width}×{height} cells, {low:.3g} to {high:.3g}{refined}"
        return f"<HeatMap of {quoted(self.label)}: {said}>"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the values, for `numpy.asarray`."""
        return np.array(self.values, dtype=dtype, copy=copy)

    def span(self, scale: Scale = "word") -> tuple[float, float]:
        """The values that a picture shows as coldest and hottest.

        Args:
            scale: "word" (from this map's least to its greatest value; of one that is the same
                everywhere, but for rounding, both are its least), "shared" (that of all the
                prompt's words, and of a phrase that draws more than any of them) or "raw" (0 to 1).
                If a word of the prompt has values below 0, each scale is widened to have 0 in its
                middle ("raw" is -1 to 1).

        Raises:
            ArgumentError: if there is no such scale.
        """
        check_scale(scale)
        low, high = float(self.values.min()), float(self.values.max())
        if scale == "word" and is_even(self.values):
            return low, low
        shared = min(low, self.shared[0]), max(high, self.shared[1])
        own = {"word": (low, high), "shared": shared, "raw": (0.0, 1.0)}[scale]
        return overlays.centred(*own) if shared[0] < 0 else own

    def overlay(
        self, image: Image.Image | None = None, *, scale: Scale = "word", short_side: int = 256
    ) -> Image.Image:
        """The heat over the picture, enlarged so that its short side has `short_side` pixels.

        Args:
            image: the picture, where the map does not know it (maps of a bare `trace`).
            scale: what is shown as coldest and hottest, see `span`.
            short_side: pixels on the short side at least; larger pictures keep their size.

        Raises:
            ArgumentError: if no picture is known or given.
        """
        picture = self.image if image is None else image
        if picture is None:
            raise ArgumentError(
                f"the map of '{self.label}' knows no picture: pass it, as in overlay(image)"
            )
        low, high = self.span(scale)
        return replace(self, image=picture).drawn(low, high, short_side=short_side)

    def drawn(self, low: float, high: float, *, short_side: int = 256) -> Image.Image:
        """The heat from `low` to `high` over the picture, or alone where no picture is known.

        Args:
            low: the value that is shown as coldest.
            high: the value that is shown as hottest.
            short_side: as in `overlay`.
        """
        if self.image is None:
            blank = overlays.enlarge(Image.new("RGB", self.size), short_side=short_side)
            return overlays.heat(self.values, blank.size, low=low, high=high)
        large = overlays.enlarge(self.image, short_side=short_side)
        return overlays.overlay(large, self.values, low=low, high=high)

    def figure(self, *, scale: Scale = "word") -> "Sheet":
        """The heat over the picture, or alone where none is known, with the scale that was used.

        Args:
            scale: what is shown as coldest and hottest, see `span`.

        Returns:
            A matplotlib Figure, which saves itself as PNG, SVG or PDF.
        """
        low, high = self.span(scale)
        said = {"word": "the word's own"}.get(scale, SCALES[scale])
        said += f" · {REFINED_BY}" if self.refined else ""
        bar = layout.ScaleBar(said, low, high, alone=self.image is None)
        body = blocks.Block.of(self.drawn(low, high, short_side=384))
        return layout.framed(body, title=self.label, bar=bar)

    def plot(
        self, ax: "Axes", *, image: Image.Image | None = None, scale: Scale = "word"
    ) -> "AxesImage":
        """Draw the heat over the picture, or alone where none is known, on axes of your own figure.

        Args:
            ax: of any matplotlib figure; what else is drawn on them is in pixels of the picture.
            image: the picture, where the map does not know it.
            scale: what is shown as coldest and hottest, see `span`.

        Returns:
            The heat; `figure.colorbar` makes a bar of its colours.
        """
        low, high = self.span(scale)
        picture = self.image if image is None else image
        size = self.size if picture is None else picture.size
        return overlays.plot(ax, picture, self.values, size, low=low, high=high)

    def _repr_png_(self) -> bytes:
        return self.figure().data()

    def mask(
        self, threshold: float = MASK_THRESHOLD, *, image: Image.Image | None = None
    ) -> np.ndarray:
        """Where the picture shows what the word says: bool (H, W), at the picture's size.

        Args:
            threshold: 0 to 1, from which value of the soft mask on. A soft mask that is 0
                everywhere has an empty mask.
            image: as in `soft_mask`.

        Raises:
            ArgumentError: if the threshold is not a number from 0 to 1, or the picture does not
                fit.
        """
        threshold = checks.fraction("threshold", threshold)
        soft = self.soft_mask(image=image)
        return soft >= threshold if soft.any() else np.zeros(soft.shape, dtype=bool)

    def soft_mask(self, *, image: Image.Image | None = None) -> np.ndarray:
        """How surely each pixel shows what the word says: float32 (H, W), 0 to 1.

        Of a run's map, plain or refined, it is that of the word's phrase ("red house", of "red" and
        of "house"): refined, lessened where another phrase stands out more, and brought to the
        edges of the picture (`heedmap.maps.masks`). A map of some layers, steps or heads, of a
        token, or of a share, and that of a run without refined maps, is cut by itself: from its
        least cell, 0, to its greatest, 1, whatever their sign, since under a negative weight a
        word acts where its map is lowest. Enlarged, a pixel that lies between the middles of cells
        has what is between theirs, so that a single cell's peak is not reached.

        Args:
            image: the picture, where the map does not know it (maps of a bare `trace`); without
                one the edges are the map's.

        Raises:
            ArgumentError: if the picture is of another size than the map's.
        """
        picture = self.image if image is None else image
        check_picture(picture, self.size)
        if self.mentioned is not None:
            return self.mentioned.seen(picture)
        return overlays.resize_map(scaled(np.abs(self.values)), self.size)

    @property
    def most(self) -> float:
        """The value farthest from 0: how much the word acts where it acts most."""
        return float(max(self.values.min(), self.values.max(), key=abs))

    @property
    def peak(self) -> tuple[int, int]:
        """The pixel (x, y) under the middle of the cell where the word acts most.

        Under a negative weight that is the cell farthest below 0. Of a map that is 0 everywhere, as
        under a weight of 0, it is the first, and says nothing.
        """
        y, x = np.unravel_index(int(np.abs(self.values).argmax()), self.values.shape)
        h, w = self.values.shape
        return int((x + 0.5) * self.size[0] / w), int((y + 0.5) * self.size[1] / h)


def span_of(heats: Sequence[HeatMap], scale: Scale) -> tuple[float, float]:
    """The lowest and the highest value of one scale for several maps, see `HeatMap.span`."""
    spans = [heat.span(scale) for heat in heats]
    return min(low for low, _ in spans), max(high for _, high in spans)
