"""Explain one attention probability of a saved run."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from heedmap.backends.base import Pipeline, heads_of, left_early
from heedmap.backends.layer_shapes import pick
from heedmap.backends.registry import family_of
from heedmap.checks import check_int, check_text
from heedmap.errors import RunError, quoted, warn
from heedmap.options import Axis
from heedmap.pipelines import repeating
from heedmap.pipelines.generation import Progress
from heedmap.pipelines.repeating import Drawing
from heedmap.recording.probing import Probe, ProbeSite, StopRun, check_index
from heedmap.results.edits import EditResult, load_result
from heedmap.results.explanations import Explanation, ExplanationReport
from heedmap.results.runs import Run
from heedmap.text.words import Token

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
    progress: Progress | None = None,
    **arguments: Any,
) -> Explanation:
    """Show how an attention probability of a saved run is computed, from QKᵀ to the output.

        found = heedmap.explain(None, "outputs/house", "house", at=(40, 72))
        print(found.table())
        found.save("outputs/why")

    P = softmax(QKᵀ/√d + M), O = P V (Vaswani et al., 2017, arXiv 1706.03762). The run is generated
    again up to the step, and the numbers are those of the model. Where text and image share one
    softmax, one more token, the last, stands for the image.

    Args:
        pipe: the pipeline to use; None loads the model named in the settings.
        run: a run or an edit, or its folder; of an edit the edited image is explained.
        word: a word or phrase, or the number of a word.
        at: (x, y), a pixel of the image from its upper left, from 0.
        layer: a group, as "up", "late" or "single"; a layer's name, its short name ("up 1.0") or a
            pattern. If several layers or heads fit, the one is chosen where the word's probability
            at this pixel is largest, counting only probabilities up to 0.5
            (`heedmap.recording.probing.selection_score`).
        head: from 0; negative numbers count from the end. Default: all.
        step: from 0; negative numbers count from the end. Default: the middle step. Of a step in
            which the scheduler calls the model several times, the first pass is explained, and the
            saved maps are a mean.
        progress: called after every step with the number of steps done and of all steps.
        arguments: those that a file cannot hold, as in `repeat`.

    Returns:
        The inputs of the layer at the pixel's position, and all results up to its output.

    Raises:
        ArgumentError: if the pixel is outside the image, or one of `arguments` is missing.
        ModelError: if the model named in the settings cannot be loaded.
        RunError: if the run cannot be generated again.
        SelectionError: if the run has no such layer, head or step.
        WordError: if the prompt has no such word, or the model did not read it.
    """
    saved = load_result(run)
    saved = saved.edited if isinstance(saved, EditResult) else saved
    width, height = saved.image.size
    x, y = at
    x = check_int("x", x, least=0, most=width - 1)
    y = check_int("y", y, least=0, most=height - 1)
    steps = len(saved.maps.recording.timesteps)
    number = steps // 2 if step is None else check_index("step", step, steps)
    pipe = repeating.load_for(saved) if pipe is None else pipe
    call = repeating.saved_call(saved.settings, pipe, arguments)
    table = saved.maps.tokens
    if isinstance(word, str):
        tokens = table.find(word)
        word = word.strip()
    else:
        tokens = table.tokens_at(word)
        word = table.at(word).text
    family = family_of(pipe)
    layers = family.text_layers()
    wanted = "*" if layer is None else check_text("layer", layer, "up 1.0")
    parts = dict.fromkeys(layers, "") | family.groups([*layers])
    names = pick(parts, wanted)
    if head is not None:
        head = check_index("head", head, max(heads_of(layers[name]) for name in names))
    free: dict[Axis, bool] = {
        "layer": len(names) > 1,
        "head": head is None,
        "step": step is None,
    }
    probe = Probe(
        tokens=tokens,
        at=(x, y),
        size=(width, height),
        image=call.place[0],
        step=number,
        layers=names,
        head=head,
        joint=family.is_joint,
    )
    changed = repeating.settings_diff(saved.settings, pipe)
    with (
        repeating.saved_schedulers(pipe, saved.settings),
        suppress(StopRun),
        left_early(pipe),
    ):
        repeating.generate_again(pipe, saved, arguments, progress, probe)
    site = probe.site
    inputs = probe.inputs
    if site is None or inputs is None or site.table.tokens != table.tokens:
        raise RunError(
            f"at step {number}, the new run read other tokens of {quoted(table.prompt)} than the "
            "saved one, or did not run the layer: choose another step, or use the model and the "
            "versions that its settings name"
        )
    difference = _difference(saved, number, site)
    if difference is not None and difference > MAX_DIFFERENCE:
        warn(
            "the run was not reproduced exactly, so the explanation is that of a new one, whose "
            f"probabilities differ by up to {difference:.2g} (settings that differ: "
            f"{', '.join(changed) or 'none'})"
        )
    report = ExplanationReport(
        word=word,
        prompt=table.prompt,
        short=site.layer.short,
        steps=steps,
        automatic_axes=tuple(axis for axis in free if free[axis]),
        maps_difference=difference,
        settings_diff=tuple(changed),
        **_values(probe, "tokens", "at", "size", "step"),
        **_values(site, "layer", "place", "head", "passes", "timestep"),
        **_values(saved.settings, "seed", "model", "dtype"),
    )
    every = site.table.tokens
    if family.is_joint:
        every = (*every, Token(len(every), 0, "<image>", 0, 0, "image"))
    return Explanation(report, every, inputs, saved.image)


def _values(owner: object, *names: str) -> dict[str, Any]:
    return {name: getattr(owner, name) for name in names}


def _difference(
    saved: Run,
    step: int,
    site: ProbeSite,
) -> float | None:
    """Return the largest difference from the saved maps; None if these lack the layer or step."""
    # The maps of a step with several passes are their mean.
    if site.passes[1] > 1:
        return None
    recording = saved.maps.recording
    if not {"layer", "step"} <= recording.keep:
        return None
    layer = site.layer
    if layer not in recording.layers:
        return None
    array = recording.arrays[recording.layers.index(layer)]  # (S, H, Q, K)
    p = site.probabilities
    if recording.share_of == "text":
        p = p[:, :-1] / np.abs(p[:, :-1]).sum(axis=1, keepdims=True)
    p = p[:, list(recording.positions)]
    if "head" not in recording.keep:
        p = p.mean(axis=0, keepdims=True)
    row, column = site.place
    return float(np.abs(array[step, :, row * layer.grid[1] + column] - p).max())
