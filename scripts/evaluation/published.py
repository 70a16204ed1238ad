"""Ways of others to make a map of a word, each a pure function of tensors.

What they take is heard by `listening`; how they do is asked by `truth`. Axes, by the letters used
all through heedmap: L layer · H head · Q place (row-major over the layer's grid) · K text token ·
C channel · h, w a grid.
"""

from collections.abc import Sequence

import torch
from torch.nn.functional import interpolate, normalize

# --- GoCA: Meng et al., arXiv 2603.06178 ------------------------------------------------------


def head_weights(brought: torch.Tensor) -> torch.Tensor:
    """What each head has of what a layer brings to each place.

    GoCA's weights of heads: with o_h = A_h V_h W_h, of which the layer's output is the sum,
    w_h(q) = ⟨o_h(q), Σ o(q)⟩ / ‖Σ o(q)‖². A head that works against the others weighs below 0.

    Args:
        brought: o, (H, Q, C).

    Returns:
        (H, Q), each place's sum 1; where the heads cancel each other exactly, 0.
    """
    whole = brought.sum(dim=0)
    part = torch.einsum("hqc,qc->hq", brought, whole)
    total = part.sum(dim=0)
    return torch.where(total > 0, part / total, torch.zeros_like(part))


def affinity(features: torch.Tensor) -> torch.Tensor:
    """Which places are alike: softmax(F Fᵀ/√C), as GoCA has it of a layer's features.

    Args:
        features: F, (Q, C).

    Returns:
        (Q, Q), rows sum to 1.
    """
    return (features @ features.T / features.shape[-1] ** 0.5).softmax(dim=-1)


def layer_weights(own: Sequence[torch.Tensor], alike: torch.Tensor) -> torch.Tensor:
    """How much each layer's attention of the picture to itself is like an affinity of features.

    GoCA's weights of layers: w_l ∝ Σ_ij S_l[i, j] · F[i, j].

    Args:
        own: L matrices S_l, (Q, Q) each, on the grid of the affinity.
        alike: F, (Q, Q), as `affinity` gives it.

    Returns:
        (L,), which sum to 1.
    """
    weights = torch.stack([(one * alike).sum() for one in own])
    return weights / weights.sum()


def on_grid(own: torch.Tensor, grid: tuple[int, int], other: tuple[int, int]) -> torch.Tensor:
    """Self-attention (Q, Q) of a grid (h, w) on another, (Q', Q'): rows sum to 1 as before.

    As GoCA has it, each place repeated as it asks, and bilinear as it is asked; but for the sum of
    rows, which there grows with the number of places, so that coarse layers would weigh more.
    """
    if grid == other:
        return own
    asked = interpolate(own.reshape(-1, 1, *grid), size=other, mode="bilinear")
    rows = asked.flatten(1).T.reshape(-1, 1, *grid)
    made = interpolate(rows, size=other, mode="nearest").flatten(1).T
    return made * (own.sum(dim=-1).mean() / made.sum(dim=-1, keepdim=True))


def aggregated(
    maps: Sequence[torch.Tensor], heads: Sequence[torch.Tensor], layers: torch.Tensor
) -> torch.Tensor:
    """Maps of all tokens, with weights of heads at each place and of layers; each place's sum is 1.

    GoCA's aggregation, Σ_l w_l Σ_h w_lh(q) A_lh(q, k), nothing below 0, by its sum over k.

    Args:
        maps: L times A_l, (H, Q, K), on one grid.
        heads: L times (H, Q), as `head_weights` gives them.
        layers: (L,), as `layer_weights` gives them.

    Returns:
        (Q, K).
    """
    weighed = [torch.einsum("hqk,hq->qk", a, w) for a, w in zip(maps, heads, strict=True)]
    total = torch.einsum("lqk,l->qk", torch.stack(weighed), layers).clamp(min=0)
    return total / total.sum(dim=-1, keepdim=True).clamp(min=1e-12)


def rescaled(maps: torch.Tensor, tokens: Sequence[int], among: Sequence[int]) -> torch.Tensor:
    """What a word has of what some tokens have at each place: GoCA's rescaling by pixels.

    m(q) = Σ_{k of the word} A(q, k) / Σ_{k among} A(q, k).

    Args:
        maps: A, (Q, K).
        tokens: the word's.
        among: those that are meant to share each place.

    Returns:
        (Q,).
    """
    total = maps[:, list(among)].sum(dim=-1)
    return maps[:, list(tokens)].sum(dim=-1) / total.clamp(min=1e-12)


def carried(own: torch.Tensor, values: torch.Tensor, times: int) -> torch.Tensor:
    """A map (Q,) carried so many times along self-attention (Q, Q): S^times · m."""
    for _ in range(times):
        values = own @ values
    return values


# --- iSeg: Sun et al., arXiv 2409.03209 -------------------------------------------------------


def entropy_reduced(own: torch.Tensor, rate: float) -> torch.Tensor:
    """Self-attention after a step down its entropy, which takes away what is faint.

    As iSeg does it: with A each column by its greatest, and E = -Σ A ln A, a step against dE/dA is
    A' = max(0, A + rate · (ln A + 1)); then rows are made to sum to 1. What was 0 stays 0.

    Args:
        own: (Q, Q), row i what place i attends to.
        rate: the length of the step; the paper's λ is of base 10, rate · ln 10.

    Returns:
        (Q, Q), rows sum to 1; one of which nothing is left attends to itself.
    """
    scaled = own / own.amax(dim=0, keepdim=True).clamp(min=1e-30)
    step = torch.where(scaled > 0, scaled.clamp(min=1e-30).log() + 1, torch.zeros_like(scaled))
    left = (scaled + rate * step).clamp(min=0)
    left = left + torch.diag((left.sum(dim=-1) == 0).to(left))
    return left / left.sum(dim=-1, keepdim=True)


def repeated(transition: torch.Tensor, values: torch.Tensor, times: int) -> torch.Tensor:
    """A map carried again and again, from its least each time: iSeg's repetition.

    m ← T m; m ← (m - min m) / Σ (m - min m), after the same of the map to begin with.

    Args:
        transition: T, (Q, Q), as `entropy_reduced` gives it.
        values: m, (Q,).
        times: how often.

    Returns:
        (Q,), from 0 on, sum 1; a constant map is 0.
    """

    def from_least(m: torch.Tensor) -> torch.Tensor:
        m = m - m.min()
        return m / m.sum().clamp(min=1e-30)

    values = from_least(values)
    for _ in range(times):
        values = from_least(transition @ values)
    return values


# --- gated graphs: after AnchorDiff, Zhang and Zhang, arXiv 2605.26460 ------------------------


def gated(own: torch.Tensor, outputs: torch.Tensor, gate: float, power: float) -> torch.Tensor:
    """A graph of places: edges by the likeness of outputs, where attention lets them through.

    G[i, j] = max(0, cos(o_i, o_j))^power where A[i, j] ≥ gate · max_j A[i, j], else 0; rows are
    made to sum to 1. AnchorDiff's abstract tells of a graph with "output-space similarity" and "a
    row-wise attention gate"; these two equations are heedmap's reading of it.

    Args:
        own: A, self-attention (Q, Q).
        outputs: o, what self-attention brings to each place, (Q, C).
        gate: 0 to 1; 0 lets all through.
        power: above 0; the higher, the more alike must places be.

    Returns:
        (Q, Q), rows sum to 1.
    """
    unit = normalize(outputs, dim=-1)
    alike = (unit @ unit.T).clamp(min=0) ** power
    open_to = own >= gate * own.amax(dim=-1, keepdim=True)
    edges = alike * (open_to | torch.eye(len(own), dtype=torch.bool))
    return edges / edges.sum(dim=-1, keepdim=True)


def walked(graph: torch.Tensor, seed: torch.Tensor, times: int, stay: float) -> torch.Tensor:
    """Where a walk over a graph ends that begins anew from a seed now and then.

    m ← stay · seed + (1 - stay) · G m, so many times, from the seed on.

    Args:
        graph: G, (Q, Q), rows sum to 1.
        seed: (Q,).
        times: steps.
        stay: 0 to 1.

    Returns:
        (Q,).
    """
    values = seed
    for _ in range(times):
        values = stay * seed + (1 - stay) * (graph @ values)
    return values


def anchor(values: torch.Tensor) -> torch.Tensor:
    """The one place of a map (Q,) that is surest, as a seed: AnchorDiff's."""
    seed = torch.zeros_like(values)
    seed[values.argmax()] = 1
    return seed
