"""The attention of places of the image to all keys."""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from heedmap.backends.base import GridShape
from heedmap.errors import ArgumentError
from heedmap.io.places import Place, place_label
from heedmap.io.word_edits import Mask
from heedmap.maps.masks import region_coverage
from heedmap.mathematics.events import AttentionEvent, nth
from heedmap.mathematics.rules import cells_inside


class PlaceQueries:
    """The queries of the places of each image, and their mean attention.

    Only these queries are multiplied with the keys, a part of them at a time.

    Args:
        places: those of each image, without words.
        size: (width, height) of the image in pixels.

    Raises:
        ArgumentError: if a place does not lie in the image.
    """

    def __init__(
        self,
        places: Sequence[Sequence[Place]],
        size: tuple[int, int],
    ) -> None:
        self._regions = [[_region(place, size) for place in image] for image in places]
        self._positions = cache(self._positions_of)

    def probabilities(
        self,
        event: AttentionEvent,
        image: int,
        number: int,
        grid: GridShape,
    ) -> Tensor:
        """Return the mean probabilities (H, N, K) of an image's K places, float32.

        They are shares of the softmax over all N keys of the layer, before edits of the words.

        Args:
            event: the attention of a layer.
            image: the number of the image.
            number: that of its row in the batch.
            grid: (h, w) of the layer.
        """
        device = event.key.device
        positions, parts = self._positions(image, grid, device)
        row = event.row(number, nth(event.layout.row(number).positions, positions))
        heads, keys, _ = row.keys.shape
        total = torch.zeros(heads, len(parts), keys, device=device)
        # Autocast would use half precision here.
        with torch.autocast(device.type, enabled=False):
            for some, p in row.parts():
                total += parts[:, some] @ p
        return total.mT

    def _positions_of(
        self,
        image: int,
        grid: GridShape,
        device: torch.device,
    ) -> tuple[Tensor, Tensor]:
        """Return the positions (n,) of an image's places on a grid, and their parts (K, n)."""
        cells = [
            cells_inside(region, grid).nonzero().flatten()
            for region in self._regions[image]
        ]
        parts = [torch.full((1, len(some)), 1 / len(some)) for some in cells]
        return (
            torch.cat(cells).to(device, non_blocking=True),
            torch.block_diag(*parts).to(device, non_blocking=True),
        )


def _region(
    place: Place,
    size: tuple[int, int],
) -> Tensor:
    """Return the part (H, W) of each pixel of an image that is inside of a place."""
    width, height = size
    if isinstance(place, Mask) or len(place) == 4:
        coverage = region_coverage(place, width, height, "a place")  # pyright: ignore
        return torch.from_numpy(coverage)
    x, y = map(int, place)
    if x >= width or y >= height:
        raise ArgumentError(
            f"the place {place_label(place)} does not lie in the image of {width}×{height} "
            f"pixels: expected 0 ≤ x < {width} and 0 ≤ y < {height}"
        )
    region = torch.zeros(height, width)
    region[y, x] = 1
    return region
