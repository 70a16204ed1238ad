"""Edit a prompt and keep the image: swap, refine, reweight, blend; one edit, or a grid of them.

Prompt-to-prompt (Hertz et al., 2022, arXiv 2208.01626). `edit_plans` makes the rules of an edit,
and `edit_batches` generates it.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, overload

import numpy as np

from heedmap import checks
from heedmap.backends.base import Pipeline
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import check_served
from heedmap.errors import ArgumentError, quoted
from heedmap.io.schemas import MAX_CELLS, GridReport
from heedmap.options import (
    USUAL,
    EditKind,
    EditOptions,
    GenerateOptions,
    Keep,
    Window,
    check_window,
)
from heedmap.pipelines.arguments import check_prompts, check_seed, random_seed, resolve_options
from heedmap.pipelines.batch import Preview, Progress, sub_progress
from heedmap.pipelines.edit_batches import draw_edits, tell_notes
from heedmap.pipelines.edit_plans import EditBase, Plan, Planner
from heedmap.pipelines.input_images import extract_image, with_image_size
from heedmap.results.grids import Cell, Grid
from heedmap.results.pairs import Pair
from heedmap.text.weights import escape, parse_weights, token_weights

Windows = Window | Sequence[Window]
"""A window, or several in a list."""
S = TypeVar("S")


@overload
def edit(
    pipe: Pipeline,
    source: str,
    target: str | None = None,
    *,
    seed: int | None = None,
    **options: Any,
) -> Pair: ...
@overload
def edit(
    pipe: Pipeline, source: str, target: Sequence[str], *, seed: int | None = None, **options: Any
) -> list[Pair]: ...
def edit(
    pipe: Pipeline,
    source: str,
    target: str | Sequence[str] | None = None,
    *,
    seed: int | None = None,
    kind: EditKind | None = None,
    cross: Window | None = None,
    words: Mapping[str, Window] | None = None,
    self_attention: Window | None = None,
    self_cells: int = EditOptions.self_cells,
    renormalize: bool = False,
    only: str | None = None,
    protect: Iterable[str] = (),
    blend_from: float = EditOptions.blend_from,
    threshold: float = EditOptions.threshold,
    image: Any = None,
    batch: int | None = None,
    steps: int | None = None,
    guidance: float | None = None,
    size: tuple[int, int] | None = None,
    negative: str | None = None,
    keep: Keep = GenerateOptions.keep,
    limit: int = GenerateOptions.limit,
    progress: Progress | None = None,
    preview: Preview | None = None,
    **arguments: Any,
) -> Pair | list[Pair]:
    """Generate an image and its edits from one noise, so that what was not edited stays.

        pair = heedmap.edit(pipe, "a red house", "a blue house", seed=7)
        pair = heedmap.edit(pipe, "a (fluffy:2.5) cat", seed=7)
        pair = heedmap.edit(pipe, "a cat on grass", "a dog on grass", seed=7, only="cat->dog")

    Weights in brackets, `(word:1.5)`, multiply the attention to a word (`heedmap.text.weights`).
    Those of a target hold for the edit and those of the source for the source: an edit takes the
    source's attention before its weights. So "a (red:3) house" -> "a (red:3) sea" weights red once,
    and "a (red:3) house" -> "a red house" not at all.

    Args:
        pipe: a pipeline, as `load` returns it.
        source: the prompt that is edited. Its weights hold for the edit if no target is given.
        target: the edited prompt, or several. Default: the source with its weights.
        seed: the seed of the noise. Default: random, and saved in the settings.
        kind: "replace" pairs the words one to one, "refine" allows added words. Default: decided by
            aligning the words (`pair.about.why`).
        cross: part of the run in which the source's cross-attention is used, 0 to 1, or (start,
            end). Default: by the purpose of the edit (`heedmap.options.USUAL`).
        words: other windows for words or phrases of the target.
        self_attention: part of the run in which the source's self-attention is used. Default: by
            the purpose of the edit.
        self_cells: the largest grid, in cells, whose self-attention is replaced.
        renormalize: normalize weighted rows to sum to 1.
        only: "cat->dog" changes only the region of these words and of their phrases (LocalBlend);
            '"cat"->"dog"' means the words alone.
        protect: words of the source whose regions stay; requires `only`.
        blend_from: fraction of the run from which `only` acts, below 1.
        threshold: threshold of the region of `only`, 0 to 1.
        image: an image of yours to edit (Pillow, or a file), which the source describes. A pipeline
            with an argument `image` is given it instead.
        batch: images to generate at once, the source included. Default: as many as fit into memory.
            The source is computed again in each further batch, equal up to rounding.
        steps: as in `generate`.
        guidance: as in `generate`.
        size: as in `generate`; of an image of yours chosen as in `locate`.
        negative: as in `generate`.
        keep: as in `generate`.
        limit: as in `generate`, for one batch.
        progress: called after every step, over all batches.
        preview: called after every step with a copy of the latents (B, C, h, w): the source's, then
            the edits'.
        arguments: other arguments of the pipeline, as in `generate`.

    Returns:
        A pair, or for several targets a list of pairs with one source.

    Raises:
        ArgumentError: if the edit would change nothing, or an argument is out of range.
        UnknownWordError: if a word is not in its prompt.
        TraceError: if the edit could not act.
    """
    options = EditOptions(
        kind=kind,
        cross=cross,
        words=words,
        self_attention=self_attention,
        self_cells=self_cells,
        renormalize=renormalize,
        only=only,
        protect=protect,
        blend_from=blend_from,
        threshold=threshold,
        image=image,
        batch=batch,
    )
    sampling = GenerateOptions(
        steps=steps,
        guidance=guidance,
        size=size,
        negative=negative,
        keep=keep,
        limit=limit,
        arguments=arguments,
    )
    targets = _targets(source, target)
    options, sampling, seed = _resolve(pipe, options, sampling, edit, seed)
    seed = random_seed() if seed is None else seed
    check_prompts([source, *targets], [seed] * (len(targets) + 1))
    base = edit_base(pipe, source, options, sampling.arguments, alone=target is None)
    planner = Planner(base)
    plans = [planner.plan(text) for text in targets]
    for plan in plans:
        if not plan.acts:
            raise planner.refusal(plan.written)
    drawn = draw_edits(base, plans, seed, sampling, progress, preview)
    tell_notes(drawn.pairs)
    return drawn.pairs[0] if target is None or isinstance(target, str) else drawn.pairs


def grid(
    pipe: Pipeline,
    source: str,
    target: str | Sequence[str] | None = None,
    *,
    cross: Windows | None = None,
    self_attention: Windows | None = None,
    weights: Mapping[str, float | Sequence[float]] | None = None,
    seeds: int | Sequence[int] | None = None,
    kind: EditKind | None = None,
    words: Mapping[str, Window] | None = None,
    self_cells: int = EditOptions.self_cells,
    renormalize: bool = False,
    only: str | None = None,
    protect: Iterable[str] = (),
    blend_from: float = EditOptions.blend_from,
    threshold: float = EditOptions.threshold,
    image: Any = None,
    batch: int | None = None,
    steps: int | None = None,
    guidance: float | None = None,
    size: tuple[int, int] | None = None,
    negative: str | None = None,
    keep: Keep = GenerateOptions.keep,
    limit: int = GenerateOptions.limit,
    progress: Progress | None = None,
    preview: Preview | None = None,
    **arguments: Any,
) -> Grid:
    """Generate a prompt's edits over several windows, weights, targets and seeds.

        grid = heedmap.grid(pipe, "a red house", weights={"red": [-2, -1, 0, 1, 2, 3]}, seeds=7)
        grid = heedmap.grid(pipe, "a cat", "a dog", cross=[0, 0.2, 0.4, 0.6, 0.8, 1], seeds=[7, 8])
        grid.sheet(); grid.rows(); grid.save("outputs/strip"); heedmap.Grid.load("outputs/strip")

    Every combination is a cell: the result of `edit` with these settings, up to rounding. A weight
    acts as `(word:weight)` in the prompt. Unlike `edit`, a grid may hold cells that change nothing,
    such as that of the weight 1, for comparison.

    The edits of one seed share a batch with their source, or several batches if memory is short.
    The source is computed again in each (`Grid.about.sources_drawn`), equal up to rounding; the
    cells have that of the first.

    Args:
        pipe: a pipeline, as `load` returns it.
        source: the prompt that is edited, as in `edit`.
        target: the edited prompt, or several. Default: the source with its weights.
        cross: as in `edit`, or a list of such windows; a tuple of two numbers is one window.
            Default: by the purpose of the edits; of several purposes, the smallest window.
        self_attention: as `cross`, for self-attention.
        weights: one or several weights by word or phrase of the target.
        seeds: one or several. Default: one at random, saved in the settings.
        kind: as in `edit`; this and the options below hold for all cells.
        words: as in `edit`.
        self_cells: as in `edit`.
        renormalize: as in `edit`.
        only: as in `edit`.
        protect: as in `edit`.
        blend_from: as in `edit`.
        threshold: as in `edit`.
        image: as in `edit`.
        batch: as in `edit`.
        steps: as in `generate`.
        guidance: as in `generate`.
        size: as in `edit`.
        negative: as in `generate`.
        keep: as in `generate`.
        limit: as in `edit`.
        progress: as in `edit`.
        preview: as in `edit`.
        arguments: as in `generate`.

    Raises:
        ArgumentError: if nothing varies, a target would change nothing in any cell, a word is
            weighted twice, a value is given twice, there are more than 10,000 cells, or an argument
            is out of range.
        UnknownWordError: if a word is not in its prompt.
        TraceError: if an edit could not act.
    """
    options = EditOptions(
        kind=kind,
        words=words,
        self_cells=self_cells,
        renormalize=renormalize,
        only=only,
        protect=protect,
        blend_from=blend_from,
        threshold=threshold,
        image=image,
        batch=batch,
    )
    sampling = GenerateOptions(
        steps=steps,
        guidance=guidance,
        size=size,
        negative=negative,
        keep=keep,
        limit=limit,
        arguments=arguments,
    )
    targets = _targets(source, target)
    options, sampling, seeds = _resolve(pipe, options, sampling, grid, seeds)
    if weights is not None and not isinstance(weights, Mapping):
        raise ArgumentError(
            f"weights is {quoted(weights)}: expected weights by word, as in {{'red': [0, 1, 2]}}"
        )
    strips: dict[str, list[float]] = {}
    for word, some in (weights or {}).items():
        name = f"the weight of {quoted(word)}"
        strips[word] = [checks.finite(name, one) for one in _several(name, some)]
    crosses, owns = _windows("cross", cross), _windows("self_attention", self_attention)
    numbers = (
        [random_seed()] if seeds is None else [check_seed(one) for one in _several("seeds", seeds)]
    )
    _check_axes(
        {
            "target": targets,
            **{f"the weight of {quoted(word)}": strip for word, strip in strips.items()},
            "cross": crosses,
            "self_attention": owns,
            "seeds": numbers,
        }
    )
    check_prompts([source, *targets], [0] * (len(targets) + 1))
    base = edit_base(pipe, source, options, sampling.arguments, alone=target is None)
    planner = Planner(base)
    purposes = [USUAL[planner.plan(text, {}).purpose] for text in targets]
    crosses = crosses or [(0.0, min(usual for usual, _ in purposes))]
    owns = owns or [(0.0, min(usual for _, usual in purposes))]
    places = list(_places(planner, targets, strips, owns, crosses))
    plans = [plan for *_, plan in places]
    cells: list[Cell] = []
    batches = largest = 0
    for before, seed in enumerate(numbers):
        part = sub_progress(progress, before, len(numbers))
        drawn = draw_edits(base, plans, seed, sampling, part, preview)
        batches, largest = batches + drawn.batches, max(largest, drawn.largest)
        for (text, at, plan), pair in zip(places, drawn.pairs, strict=True):
            cells.append(Cell(len(cells) + 1, seed, text, at, plan.cross, plan.own, pair))
    tell_notes(cell.pair for cell in cells)
    report = GridReport(
        source=source,
        targets=None if target is None else tuple(targets),
        kind=options.kind,
        words=base.windows,
        weights={word: tuple(strip) for word, strip in strips.items()},
        cross=tuple(crosses),
        self_attention=tuple(owns),
        seeds=tuple(numbers),
        batch=largest,
        sources_drawn=batches,
        **base.about(),
    )
    return Grid(tuple(cells), report)


def edit_base(
    pipe: Any,
    source: str,
    options: EditOptions,
    arguments: Mapping[str, Any],
    *,
    alone: bool = False,
) -> EditBase:
    """Return what all edits of a source share.

    Args:
        pipe: a pipeline.
        source: the source prompt.
        options: of the edits.
        arguments: of the pipeline.
        alone: True if the weights in the source are the edit's.

    Raises:
        ArgumentError: if a weight is none, or the model cannot blend.
        UnknownWordError: if a protected word is not in the source.
    """
    parsed = parse_weights(source)
    table = prompt_table(pipe, parsed.text, arguments)
    weights = {} if alone else token_weights(parsed.spans, table)
    base = EditBase(
        pipe, escape(parsed.text) if alone else source, table, weights, options, arguments
    )
    base.check()
    return base


def _resolve(
    pipe: Pipeline, options: EditOptions, sampling: GenerateOptions, function: Any, seed: S
) -> tuple[EditOptions, GenerateOptions, S]:
    """Check the options against the pipeline, open the input image, and choose its size."""
    check_served(pipe)
    options, sampling = extract_image(pipe, options, sampling)
    has_image = options.image is not None
    sampling, seed = resolve_options(pipe, sampling, function, seed, has_image=has_image)
    return options, with_image_size(pipe, options, sampling), seed


def _places(
    planner: Planner,
    targets: Sequence[str],
    strips: Mapping[str, Sequence[float]],
    owns: Sequence[tuple[float, float]],
    crosses: Sequence[tuple[float, float]],
) -> Iterable[tuple[str, dict[str, float], Plan]]:
    """Yield the target, weights and plan of each cell of a seed; the last axis is fastest."""
    for text in targets:
        each = [
            dict(zip(strips, values, strict=True)) for values in itertools.product(*strips.values())
        ]
        plans = [(at, planner.plan(text, at)) for at in each]
        if not any(plan.acts for _, plan in plans):
            raise planner.refusal(plans[0][1].written)
        for (at, plan), own, cross in itertools.product(plans, owns, crosses):
            yield text, at, replace(plan, cross=cross, own=own)


def _targets(source: str, target: str | Sequence[str] | None) -> list[str]:
    given = source if target is None else target
    texts = [given] if isinstance(given, str) else checks.in_order(given)
    if not texts:
        raise ArgumentError(
            f"the target is {quoted(given)}: expected a prompt, or a list of prompts"
        )
    return texts


def _check_axes(axes: Mapping[str, Sequence[Any]]) -> None:
    given = {name: values for name, values in axes.items() if values}
    cells = math.prod(map(len, given.values()))
    if cells > MAX_CELLS:
        raise ArgumentError(
            f"this grid would have {cells:,} cells: expected at most {MAX_CELLS:,}; give fewer "
            "targets, seeds or values"
        )
    if cells == 1:
        raise ArgumentError(
            "nothing varies in this grid: give several targets, seeds, weights of a word or "
            "windows, as in weights={'red': [0, 1, 2]} (--weight red=0:2:3)"
        )
    for name, values in given.items():
        twice = next((value for n, value in enumerate(values) if value in values[:n]), None)
        if twice is not None:
            raise ArgumentError(f"{name} has {quoted(twice)} twice: expected each value once")


def _windows(name: str, windows: Any) -> list[tuple[float, float]]:
    """Return one window or several as a list; a tuple is one window."""
    if windows is None:
        return []
    several = [windows] if isinstance(windows, tuple) else _several(name, windows)
    return [check_window(name, window) for window in several]


def _several(name: str, values: Any) -> list[Any]:
    """Return one value or several as a list."""
    found = values.tolist() if isinstance(values, np.ndarray) else values
    found = list(found) if isinstance(found, range | list | tuple) else [found]
    if not found:
        raise ArgumentError(f"{name} is empty: expected a value, or a list of them")
    return found
