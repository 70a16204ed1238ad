"""Edit a prompt and keep the image: swap, refine, reweight, blend; one edit, or a grid of them.

Prompt-to-prompt (Hertz et al., 2022, arXiv 2208.01626), as `edit_runs` plans and runs it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Unpack, overload

from heedmap.backends.base import Pipeline
from heedmap.checks import as_ordered_list, check_float, check_prompt
from heedmap.errors import ArgumentError, quoted, warn
from heedmap.io.schemas import GridReport
from heedmap.options import (
    EditKeywords,
    EditOptions,
    GenerateOptions,
    GridKeywords,
    Window,
    check_window,
)
from heedmap.pipelines.arguments import (
    check_seed,
    resolve_options,
    take_options,
    takes_options,
)
from heedmap.pipelines.edit_runs import EditSource, Plan, run_edits
from heedmap.pipelines.generation import Preview, Progress, sub_progress
from heedmap.pipelines.guiding import checked_guides
from heedmap.pipelines.input_images import extract_image, fitting_size
from heedmap.recording.guidance import AnyGuide
from heedmap.results.edits import EditResult
from heedmap.results.grids import Cell, Grid

Windows = Window | Sequence[Window]
"""A window, or several in a list."""


@overload
def edit(
    pipe: Pipeline,
    source: str,
    target: str | None = None,
    *,
    seed: int | None = None,
    guide: Iterable[AnyGuide] = (),
    progress: Progress | None = None,
    preview: Preview | None = None,
    **options: Unpack[EditKeywords],
) -> EditResult: ...
@overload
def edit(
    pipe: Pipeline,
    source: str,
    target: Sequence[str],
    *,
    seed: int | None = None,
    guide: Iterable[AnyGuide] = (),
    progress: Progress | None = None,
    preview: Preview | None = None,
    **options: Unpack[EditKeywords],
) -> list[EditResult]: ...
@takes_options(EditOptions, GenerateOptions)
def edit(
    pipe: Pipeline,
    source: str,
    target: str | Sequence[str] | None = None,
    *,
    seed: int | None = None,
    guide: Iterable[AnyGuide] = (),
    progress: Progress | None = None,
    preview: Preview | None = None,
    **options: Unpack[EditKeywords],
) -> EditResult | list[EditResult]:
    """Generate an image and its edits from the same noise, so that the rest of the image stays.

        result = heedmap.edit(pipe, "a red house", "a blue house", seed=7)
        result = heedmap.edit(pipe, "a (fluffy:2.5) cat", seed=7)
        result = heedmap.edit(pipe, "a cat on grass", "a dog on grass", seed=7, only="cat->dog")

    An edit uses the source's attention (prompt-to-prompt: Hertz et al., 2022, arXiv 2208.01626).

    Weights in brackets, `(word:1.5)`, multiply the attention to a word. The weights of a target
    hold for the edit, and those of the source for the source: an edit takes the source's attention
    before its weights. So "a (red:3) house" -> "a (red:3) sea" weights red once, and
    "a (red:3) house" -> "a red house" not at all.

    In a joint softmax (SD 3, Flux) an edit changes the attention of the image's positions. With the
    source's attention to its words they take the source's share of attention to the image, so that
    a row sums to 1 again if each word has a partner; within the image that share is divided as in
    the edit. The text's own attention stays the edit's. With the source's self-attention they take
    the image's queries and keys of the source (Shin et al., 2025, arXiv 2508.07519).

    Args:
        pipe: a pipeline of a supported model, such as `load` returns.
        source: the prompt that is edited. Its weights hold for the edit if no target is given.
        target: the edited prompt, or several. Default: the source with its weights.
        seed: the seed of the noise. Default: random, and saved in the settings.
        guide: guides of the edited images, as in `generate`; the source is not changed.
        cross_replace: part of the run that uses the source's cross-attention: its end, 0 to 1, or
            (start, end). Default: by the purpose of the edit (`heedmap.options.DEFAULT_WINDOWS`; in
            a joint softmax `DEFAULT_JOINT_WINDOWS`).
        self_replace: part of the run that uses the source's self-attention. Default: by the
            purpose of the edit.
        max_self_cells: the largest grid, in cells, whose self-attention is replaced. PixArt, SD 3
            and Flux have one grid, of 64 × 64 at 1024 pixels: there pass 4096.
        renormalize: divide each position's attention by the sum of its magnitudes after
            weighting.
        only: "cat->dog" changes only the region of these words and of their phrases (LocalBlend);
            '"cat"->"dog"' means the words alone.
        protect: words of the source whose regions stay; requires `only`.
        blend_from: fraction of the run from which `only` acts, 0 to below 1.
        threshold: threshold of the region of `only`, 0 to 1.
        image: an image of yours to edit (Pillow, or a file), which the source describes. A pipeline
            with an argument `image` is given it instead; Flux.2 is given a list, as its reference
            images.
        batch: images per batch, the source included; at least 2. Default: as many as fit into
            memory. Each batch computes the source again (the copies differ only by rounding); all
            edits have the source of the first batch.
        layers: the layers of the edit, named as in `HeatMaps.select` (no function): weights and the
            source's cross-attention act in these, its self-attention in their blocks. Elsewhere the
            edited image attends as without the edit. Default: all.
        heads: the heads of the edit, a number or a list. Default: all.
        at_steps: the steps of the edit, within the windows: a number, a slice or a list. Default:
            all.
        steps: as in `generate`.
        guidance: as in `generate`.
        size: as in `generate`; of an image of yours chosen as in `locate`.
        negative: as in `generate`.
        keep: as in `generate`.
        share_of: as in `generate`.
        limit: as in `generate`, for one batch.
        progress: called after every step, over all batches.
        preview: called after every step with a copy of the latents (B, C, h, w): the source's, then
            the edits'.
        options: other arguments of the pipeline, as in `generate`.

    Returns:
        An `EditResult`, or for several targets a list of them that share one source.

    Raises:
        ArgumentError: if the edit would change nothing, or an argument is out of range.
        UnknownWordError: if a word is not in its prompt.
        TraceError: if the edit could not act.
    """
    edits, targets, seed = resolve_edits(
        edit, pipe, source, target, seed, options, checked_guides(guide)
    )
    plans = [edits.plan(text) for text in targets]
    for plan in plans:
        check_effect([plan])
    pairs = run_edits(edits, plans, check_seed(seed), progress, preview)
    _warn_of_notes(pairs)
    return pairs[0] if target is None or isinstance(target, str) else pairs


@takes_options(EditOptions, GenerateOptions)
def grid(
    pipe: Pipeline,
    source: str,
    target: str | Sequence[str] | None = None,
    *,
    cross_replace: Windows | None = None,
    self_replace: Windows | None = None,
    weights: Mapping[str, float | Sequence[float]] | None = None,
    seeds: int | Sequence[int] | None = None,
    progress: Progress | None = None,
    preview: Preview | None = None,
    **options: Unpack[GridKeywords],
) -> Grid:
    """Generate a prompt's edits over several windows, weights, targets and seeds.

        grid = heedmap.grid(pipe, "a red house", weights={"red": [-2, -1, 0, 1, 2, 3]}, seeds=7)
        grid = heedmap.grid(pipe, "a cat", "a dog", cross_replace=[0, 0.4, 0.8], seeds=[7, 8])
        grid.sheet(); grid.rows(); grid.save("outputs/strip"); heedmap.Grid.load("outputs/strip")

    Every combination is a cell: the result of `edit` with these settings, up to rounding. A weight
    acts as `(word:weight)` in the prompt. Unlike `edit`, a grid may hold cells that change nothing,
    such as that of the weight 1, for comparison.

    The edits of one seed share a batch with their source, or several batches if memory is short.
    Each batch computes the source again (the copies differ only by rounding); all cells have the
    source of the first batch.

    Args:
        pipe: as in `edit`.
        source: the prompt that is edited, as in `edit`.
        target: the edited prompt, or several. Default: the source with its weights.
        cross_replace: as in `edit`, or a list of such windows; a tuple of two numbers is one
            window. Default: by the purpose of the edits; of several purposes, the smallest window.
        self_replace: as `cross_replace`, for self-attention.
        weights: one or several weights by word or phrase of the target.
        seeds: one or several. Default: one at random, saved in the settings.
        max_self_cells: as in `edit`; this and the options below hold for all cells.
        renormalize: as in `edit`.
        only: as in `edit`.
        protect: as in `edit`.
        blend_from: as in `edit`.
        threshold: as in `edit`.
        image: as in `edit`.
        batch: as in `edit`.
        layers: as in `edit`.
        heads: as in `edit`.
        at_steps: as in `edit`.
        steps: as in `generate`.
        guidance: as in `generate`.
        size: as in `edit`.
        negative: as in `generate`.
        keep: as in `generate`.
        share_of: as in `generate`.
        limit: as in `edit`.
        progress: as in `edit`.
        preview: as in `edit`.
        options: other arguments of the pipeline, as in `generate`.

    Returns:
        The cells, with a contact sheet, a table and a page of all.

    Raises:
        ArgumentError: if a target would change nothing in any cell, a word is
            weighted twice, a value is given twice, or an argument is out of range.
        UnknownWordError: if a word is not in its prompt.
        TraceError: if an edit could not act.
    """
    edits, targets, seeds = resolve_edits(grid, pipe, source, target, seeds, options)
    targets = _axis("target", targets, lambda _, text: text)
    weights_of_words = {
        word: _axis(f"the weight of {quoted(word)}", values, check_float)
        for word, values in (weights or {}).items()
    }
    seeds = _axis("seeds", seeds, lambda _, seed: check_seed(seed))
    crosses = _windows("cross_replace", cross_replace)
    windows = _windows("self_replace", self_replace)
    default_plans = [edits.plan(text) for text in targets]
    report = GridReport(
        source=source,
        targets=targets,
        weights=weights_of_words,
        cross_replace=crosses or (min(one.cross_replace for one in default_plans),),
        self_replace=windows or (min(one.self_replace for one in default_plans),),
        seeds=seeds or (check_seed(None),),
        options=replace(edits.options, image=None),
    )
    varied = [
        dict(zip(weights_of_words, values, strict=True))
        for values in product(*weights_of_words.values())
    ]
    plans: list[Plan] = []
    for text in targets:  # the last axis varies fastest
        some = [
            edits.plan(text, weights, cross, window)
            for weights, window, cross in product(
                varied, report.self_replace, report.cross_replace
            )
        ]
        check_effect(some)
        plans += some
    cells: list[Cell] = []
    for done, seed in enumerate(report.seeds):
        part = sub_progress(progress, done, len(report.seeds))
        pairs = run_edits(edits, plans, seed, part, preview)
        for plan, pair in zip(plans, pairs, strict=True):
            cells.append(
                Cell(
                    len(cells) + 1,
                    seed,
                    plan.target,
                    plan.varied,
                    plan.cross_replace,
                    plan.self_replace,
                    pair,
                )
            )
    _warn_of_notes(cell.result for cell in cells)
    return Grid(tuple(cells), report)


def resolve_edits(
    function: Callable[..., Any],
    pipe: Pipeline,
    source: str,
    target: str | Sequence[str] | None,
    seed: Any,
    options: Mapping[str, Any],
    guide: Sequence[AnyGuide] = (),
) -> tuple[EditSource, list[str], Any]:
    """Return the source, the targets and the seed or seeds of `edit` or `grid`, checked."""
    rest = dict(options)
    edit_options = take_options(EditOptions, function, rest)
    image, rest = extract_image(pipe, edit_options.image, rest)
    sampling, seed = resolve_options(
        function, pipe, seed, rest, has_image=image is not None
    )
    if image is not None and sampling.size is None:
        sampling = replace(sampling, size=fitting_size(pipe, image.size))
    texts = source if target is None else target
    targets = [texts] if isinstance(texts, str) else as_ordered_list(texts)
    if not targets:
        raise ArgumentError(
            f"the target is {quoted(target)}: expected a prompt, or a list of prompts"
        )
    for text in (source, *targets):
        check_prompt(text)
    edit_options = replace(edit_options, image=image)
    # Without a target, the weights of the source are those of the edit.
    weighted = target is not None
    edits = EditSource(
        pipe,
        source,
        edit_options,
        sampling,
        weighted=weighted,
        guide=guide,
    )
    return edits, targets, seed


def _windows(name: str, values: Any) -> tuple[tuple[float, float], ...]:
    """Return the checked windows of a grid's axis; a tuple is a single one."""
    return _axis(name, [values] if isinstance(values, tuple) else values, check_window)


def _axis(name: str, values: Any, check: Callable[[str, Any], Any]) -> tuple[Any, ...]:
    """Return the checked values of a grid's axis, of a list or a single one; none for None."""
    if values is None:
        return ()
    listed = as_ordered_list(values)
    if listed is None:
        listed = [values]
    checked = tuple(check(name, value) for value in listed)
    if not checked or len({*checked}) < len(checked):
        raise ArgumentError(
            f"{name} is {quoted(values)}: expected values without duplicates"
        )
    return checked


def check_effect(plans: Sequence[Plan]) -> None:
    """Raise an ArgumentError if no plan changes anything."""
    if not any(plan.has_effect for plan in plans):
        raise ArgumentError(
            f"the prompt {quoted(plans[0].source.table.prompt)} and its edit "
            f"{quoted(plans[0].prompt)} have the same words and weights, so the edit would change "
            "nothing: change a word, or weight one as in '(word:1.5)'"
        )


def _warn_of_notes(pairs: Iterable[EditResult]) -> None:
    notes = [note for pair in pairs for note in pair.report.notes or ()]
    for note in dict.fromkeys(notes):
        warn(note)
