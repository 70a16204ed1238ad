"""Attention probabilities, and maps refined by them or by an image: pure functions of tensors.

Axes: B image, H head, Q latent position (row-major over the layer's grid, Q = h·w), K text token,
d channels of one head.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from kornia.filters import guided_blur
from torch import Tensor
from torch.nn.attention import SDPBackend
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint  # pyright: ignore

# A function of tensors, run again for its derivatives.
_recomputed: Callable[..., Tensor]
_recomputed = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)  # pyright: ignore
# Torch's own: `torch.nn.functional` may have a kernel of the user's in its place.
scaled_dot_product_attention: Callable[..., Tensor]
scaled_dot_product_attention = torch._C._nn.scaled_dot_product_attention  # pyright: ignore


def probabilities(
    query: Tensor,
    key: Tensor,
    *,
    scale: float,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the attention probabilities P = softmax(QKᵀ·scale + M), computed in float32.

    Args:
        query: (..., Q, d).
        key: (..., K, d), with leading axes that are the same or broadcast.
        scale: factor of QKᵀ.
        mask: M, added before the softmax, broadcast to (..., Q, K). Tokens that it hides by -inf
            get exactly 0.

    Returns:
        (..., Q, K), float32; every row sums to 1.
    """
    # Where TF32 is allowed, products of half-precision numbers are exact, those of scaled ones not.
    query = query.float()
    keys = key.float().mT
    if query.ndim == 3 and len(query) == len(keys):  # one launch in place of two
        zero = constant((0.0,), torch.float32, query.device)
        scores = torch.baddbmm(zero, query, keys, beta=0, alpha=scale)
    else:
        scores = query @ keys * scale
    if mask is not None:
        scores = scores + mask.float()
    return scores.softmax(dim=-1)


def less_largest(bias: Tensor) -> Tensor:
    """Return a bias less the largest of each row, so that none overflows or costs digits."""
    largest = bias.amax(dim=-1, keepdim=True)
    return bias - largest.masked_fill(largest.isneginf(), 0.0)


def visible_softmax(scores: Tensor) -> Tensor:
    """Return the softmax over the last axis; zeros for a row of -inf, where nothing is visible."""
    hidden = scores.isneginf().all(dim=-1, keepdim=True)
    return scores.softmax(dim=-1).masked_fill(hidden, 0.0)


@lru_cache(maxsize=256)
def constant(
    values: tuple[Any, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """Return numbers as a tensor of a device, which is kept; the host does not wait for it."""
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)


@lru_cache(maxsize=64)
def on_device(
    x: Tensor,
    device: torch.device,
    dtype: torch.dtype,
) -> Tensor:
    """Return a tensor on a device, where it is kept."""
    return x.to(device, dtype, non_blocking=True)


def index_tensor(places: Sequence[int], device: torch.device) -> Tensor:
    """Return places as an index, a tensor of a device that is kept."""
    return constant(tuple(places), torch.int64, device)


def columns(p: Tensor, tokens: Sequence[int]) -> Tensor:
    """Return the columns (…, K') of some tokens, a new tensor.

    A list as the index would be copied to the device each time that it is used.
    """
    return p.index_select(-1, index_tensor(tokens, p.device))


def contiguous_columns(p: Tensor, tokens: Sequence[int]) -> Tensor:
    """Return the columns (…, K') of some tokens, a view where they follow each other."""
    first = tokens[0] if tokens else 0
    following = range(first, first + len(tokens))
    if list(tokens) != list(following):
        return columns(p, tokens)
    return p[..., first : following.stop]


def query_parts(query: Tensor, key: Tensor) -> Iterator[slice]:
    """Yield parts of the queries (…, Q, d) whose scores of all keys (…, N, d) fit into a cache."""
    most = 2**20 if query.device.type == "cpu" else 2**24
    size = max(1, most // key.shape[:-1].numel())
    yield from (slice(at, at + size) for at in range(0, query.shape[-2], size))


def log_sums(
    query: Tensor,
    key: Tensor,
    scale: float,
    mask: Tensor | None = None,
) -> Tensor:
    """Return log Σ exp(q·k·scale + M) over all keys, computed in float32 by parts of the queries.

    For its derivatives no scores are stored: they are computed again.

    Args:
        query: (H, Q, d).
        key: (H, N, d).
        scale: factor of QKᵀ.
        mask: M, (H, Q, N), float32.

    Returns:
        (H, Q), float32.
    """
    compute = partial(_recomputed, _log_sum) if torch.is_grad_enabled() else _log_sum
    scaled = key.float().mT * scale
    sums: list[Tensor] = []
    for part in query_parts(query, key):
        added = None if mask is None else mask[:, part]
        sums.append(compute(query[:, part], scaled, added))
    return torch.cat(sums, dim=-1)


def _log_sum(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
) -> Tensor:
    """Return log Σ exp(q·k + M) (H, Q) of keys (H, d, N)."""
    scores = query.float() @ key
    if mask is not None:
        scores = scores + mask
    return scores.logsumexp(dim=-1)


def fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Return `torch.nn.functional.scaled_dot_product_attention`, to the bit, and its log-sum.

    On the CPU and on CUDA, the kernel that torch itself would choose also gives the logarithm of
    each row's sum of exponentials.

    Returns:
        The output (B, H, Q, d), and the log-sum (B, H, Q) in float32; None on other devices, and
        with autocast.
    """
    is_tracked = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad)
    has_options = bool(dropout_p or is_causal or any(options.values()))
    if query.ndim == 4 and not has_options and not is_tracked:
        kernel = _kernel(query, key, value, attn_mask, scale)
        if kernel is not None:
            mask = attn_mask
            if mask is not None:
                mask = mask_numbers(mask, query.dtype)
            return kernel(KernelInputs(query, key, value, mask, scale))
    output = scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask,
        dropout_p,
        is_causal,
        scale=scale,
        **options,
    )
    return output, None


# Its own kernels, which it does not export, and which it calls faster than those of torch.ops.
_torch: Any = torch


class KernelInputs(NamedTuple):
    """The inputs of a kernel, as those of `scaled_dot_product_attention`."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scale: float | None


Kernel = Callable[[KernelInputs], tuple[Tensor, Tensor]]
"""A function of these that returns the output and the log-sum."""


def mask_numbers(
    mask: Tensor,
    dtype: torch.dtype,
) -> Tensor:
    """Return a mask as numbers to add, as torch makes them of a boolean one."""
    if mask.dtype != torch.bool:
        return mask
    zero = torch.zeros((), dtype=dtype, device=mask.device)
    return torch.where(mask, zero, float("-inf"))


def _kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float | None,
) -> Kernel | None:
    """Return the kernel that torch would choose; None if it gives no log-sum."""
    device = query.device.type
    has_kernels = device == "cpu" or (device == "cuda" and torch.version.hip is None)
    # Autocast chooses another type.
    if not has_kernels or torch.is_autocast_enabled(device):
        return None
    choice = _torch._fused_sdp_choice(query, key, value, mask, 0.0, False, scale=scale)
    return KERNELS.get((device, choice))


def _flash_on_cpu(inputs: KernelInputs) -> tuple[Tensor, Tensor]:
    query, key, value, mask, scale = inputs
    return _torch._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, False, attn_mask=mask, scale=scale
    )


def _flash_on_cuda(inputs: KernelInputs) -> tuple[Tensor, Tensor]:
    query, key, value, _, scale = inputs
    d = query.shape[-1]
    if d % 8:  # the kernel wants multiples of 8; torch pads them so, too
        if scale is None:
            scale = 1.0 / math.sqrt(d)
        query, key, value = (pad(part, (0, -d % 8)) for part in (query, key, value))
    output, log_sum, *_ = _torch._scaled_dot_product_flash_attention(
        query, key, value, 0.0, False, scale=scale
    )
    return output[..., :d], log_sum


def _efficient_on_cuda(inputs: KernelInputs) -> tuple[Tensor, Tensor]:
    query, key, value, mask, scale = inputs
    if mask is not None:
        mask = _aligned(mask).expand(*query.shape[:3], key.shape[2])
    output, log_sum, *_ = _torch._scaled_dot_product_efficient_attention(
        query, key, value, mask, True, 0.0, False, scale=scale
    )
    return output, log_sum[..., : query.shape[2]]  # it is padded to a multiple of 32


def _aligned(mask: Tensor) -> Tensor:
    """Return a mask whose rows begin at multiples of 16 numbers, as the kernel wants it."""
    strides = mask.stride()
    if strides[-1] == 1 and not any(stride % 16 for stride in strides[:-1]):
        return mask
    count = mask.shape[-1]
    return pad(mask, (0, -count % 16))[..., :count]


KERNELS: dict[tuple[str, int], Kernel] = {
    ("cpu", SDPBackend.FLASH_ATTENTION.value): _flash_on_cpu,
    ("cuda", SDPBackend.FLASH_ATTENTION.value): _flash_on_cuda,
    ("cuda", SDPBackend.EFFICIENT_ATTENTION.value): _efficient_on_cuda,
}
"""The kernels that give a log-sum, by type of device and torch's choice."""

POWER = 2.0
"""The power of the probabilities of self-attention: weak attention is mostly to something else.

On scenes of the drawn world 1.5 to 3 are within a point of each other.
"""


def affinities(query: Tensor, key: Tensor, *, scale: float) -> Tensor:
    """Return how much positions of an image belong together: the mean over heads of P^`POWER`.

    A place that attends to another likely belongs to the same thing. Maps are propagated by them:
    they are multiplied by this matrix. A softmax raised to a power and normalized is the softmax of
    its scores times that power. After Nguyen et al. (Dataset Diffusion, arXiv 2309.14303).

    Args:
        query: (H, Q, d).
        key: (H, Q, d).
        scale: factor of QKᵀ before the power.

    Returns:
        (Q, Q), float32; every row sums to 1.
    """
    parts: list[Tensor] = []
    # Autocast would use half precision here.
    with torch.autocast(query.device.type, enabled=False):
        scaled = key.float().mT * (POWER * scale)
        for part in query_parts(query, key):
            p = (query[:, part].float() @ scaled).softmax(dim=-1)
            parts.append(p.mean(dim=0))
    return torch.cat(parts)


SMOOTH = 1e-3
"""The variance of colours (0 to 1) below which an image guides nothing.

Chosen on the drawn world; a tenth of it is a point better there, and worse on images with grain.
"""
_FINE = 6  # least radius in pixels at which the filter subsamples


def guided(image: np.ndarray, maps: np.ndarray, radius: int) -> np.ndarray:
    """Move the edges of maps to the edges of an image near them, by a guided filter.

    Around each pixel a map is taken for a linear function of the colours (He, Sun and Tang, *Guided
    Image Filtering*, TPAMI 2013; large images are subsampled after He and Sun, arXiv 1505.00996).
    Where the colours say nothing it is smoothed. The result of a half turn of the inputs is a half
    turn of the result.

    Args:
        image: uint8 (H, W, 3), of 3 pixels a side at least.
        maps: (N, H, W), 0 to 1.
        radius: pixels on each side that are looked at, 1 or more; as far as the maps are blurred.

    Returns:
        float32 (N, H, W), 0 to 1.
    """
    guide = torch.tensor(image).movedim(-1, 0)[None].float() / 255
    values = torch.tensor(maps, dtype=torch.float32)[None]
    # A window fits into the image.
    radius = min(radius, (min(image.shape[:2]) - 1) // 2)
    coarse = max(1, radius // _FINE)

    def blur(guide: Tensor, values: Tensor) -> Tensor:
        return guided_blur(guide, values, 2 * radius + 1, SMOOTH, subsample=coarse)

    result = blur(guide, values)
    if coarse > 1:
        # Subsampling takes the first pixel of each square, which moves a map by half a square. The
        # turned inputs move it back; linear functions of the colours keep their mean.
        turned = blur(guide.flip(-2, -1), values.flip(-2, -1))
        result = (result + turned.flip(-2, -1)) / 2
    return result[0].clamp(0, 1).numpy()
