"""Edit a prompt and keep the picture: swap, refine, reweight, blend; one edit, or a grid of them.

Prompt-to-prompt (Hertz et al., 2022, arXiv 2208.01626); `edit_plans` says what an edit takes
from its source, `edit_batches` draws it.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack, overload

from msgspec import structs

from heedmap import checks
from heedmap.backends.base import Pipeline
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import check_served
from heedmap.errors import ArgumentError, quoted
from heedmap.io.reports import CallLimits, EditCall, GridReport
from heedmap.io.values import to_json
from heedmap.options import USUAL, DrawOptions, EditOptions, Window
from heedmap.pipelines.arguments import EditKeywords, GridKeywords, argument_note, spelled_out
from heedmap.pipelines.batch import Preview, Progress, as_noted, check_prompts, drawn_seed, part_of
from heedmap.pipelines.edit_batches import draw_edits, tell_notes
from heedmap.pipelines.edit_plans import EditBase, Plan, Planner, read_window
from heedmap.pipelines.grid_axes import Axes
from heedmap.pipelines.picture_source import sized, taken_apart
from heedmap.results.grids import Cell, Grid
from heedmap.results.pairs import Pair
from heedmap.text.weights import escape, parse_weights, token_weights

Windows = Window | Sequence[Window]
"""A window, or several in a list."""


@overload
def edit(
    pipe: Pipeline,
    source: str,
    target: str | None = None,
    *,
    seed: int | None = None,
    progress: Progress | None = None,
    preview: Preview | None = None,
    **options: Unpack[EditKeywords],
) -> Pair: ...
@overload
def edit(
    pipe: Pipeline,
    source: str,
    target: Sequence[str],
    *,
    seed: int | None = None,
    progress: Progress | None = None,
    preview: Preview | None = None,
    **options: Unpack[EditKeywords],
) -> list[Pair]: ...
@spelled_out(EditOptions, DrawOptions)
def edit(
    pipe: Pipeline,
    source: str,
    target: str | Sequence[str] | None = None,
    *,
    seed: int | None = None,
    progress: Progress | None = None,
    preview: Preview | None = None,
    **options: Unpack[EditKeywords],
) -> Pair | list[Pair]:
    """Draw a prompt and its edits from one noise, so that what was not edited stays.

        pair = heedmap.edit(pipe, "a red house", "a blue house", seed=7)
        pair = heedmap.edit(pipe, "a (fluffy:2.5) cat", seed=7)
        pair = heedmap.edit(pipe, "a cat on grass", "a dog on grass", seed=7, only="cat->dog")

    Weights in brackets, `(word:1.5)`, multiply the attention that a word draws;
    `heedmap.text.weights` says how they are written. Those of a target hold for it and those of the
    source for the source: what a target takes is the source's attention before its weights, so that
    "a (red:3) house" -> "a (red:3) sea" weights red once, and "a (red:3) house" -> "a red house"
    not at all.

    Args:
        pipe: a pipeline, as `load` gives it.
        source: the prompt that is edited; weights in it hold for the edit where no target is given,
            else for the source's own picture.
        target: what it shall become, or several; None where weights are all that changes.
        seed: of the one noise that all start from; drawn, and noted, if None.
        progress: called after every step, over all batches.
        preview: called after every step with a copy of the latents (B, C, h, w): the source's, then
            the edits'.
        options: windows, kind, weights and blend of the edit, as `heedmap.options.EditOptions`
            tells; steps, guidance, size, negative, keep and limit (of one batch), as in `generate`;
            and any other argument of the pipeline. Several targets that do not fit into one batch
            are drawn in more; the source is then computed again in each, up to rounding the same,
            and all pairs have that of the first.

    Returns:
        A pair, or for several targets a list of pairs with one source.

    Raises:
        ArgumentError: if the edit would change nothing, or an argument is out of range.
        UnknownWordError: if a word is not in its prompt.
        TraceError: if the edit could not act.
    """
    several = target is not None and not isinstance(target, str)
    rest: dict[str, Any] = {**options}
    how, drawing = EditOptions.taken(rest), DrawOptions.taken(rest)
    how, rest = taken_apart(pipe, how, rest)
    asked = _targets(source, target)
    seed = drawn_seed() if seed is None else seed
    check_prompts([source, *asked], [seed] * (len(asked) + 1))
    base = edit_base(pipe, source, how, rest, alone=target is None)
    windows = {"cross": how.cross, "self_attention": how.self_attention}
    said = [None if one is None else read_window(one, name) for name, one in windows.items()]
    planner = Planner(base)
    plans = [_during(planner.plan(text), *said) for text in asked]
    for plan in plans:
        if not plan.acts:
            raise planner.refusal(plan.written)
    base.check()
    drawing = as_noted(pipe, sized(pipe, how, replace(drawing, arguments=rest)))
    drawn = draw_edits(base, plans, seed, drawing, progress, preview)
    tell_notes(drawn.pairs)
    noted = EditCall(
        source=source,
        targets=None if target is None else tuple(asked),
        kind=how.kind,
        batch=argument_note(how.batch),
        limit=argument_note(drawing.limit),
    )
    pairs = [replace(pair, about=structs.replace(pair.about, asked=noted)) for pair in drawn.pairs]
    return pairs if several else pairs[0]


@spelled_out(EditOptions, DrawOptions)
def grid(
    pipe: Pipeline,
    source: str,
    target: str | Sequence[str] | None = None,
    *,
    cross: Windows | None = EditOptions.cross,
    self_attention: Windows | None = EditOptions.self_attention,
    weights: Mapping[str, float | Sequence[float]] | None = None,
    seeds: int | Sequence[int] | None = None,
    progress: Progress | None = None,
    preview: Preview | None = None,
    **options: Unpack[GridKeywords],
) -> Grid:
    """Draw a prompt's edits over several strengths, weights, targets and seeds.

        grid = heedmap.grid(pipe, "a red house", weights={"red": [-2, -1, 0, 1, 2, 3]}, seeds=7)
        grid = heedmap.grid(pipe, "a cat", "a dog", cross=[0, 0.2, 0.4, 0.6, 0.8, 1], seeds=[7, 8])
        grid.sheet(); grid.rows(); grid.save("outputs/strip"); heedmap.Grid.load("outputs/strip")

    Every combination is a cell, and is what `edit` gives with these settings, to rounding; a weight
    is that of `(word:weight)` written into the prompt. Unlike `edit`, a grid may hold cells that
    change nothing, such as that of the weight 1: they are what the others are compared with.

    The edits of one seed are drawn in one batch with their source, or in as many as the memory asks
    for. A batch that is cut computes the source again in each part (`Grid.about.sources_drawn`
    counts these); up to rounding that is the same picture, and the cells of a seed all have that of
    the first part.

    Args:
        pipe: a pipeline, as `load` gives it.
        source: the prompt that is edited, as in `edit`.
        target: what it shall become, or several; None where weights are all that changes.
        cross: as in `edit`, or a list of such windows. A tuple of two numbers is one window. Where
            none is given, all cells have that of their kind of edit; of several kinds, the loosest.
        self_attention: the same.
        weights: by word or phrase of the target a weight, or several.
        seeds: one or several; one is drawn, and noted, if None.
        progress: called after every step, over all batches.
        preview: as in `edit`.
        options: as in `edit`; they hold for all cells.

    Raises:
        ArgumentError: if nothing varies, a target would change nothing in any cell, a word is
            weighted twice, a value is given twice, there are more cells than `Grid.load` reads
            (10,000, and 2**28 pixels of all together), or an argument is out of range.
        UnknownWordError: if a word is not in its prompt.
        TraceError: if an edit could not act.
    """
    rest: dict[str, Any] = {**options}
    how, drawing = EditOptions.taken(rest), DrawOptions.taken(rest)
    how, rest = taken_apart(pipe, how, rest)
    asked = _targets(source, target)
    axes = Axes.read(weights, self_attention, cross, seeds)
    axes.check(asked)
    check_prompts([source, *asked], [0] * (len(asked) + 1))
    base = edit_base(pipe, source, how, rest, alone=target is None)
    planner = Planner(base)
    axes = axes.filled(*_usual(planner.plan(text, {}) for text in asked))
    places = list(_places(planner, asked, axes))
    base.check()
    drawing = as_noted(pipe, sized(pipe, how, replace(drawing, arguments=rest)))
    cells, batches, largest = _cells(base, places, axes.seeds, drawing, progress, preview)
    about = GridReport(
        source=source,
        targets=None if target is None else tuple(asked),
        kind=how.kind,
        words=base.windows,
        asked=CallLimits(batch=argument_note(how.batch), limit=argument_note(drawing.limit)),
        batch=largest,
        sources_drawn=batches,
        common=_settings(cells[0].pair),
        **axes.about(),
        **base.about(),
    )
    return Grid(tuple(cells), about)


def _cells(
    base: EditBase,
    places: Sequence[tuple[str, dict[str, float], Plan]],
    seeds: Sequence[int],
    options: DrawOptions,
    progress: Progress | None,
    preview: Preview | None,
) -> tuple[list[Cell], int, int]:
    """The cells of all seeds, how many batches they were drawn in, and the largest of these."""
    cells: list[Cell] = []
    batches = largest = 0
    plans = [plan for *_, plan in places]
    for before, seed in enumerate(seeds):
        mine = part_of(progress, before, len(seeds))
        drawn = draw_edits(base, plans, seed, options, mine, preview)
        batches, largest = batches + drawn.batches, max(largest, drawn.largest)
        for (text, at, plan), pair in zip(places, drawn.pairs, strict=True):
            number = len(cells) + 1
            cells.append(Cell(number, seed, text, at, plan.cross, plan.own, pair))
    tell_notes(cell.pair for cell in cells)
    return cells, batches, largest


def _settings(pair: Pair) -> dict[str, Any]:
    """What all cells have in common of a run's settings, as JSON."""
    own = {"prompt", "text", "seed", "edits", "batch_place", "nsfw_content_detected"}
    return {name: value for name, value in to_json(pair.source.settings).items() if name not in own}


def edit_base(
    pipe: Any,
    source: str,
    options: EditOptions,
    arguments: Mapping[str, Any],
    *,
    alone: bool = False,
) -> EditBase:
    """What all edits of a source have in common; alone, its weights are the edit's.

    Raises:
        ArgumentError: if a weight or a window is none.
        ModelError: if the model has no text cross-attention.
    """
    check_served(pipe)
    parsed = parse_weights(source)
    table = prompt_table(pipe, parsed.text, arguments)
    weights = {} if alone else token_weights(parsed.spans, table)
    options = replace(
        options,
        renormalize=checks.flag("renormalize", options.renormalize),
        protect=_words(options.protect),
    )
    written = escape(parsed.text) if alone else source
    return EditBase(pipe, written, table, weights, options, arguments)


def _places(
    planner: Planner, targets: Sequence[str], axes: Axes
) -> Iterable[tuple[str, dict[str, float], Plan]]:
    """For each cell of a seed the target, its weights and its plan; the last axis runs fastest."""
    for text in targets:
        plans = [(at, planner.plan(text, at)) for at in axes.each_weight()]
        if not any(plan.acts for _, plan in plans):
            raise planner.refusal(plans[0][1].written)
        for (at, plan), own, cross in itertools.product(plans, axes.own, axes.cross):
            yield text, {word: float(w) for word, w in at.items()}, plan.during(cross, own)


def _usual(plans: Iterable[Plan]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Windows of cross-attention and self-attention where nobody says; of several, the loosest."""
    cross, own = zip(*(USUAL[plan.purpose] for plan in plans), strict=True)
    return (0.0, min(cross)), (0.0, min(own))


def _during(plan: Plan, cross: tuple[float, float] | None, own: tuple[float, float] | None) -> Plan:
    """The same edit with these windows, or where there are none with those of its purpose."""
    usual = _usual([plan])
    return plan.during(cross or usual[0], own or usual[1])


def _targets(source: str, target: str | Sequence[str] | None) -> list[str]:
    alone = source if target is None else target
    asked = [alone] if isinstance(alone, str) else checks.in_order(alone)
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
