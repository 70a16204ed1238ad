"""Edit a prompt and keep the picture: swap, refine, reweight, blend; one edit, or a grid of them.

Prompt-to-prompt (Hertz et al., 2022, arXiv 2208.01626); `edit_plans` says what an edit takes
from its source, `edit_batches` draws it.
"""

import itertools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

import numpy as np
from diffusers import DiffusionPipeline

from heedmap import checks
from heedmap.attention.rules import THRESHOLD
from heedmap.drawing import generation
from heedmap.drawing.edit_batches import BLEND_FROM, Drawing, draw_variants
from heedmap.drawing.edit_plans import (
    Ground,
    Plan,
    Planner,
    Window,
    read_window,
    read_windows,
    weigh,
)
from heedmap.drawing.generation import Preview, Progress
from heedmap.drawing.pipeline_arguments import note
from heedmap.errors import ArgumentError, HeedmapWarning, quoted
from heedmap.maps.recordings import Axis
from heedmap.models import pipelines
from heedmap.recording.steering import SELF_CELLS
from heedmap.recording.tracing import LIMIT
from heedmap.results.grids import Cell, Grid
from heedmap.results.pairs import Pair
from heedmap.text.alignment import EditKind
from heedmap.text.weights import escape, parse_weights, token_weights
from heedmap.wiring.encodings import prompt_table
from heedmap.wiring.families import cross_attention_layers

Windows = Window | Sequence[Window]
"""A window, or several in a list."""


@overload
def edit(
    pipe: DiffusionPipeline, source: str, target: str | None = None, **options: Any
) -> Pair: ...
@overload
def edit(
    pipe: DiffusionPipeline, source: str, target: Sequence[str], **options: Any
) -> list[Pair]: ...
def edit(
    pipe: DiffusionPipeline,
    source: str,
    target: str | Sequence[str] | None = None,
    *,
    kind: EditKind | None = None,
    cross: Window = 0.8,
    words: Mapping[str, Window] | None = None,
    self_attention: Window = 0.4,
    self_cells: int = SELF_CELLS,
    renormalize: bool = False,
    only: str | None = None,
    protect: Iterable[str] = (),
    blend_from: float = BLEND_FROM,
    threshold: float = THRESHOLD,
    seed: int | None = None,
    steps: int | None = None,
    guidance: float | None = None,
    size: tuple[int, int] | None = None,
    negative: str | None = None,
    keep: Iterable[Axis] = ("layer",),
    limit: int = LIMIT,
    batch: int | None = None,
    progress: Progress | None = None,
    preview: Preview | None = None,
    **arguments: Any,
) -> Pair | list[Pair]:
    """Draw a prompt and its edits from one noise, so that what was not edited stays.

        pair = heedmap.edit(pipe, "a red house", "a blue house", seed=7)
        pair = heedmap.edit(pipe, "a (fluffy:2.5) cat", seed=7)
        pair = heedmap.edit(pipe, "a cat on grass", "a dog on grass", seed=7, only="cat->dog")

    Weights in brackets, `(word:1.5)`, multiply the attention that a word draws; `heedmap.weights`
    says how they are written. Those of a target hold for it and those of the source for the source:
    what a target takes is the source's attention before its weights, so that "a (red:3) house" ->
    "a (red:3) sea" weights red once, and "a (red:3) house" -> "a red house" not at all.

    Args:
        pipe: a pipeline, as `load` gives it.
        source: the prompt that is edited; weights in it hold for the edit where no target is given,
            else for the source's own picture.
        target: what it shall become, or several; None where weights are all that changes.
        kind: "replace" where the words correspond one to one, "refine" where some were added;
            chosen by aligning the words if None (`Pair.about` says which and why).
        cross: while the source's cross-attention is taken (0 to 1, of the run).
        words: other windows for single words or phrases of the target that take from the source.
        self_attention: while the source's self-attention is taken.
        self_cells: the largest grid, in cells, at which it is (16 × 16 or 32 × 32 as a rule).
        renormalize: whether weighted rows are made to sum to 1 again.
        only: "cat->dog": outside of where these words act the source's latents stay (LocalBlend).
            Their phrases are meant ("red cat" in "a red cat"), whose maps hold more of the thing;
            '"cat"->"dog"' means the words alone, as published.
        protect: a word of the source, or several, whose places stay, with `only`.
        blend_from: fraction of the run from which latents are blended, below 1.
        threshold: above which a word is taken to act at a place; 0 is where it acts least, 1 where
            most.
        seed: of the one noise that all start from; drawn, and noted, if None.
        steps: as in `generate`.
        guidance: as in `generate`.
        size: (width, height), as in `generate`.
        negative: as in `generate`, for all prompts.
        keep: as in `generate`.
        limit: as in `generate`, for the maps of one batch.
        batch: how many pictures are drawn at once, the source included; as many as the free memory
            should hold (`heedmap.batches`) if None. Several targets that do not fit into one batch
            are drawn in more; the source is then computed again in each, up to rounding the same,
            and all pairs have that of the first.
        progress: as in `generate`, over all batches.
        preview: as in `generate`; the latents (B, C, h, w) are the source's, then the edits'.
        arguments: any other argument of the pipeline, passed on.

    Returns:
        A pair, or for several targets a list of pairs with one source.

    Raises:
        ArgumentError: if the edit would change nothing, or an argument is out of range.
        UnknownWordError: if a word is not in its prompt.
        TraceError: if the edit could not act.
    """
    several = target is not None and not isinstance(target, str)
    asked = _targets(source, target)
    seed = generation.drawn_seed() if seed is None else seed
    generation.check_prompts([source, *asked], [seed] * (len(asked) + 1))
    ground = ground_of(pipe, source, target is None, kind, words, only, renormalize, arguments)
    windows = read_window(cross, "cross"), read_window(self_attention, "self_attention")
    planner = Planner(ground)
    plans = [planner.plan(text).during(*windows) for text in asked]
    for plan in plans:
        if not plan.acts:
            raise planner.refusal(plan.written)
    options = {
        "steps": steps,
        "guidance": guidance,
        "size": _size(pipe, size),
        "negative": negative,
        "keep": _axes(keep),
        "limit": limit,
        "arguments": arguments,
    }
    how = Drawing(self_cells, _words(protect), blend_from, threshold, batch, options)
    how.check(ground)
    drawn = draw_variants(ground, plans, seed, how, progress, preview)
    for trouble in drawn.troubles:
        warnings.warn(trouble, HeedmapWarning, stacklevel=2)
    for pair in drawn.pairs:
        pair.about["asked"] = {
            "source": source,
            "targets": None if target is None else asked,
            "kind": kind,
            "batch": note(batch),
            "limit": note(limit),
        }
    return drawn.pairs if several else drawn.pairs[0]


def grid(
    pipe: DiffusionPipeline,
    source: str,
    target: str | Sequence[str] | None = None,
    *,
    cross: Windows = 0.8,
    self_attention: Windows = 0.4,
    weights: Mapping[str, float | Sequence[float]] | None = None,
    seeds: int | Sequence[int] | None = None,
    kind: EditKind | None = None,
    words: Mapping[str, Window] | None = None,
    self_cells: int = SELF_CELLS,
    renormalize: bool = False,
    only: str | None = None,
    protect: Iterable[str] = (),
    blend_from: float = BLEND_FROM,
    threshold: float = THRESHOLD,
    steps: int | None = None,
    guidance: float | None = None,
    size: tuple[int, int] | None = None,
    negative: str | None = None,
    keep: Iterable[Axis] = ("layer",),
    limit: int = LIMIT,
    batch: int | None = None,
    progress: Progress | None = None,
    preview: Preview | None = None,
    **arguments: Any,
) -> Grid:
    """Draw a prompt's edits over several strengths, weights, targets and seeds.

        grid = heedmap.grid(pipe, "a red house", weights={"red": [-2, -1, 0, 1, 2, 3]}, seeds=7)
        grid = heedmap.grid(pipe, "a cat", "a dog", cross=[0, 0.2, 0.4, 0.6, 0.8, 1], seeds=[7, 8])
        grid.sheet(); grid.rows(); grid.save("outputs/strip"); heedmap.Grid.load("outputs/strip")

    Every combination is a cell, and is what `edit` gives with these settings, to rounding; a weight
    is that of `(word:weight)` written into the prompt. Unlike `edit`, a grid may hold cells that
    change nothing, such as that of the weight 1: they are what the others are compared with.

    The edits of one seed are drawn in one batch with their source, or in as many as the memory asks
    for. A batch that is cut computes the source again in each part (`Grid.about["sources_drawn"]`
    counts these); up to rounding that is the same picture, and the cells of a seed all have that of
    the first part.

    Args:
        pipe: a pipeline, as `load` gives it.
        source: the prompt that is edited, as in `edit`.
        target: what it shall become, or several; None where weights are all that changes.
        cross: as in `edit`, or a list of such windows. A tuple of two numbers is one window.
        self_attention: the same.
        weights: by word or phrase of the target a weight, or several.
        seeds: one or several; one is drawn, and noted, if None.
        kind: as in `edit`.
        words: as in `edit`, for all cells.
        self_cells: as in `edit`.
        renormalize: as in `edit`.
        only: as in `edit`.
        protect: as in `edit`.
        blend_from: as in `edit`.
        threshold: as in `edit`.
        steps: as in `generate`.
        guidance: as in `generate`.
        size: (width, height), as in `generate`.
        negative: as in `generate`, for all prompts.
        keep: as in `generate`.
        limit: as in `generate`, for the maps of one batch.
        batch: as in `edit`.
        progress: as in `generate`, over all batches.
        preview: as in `generate`; the latents (B, C, h, w) are the source's, then the edits'.
        arguments: any other argument of the pipeline, passed on.

    Raises:
        ArgumentError: if nothing varies, a target would change nothing in any cell, a word is
            weighted twice, a value is given twice, or an argument is out of range.
        UnknownWordError: if a word is not in its prompt.
        TraceError: if an edit could not act.
    """
    if "seed" in arguments:
        raise ArgumentError("seed is no argument of grid: pass one or several as seeds=[7, 8]")
    asked = _targets(source, target)
    strips = {
        word: _several(several, f"the weights of {quoted(word)}")
        for word, several in _mapping(weights).items()
    }
    crosses = [read_window(w, "cross") for w in _windows(cross, "cross")]
    owns = [read_window(w, "self_attention") for w in _windows(self_attention, "self_attention")]
    drawn_from = [generation.drawn_seed()] if seeds is None else _several(seeds, "seeds")
    _check_axes(
        {
            "target": asked,
            **{f"the weight of {quoted(w)}": v for w, v in strips.items()},
            "cross": crosses,
            "self_attention": owns,
            "seeds": drawn_from,
        }
    )
    drawn_from = [generation.check_seed(seed) for seed in drawn_from]
    generation.check_prompts([source, *asked], [0] * (len(asked) + 1))
    ground = ground_of(pipe, source, target is None, kind, words, only, renormalize, arguments)
    planner = Planner(ground)
    places = list(_places(planner, asked, strips, owns, crosses))
    options = {
        "steps": steps,
        "guidance": guidance,
        "size": _size(pipe, size),
        "negative": negative,
        "keep": _axes(keep),
        "limit": limit,
        "arguments": arguments,
    }
    how = Drawing(self_cells, _words(protect), blend_from, threshold, batch, options)
    how.check(ground)
    cells: list[Cell] = []
    troubles: list[str] = []
    sources = largest = 0
    for before, seed in enumerate(drawn_from):

        def report(step: int, total: int, before: int = before) -> None:
            assert progress is not None
            progress(before * total + step, len(drawn_from) * total)

        plans = [plan for *_, plan in places]
        drawn = draw_variants(ground, plans, seed, how, progress and report, preview)
        sources, largest = sources + drawn.batches, max(largest, drawn.largest)
        troubles += drawn.troubles
        for (text, at, plan), pair in zip(places, drawn.pairs, strict=True):
            number = len(cells) + 1
            cells.append(Cell(number, seed, text, at, plan.cross, plan.own, pair))
    for trouble in dict.fromkeys(troubles):
        warnings.warn(trouble, HeedmapWarning, stacklevel=2)
    about = {
        "source": source,
        "targets": None if target is None else asked,
        "weights": {word: list(map(float, strip)) for word, strip in strips.items()},
        "cross": [list(window) for window in crosses],
        "self_attention": [list(window) for window in owns],
        "seeds": drawn_from,
        "kind": kind,
        "words": {word: list(window) for word, window in ground.windows.items()},
        "renormalize": renormalize,
        "only": only,
        **how.about(),
        "asked": {"batch": note(batch), "limit": note(limit)},
        "batch": largest,
        "sources_drawn": sources,
        **_settings(cells[0].pair),
    }
    return Grid(tuple(cells), about)


def _settings(pair: Pair) -> dict[str, Any]:
    """What all cells have in common of a run's settings."""
    own = {"prompt", "text", "seed", "edits", "batch_place"}
    return {name: value for name, value in pair.source.settings.items() if name not in own}


def ground_of(
    pipe: Any,
    source: str,
    alone: bool,
    kind: EditKind | None,
    words: Mapping[str, Window] | None,
    only: str | None,
    renormalize: bool,
    arguments: Mapping[str, Any],
) -> Ground:
    """What all edits of a source have in common; alone, its weights are the edit's.

    Raises:
        ArgumentError: if a weight or a window is none.
        ModelError: if the model has no text cross-attention.
    """
    cross_attention_layers(pipe)  # a model without them has no prompt to read either
    parsed = parse_weights(source)
    table = prompt_table(pipe, parsed.text, arguments)
    weights = {} if alone else token_weights(parsed.spans, table)
    written = escape(parsed.text) if alone else source
    again = checks.flag("renormalize", renormalize)
    windows = read_windows(words)
    return Ground(pipe, written, table, weights, kind, windows, only, again, arguments)


def _places(
    planner: Planner,
    targets: Sequence[str],
    strips: Mapping[str, Sequence[float]],
    owns: Sequence[tuple[float, float]],
    crosses: Sequence[tuple[float, float]],
) -> Iterable[tuple[str, dict[str, float], Plan]]:
    """For each cell of a seed the target, its weights and its plan; the last axis runs fastest."""
    for text in targets:
        ground = planner.ground
        table = prompt_table(ground.pipe, parse_weights(text).text, ground.arguments)
        plans: list[tuple[dict[str, float], Plan]] = []
        for values in itertools.product(*strips.values()):
            at = dict(zip(strips, values, strict=True))
            plans.append((at, planner.plan(weigh(text, table, at), named=at)))
        if not any(plan.acts for _, plan in plans):
            raise planner.refusal(plans[0][1].written)
        for (at, plan), own, cross in itertools.product(plans, owns, crosses):
            yield text, {word: float(w) for word, w in at.items()}, plan.during(cross, own)


def _targets(source: str, target: str | Sequence[str] | None) -> list[str]:
    alone = source if target is None else target
    asked = [alone] if isinstance(alone, str) else checks.several(alone)
    if asked is None:
        raise ArgumentError(f"the prompt is {quoted(alone)}: expected a text, or a list of targets")
    if not asked:
        raise ArgumentError("no target was given: expected a prompt, or several")
    return asked


def _words(words: Iterable[str]) -> tuple[str, ...]:
    found = [words] if isinstance(words, str) else checks.several(words)
    if found is None:
        raise ArgumentError(f"protect is {quoted(words)}: expected a word, or a list of words")
    return tuple(found)


def _size(pipe: Any, size: object) -> tuple[int, int] | None:
    return None if size is None else pipelines.check_size(pipe, size)


def _axes(keep: Iterable[Axis]) -> tuple[Axis, ...]:
    found = checks.several(keep)
    if found is None:
        raise ArgumentError(f"keep is {quoted(keep)}: expected axes, as in ['layer', 'step']")
    return tuple(found)


def _mapping(weights: object) -> Mapping[str, Any]:
    if weights is not None and not isinstance(weights, Mapping):
        raise ArgumentError(
            f"weights is {quoted(weights)}: expected weights by word, as in {{'red': [0, 1, 2]}}"
        )
    return weights or {}


def _windows(windows: Any, name: str) -> list[Any]:
    """A window alone is a number or a tuple."""
    return [windows] if isinstance(windows, tuple) else _several(windows, name)


def _several(values: Any, name: str) -> list[Any]:
    """One value or several as a list."""
    if isinstance(values, np.ndarray | range | list | tuple):
        found = values.tolist() if isinstance(values, np.ndarray) else list(values)
        if not isinstance(found, list) or not found:
            raise ArgumentError(f"{name} is empty: expected a value, or a list of them")
        return found
    return [values]


def _check_axes(axes: Mapping[str, Sequence[Any]]) -> None:
    """Raise if nothing varies, or something is there twice."""
    for name, values in axes.items():
        twice = next((v for n, v in enumerate(values) if v in values[:n]), None)
        if twice is not None:
            raise ArgumentError(f"{name} has {quoted(twice)} twice: expected each value once")
    if all(len(values) == 1 for values in axes.values()):
        raise ArgumentError(
            "nothing varies in this grid: give several values of cross, self_attention, a weight, "
            "the seeds or the targets, as in weights={'red': [0, 1, 2]}"
        )
