"""Word maps refined by self-attention, and by the edges of an image: pure functions of tensors.

Axes: H head, Q place (row-major over the layer's grid), K text token, d channels of one head.
"""

import numpy as np
import torch
from kornia.filters import guided_blur
from torch.nn.functional import pad, scaled_dot_product_attention

SMOOTH = 1e-3
"""The variance of colours (0 to 1) below which an image guides nothing.

Chosen on the drawn world; a tenth of it is a point better there, and worse on images with grain.
"""
_FINE = 6  # least radius in pixels at which the filter subsamples
POWER = 2.0
"""The power of the probabilities of self-attention: weak attention is mostly to something else.

On scenes of the drawn world 1.5 to 3 are within a point of each other.
"""


def guided(picture: np.ndarray, maps: np.ndarray, radius: int) -> np.ndarray:
    """Move the edges of maps to the edges of an image near them, by a guided filter.

    Around each pixel a map is taken for a linear function of the colours (He, Sun and Tang, *Guided
    Image Filtering*, TPAMI 2013; large images are subsampled after He and Sun, arXiv 1505.00996).
    Where the colours say nothing it is smoothed. The result of a half turn of the inputs is a half
    turn of the result.

    Args:
        picture: uint8 (H, W, 3).
        maps: (N, H, W), 0 to 1.
        radius: pixels on each side that are looked at; as far as the maps are blurred.

    Returns:
        float32 (N, H, W), 0 to 1.
    """
    guide = torch.tensor(picture).movedim(-1, 0)[None].float() / 255
    values = torch.tensor(maps, dtype=torch.float32)[None]
    radius = min(radius, (min(picture.shape[:2]) - 1) // 2)  # a window fits into the image
    if radius < 1:
        return values[0].numpy()
    coarse = max(1, radius // _FINE)
    result = guided_blur(guide, values, 2 * radius + 1, SMOOTH, subsample=coarse)
    if coarse > 1:
        # Subsampling takes the first pixel of each square, which moves a map by half a square. The
        # turned inputs move it back; linear functions of the colours keep their mean.
        around, back = guide.flip(-2, -1), values.flip(-2, -1)
        other = guided_blur(around, back, 2 * radius + 1, SMOOTH, subsample=coarse)
        result = (result + other.flip(-2, -1)) / 2
    return result[0].clamp(0, 1).numpy()


def refined(
    query: torch.Tensor,
    key: torch.Tensor,
    maps: torch.Tensor,
    *,
    scale: float | None = None,
    power: float = POWER,
) -> torch.Tensor:
    """Carry maps along self-attention: the mean over heads of P^power · maps, rows of sum 1.

    A place that attends to another likely belongs to the same thing. A softmax raised to a power
    and normalized is the softmax of its scores times that power, so this is plain attention with
    the maps as values, without a (Q, Q) matrix. After Nguyen et al. (Dataset Diffusion, arXiv
    2309.14303), who multiply by a power of the mean matrix.

    Args:
        query: (H, Q, d).
        key: (H, Q, d).
        maps: (Q, K), float32.
        scale: factor of QKᵀ before the power. Default: 1/√d.
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
    parts: list[torch.Tensor] = []
    for first in range(0, tokens, d):  # the kernels want values as wide as the heads
        part = maps[:, first : first + d].to(query)
        value = pad(part, (0, d - part.shape[1])).expand(1, query.shape[1], -1, -1)
        output = scaled_dot_product_attention(query, key, value, scale=scale)
        parts.append(output[0].mean(dim=0)[:, : part.shape[1]])
    return torch.cat(parts, dim=-1)
