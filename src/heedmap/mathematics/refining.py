"""Word maps refined by the picture's attention to itself: pure functions of tensors.

A place that attends to another is likely of the same thing. So what a word draws is carried from
place to place along self-attention: each place gets the mean of what the places that it attends to
have. Axes, by the letters used all through heedmap: H head, Q place (row-major over the layer's
grid), K text token, d channels of one head.
"""

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

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
