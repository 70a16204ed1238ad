"""Maps brought to the edges of a picture: pure functions of arrays.

Axes: N map · h, w the maps' grid · H, W the picture's pixels.
"""

import numpy as np
import torch
from kornia.filters import guided_blur

SMOOTH = 1e-3
"""What the guided filter takes for flat: the variance of colours (0 to 1) below which a picture
guides nothing. Chosen on the drawn world, where a tenth of it is a point better, and worse where a
picture has grain."""
_FINE = 6  # pixels of a radius at least where the filter looks at a part of the pixels


def guided(picture: np.ndarray, maps: np.ndarray, radius: int) -> np.ndarray:
    """Maps whose edges are those of a picture, where it has any nearby.

    Around each pixel a map is taken for a linear function of the colours (guided filter: He, Sun
    and Tang, *Guided Image Filtering*, TPAMI 2013; of large pictures a part of the pixels, after He
    and Sun, arXiv 1505.00996). Where the colours say nothing it is smoothed. No side is preferred:
    turned by half a circle, picture and maps give what is so turned.

    Args:
        picture: uint8 (H, W, 3).
        maps: (N, H, W), 0 to 1.
        radius: pixels on each side that are looked at; as far as the maps are blurred.

    Returns:
        float32 (N, H, W), 0 to 1.
    """
    guide = torch.tensor(picture).movedim(-1, 0)[None].float() / 255
    values = torch.tensor(maps, dtype=torch.float32)[None]
    radius = min(radius, (min(picture.shape[:2]) - 1) // 2)  # a window fits into the picture
    if radius < 1:
        return values[0].numpy()
    coarse = max(1, radius // _FINE)
    made = guided_blur(guide, values, 2 * radius + 1, SMOOTH, subsample=coarse)
    if coarse > 1:
        # It takes the first pixel of each square for the whole, so that a map moves by half of one.
        # Turned around it moves back: what is linear in the colours is so in the mean of the two.
        around, back = guide.flip(-2, -1), values.flip(-2, -1)
        other = guided_blur(around, back, 2 * radius + 1, SMOOTH, subsample=coarse)
        made = (made + other.flip(-2, -1)) / 2
    return made[0].clamp(0, 1).numpy()
