"""Explain one attention probability of a saved run."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from msgspec import structs

from heedmap.backends.base import Pipeline
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import cross_attention_layers
from heedmap.checks import as_ordered_list, check_int, check_one_of, check_text
from heedmap.errors import ArgumentError, RunError, SelectionError, join_words, plural, quoted, warn
from heedmap.maps.recordings import name_fits, nearest_layers, short_name
from heedmap.options import Axis, BranchName, ExplainOptions
from heedmap.pipelines import repeating
from heedmap.pipelines.generation import Progress
from heedmap.pipelines.repeating import Drawing
from heedmap.recording.probing import Probe, ProbeTarget, check_index
from heedmap.results.edits import EditResult
from heedmap.results.explanations import About, ExplainedToken, Explanation
from heedmap.results.grids import load_result
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

    P = softmax(QKᵀ/√d + M), O = P V (Vaswani et al., 2017, arXiv 1706.03762). The run is generated
    again up to the step, and the numbers are those of the model.

    Args:
        pipe: the pipeline to use; None loads the model named in the settings.
        run: a run or an edit, or its folder; of an edit the edited image is explained.
        word: a word or phrase, or the number of a word.
        at: (x, y), a pixel of the image from its upper left, from 0.
        layer: its name, its short name ("up 1.0"), or a pattern that fits one layer. Default, also
            of `head`: the one with the word's largest probability at the pixel that is at most a
            half.
        head: from 0; negative numbers count from the end.
        step: from 0; negative numbers count from the end. Default: the middle step.
        branch: "negative" for a word of the negative prompt.
        pass_: the model's pass within the step, if the scheduler calls the model several times;
            negative numbers count from the end. The saved maps of such a step are a mean.
        progress: called after every step with the number of steps done and of all steps.
        given: as in `repeat`.

    Returns:
        The inputs of the layer at the pixel's position, and all results up to its output.

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
    check_one_of("branch", branch, get_args(BranchName))
    saved = load_result(run) if isinstance(run, str | Path) else run
    saved = saved.edited if isinstance(saved, EditResult) else saved
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
        widest = name or max(layers, key=lambda one: layers[one].heads)
        head = check_index("head", head, layers[widest].heads, short_name(widest), "head")
    place = saved.image.size, call.place[0]
    target = ProbeTarget(tokens, pixel, *place, branch, number, pass_, name, head)
    probe = Probe(target)
    changed = repeating.run_probe(pipe, saved, given, probe, progress)
    result = probe.result
    if result is None:
        raise RunError(
            f"the run ended before step {number} when it was generated again: expected {steps} "
            "steps; use the versions that its settings name"
        )
    if result.table.prompt != table.prompt:
        raise RunError(
            f"the model read {quoted(result.table.prompt)}: expected {quoted(table.prompt)}, as in "
            "the saved run; make the run again"
        )
    chosen: dict[Axis, object] = {"layer": layer, "head": head, "step": step}
    about = About(
        word=word.strip() if isinstance(word, str) else table.at(word).text,
        spans=tuple((one.start, one.end) for one in table.words if {*one.tokens} & {*tokens}),
        prompt=table.prompt,
        short=short_name(result.layer),
        place=target.place(result.grid),
        steps=steps,
        chosen=tuple(axis for axis, value in chosen.items() if value is None),
        kept=None,
        changed=tuple(changed),
        **_values(target, "tokens", "branch", "at", "size", "step"),
        **_values(result, "layer", "grid", "head", "passes", "timestep"),
        **_values(saved.settings, "seed", "model", "pipeline", "scheduler", "dtype"),
    )
    columns = tuple(ExplainedToken(one.position, one.text, one.kind) for one in result.table.tokens)
    explanation = Explanation(about, columns, result.given, saved.image)
    if result.image_prompt:
        inputs = structs.replace(result.given, added=result.joined - explanation.joined)
        explanation = replace(explanation, given=inputs)
    difference = _difference(saved, explanation)
    if difference is not None and difference > MAX_DIFFERENCE:
        warn(
            "the run that was generated again is not the saved one (settings that differ: "
            f"{', '.join(changed) or 'none'}): its probabilities differ here by up to "
            f"{difference:.2g}; the explanation is that of the new run"
        )
    return replace(explanation, about=structs.replace(about, kept=difference))


def _values(owner: object, *names: str) -> dict[str, Any]:
    return {name: getattr(owner, name) for name in names}


def _difference(saved: Run, explanation: Explanation) -> float | None:
    """Return the largest difference from the saved maps; None if these lack the layer or step."""
    about, p = explanation.about, explanation.acted  # (H, K)
    maps = saved.maps if about.branch == "conditional" else saved.negative_maps
    # The maps of a step with several passes are their mean.
    if maps is None or not {"layer", "step"} <= maps.recording.keep or about.passes[1] > 1:
        return None
    recording, place = maps.recording, about.place[0] * about.grid[1] + about.place[1]
    for layer, array in zip(recording.layers, recording.arrays, strict=True):
        if (layer.name, layer.heads, layer.grid) == (about.layer, len(p), about.grid):
            now = p[:, list(recording.positions)]  # (H, K')
            now = now if "head" in recording.keep else now.mean(axis=0, keepdims=True)
            return float(np.abs(array[about.step, :, place] - now).max())
    raise RunError(
        f"the saved maps are of another model: here {about.short} has {plural(len(p), 'head')} and "
        f"a grid of {about.grid[0]}×{about.grid[1]}; use the model that the settings name"
    )


def find_layer(layer: object, names: Sequence[str]) -> str:
    """Find a layer by its name, its short name, or a pattern that fits no other."""
    text = check_text("layer", layer, "up 1.0")
    fitting = [name for name in names if name_fits(name, text)]
    if len(fitting) == 1:
        return fitting[0]
    near = nearest_layers(text, fitting or names)
    raise SelectionError(
        f"layer is {quoted(text)}, which fits {plural(len(fitting), 'layer')}: expected the name "
        f"of one, such as {join_words(near)}"
    )


def _pixel(at: object, size: tuple[int, int]) -> tuple[int, int]:
    sides = as_ordered_list(at)
    if sides is None or len(sides) != 2:
        raise ArgumentError(f"at is {quoted(at)}: expected a pixel (x, y), such as (12, 40)")
    (x, y), (w, h) = sides, size
    return check_int("x", x, least=0, most=w - 1), check_int("y", y, least=0, most=h - 1)
