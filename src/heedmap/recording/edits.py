"""Edits of attention: of words, by rules, and the controller that applies them.

`generate` takes edits as `edits=[…]`. `Reweight` and `Confine` name a word of the prompt, and make
rules of `mathematics` once the prompt is read. Any callable `rule(P, site) -> P'` is an edit, too.
`Steering` computes the rules for one layer; `AttentionController` does so while a pipeline runs.
All functions make new tensors, so that nothing that is recorded changes; only the output of the
attention, fresh from the kernel, is changed in place (a copy of it where gradients are tracked).
"""

import inspect
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from msgspec import structs
from PIL import Image
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from heedmap.backends.base import Family, GridShape
from heedmap.checks import as_list, check_bool, check_float, check_text
from heedmap.errors import ArgumentError, quoted, warn
from heedmap.io.schemas import (
    MAX_EDITS,
    Confined,
    Mask,
    Reweighted,
    Ruled,
    WordEditNoted,
)
from heedmap.maps import masks
from heedmap.mathematics.probabilities import Scores, columns, less_largest
from heedmap.mathematics.rules import (
    Region,
    Renormalize,
    Rule,
    Site,
    Weights,
    apply,
    apply_joint,
    checked_result,
    is_biased,
    is_linear,
    mixture,
    no_source,
    rule_name,
    steps_within,
)
from heedmap.options import EditOptions, check_window
from heedmap.recording.accumulation import SiteProbabilities
from heedmap.text.prompts import describes
from heedmap.text.weights import MOST_WEIGHT
from heedmap.text.words import TokenTable


@dataclass(frozen=True)
class Reweight:
    """The attention of a word or phrase times a weight, as `(word:3)` in a prompt.

        heedmap.generate(pipe, "a red house", edits=[heedmap.Reweight("red", 3)])

    Attributes:
        word: a word or phrase of the prompt, at all its places.
        weight: 1 changes nothing, 0 removes the word's attention, negative weights work against it;
            −2 to 3 is useful. In a joint softmax (SD 3, Flux) the image's attention to itself
            stays as it is, so that the sum of a row changes.
        renormalize: if True, the probabilities are scaled to sum to 1 again, so that the other
            tokens lose as much as the word gains.

    Raises:
        ArgumentError: if the weight is not a number from -1e6 to 1e6.
    """

    word: str
    weight: float
    renormalize: bool = False

    def __post_init__(self) -> None:
        name, most = (
            quoted(check_text("the word to weight", self.word, "red")),
            MOST_WEIGHT,
        )
        vars(self).update(
            weight=check_float(
                f"the weight of {name}", self.weight, least=-most, most=most
            ),
            renormalize=check_bool(f"renormalize of {name}", self.renormalize),
        )

    def rules(self, table: TokenTable, size: tuple[int, int]) -> list[Rule]:
        """Return the rules for a prompt; HeedmapError if the model does not read the word."""
        weights = weights_rule(dict.fromkeys(table.find(self.word), self.weight), table)
        return [weights, Renormalize()] if self.renormalize else [weights]


@dataclass(frozen=True, eq=False)
class Confine:
    """The attention of a word kept inside of a region of the image, which places its object.

        half = (0, 0, 64, 128)
        heedmap.generate(pipe, "a red cat in the snow", edits=[heedmap.Confine("cat", half)])

    The word is hidden from all positions outside of the region, and its attention is raised inside,
    in the first part of the run, which settles where things are (`mathematics.rules.Region`). The
    words that describe it are confined with it. The end of the text and the padding have read the
    word, so they are hidden outside as well; with several words confined, they are seen where the
    regions meet. In a joint softmax (SD 3, Flux) the image gets the share of the hidden words; a
    position from which the whole prompt is hidden reads nothing.

    Several regions of one word, as in `[Confine("cats", left), Confine("cats", right)]`, are
    united: it is seen in each, and raised by the sum of the strengths where they overlap.

    Attributes:
        word: a word or phrase of the prompt, at all its places.
        where: a box (left, top, right, bottom) in pixels of the image, from its top left corner,
            as PIL has it, right and bottom excluded (fractions of the image are to be multiplied
            by its width and height); or a mask of the image's size: a numpy array of bool (H, W),
            True inside, or a PIL image of mode "1" or "L" (128 and above is inside).
        strength: added to the scores inside, in natural logarithms: 1 multiplies the odds by e.
        start: fraction of the run from which it acts, 0 to 1.
        end: fraction up to which it acts, 0 to 1.
        along: the words of the prompt that are confined with it. If None, those that describe it:
            up to two, back to the article, number, preposition, conjunction, "-ing" or sign before
            them (of English; in other languages name them), or to a word that another `Confine` of
            the run names.
        tail: if True, the end and the padding are hidden outside. Where they carry much of the rest
            of the image, False may draw it better, and place the word less surely.

    Raises:
        ArgumentError: if `where` is neither a box nor a mask, or a number is out of range.

    After Paint-with-Words (eDiff-I: Balaji et al., 2022, arXiv 2211.01324, section 4.4).
    """

    word: str
    where: Sequence[float] | np.ndarray | Image.Image
    strength: float = 3.0
    start: float = 0.0
    end: float = 0.6
    along: Sequence[str] | None = None
    tail: bool = True

    def __post_init__(self) -> None:
        name = quoted(check_text("the word to confine", self.word, "cat"))
        along = [] if self.along is None else as_list(self.along)
        if along is None or not all(isinstance(word, str) for word in along):
            raise ArgumentError(
                f"along of {name} is {quoted(self.along)}: expected a list of words, as in ['red']"
            )
        start, end = check_window(f"the window of {name}", (self.start, self.end))
        vars(self).update(
            where=masks.place(self.where, name),
            strength=check_float(
                f"the strength of {name}", self.strength, least=-1e6, most=1e6
            ),
            start=start,
            end=end,
            along=None if self.along is None else tuple(along),
            tail=check_bool(f"tail of {name}", self.tail),
        )

    def rules(self, table: TokenTable, size: tuple[int, int]) -> list[Rule]:
        """Return the rules for a prompt and an image's (width, height), as of the only `Confine`.

        Raises:
            HeedmapError: if the model does not read a word, or the image has no such region.
        """
        return confining_rules([self], table, size)


def confining_rules(
    edits: Sequence[Confine], table: TokenTable, size: tuple[int, int]
) -> list[Rule]:
    """Return the rules of all confined words of a prompt; those of one token are a single rule.

    The image's size is (width, height). The tail is hidden where a word is that hides it.
    """
    places: list[Region] = []
    named: list[set[int]] = []
    for edit in edits:
        inside: Any = edit.where  # as `masks.place` returns it
        region = torch.from_numpy(masks.region(inside, *size, quoted(edit.word)))
        places.append(Region((), region, edit.strength, edit.start, edit.end))
        named.append(
            {n for word in (edit.word, *(edit.along or ())) for n in table.find(word)}
        )
    edits_of: dict[int, tuple[int, ...]] = {}  # the numbers of a token's edits
    for number, edit in enumerate(edits):
        tokens = named[number]
        if edit.along is None:
            tokens = tokens.union(_describing(table, edit.word, set().union(*named)))
        for token in tokens:
            edits_of[token] = (*edits_of.get(token, ()), number)
    rules: list[Rule] = []
    tail = table.positions("end", "pad")
    for numbers in dict.fromkeys(edits_of.values()):
        tokens = tuple(
            sorted(token for token in edits_of if edits_of[token] == numbers)
        )
        first, *others = (places[n] for n in numbers)
        rules.append(replace(first, tokens=tokens, others=tuple(others)))
        if tail and any(edits[n].tail for n in numbers):
            first, *others = (replace(places[n], strength=0.0) for n in numbers)
            rules.append(replace(first, tokens=tail, others=tuple(others)))
    return rules


WordEdit = Reweight | Confine
Edit = WordEdit | Rule
"""An edit as `generate` takes it."""


@dataclass(eq=False)
class CountedRule:
    """A user's own rule, and the number of sites at which it changed something."""

    rule: Rule
    changed: int = 0

    def __call__(self, p: Tensor, site: Site) -> Tensor:
        """P' (H, Q, K)."""
        copy = p.clone()  # it may work in place
        edited = checked_result(self.rule, self.rule(copy, site), p, site)
        self.changed += not torch.equal(edited, p)
        return edited


def checked_edits(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Return the edits of a list; ArgumentError if it is not a list of edits."""
    every = as_list(edits)
    if every is None or len(every) > MAX_EDITS:
        raise ArgumentError(
            f"edits is {quoted(edits)}: expected a list of edits (at most {MAX_EDITS}), "
            "as in [Reweight('red', 3)]"
        )
    for edit in every:
        if isinstance(edit, type) or not (isinstance(edit, WordEdit) or callable(edit)):
            raise ArgumentError(
                f"{quoted(edit)} is not an edit: expected Reweight(word, weight), "
                "Confine(word, where), or a callable rule(p, site)"
            )
        if not isinstance(edit, WordEdit):
            _check_arguments(edit)
    return tuple(every)


def _check_arguments(rule: Any) -> None:
    try:
        inspect.signature(rule).bind("p", "site")
    except ValueError:  # a function that is not written in Python
        return
    except TypeError as error:
        raise ArgumentError(
            f"the rule {rule_name(rule)} does not take the probabilities and the site ({error}): "
            "expected a function of these two, as in def rule(p, site)"
        ) from error


def rules_of(
    edits: Sequence[Edit], table: TokenTable, size: tuple[int, int]
) -> list[list[Rule]]:
    """Return the rules of each edit for a prompt and an image's (width, height).

    Those of every `Confine` follow at the end, since words may have several regions.
    """
    rules: list[list[Rule]] = []
    for edit in edits:
        if isinstance(edit, Reweight):
            rules.append(edit.rules(table, size))
        elif isinstance(edit, Confine):
            rules.append([])
        else:
            # Rules with matrices or a bias tell where they do nothing.
            rules.append(
                [edit if is_linear(edit) or is_biased(edit) else CountedRule(edit)]
            )
    confined = [edit for edit in edits if isinstance(edit, Confine)]
    return [*rules, confining_rules(confined, table, size)]


def note_of(edit: Edit) -> WordEditNoted:
    """Return an edit as settings save it; a user's own rule is saved by name."""
    if isinstance(edit, Reweight):
        return Reweighted(**vars(edit))
    if not isinstance(edit, Confine):
        return Ruled(name=rule_name(edit))
    values: dict[str, Any] = {**vars(edit)}
    if isinstance(edit.where, np.ndarray):
        values["where"] = masks.packed(edit.where)
    return Confined(**values)


def edit_from(note: WordEditNoted) -> WordEdit | None:
    """Return the edit that was saved; None for a user's own rule, or a mask that was too large."""
    if isinstance(note, Ruled):
        return None
    values = structs.asdict(note)
    if isinstance(note, Reweighted):
        return Reweight(**values)
    if isinstance(note.where, Mask):
        values["where"] = masks.unpacked(note.where, quoted(note.word))
    return None if values["where"] is None else Confine(**values)


def warn_of_idle(
    edits: Sequence[Edit],
    rules_by_image: Iterable[Sequence[Sequence[Rule]]],
    sites: Sequence[Site],
) -> None:
    """Warn of each edit that changed nothing in an image, by its rules for each image."""
    for edit, *rules in zip(edits, *rules_by_image, strict=False):
        if isinstance(edit, Confine):
            acts = any(
                s.step in steps_within(edit.start, edit.end, s.steps) for s in sites
            )
        else:
            acts = all(any(_acts(rule, sites) for rule in image) for image in rules)
        if acts:
            continue
        name = quoted(edit.word if isinstance(edit, WordEdit) else rule_name(edit))
        warn(
            f"the edit of {name} changed nothing in a run of {sites[0].steps} steps: widen its "
            "window, give another weight, or use more steps"
        )


def _acts(rule: Rule, sites: Sequence[Site]) -> bool:
    if isinstance(rule, CountedRule):
        return rule.changed > 0
    if is_linear(rule):
        return any(rule.mix(site) is not None for site in sites)
    # `Renormalize` is of neither kind, and changes nothing alone.
    return is_biased(rule) and any(rule.bias(site) is not None for site in sites)


def weights_rule(weights: Mapping[int, float], table: TokenTable) -> Weights:
    """Return the rule that multiplies the attention of these positions on a prompt's K axis."""
    every = torch.ones(len(table.tokens))
    for position, weight in weights.items():
        every[position] = weight
    return Weights(every)


def _describing(table: TokenTable, query: str, named: Collection[int]) -> Iterator[int]:
    """Yield the positions of the up to two words before a word that describe it.

    Words whose tokens are `named` by an edit, and those before them, do not.
    """
    for place in table.matches(query):
        first = place[0]
        for word in reversed(table.words[max(first.number - 2, 0) : first.number]):
            is_apart = table.prompt[word.end : first.start].strip()
            if (
                is_apart
                or not describes(word.text)
                or not set(word.tokens).isdisjoint(named)
            ):
                break
            yield from word.tokens
            first = word


# --- while a pipeline runs ---


@dataclass(frozen=True, eq=False)
class Steering:
    """The edits of one call of a pipeline.

    Attributes:
        rules: for each edited image (by its number in the batch) its rules, in order; biases act
            first, since they come before the softmax.
        sources: for each image that takes attention from another the number of that one.
        self_windows: for each image with a source the fractions of the run, from and up to which it
            also takes the source's self-attention (queries and keys, with its own values). In a
            joint softmax these are the image's queries and keys, so that its queries also meet the
            prompt's own keys, and the text's queries the source's image (after Shin et al., 2025,
            arXiv 2508.07519).
        max_self_cells: the largest grid, in cells, at which it does.
    """

    rules: Mapping[int, Sequence[Rule]]
    sources: Mapping[int, int] = field(default_factory=dict)
    self_windows: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    max_self_cells: int = EditOptions.max_self_cells

    def is_linear(self, image: int) -> bool:
        """Return whether `output` can compute the rules of an image."""
        return all(is_biased(rule) or is_linear(rule) for rule in self.rules[image])

    def probabilities(
        self, scores: Scores, first: int, image: int, site: Site
    ) -> tuple[Tensor, Tensor]:
        """Return one image's probabilities (H, Q, K), unedited and as its rules define them.

        In a joint softmax the last of K columns is the sum over the image's keys. The branch's
        images are in the rows of the batch from `first` on.
        """
        source, row = self.sources.get(image), first + image
        rules = self.rules[image]
        site = replace(
            site, source=None if source is None else scores.rows(first + source)
        )
        biased = [rule for rule in rules if is_biased(rule)]
        bias = _bias_sum([rule.bias(site) for rule in biased], scores)
        p = edited = scores.rows(row)
        if bias is not None:
            # Added to P itself, it would leave nothing of a row where P is 1 on a hidden token.
            edited = scores.rows(row, bias)
            for rule in biased:
                if not isinstance(rule, Region):
                    checked_result(rule, edited, p, site)
        others = [rule for rule in rules if not is_biased(rule)]
        return p, (apply if scores.joint is None else apply_joint)(others, edited, site)

    def output(
        self, scores: Scores, value: Tensor, first: int, image: int, site: Site
    ) -> Tensor | None:
        """Return one image's output (H, Q, d) edited by linear rules; None if none acts here."""
        rules = self.rules[image]
        bias = _bias_sum([rule.bias(site) for rule in rules if is_biased(rule)], scores)
        mix = mixture([rule for rule in rules if not is_biased(rule)], site)
        if mix is None and bias is None:
            return None
        row = first + image
        values = value[row]
        if mix is not None:
            mix = mix.padded(scores.key.shape[2])
            values = _mixed(scores, mix.target, values, 1 - mix.image)
        edited = _attend(scores, row, values, bias)
        if mix is None or mix.source is None:
            return edited
        if image not in self.sources:
            raise no_source()
        source = first + self.sources[image]
        edited = edited + _attend(
            scores, source, _mixed(scores, mix.source, value[row], 0.0), None
        )
        if scores.joint is not None and mix.image:
            ones = torch.zeros_like(values)
            ones[:, scores.joint.image] = mix.image
            share = _attend(scores, source, ones, None)
            edited = edited + share * _attend_image(scores, row, value[row])
        return edited


def _mixed(scores: Scores, matrix: Tensor, values: Tensor, image: float) -> Tensor:
    """Return one row's values (H, N, d): the text's times a matrix, the image's times a number."""
    if scores.joint is None:
        return matrix.to(values) @ values
    mixed, text = values * image, scores.joint.text
    mixed[:, text] = matrix.to(values) @ values[:, text]
    return mixed


def _attend(scores: Scores, row: int, value: Tensor, bias: Tensor | None) -> Tensor:
    """Return one row's attention (H, Q, d) to other values, with a bias on its scores."""
    query, joint = scores.query[row], scores.joint
    key, mask = scores.key[row], scores.mask_of(row)
    if joint is not None:
        key, mask = joint.key[row], scores.joint_mask_of(row)
    if bias is not None and joint is not None:
        text, bias = bias, torch.zeros(len(bias), key.shape[1], device=bias.device)
        bias[:, joint.text] = text
    if bias is not None:
        bias = less_largest(bias)
        mask = bias if mask is None else mask + bias
    mask = None if mask is None else mask.to(query.dtype)
    # Of a row that is hidden everywhere torch makes zeros, as `Scores.rows` does.
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=scores.scale
    )


def _weighted(scores: Scores, p: Tensor, value: Tensor, row: int) -> Tensor:
    """Return one row's values (H, Q, d) weighted by probabilities (H, Q, K), as `rows` has them."""
    values = value[row].float()
    if scores.joint is None:
        return p @ values
    rest = _attend_image(scores, row, values)
    return p[..., :-1] @ values[:, scores.joint.text] + p[..., -1:] * rest


def _attend_image(scores: Scores, row: int, values: Tensor) -> Tensor:
    """Return one row's attention (H, Q, d) to the image's keys alone, in the type of the values."""
    assert scores.joint is not None
    image = scores.joint.image
    query, key = scores.query[row], scores.joint.key[row][:, image]
    mask = scores.joint_mask_of(row)
    mask = None if mask is None else mask[..., image].to(values)
    return scaled_dot_product_attention(
        query.to(values),
        key.to(values),
        values[:, image],
        attn_mask=mask,
        scale=scores.scale,
    )


def _bias_sum(biases: Sequence[Tensor | None], scores: Scores) -> Tensor | None:
    """Return the sum (Q, K) of biases (Q, K') of different widths; None if there is none."""
    acting = [bias for bias in biases if bias is not None]
    if not acting:
        return None
    whole = torch.zeros(
        scores.query.shape[2], scores.key.shape[2], device=scores.query.device
    )
    for bias in acting:
        if bias.ndim != 2 or len(bias) != len(whole) or bias.shape[1] > whole.shape[1]:
            raise ArgumentError(
                f"a rule has a bias of shape {tuple(bias.shape)}: expected (Q, K) = "
                f"{tuple(whole.shape)}, or fewer tokens"
            )
        whole[:, : bias.shape[1]] += bias.to(whole)
    return whole


@dataclass(frozen=True)
class RunPosition:
    """The position of a run in its schedule, and the rows that read the prompt."""

    rows: tuple[
        int, ...
    ]  # the first of each block that reads it; the first block is recorded
    step: int
    steps: int
    grids: Mapping[str, GridShape]

    def site(self, layer: str) -> Site:
        """Return the site of a layer."""
        return Site(layer, self.step, self.steps, self.grids[layer])


class AttentionController:
    """The edits of a running pipeline.

    Attributes:
        steering: the edits.
        family: the family of the pipeline; None if its text has a softmax of its own.
        position: that of the present pass of the model; None where no row reads the prompt.
        acted: for each image the sites (a layer at a step) at which a rule acted.
        shared: for each image those at which it took the source's self-attention.
        moved: for each image, at each pass of a layer where a rule could act, the share of
            attention that moved, on the device: half of Σ |P' − P| over the tokens, averaged over
            positions and heads (0 to 1; more where large weights make rows of far more than 1).
    """

    def __init__(self, steering: Steering, family: Family | None = None) -> None:
        self.steering, self.family = steering, family
        self.position: RunPosition | None = None
        self.moved: defaultdict[int, list[Tensor]] = defaultdict(list)
        self.acted: defaultdict[int, set[tuple[str, int]]] = defaultdict(set)
        self.shared: defaultdict[int, set[tuple[str, int]]] = defaultdict(set)
        # P and P' in the present layer, by image and first row. A user's own rule is called once,
        # since it may draw lots.
        self._pairs: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def enter(self, position: RunPosition | None) -> None:
        """Begin a pass of the model; None where no row reads the prompt, and after the run."""
        self.position = position
        self._pairs.clear()

    def output(
        self, layer: str, scores: Scores, value: Tensor, output: Tensor
    ) -> Tensor:
        """Return the output (B, H, Q, d) of a layer that attends to the text, with the edits."""
        if self.position is None:
            return output
        h, w = self.position.grids[layer]
        scores = (
            scores if self.family is None else self.family.text_scores(scores, h * w)
        )
        rows = slice(None) if scores.joint is None else scores.joint.image
        output = (
            output.clone() if output.requires_grad else output
        )  # the kernel's needs its own
        for image, first, site in self._edits(layer):
            if self.steering.is_linear(image):
                edited = self.steering.output(scores, value, first, image, site)
            else:
                _, p = self._pair(scores, first, image, site)
                edited = _weighted(scores, p, value, first + image)
            if edited is not None:
                output[first + image, :, rows] = edited.to(output)
                self.acted[image].add((layer, site.step))
        return output

    def weights(self, layer: str, scores: Scores, p: Tensor) -> Tensor:
        """Return the probabilities (B, H, Q, K) of a cross-attention layer with the edits."""
        p = p.clone()
        for image, first, site in self._edits(layer):
            before, after = self._pair(scores, first, image, site)
            if not torch.equal(before, after):
                p[first + image] = after.to(p)
                self.acted[image].add((layer, site.step))
        return p

    def inputs(self, layer: str, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Return the queries and keys (B, H, …) of a layer, the image's of some the sources'."""
        position, steering, count = self.position, self.steering, query.shape[0]
        if position is None:
            return query, key
        cells, text = query.shape[2], slice(0)
        if (
            self.family is not None and layer in position.grids
        ):  # text and image in one softmax
            cells = math.prod(position.grids[layer])
            joint = self.family.text_scores(Scores(query, key, 1.0), cells).joint
            text = slice(0) if joint is None else joint.text
        if cells > steering.max_self_cells:
            return query, key
        images = [
            image
            for image, window in steering.self_windows.items()
            if image in steering.sources
            and position.step in steps_within(*window, position.steps)
        ]
        if not images:
            return query, key
        rows = torch.arange(count, device=query.device)
        for image in images:
            self.shared[image].add((layer, position.step))
            for first in position.rows:
                # Perturbed-attention guidance attends in the first rows of the batch alone.
                if first + max(images) < count:
                    rows[first + image] = first + steering.sources[image]
        result = query[rows], key[rows]
        for part, own in zip(result, (query, key), strict=True):
            part[:, :, text] = own[:, :, text]
        return result

    def recorded(
        self, scores: Scores, image: int, layer: str
    ) -> tuple[Tensor, Tensor] | None:
        """Return P and P' (H, Q, K) of an image in the recorded rows; None if it has no rules."""
        position = self.position
        if position is None or not self.steering.rules.get(image):
            return None
        return self._pair(scores, position.rows[0], image, position.site(layer))

    def probabilities(
        self, scores: Scores, image: int, layer: str, plain: SiteProbabilities
    ) -> SiteProbabilities:
        """Return an image's probabilities in the recorded rows as they acted; note what moved."""
        pair = self.recorded(scores, image, layer)
        if pair is None:
            return plain
        before, after = pair
        self.moved[image].append((after - before).abs().sum(dim=-1).mean() / 2)
        return replace(plain, of=lambda heads, tokens: columns(after[heads], tokens))

    def _edits(self, layer: str) -> Iterator[tuple[int, int, Site]]:
        """Yield each edited image, with the first row of each of its blocks, and the site."""
        self._pairs.clear()
        if self.position is not None:
            site = self.position.site(layer)
            for image in self.steering.rules:
                for first in self.position.rows:
                    yield image, first, site

    def _pair(
        self, scores: Scores, first: int, image: int, site: Site
    ) -> tuple[Tensor, Tensor]:
        """Return P and P' (H, Q, K) of an image, computed once in a layer."""
        if (image, first) not in self._pairs:
            pair = self.steering.probabilities(scores, first, image, site)
            self._pairs[image, first] = pair
        return self._pairs[image, first]
