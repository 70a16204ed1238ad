"""Rules that change attention probabilities: pure functions of P at a site.

A rule is any callable `rule(P, site) -> P'`: P holds one image's probabilities (H, Q, K) in float32
at one layer and step; P' has the same shape. A rule of your own needs no more:

    def flatten(p, site):
        return p.mean(dim=1, keepdim=True).expand_as(p)  # every place attends alike

The rules below also have `acts(site)`, False where the rule does nothing, so that nothing is
computed there. `Region` gives a bias before the softmax.

Prompt-to-prompt: Hertz et al., 2022, arXiv 2208.01626. Paint-with-Words: Balaji et al., 2022
(eDiff-I), arXiv 2211.01324, section 4.4.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, prod
from typing import Any

import torch
from msgspec import Struct, structs
from torch import Tensor
from torch.nn.functional import interpolate, max_pool2d, pad

from heedmap.checks import is_constant
from heedmap.errors import ArgumentError
from heedmap.mathematics.probabilities import constant, on_device

FINEST = 10_000
"""The largest denominator of a fraction of a run."""


@lru_cache(maxsize=4096)
def steps_within(start: float, end: float, steps: int) -> range:
    """Return the steps s of a run with `start ≤ s/steps < end`, from 0; fractions are 0 to 1.

    A bound counts as the nearest fraction p/q with q up to 10,000, the meaning of its decimal
    digits: 0.6 of 25 steps are 15, though `0.6 * 25` in floats may come out above 15. So there are
    ⌈end·steps⌉ − ⌈start·steps⌉ steps, and windows that meet leave no step out and take none twice.
    Prompt-to-prompt's own code (Hertz et al., 2022) rounds down instead: it takes cross-attention
    for the first ⌊f·(steps + 1)⌋ steps, self-attention for the first ⌊f·steps⌋.
    """
    bounds = (
        Fraction(float(bound)).limit_denominator(FINEST) for bound in (start, end)
    )
    low, high = (ceil(bound * steps) for bound in bounds)
    return range(max(low, 0), min(high, steps))


class Site(Struct, frozen=True, eq=False, gc=False):
    """A layer at a denoising step: the second argument of a rule of your own.

        def flatten(p, site):  # P, float32 (H, Q, K), of one image
            return p.mean(dim=1, keepdim=True).expand_as(p) if site.step < 5 else p
        heedmap.generate(pipe, "a red house", edits=[flatten])

    Attributes:
        layer: the layer's dotted path.
        step: the number of the step, from 0.
        steps: the number of steps of the whole run.
        grid: (h, w) of the layer; Q = h·w.
        source: the source prompt's probabilities (H, Q, K) at this site, if there is a source.
    """

    layer: str
    step: int
    steps: int
    grid: tuple[int, int]
    source: Tensor | None = None


Rule = Callable[[Tensor, Site], Tensor]


def is_biased(rule: object) -> bool:
    """Return whether a rule is a bias before the softmax."""
    rule = rule.rule if isinstance(rule, Within) else rule
    return isinstance(rule, Region)


@dataclass(frozen=True, eq=False)
class Inject:
    """Take columns of the source's attention: prompt-to-prompt's replace and refine.

    `P' = α ⊙ (P_src M) + (1 − α) ⊙ P`, with α 1 for a target token while `start ≤ step/steps < end`
    (`steps_within`), else 0: a new token, which keeps its own column, has an `end` of 0. M is from
    `text.alignment`.

    In a joint softmax the image's share is one more column, which is matched with itself. So rows
    sum to what they would without an image: to 1 if every token takes a column, and the rows of M
    sum to 1. The image's keys divide that share as they do in the target.

    Attributes:
        columns: M (K_src, K).
        start: (K,), fraction of the run from which each target token takes the source's column.
        end: (K,), fraction at which it stops.
        image: (start, end) of the share of the image, which a softmax of the text alone has not.
    """

    columns: Tensor
    start: Tensor
    end: Tensor
    image: tuple[float, float] = (0.0, 0.0)

    def acts(self, site: Site) -> bool:
        """Return whether a token takes the source's column at a site."""
        return any(_token_choice(self, site.step, site.steps))

    def __call__(self, p: Tensor, site: Site) -> Tensor:
        """Return P' (H, Q, K).

        Raises:
            ArgumentError: if there is no source.
        """
        if not self.acts(site):
            return p
        if site.source is None:
            raise ArgumentError(
                "this rule takes attention from a source prompt, and there is none: use it in "
                "edit(), which runs the source beside"
            )
        count, tokens = self.columns.shape
        columns = on_device(self.columns, p.device, p.dtype)
        source = site.source[..., :count] @ columns
        choice = _token_choice(self, site.step, site.steps)
        is_taken = constant(choice, torch.bool, p.device)
        edited = torch.where(is_taken, source, p[..., :tokens])
        # A batch may pad the prompt at the end.
        return torch.cat([edited, p[..., tokens:]], dim=-1)

    def joint(self, p: Tensor, site: Site) -> Tensor:
        """Return P' (H, Q, K + 1) of rows whose last column is the image's share."""
        if not self.acts(site):
            return p
        share = p[..., -1:]
        text_site = site
        if site.source is not None:
            text_site = structs.replace(site, source=site.source[..., :-1])
            if site.step in steps_within(*self.image, site.steps):
                share = site.source[..., -1:]
        return torch.cat([self(p[..., :-1], text_site), share], dim=-1)


@lru_cache(maxsize=64)
def _token_choice(rule: Inject, step: int, steps: int) -> tuple[bool, ...]:
    """Return for each token whether it takes the source's column at a step."""
    bounds = zip(rule.start, rule.end, strict=True)
    windows = [steps_within(float(low), float(high), steps) for low, high in bounds]
    return tuple(step in window for window in windows)


@dataclass(frozen=True, eq=False)
class Weights:
    """Multiply the attention that tokens draw: `P' = E ⊙ P`, not renormalized.

    Attributes:
        weights: E (K,); 1 leaves a token as it is, negative ones are allowed (−2 to 3 is useful).
    """

    weights: Tensor

    def acts(self, site: Site) -> bool:
        """Return whether a weight is not 1."""
        return bool((self.weights != 1).any())

    def __call__(self, p: Tensor, site: Site) -> Tensor:
        """Return P' (H, Q, K), whose rows do not sum to 1."""
        if not self.acts(site):
            return p
        added = p.shape[-1] - len(self.weights)
        weights = on_device(self.weights, p.device, p.dtype)
        return p * pad(weights, (0, added), value=1.0)


@dataclass(frozen=True, eq=False)
class Renormalize:
    """Divide each row by the sum of its magnitudes: `P'' = P' / Σ|P'|`.

    After weights of 0 and above rows sum to 1 again, so that the output stays a mean of values.
    Negative weights keep their sign, and a row whose parts cancel stays finite. A row of zeros
    stays as it is.
    """

    def acts(self, site: Site) -> bool:
        """Return False: rows sum to 1 unless another rule acts."""
        return False

    def __call__(self, p: Tensor, site: Site) -> Tensor:
        """Return P' (H, Q, K)."""
        total = p.abs().sum(dim=-1, keepdim=True)
        return p / torch.where(total > 0, total, torch.ones_like(total))


@dataclass(frozen=True, eq=False)
class Region:
    """Keep tokens' attention inside a region, and so place the things that they name.

    A bias before the softmax, as in Paint-with-Words: outside the region the tokens cannot be seen,
    inside they are raised by `strength`, while `start ≤ step/steps < end`. Paint-with-Words raises
    them by `w log(1 + σ) max(QKᵀ)`; here the strength is equal at all steps and layers, since σ has
    no bound where a schedule ends in pure noise. A window takes its place.

    Attributes:
        tokens: positions on the K axis.
        region: (h, w) of any size, 1 inside, 0 outside; resized to each layer's grid, where a cell
            counts as inside if at least half of it is (or, if no cell is, the fullest one).
        strength: added to the scores inside, in natural logarithms: 1 multiplies the odds by e.
        start: fraction of the run at which the rule begins.
        end: fraction at which it ends.
        others: more regions of the same tokens, which are hidden outside of all that act; where
            regions overlap, their strengths add up.
    """

    tokens: tuple[int, ...]
    region: Tensor
    strength: float
    start: float = 0.0
    end: float = 1.0
    others: tuple["Region", ...] = ()

    def acts(self, site: Site) -> bool:
        """Return whether a step is in the window of a region."""
        return bool(self._acting(site))

    def _acting(self, site: Site) -> list["Region"]:
        """Return the regions in whose window a step is."""
        return [
            region
            for region in (self, *self.others)
            if site.step in steps_within(region.start, region.end, site.steps)
        ]

    def bias(self, site: Site) -> Tensor | None:
        """Return the bias (Q, K) up to the last of the tokens; -inf for hidden ones."""
        acting = tuple(self._acting(site))
        return _bias(self.tokens, acting, site.grid) if acting else None


@lru_cache(maxsize=16)
def _bias(
    tokens: tuple[int, ...],
    regions: tuple[Region, ...],
    grid: tuple[int, int],
) -> Tensor:
    """Return the bias (Q, K') of tokens in regions."""
    inside = torch.stack([cells_inside(one.region, grid) for one in regions])
    strengths = torch.tensor([one.strength for one in regions])
    column = torch.where(inside.any(dim=0), strengths @ inside.float(), float("-inf"))
    bias = torch.zeros(len(column), max(tokens) + 1)
    bias[:, list(tokens)] = column[:, None]
    return bias


def cells_inside(region: Tensor, grid: tuple[int, int]) -> Tensor:
    """Return the cells (Q,) of a grid that are inside of a region (H, W): bool.

    At least half of such a cell is; or, if that is true of none, it is the fullest one.
    """
    rows, columns = map(_overlaps, region.shape, grid)
    area = region.numel() / prod(grid)
    share = (rows @ region.float() @ columns.mT).flatten() / area
    return share >= min(0.5, float(share.max()))


def _overlaps(pixels: int, cells: int) -> Tensor:
    """Return how much of each pixel lies in each cell of an axis: (cells, pixels)."""
    side = pixels / cells
    start = torch.arange(cells)[:, None] * side
    pixel = torch.arange(pixels)
    overlaps = torch.minimum(start + side, pixel + 1) - torch.maximum(start, pixel)
    return overlaps.clamp_min(0.0)


@dataclass(frozen=True)
class Sites:
    """The layers, heads and steps at which an edit acts.

    Attributes:
        layers: the dotted paths of layers, also of self-attention layers.
        steps: the numbers of steps.
        heads: the numbers of heads.
    """

    layers: Collection[str]
    steps: Collection[int]
    heads: Collection[int]

    def __contains__(self, site: Site) -> bool:
        return site.layer in self.layers and site.step in self.steps

    def choose(self, edited: Tensor, plain: Tensor) -> Tensor:
        """Return the edited (H, …) in these heads, and the plain ones (H, …) in the others."""
        if edited is plain:
            return edited
        chosen = tuple(head in self.heads for head in range(len(plain)))
        is_chosen = constant(chosen, torch.bool, plain.device)
        return torch.where(is_chosen[:, None, None], edited, plain)


@dataclass(frozen=True, eq=False)
class Within:
    """A rule of this file that acts at some sites alone."""

    rule: Any
    sites: Sites

    def acts(self, site: Site) -> bool:
        """Return whether the rule acts at a site."""
        return site in self.sites and self.rule.acts(site)

    def bias(self, site: Site) -> Tensor | None:
        """Return the bias (Q, K') of the rule, for the heads of `sites`."""
        return self.rule.bias(site) if site in self.sites else None

    def __call__(self, p: Tensor, site: Site, *, joint: bool = False) -> Tensor:
        """Return P' (H, Q, K); if `joint`, the last column is the image's share."""
        if site not in self.sites:
            return p
        return self.sites.choose(apply([self.rule], p, site, joint=joint), p)


OwnRule = Inject | Weights | Renormalize | Region | Within
"""A rule of this file, whose result needs no check."""


def acts(rule: Rule, site: Site) -> bool:
    """Return whether a rule may change something at a site; a function always may."""
    return not isinstance(rule, OwnRule) or rule.acts(site)


def apply(
    rules: Iterable[Rule],
    p: Tensor,
    site: Site,
    *,
    joint: bool = False,
) -> Tensor:
    """Return P' (H, Q, K) after all rules but biases, in order.

    If `joint`, P is (H, Q, K + 1), and the last column is the image's share. `Inject` and
    `Renormalize` act on whole rows; the source's at the site are such rows, too. All other rules
    are given the K text tokens, and leave the image's share as it is.
    """
    for rule in rules:
        if joint and isinstance(rule, Inject):
            p = rule.joint(p, site)
        elif isinstance(rule, Within):
            p = rule(p, site, joint=joint)
        elif joint and not isinstance(rule, Renormalize):
            text = p[..., :-1]
            edited = rule(text, site)
            if edited is not text:
                p = torch.cat([edited, p[..., -1:]], dim=-1)
        else:
            p = rule(p, site)
    return p


def rule_name(rule: object) -> str:
    """Return the name of a rule for messages and settings."""
    return getattr(rule, "__name__", type(rule).__name__)


def checked_result(rule: Rule, edited: Any, p: Tensor) -> Tensor:
    """Return the result of a rule for P (H, Q, K), in the type of P.

    Raises:
        ArgumentError: if it is not a tensor of floats or bool of that shape and on that device.
    """
    is_fit = isinstance(edited, Tensor) and (
        (edited.shape, edited.device) == (p.shape, p.device)
        and (edited.is_floating_point() or edited.dtype == torch.bool)
    )
    if not is_fit:
        raise ArgumentError(
            f"the rule {rule_name(rule)} gave {type(edited).__name__} of shape "
            f"{getattr(edited, 'shape', None)}: expected a tensor of floats of the same shape "
            f"(H, Q, K) = {tuple(p.shape)} on {p.device}"
        )
    return edited.to(p)


# --- the blend of latents -----------------------------------------------------------------------


def blend_mask(maps: Tensor, size: tuple[int, int], threshold: float) -> Tensor:
    """Return the places where a word is read, pooled, enlarged, and cut.

    The LocalBlend of prompt-to-prompt (arXiv 2208.01626) divides by the maximum alone. Here the
    minimum is taken off first: maps may have a high floor (about half of the maximum on the
    embedded model), which is everywhere.

    Args:
        maps: (h, w), strength of a word at each place, on a scale of its own.
        size: (h, w) of the latent.
        threshold: 0 to 1, between the least and the greatest value.

    Returns:
        bool (h, w) of the latent; nothing if a map is constant but for rounding.
    """
    pooled = max_pool2d(maps[None, None].float(), kernel_size=3, stride=1, padding=1)
    # A constant map would not stay constant when enlarged.
    if is_constant(float(pooled.min()), float(pooled.max())):
        return torch.zeros(size, dtype=torch.bool, device=maps.device)
    large = interpolate(pooled, size=size, mode="bilinear")[0, 0]
    low, high = large.aminmax()
    return large > low + threshold * (high - low)
