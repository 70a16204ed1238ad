"""The mathematics of attention: pure functions of tensors, no module, no state.

Axes, by the letters used all through heedmap: B image, H head, Q latent position (row-major over
the layer's grid, Q = h·w), K text token, d channels of one head.
"""

import torch

from heedmap.errors import ArgumentError


def probabilities(
    query: torch.Tensor,
    key: torch.Tensor,
    *,
    scale: float | None = None,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """The attention probabilities P = softmax(QKᵀ·scale + M), in float32 whatever comes in.

    Args:
        query: (..., Q, d).
        key: (..., K, d), with the same leading axes or such that broadcast.
        scale: what QKᵀ is multiplied by; 1/√d unless given.
        mask: added before the softmax, broadcast to (..., Q, K); or boolean, True where a token may
            be seen. Tokens that are masked out get exactly 0.

    Returns:
        (..., Q, K), float32; every row sums to 1.

    Raises:
        ArgumentError: if the channels of query and key differ, or there are none.
    """
    d = query.shape[-1]
    if query.ndim < 2 or key.ndim < 2 or d != key.shape[-1] or d == 0:
        raise ArgumentError(
            f"query of shape {tuple(query.shape)} and key of shape {tuple(key.shape)} do not fit: "
            "expected (..., Q, d) and (..., K, d) with the same d; reshape one of them"
        )
    scores = (query.float() @ key.float().mT) * (d**-0.5 if scale is None else scale)
    if mask is not None:
        if mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, float("-inf"))
        else:
            scores = scores + mask.float()
    return scores.softmax(dim=-1)


def attend(weights: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The output O = P V of attention.

    Args:
        weights: P, (..., Q, K).
        value: V, (..., K, d).

    Returns:
        (..., Q, d), in the type of `value`.

    Raises:
        ArgumentError: if the numbers of tokens differ.
    """
    if weights.ndim < 2 or value.ndim < 2 or weights.shape[-1] != value.shape[-2]:
        raise ArgumentError(
            f"weights of shape {tuple(weights.shape)} and value of shape {tuple(value.shape)} do "
            "not fit: expected (..., Q, K) and (..., K, d) with the same K; reshape one of them"
        )
    return (weights @ value.to(weights.dtype)).to(value.dtype)


def split_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    """(B, N, H·d) to (B, H, N, d): the channels of each head apart.

    Raises:
        ArgumentError: if the channels cannot be divided by the number of heads.
    """
    if x.ndim != 3 or heads < 1 or x.shape[-1] % heads:
        raise ArgumentError(
            f"{heads} heads cannot share a tensor of shape {tuple(x.shape)}: expected (B, N, H·d)"
        )
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def grid_of(positions: int, latent: tuple[int, int]) -> tuple[int, int]:
    """The grid (h, w) of a layer with so many latent positions.

    The UNet halves its latent level by level, rounding up, so the grids are those of repeated
    ceil-halving; a square root would be wrong for every picture that is not square.

    Args:
        positions: Q, the number of latent positions of the layer.
        latent: (h, w) of the latent that the UNet was given.

    Raises:
        ArgumentError: if no halving of the latent has that many positions.
    """
    h, w = latent
    while h * w > positions and h * w > 1:
        h, w = (h + 1) // 2, (w + 1) // 2
    if h * w != positions:
        raise ArgumentError(
            f"{positions} positions are no halving of a latent of {latent[0]}×{latent[1]} cells: "
            "expected a UNet that halves its grid, rounding up, from level to level"
        )
    return h, w
