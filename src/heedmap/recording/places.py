"""The attention of places of the image to all keys."""

from collections.abc import Sequence

import torch
from torch import Tensor

from heedmap.backends.base import GridShape
from heedmap.errors import ArgumentError
from heedmap.io.places import Place, place_label
from heedmap.io.word_edits import Mask
from heedmap.maps.masks import region_coverage
from heedmap.mathematics.events import AttentionEvent, nth, take
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
        self._size = size
        self._regions = [[_region(place, size) for place in image] for image in places]
        # By image and grid: the positions of all places, and the part (K, n) of each in the means.
        self._known: dict[tuple[int, GridShape], tuple[Tensor, Tensor]] = {}

    def probabilities(
        self,
        event: AttentionEvent,
        image: int,
        number: int,
        grid: GridShape,
    ) -> Tensor:
        """Return the mean probabilities (H, N, K) of an image's K places, float32.

        They are shares of the softmax over all N keys of the layer, with its edits.

        Args:
            event: the attention of a layer.
            image: the number of the image.
            number: that of its row in the batch.
            grid: (h, w) of the layer.
        """
        device = event.key.device
        positions, parts = self._positions(image, grid, device)
        queries = nth(event.layout.row(number).positions, positions)
        row = event.row(number, values=False, queries=queries)
        heads, keys, _ = row.keys.shape
        factors = None
        if number in event.edited:
            # Of the image's share, which its keys divide as before.
            before, after = event.edited[number].pair()
            factors = take(after[..., -1:] / before[..., -1:], positions)
        total = torch.zeros(heads, len(parts), keys, device=device)
        for some, p in row.parts():
            if factors is not None:
                p = p * factors[:, some]
            # Autocast would use half precision here.
            with torch.autocast(device.type, enabled=False):
                total += parts[:, some] @ p
        return total.mT

    def _positions(
        self,
        image: int,
        grid: GridShape,
        device: torch.device,
    ) -> tuple[Tensor, Tensor]:
        """Return the positions (n,) of an image's places on a grid, and their parts (K, n)."""
        key = image, grid
        if key not in self._known:
            cells = [self._cells(region, grid) for region in self._regions[image]]
            parts = [torch.full((1, len(some)), 1 / len(some)) for some in cells]
            known = torch.cat(cells).to(device), torch.block_diag(*parts).to(device)
            self._known[key] = known
        return self._known[key]

    def _cells(self, region: tuple[int, int] | Tensor, grid: GridShape) -> Tensor:
        """Return the positions (n,) of a region on a grid."""
        if isinstance(region, Tensor):
            return cells_inside(region, grid).nonzero().flatten()
        h, w = grid
        width, height = self._size
        x, y = region
        column = (2 * x + 1) * w // (2 * width)
        line = (2 * y + 1) * h // (2 * height)
        return torch.tensor([line * w + column])


def _region(place: Place, size: tuple[int, int]) -> tuple[int, int] | Tensor:
    """Return a pixel, or the part (H, W) of each pixel that is inside of a box or mask."""
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
    return x, y
