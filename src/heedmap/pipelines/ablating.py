"""Generate a run without one of its words, everywhere or in a part of the model."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from heedmap.backends.base import Pipeline
from heedmap.backends.layer_shapes import layer_shapes, pick
from heedmap.errors import ArgumentError, quoted, warn
from heedmap.maps.recordings import short_names
from heedmap.options import Part
from heedmap.pipelines import repeating
from heedmap.pipelines.generation import Progress, sub_progress
from heedmap.recording.edits import Edit, Reweight, WordEdit
from heedmap.recording.guidance import AnyGuide
from heedmap.results.ablations import Ablation, generated_run, shorter_prompt
from heedmap.results.edits import load_result, pixel_change
from heedmap.results.rankings import Ranking, Removal
from heedmap.results.runs import Run
from heedmap.text.words import TokenTable


def ablate(
    pipe: Pipeline | None,
    run: Run | str | Path,
    word: str,
    *,
    layers: Part | None = None,
    heads: Part | None = None,
    steps: Part | None = None,
    progress: Progress | None = None,
    **arguments: Any,
) -> Ablation:
    """Generate a run again without one of its words, from the same noise and settings.

        found = heedmap.ablate(pipe, "outputs/house", "house")
        found.without["attention"].image, found.without["prompt"].image, found.sheet()
        found.agreement["attention"].heat.rank      # does the heat map show where the word acted?

    The word is left out in two ways. Neither isolates the cause.

    - "attention": the probabilities of its tokens are set to 0 in every layer and step, or in those
      that are selected; the others
      stay, so rows no longer sum to 1, as with `Reweight(word, 0)`. Later tokens have still read
      the word.
    - "prompt": the word and the spaces before it are removed from the prompt, so "a red house, at
      night" without "house" is "a red , at night". Edits and guides that name the word are left
      out, and those of words with a number, such as "cat#2"; rules and losses of your own and a
      second prompt (of SDXL) stay. All other tokens change, too.

    The run itself is generated again first. If it differs from the saved one, a warning says so,
    and the ablation holds the new one.

    Args:
        pipe: the pipeline to use; None loads the model named in the settings.
        run: a run that is not an edit, or its folder.
        word: a word or phrase of its prompt; every occurrence is removed, or of "cat#2" the second
            "cat" alone.
        layers: the layers where its attention is set to 0, as `Reweight` takes them. Default: all.
        heads: the heads. Default: all.
        steps: the steps. Default: all.
        progress: called after every step with the number of steps done and of all steps.
        arguments: those that a file cannot hold, as in `repeat`.

    Returns:
        The run and both runs without the word, with their differences and the measures.

    Raises:
        ArgumentError: if the run is an edit, nothing is left of the prompt, or one of `arguments`
            is missing.
        ModelError: if the model named in the settings cannot be loaded.
        RunError: if the run cannot be generated again.
        WordError: if the prompt has no such word, or the model did not read it.
    """
    saved, prompt = shorter_prompt(load_result(run), word)
    pipe, call = _call_of(pipe, saved, arguments)
    name = word.strip()
    removal = Reweight(name, 0.0, layers=layers, heads=heads, steps=steps)
    table = saved.maps.tokens
    edits = tuple(edit for edit in call.edits if _stays(table, name, edit))
    guide = tuple(one for one in call.guide if _stays(table, name, one))
    without = replace(call, prompt=prompt, edits=edits, guide=guide)
    # A selection of nothing is refused before an image is generated.
    calls = [replace(call, edits=(*call.edits, removal)), call, without]
    attention, again, other = _variants(pipe, saved, call, calls, progress)
    return Ablation(name, again, {"attention": attention, "prompt": other})


def rank(
    pipe: Pipeline | None,
    run: Run | str | Path,
    word: str,
    *,
    heads: bool = False,
    layers: str = "*",
    progress: Progress | None = None,
    **arguments: Any,
) -> Ranking:
    """Rank layers or heads by the change of the image in a word's mask, without the word in each.

        ranking = heedmap.rank(pipe, run, "house")
        heedmap.rank(pipe, run, "house", heads=True, layers="up").removals[0].name

    In one layer or head after the other the word's attention is set to 0 in all steps, as by
    `Reweight(word, 0, layers=…, heads=…)`, and the run is generated again from the same noise. The
    loss is the mean of |x − x₋layer| over the pixels inside of the word's mask in the run
    (`run.maps[word].mask()`) and over the colours, 0 to 1. A layer whose loss is small may still
    matter where others do its work. The cost is a run for each layer or head, and one more.

    Layers are ranked by leaving each out in Stable Flow (Avrahami et al., 2024, arXiv 2411.14430),
    heads by their relevance for a concept in Park et al., 2024, arXiv 2412.02237.

    Args:
        pipe: the pipeline to use; None loads the model named in the settings.
        run: a run that is not an edit, or its folder.
        word: a word or phrase of its prompt.
        heads: if True, rank each head of each layer.
        layers: a group of layers, a name or a pattern. Default: all.
        progress: called after every step with the number of steps done and of all steps.
        arguments: those that a file cannot hold, as in `repeat`.

    Returns:
        The layers or heads with the change inside and outside of the mask, the largest inside
        first.

    Raises:
        ArgumentError: if the run is an edit, the mask of the word is empty or the whole image, or
            an argument is wrong.
        ModelError: if the model named in the settings cannot be loaded.
        RunError: if the run cannot be generated again.
        SelectionError: if the model has no such layer.
        WordError: if the prompt has no such word, or the model did not read it.
    """
    saved = generated_run(load_result(run))
    mask = saved.maps[word].mask()
    if mask.mean() in (0, 1):
        raise ArgumentError(
            f"the mask of {quoted(word)} is empty or the whole image, so that a change inside "
            "cannot be told from one outside: name another word, or use another seed"
        )
    pipe, call = _call_of(pipe, saved, arguments)
    shapes = {shape.name: shape for shape in layer_shapes(pipe)}
    parts = {name: shape.part for name, shape in shapes.items()}
    names = short_names(parts)
    places: list[tuple[str, int | None, str]] = []
    calls = [call]
    for layer in pick(parts, layers):
        for head in range(shapes[layer].heads) if heads else [None]:
            removal = Reweight(word.strip(), 0.0, layers=layer, heads=head)
            calls.append(replace(call, edits=(*call.edits, removal)))
            places.append((layer, head, names[layer] + f" head {head}" * heads))
    runs = _variants(pipe, saved, call, calls, progress)
    again = next(runs)
    removals: list[Removal] = []
    for place, other in zip(places, runs, strict=True):
        change = pixel_change(again.image, other.image)
        inside, outside = (float(change[part].mean()) for part in (mask, ~mask))
        removals.append(Removal(*place, inside, outside))
    removals.sort(key=attrgetter("inside"), reverse=True)
    return Ranking(word.strip(), again, tuple(removals))


def _call_of(
    pipe: Any,
    run: Run,
    arguments: dict[str, Any],
) -> tuple[Any, repeating.SavedCall]:
    """Return the pipeline of a run, and its call, which records neither places nor reads."""
    pipe = repeating.load_for(run) if pipe is None else pipe
    call = repeating.saved_call(run.settings, pipe, arguments)
    return pipe, replace(call, options=replace(call.options, places=(), reads=False))


def _variants(
    pipe: Any,
    saved: Run,
    call: repeating.SavedCall,
    calls: Sequence[repeating.SavedCall],
    progress: Progress | None,
) -> Iterator[Run]:
    """Yield the runs of calls; a warning says if that of the saved run's call differs from it."""
    changed = repeating.settings_diff(saved.settings, pipe)
    with repeating.saved_schedulers(pipe, saved.settings):
        for done, one in enumerate(calls):
            part = sub_progress(progress, done, len(calls))
            run = repeating.generate_call(pipe, one, part)
            if one is call:
                result = repeating.compared(saved, run, changed)
                if not result.same:
                    warn(
                        "the run was not reproduced exactly, so the result is that of a new one: "
                        f"{result}"
                    )
            yield run


def _stays(table: TokenTable, removed: str, edit: Edit | AnyGuide) -> bool:
    """Return whether an edit or a guide holds for a prompt without a word.

    It does not if it names a word that is gone, or one by its number, which may change.
    """
    names: Sequence[str] = getattr(edit, "words", ())
    if isinstance(edit, WordEdit):
        names = [edit.word, *(getattr(edit, "along", None) or ())]
    gone = set(table.find(removed))
    return all("#" not in name and gone.isdisjoint(table.find(name)) for name in names)
