"""Explain one attention probability of a saved run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from msgspec import structs

from heedmap import checks
from heedmap.backends.base import Pipeline
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import cross_attention_layers
from heedmap.errors import ArgumentError, RunError, SelectionError, plural, quoted, warn
from heedmap.maps.recordings import (
    MOST_NEAR,
    Recording,
    name_fits,
    nearest_layers,
    short_name,
    short_names,
)
from heedmap.options import Axis, BranchName, ExplainOptions
from heedmap.pipelines import repeating
from heedmap.pipelines.batch import Progress
from heedmap.pipelines.repeating import Drawing
from heedmap.recording.probing import Probe, ProbeResult, ProbeTarget, check_index
from heedmap.results.explanations import About, ExplainedToken, Explanation
from heedmap.results.grids import load_result
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run

MAX_DIFFERENCE = 1e-3
"""The difference of a probability above which the new run is said to differ from the saved one."""


def explain(
    pipe: Pipeline | None,
    run: Drawing | str | Path,
    word: str | int,
    at: Sequence[int],
    *,
    layer: str | None = None,
    head: int | None = None,
    step: int | None = None,
    branch: BranchName = ExplainOptions.branch,
    pass_: int = ExplainOptions.pass_,
    progress: Progress | None = None,
    **given: Any,
) -> Explanation:
    """Show how an attention probability of a saved run is computed, from QKᵀ to the output.

        found = heedmap.explain(None, "outputs/house", "house", at=(40, 72))
        print(found.table())
        found.save("outputs/why")

    The run is generated again up to the step, and the numbers are those of the model.

    Args:
        pipe: the pipeline to use; None loads the model named in the settings.
        run: a run or an edit, or its folder; of an edit the edited image is explained.
        word: a word or phrase, or the number of a word.
        at: (x, y), a pixel of the image from its upper left, from 0.
        layer: its name, its short name ("up 1.0"), or a pattern that fits one layer. Default, also
            of `head`: the one with the word's largest probability at the pixel that is at most a
            half (`heedmap.recording.probing.selection_score`).
        head: from 0; negative numbers count from the end.
        step: from 0; negative numbers count from the end. Default: the middle step.
        branch: "negative" for a word of the negative prompt.
        pass_: the model's pass within the step, if the scheduler calls the model several times;
            negative numbers count from the end. The saved maps of such a step are a mean.
        progress: called after every step with the number of steps done and of all steps.
        given: as in `repeat`.

    Raises:
        ArgumentError: if the pixel is outside the image, the branch or pass does not exist, or
            something is missing in `given`.
        ModelError: if the model named in the settings cannot be loaded.
        RunError: if the run cannot be generated again.
        SelectionError: if the run has no such layer, head, step or pass.
        TraceError: if the word is of the negative prompt, and the run has none.
        UnknownWordError: if the prompt has no such word.
        TruncatedWordError: if the model did not read it.
    """
    checks.one_of("branch", branch, get_args(BranchName))
    checks.whole("pass_", pass_)
    saved = load_result(run) if isinstance(run, str | Path) else run
    saved = saved.edited if isinstance(saved, Pair) else saved
    if not isinstance(saved, Run):
        raise ArgumentError(
            f"the run to explain is {quoted(run)}: expected a run or an edit, or its folder; of a "
            "grid name the folder of a cell, such as cells/001"
        )
    pixel, steps = _pixel(at, saved.image.size), len(saved.maps.recording.timesteps)
    number = steps // 2 if step is None else check_index("step", step, steps, "the run", "step")
    pipe = repeating.load_for(saved) if pipe is None else pipe
    call = repeating.saved_call(saved.settings, pipe, given)
    table = saved.maps.tokens
    if branch == "negative":
        table = prompt_table(pipe, saved.settings.negative or "", call.options.arguments)
    tokens = table.find(word) if isinstance(word, str) else table.tokens_at(word)
    layers = cross_attention_layers(pipe)
    name = None if layer is None else find_layer(layer, list(layers))
    if head is not None:
        heads = {one: layers[one].heads for one in ([name] if name else layers)}
        if name is None and checks.whole("head", head) < 0:
            raise SelectionError(
                f"head is {head}, and layers have different numbers of heads: name a layer, too"
            )
        most = max(heads, key=heads.__getitem__)
        head = check_index("head", head, heads[most], short_name(most), "head")
    size, image = saved.image.size, call.place[0]
    target = ProbeTarget(tokens, pixel, size, image, branch, number, pass_, name, head)
    probe = Probe(target)
    changed = repeating.run_probe(pipe, saved, given, probe, progress)
    found = probe.result
    if found is None:
        raise RunError(
            f"the run ended before step {number} when it was generated again: expected {steps} "
            "steps; use the versions that its settings name"
        )
    if found.table.prompt != table.prompt:
        raise RunError(
            f"the model read {quoted(found.table.prompt)}: expected {quoted(table.prompt)}, as in "
            "the saved run; make the run again"
        )
    chosen: dict[Axis, object] = {"layer": layer, "head": head, "step": step}
    about = About(
        word=word.strip() if isinstance(word, str) else table.at(word).text,
        tokens=tokens,
        spans=tuple((one.start, one.end) for one in table.words if {*one.tokens} & {*tokens}),
        prompt=table.prompt,
        branch=branch,
        at=pixel,
        size=size,
        layer=found.layer,
        short=short_name(found.layer),
        grid=found.grid,
        place=target.place(found.grid),
        head=found.head,
        step=number,
        steps=steps,
        passes=found.passes,
        timestep=found.timestep,
        chosen=tuple(axis for axis, value in chosen.items() if value is None),
        kept=None,
        changed=tuple(changed),
        seed=saved.settings.seed,
        model=saved.settings.model,
        pipeline=saved.settings.pipeline,
        scheduler=saved.settings.scheduler,
        dtype=saved.settings.dtype,
    )
    return _compared(saved, _explanation(about, found, saved), changed)


def _explanation(about: About, found: ProbeResult, saved: Run) -> Explanation:
    tokens = tuple(ExplainedToken(one.position, one.text, one.kind) for one in found.table.tokens)
    made = Explanation(about, tokens, found.given, saved.image)
    if not found.image_prompt:
        return made
    given = structs.replace(found.given, added=found.joined - made.joined)
    return replace(made, given=given)


def _compared(saved: Run, found: Explanation, changed: Mapping[str, Any]) -> Explanation:
    """Add the difference from the saved maps, and warn if it is large."""
    about = found.about
    maps = saved.maps if about.branch == "conditional" else saved.negative_maps
    # The maps of a step with several passes are their mean.
    if maps is None or not {"layer", "step"} <= maps.recording.keep or about.passes[1] > 1:
        return found
    difference = _difference(maps.recording, found)
    if difference > MAX_DIFFERENCE:
        why = f" ({', '.join([*changed][:3])})" if changed else ""
        warn(
            f"the run that was generated again differs from the saved one{why}: its probabilities "
            f"differ here by up to {difference:.2g}; the explanation is that of the new run"
        )
    return replace(found, about=structs.replace(about, kept=difference))


def _difference(kept: Recording, found: Explanation) -> float:
    about, p = found.about, found.acted  # (H, K)
    layers = [(one.name, one.heads, one.grid) for one in kept.layers]
    layer = (about.layer, len(p), about.grid)
    if layer not in layers or max(kept.positions) >= p.shape[1]:
        raise RunError(
            f"the saved maps are of another model: here {about.short} has "
            f"{plural(len(p), 'head')} and a grid of {about.grid[0]}×{about.grid[1]}; use the "
            "model that the settings name"
        )
    place = about.place[0] * about.grid[1] + about.place[1]
    saved = kept.arrays[layers.index(layer)][about.step, :, place]  # (H, K')
    now = p[:, list(kept.positions)]
    if "head" not in kept.keep:
        now = now.mean(axis=0, keepdims=True)
    return float(np.abs(saved - now).max())


def find_layer(given: object, names: Sequence[str]) -> str:
    """Find a layer by its name, its short name, or a pattern that fits no other.

    Raises:
        SelectionError: if no layer fits, or several do; it lists the nearest.
    """
    text = checks.text("layer", given, "up 1.0")
    if text in names:
        return text
    shorts = dict(zip(short_names(names), names, strict=True))
    if text in shorts:
        return shorts[text]
    fitting = [name for name in names if name_fits(name, text)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        some = ", ".join(short_names(fitting)[:MOST_NEAR])
        more = ", …" if len(fitting) > MOST_NEAR else ""
        raise SelectionError(
            f"layer is {quoted(text)}, which fits {len(fitting)} layers ({some}{more}): name one "
            "of them"
        )
    raise SelectionError(
        f"layer is {quoted(text)}: expected the name of one layer; the nearest are "
        f"{', '.join(nearest_layers(text, names))}"
    )


def _pixel(at: object, size: tuple[int, int]) -> tuple[int, int]:
    given = checks.in_order(at)
    if given is None or len(given) != 2:
        raise ArgumentError(f"at is {quoted(at)}: expected a pixel (x, y), such as (12, 40)")
    x, y = (checks.whole("at", one) for one in given)
    if not (0 <= x < size[0] and 0 <= y < size[1]):
        raise ArgumentError(
            f"the pixel {x},{y} is outside the image: expected x from 0 to {size[0] - 1} and y "
            f"from 0 to {size[1] - 1}, from its upper left"
        )
    return x, y
