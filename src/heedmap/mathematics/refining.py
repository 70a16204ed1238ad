"""Word maps refined by the picture's attention to itself: pure functions of tensors.

A place that attends to another is likely of the same thing. So what a word draws is carried from
place to place along self-attention: each place gets the mean of what the places that it attends to
have. Axes, by the letters used all through heedmap: H head, Q place (row-major over the layer's
grid), K text token, d channels of one head.
"""

import numpy as np
import torch
from kornia.filters import guided_blur
from torch.nn.functional import pad, scaled_dot_product_attention

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


POWER = 2.0
"""To which power the probabilities of self-attention are raised before they carry (and made to sum
to 1 again): what a place attends to a little is mostly of something else. On scenes of the drawn
world 1.5 to 3 are within a point of each other."""


def refined(
    query: torch.Tensor,
    key: torch.Tensor,
    maps: torch.Tensor,
    *,
    scale: float | None = None,
    power: float = POWER,
) -> torch.Tensor:
    """Maps carried along self-attention: the mean over heads of P^power · maps.

    The rows of P^power are made to sum to 1.

    A softmax raised to a power and normalised is the softmax of its scores times that power, so
    this is plain attention with the maps in the place of the values: no (Q, Q) matrix is made where
    the kernel makes none. After Nguyen et al. (Dataset Diffusion, arXiv 2309.14303), who multiply
    by a power of the mean matrix.

    Args:
        query: (H, Q, d).
        key: (H, Q, d).
        maps: (Q, K), float32.
        scale: what QKᵀ is multiplied by before the power; 1/√d unless given.
        power: above 0.

    Returns:
        (Q, K), float32: between the least and the greatest value of each map.
    """
    device = query.device.type
    if torch.is_autocast_enabled(device):  # it would use half precision here
        with torch.autocast(device, enabled=False):
            return refined(query, key, maps, scale=scale, power=power)
    d, tokens = query.shape[-1], maps.shape[-1]
    scale = power * (d**-0.5 if scale is None else scale)
    query, key = query.float()[None], key.float()[None]
    heads = query.shape[1]
    parts: list[torch.Tensor] = []
    for first in range(0, tokens, d):  # as wide as the heads are: the kernels want one width
        part = maps[:, first : first + d].to(query)
        value = pad(part, (0, d - part.shape[1])).expand(1, heads, -1, -1)
        made = scaled_dot_product_attention(query, key, value, scale=scale)
        parts.append(made[0].mean(dim=0)[:, : part.shape[1]])
    return torch.cat(parts, dim=-1)
