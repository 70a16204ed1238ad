"""Rules that change attention probabilities: pure functions of P at a site.

A rule is any callable `rule(P, site) -> P'`: P holds one image's probabilities (H, Q, K) in float32
at one layer and step; P' has the same shape. That is all that a rule of your own needs:

    def flatten(p, site):
        return p.mean(dim=1, keepdim=True).expand_as(p)  # every place attends alike

The rules below are linear in P, or a bias before the softmax, and say so (`mix`, `bias`): then the
edited output is a plain attention with other values or another mask, and no (H, Q, K) tensor is
made. `apply` gives the same by the definition, and is what the fast way is tested against.

Prompt-to-prompt: Hertz et al., 2022, arXiv 2208.01626. Paint-with-Words: Balaji et al., 2022
(eDiff-I), arXiv 2211.01324, section 4.4.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any, Protocol, TypeGuard, cast

import torch
from torch.nn.functional import interpolate, max_pool2d, pad

from heedmap.checks import alike
from heedmap.errors import ArgumentError

FINEST = 10_000
"""Fractions of a run are told apart up to this denominator."""


@lru_cache(maxsize=4096)
def steps_within(start: float, end: float, steps: int) -> range:
    """The steps s of a run with `start ≤ s/steps < end`, in whole numbers.

    A bound counts as the nearest fraction p/q with q up to 10,000, which is what was meant by its
    decimal digits: 0.6 of 25 steps are 15, though `0.6 * 25` in floats may come out above 15. So
    there are ⌈end·steps⌉ − ⌈start·steps⌉ of them, and windows that meet leave no step out and take
    none twice. Prompt-to-prompt's own code (Hertz et al., 2022) rounds down instead: it takes
    cross-attention for the first ⌊f·(steps + 1)⌋ steps, self-attention for the first ⌊f·steps⌋.

    Args:
        start: the fraction of the run from which on, 0 to 1.
        end: the fraction up to which, 0 to 1.
        steps: of the whole run.

    Returns:
        The numbers of the steps, from 0; none if `end` is not above `start`.
    """
    bounds = (Fraction(float(bound)).limit_denominator(FINEST) for bound in (start, end))
    low, high = (ceil(bound * steps) for bound in bounds)
    return range(max(low, 0), min(high, steps))


@dataclass(frozen=True, eq=False)
class Site:
    """A layer at a denoising step.

    Attributes:
        layer: the layer's dotted path.
        step: from 0.
        steps: of the whole run.
        grid: (h, w) of the layer.
        source: the source prompt's probabilities (H, Q, K) at the same site, where there is one.
    """

    layer: str
    step: int
    steps: int
    grid: tuple[int, int]
    source: torch.Tensor | None = None


Rule = Callable[[torch.Tensor, Site], torch.Tensor]


@dataclass(frozen=True, eq=False)
class Mix:
    """Probabilities mixed from the source's and the prompt's own: P' = P_src A + P B.

    Attributes:
        source: A (K, K), or None where the source has no part.
        own: B (K, K).
    """

    source: torch.Tensor | None
    own: torch.Tensor

    def __call__(self, p: torch.Tensor, source: torch.Tensor | None) -> torch.Tensor:
        """P' (…, Q, K), made of P and P_src.

        Raises:
            ArgumentError: if the source takes part and is missing.
        """
        mixed = p @ self.own.to(p)
        if self.source is None:
            return mixed
        if source is None:
            raise no_source()
        return mixed + source @ self.source.to(p)

    def then(self, other: "Mix") -> "Mix":
        """This mixture, followed by another one."""
        source = None if self.source is None else self.source @ other.own
        if other.source is not None:
            source = other.source if source is None else source + other.source
        return Mix(source, self.own @ other.own)


def no_source() -> ArgumentError:
    """The error of a rule that takes from a source prompt where there is none."""
    return ArgumentError(
        "this rule takes attention from a source prompt, and there is none: use it in edit(), "
        "which runs the source beside"
    )


class Linear(Protocol):
    """A rule that is linear in P and P_src."""

    def mix(self, site: Site) -> Mix | None:
        """Its matrices at a site; None where it does nothing."""
        ...


class Biased(Protocol):
    """A rule that is a bias on the scores before the softmax."""

    def bias(self, site: Site) -> torch.Tensor | None:
        """Its bias (Q, K) at a site, -inf for what may not be seen; None where it does nothing."""
        ...


def is_linear(rule: object) -> TypeGuard[Linear]:
    """Whether a rule gives its matrices; a `mix` that is a number or a layer does not."""
    return callable(getattr(rule, "mix", None))


def is_biased(rule: object) -> TypeGuard[Biased]:
    """Whether a rule gives its bias; a `bias` that is a number or a layer's parameter does not."""
    return callable(getattr(rule, "bias", None))


@dataclass(frozen=True, eq=False)
class Inject:
    """Take columns of the source's attention: prompt-to-prompt's replace and refine.

    `P' = α ⊙ (P_src M) + (1 − α) ⊙ P`, with α 1 for a target token while `start ≤ step/steps <
    end` (`windows.steps_within`), else 0: a new token, which keeps its own column, has an `end` of
    0. M is from `text.alignment`: its columns stay with their own words after a swap that
    changes the number of tokens.

    Attributes:
        columns: M (K_src, K).
        start: (K,), fractions of the run from which each target token takes the source's column.
        end: (K,), fractions up to which it does.
    """

    columns: torch.Tensor
    start: torch.Tensor
    end: torch.Tensor

    def mix(self, site: Site) -> Mix | None:
        """A = M diag(α), B = diag(1 − α)."""
        starts: list[float] = cast(Any, self.start).tolist()
        ends: list[float] = cast(Any, self.end).tolist()
        windows = zip(starts, ends, strict=True)
        acts = [site.step in steps_within(*window, site.steps) for window in windows]
        alpha = torch.tensor(acts, dtype=torch.float32)
        return Mix(self.columns * alpha, torch.diag(1 - alpha)) if alpha.any() else None

    def __call__(self, p: torch.Tensor, site: Site) -> torch.Tensor:
        """P' (H, Q, K)."""
        mix = self.mix(site)
        return p if mix is None else mix(p, site.source)


@dataclass(frozen=True, eq=False)
class Weights:
    """Multiply the attention that tokens draw: `P' = E ⊙ P`, not renormalised.

    Attributes:
        weights: E (K,); 1 leaves a token as it is, negative ones are allowed (−2 to 3 is useful).
    """

    weights: torch.Tensor

    def mix(self, site: Site) -> Mix | None:
        """B = diag(E)."""
        return None if bool((self.weights == 1).all()) else Mix(None, torch.diag(self.weights))

    def __call__(self, p: torch.Tensor, site: Site) -> torch.Tensor:
        """P' (H, Q, K); its rows do not sum to 1."""
        return p * self.weights.to(p)


@dataclass(frozen=True, eq=False)
class Renormalize:
    """Divide each row by the sum of its magnitudes; after `Weights`, where wanted.

    `P'' = P' / Σ|P'|`: with weights of 0 and above rows sum to 1 again, so that what is taken in
    stays a mean of values however much a word weighs. Negative weights keep their sign, and a row
    whose parts cancel is not blown up. A row of zeros is left as it is.
    """

    def __call__(self, p: torch.Tensor, site: Site) -> torch.Tensor:
        """P' (H, Q, K)."""
        total = p.abs().sum(dim=-1, keepdim=True)
        return p / torch.where(total > 0, total, torch.ones_like(total))


@dataclass(frozen=True, eq=False)
class Region:
    """Keep tokens' attention inside of a region, and so place what they name.

    A bias before the softmax, as in Paint-with-Words: outside of the region the tokens cannot be
    seen at all, inside they are raised by `strength`, while `start ≤ step/steps < end`. Paint-with-
    Words raises them by `w log(1 + σ) max(QKᵀ)`; here the strength is the same at all steps and
    layers, since σ has no bound where a schedule ends in pure noise. A window takes its place.

    Attributes:
        tokens: positions on the K axis.
        region: (h, w) of any size, 1 inside, 0 outside; resized to each layer's grid, where a cell
            counts as inside if at least half of it is (or, if no cell is, the fullest one).
        strength: added to the scores inside, in natural logarithms: 1 multiplies the odds by e.
        start: fraction of the run from which the rule holds.
        end: fraction up to which it holds.
    """

    tokens: tuple[int, ...]
    region: torch.Tensor
    strength: float
    start: float = 0.0
    end: float = 1.0

    def bias(self, site: Site) -> torch.Tensor | None:
        """(Q, K) with as many columns as the last of the tokens; the rest is 0."""
        if site.step not in steps_within(self.start, self.end, site.steps):
            return None
        share = interpolate(self.region[None, None].float(), size=site.grid, mode="area").flatten()
        inside = share >= min(0.5, float(share.max()))
        columns = torch.where(inside, self.strength, float("-inf"))
        bias = torch.zeros(len(columns), max(self.tokens) + 1)
        bias[:, list(self.tokens)] = columns[:, None]
        return bias

    def __call__(self, p: torch.Tensor, site: Site) -> torch.Tensor:
        """P' (H, Q, K): what the softmax gives of biased scores, P e^b / Σ P e^b.

        As softmax(log P + b), with b taken from its largest in each row, so that no strength
        overflows or costs digits. A token that the softmax had rounded to 0 is not brought back,
        and a row in which nothing is left to be seen is NaN, as of the softmax.
        """
        bias = self.bias(site)
        if bias is None:
            return p
        bias = pad(bias.to(p), (0, p.shape[-1] - bias.shape[1]))
        seen = bias.expand_as(p).masked_fill(p <= 0, float("-inf"))
        return (p.log() + (bias - seen.amax(dim=-1, keepdim=True))).softmax(dim=-1)


def apply(rules: Iterable[Rule], p: torch.Tensor, site: Site) -> torch.Tensor:
    """P' (H, Q, K) after all rules, one after the other.

    Raises:
        ArgumentError: if a rule changes the shape.
    """
    for rule in rules:
        p = checked_result(rule, rule(p, site), p, site)
    return p


def checked_result(rule: Rule, edited: Any, p: torch.Tensor, site: Site) -> torch.Tensor:
    """The result of a rule for P (H, Q, K), in the type of P and on its device.

    Raises:
        ArgumentError: if it is not a tensor of numbers of the same shape, or holds NaN or Inf.
    """
    if not isinstance(edited, torch.Tensor) or edited.shape != p.shape or edited.is_complex():
        given = type(edited).__name__
        if isinstance(edited, torch.Tensor):
            given = f"{str(edited.dtype).removeprefix('torch.')} of shape {tuple(edited.shape)}"
        raise ArgumentError(
            f"the rule {_named(rule)} gave {given}: expected a tensor of floats of the same shape "
            f"(H, Q, K) = {tuple(p.shape)}"
        )
    edited = edited.to(p)
    if not bool(edited.isfinite().all()):
        raise ArgumentError(
            f"the rule {_named(rule)} gave NaN or Inf at step {site.step} in {site.layer}: "
            "expected finite numbers; does it divide by 0?"
        )
    return edited


def _named(rule: Rule) -> str:
    # Only where it is needed: the text of an object that holds tensors takes as long as a layer.
    return getattr(rule, "__name__", None) or repr(rule)


def mixture(rules: Sequence[Rule], site: Site) -> Mix | None:
    """All rules as one mixture, if all are linear; None if one is not, or if none does anything.

    `linear` tells the last two cases apart.
    """
    whole: Mix | None = None
    for rule in rules:
        part = rule.mix(site) if is_linear(rule) else None
        if part is not None:
            whole = part if whole is None else whole.then(part)
    return whole


def linear(rules: Iterable[Rule]) -> bool:
    """Whether `mixture` can express all of these rules."""
    return all(map(is_linear, rules))


# --- the blend of latents ---------------------------------------------------------------------


def blend_mask(maps: torch.Tensor, size: tuple[int, int], threshold: float) -> torch.Tensor:
    """Where a word acts, for `blend`: pooled, enlarged, brought to 0 to 1, cut.

    The LocalBlend of prompt-to-prompt (arXiv 2208.01626), which divides by the maximum alone. Maps
    may lie on a high floor (on the embedded model about half of the maximum), which is everywhere
    and says nothing: it is taken off first. Where the floor is low, as on larger models, both are
    nearly the same.

    Args:
        maps: (h, w), how far a word acts at each place, on a scale of its own.
        size: (h, w) of the latent.
        threshold: 0 to 1, between the least and the greatest value.

    Returns:
        bool (h, w) of the latent; nothing where a map is the same everywhere, but for rounding.
    """
    pooled = max_pool2d(maps[None, None].float(), kernel_size=3, stride=1, padding=1)
    # Enlarging would not leave the same everywhere what is.
    if alike(float(pooled.min()), float(pooled.max())):
        return torch.zeros(size, dtype=torch.bool, device=maps.device)
    large = interpolate(pooled, size=size, mode="bilinear")[0, 0]
    low, high = large.aminmax()
    return large > low + threshold * (high - low)


def blend(source: torch.Tensor, target: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The target inside of the mask, to the bit, and the source outside of it.

    Args:
        source: (C, h, w) latent of the source.
        target: (C, h, w) latent of the target.
        mask: bool (h, w).
    """
    return torch.where(mask, target, source)
