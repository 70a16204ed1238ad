"""Explain one attention probability of a saved run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from heedmap import checks
from heedmap.backends.base import Pipeline
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import cross_attention_layers
from heedmap.errors import RunError, plural, quoted, warn
from heedmap.io.explanations import About, Had, TokenTold, as_packed
from heedmap.maps.aims import Aim, find_layer, number_of
from heedmap.maps.recordings import Recording, short_name
from heedmap.options import BranchName, ExplainOptions
from heedmap.pipelines import repeating
from heedmap.pipelines.batch import Progress
from heedmap.pipelines.repeating import Drawing, saved_call
from heedmap.recording.probing import Probe, Taken
from heedmap.results import explanations
from heedmap.results.explanations import Explanation
from heedmap.results.grids import load_result
from heedmap.results.runs import Run

APART = 1e-3
"""The difference of a probability from which the new run is said to differ from the saved one."""


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

    The run is generated again up to the step, and the numbers are those of the model. If no layer,
    step or head is given, it is the one in which the word draws most at the pixel but no more than
    half of the attention, among those that the run kept; if the word draws more in all of them, the
    one in which it draws least (`heedmap.maps.aims.worth`). `Explanation.about.chosen` says so.

    Args:
        pipe: the pipeline to use; None loads the model named in the settings.
        run: a run or an edit, or its folder; of an edit the edited image is explained.
        word: a word or phrase, or the number of a word.
        at: (x, y), a pixel of the image from its upper left, from 0.
        layer: its name, its short name ("up 1.0"), or a pattern that fits one layer.
        head: from 0; negative numbers count from the end.
        step: from 0; negative numbers count from the end.
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
    pass_ = checks.whole("pass_", pass_)
    named = isinstance(run, str | Path)
    saved = explanations.explained_run(load_result(run) if named else run, run)
    asked: dict[str, Any] = {"layer": layer, "head": head, "step": step}
    aim = explanations.aim_at(saved, word, at, branch=branch, **asked)
    pipe = pipe if pipe is not None else repeating.load_for(saved)
    about = saved.settings
    if aim is None:
        arguments = saved_call(about, pipe, given).options.arguments
        table = prompt_table(pipe, about.negative or "", arguments)
        aim = explanations.aim_in(saved, table, None, word, at, **asked)
    if aim.layer is not None:
        aim = _within(aim, cross_attention_layers(pipe))
    probe = Probe(aim, saved_call(about, pipe, given).place[0], branch, pass_)
    changed = repeating.run_probe(pipe, saved, given, probe, progress)
    return _compared(saved, aim, probe, changed)


def _compared(saved: Run, aim: Aim, probe: Probe, changed: Mapping[str, Any]) -> Explanation:
    """Return the explanation of a probe, compared with the saved run."""
    taken, branch = probe.found, probe.branch
    if taken is None:
        raise RunError(
            f"the run ended before step {aim.step} when it was generated again: expected "
            f"{explanations.steps_of(saved)} steps; use the versions that its settings name"
        )
    if taken.table.prompt != _prompt(saved, branch):
        raise RunError(
            f"the model read {quoted(taken.table.prompt)}: expected "
            f"{quoted(_prompt(saved, branch))}, as in the saved run; make the run again"
        )
    found = _explanation(saved, aim, branch, taken, tuple(changed))
    apart = _apart(_side(saved, branch), taken, found, aim)
    if apart is not None and apart > APART:
        why = f" ({', '.join([*changed][:3])})" if changed else ""
        warn(
            f"the run that was generated again differs from the saved one{why}: its probabilities "
            f"differ here by up to {apart:.2g}; the explanation is that of the new run"
        )
    return found.with_kept(apart)


def _side(saved: Run, branch: BranchName) -> Recording | None:
    maps = saved.maps if branch == "conditional" else saved.negative_maps
    return None if maps is None else maps.recording


def _prompt(saved: Run, branch: BranchName) -> str:
    about = saved.settings
    return saved.maps.tokens.prompt if branch == "conditional" else about.negative or ""


def _within(aim: Aim, layers: Mapping[str, Any]) -> Aim:
    """Return the aim with the full name of the layer and a head that it has."""
    name = find_layer(aim.layer, list(layers))
    head = aim.head
    if head is not None:
        head = number_of("head", head, layers[name].heads, short_name(name))
    return replace(aim, layer=name, head=head)


def _explanation(
    saved: Run, aim: Aim, branch: BranchName, taken: Taken, changed: tuple[str, ...]
) -> Explanation:
    about, end, heads = saved.settings, taken.ending, len(taken.query)
    given = Had(
        query=as_packed(taken.query),
        key=as_packed(taken.key),
        value=as_packed(taken.value),
        mask=None if taken.mask is None else as_packed(taken.mask),
        scale=taken.scale,
        edited=None if taken.edited is None else as_packed(taken.edited),
        added=None,
        weight=as_packed(end.weight.cpu().numpy()),
        bias=None if end.bias is None else as_packed(end.bias.cpu().numpy()),
        residual=as_packed(taken.hidden) if end.residual else None,
        factor=end.factor,
        output=as_packed(taken.output),
    )
    told = About(
        word=aim.label,
        tokens=aim.tokens,
        prompt=taken.table.prompt,
        branch=branch,
        at=aim.at,
        size=aim.size,
        layer=taken.layer,
        short=short_name(taken.layer),
        grid=taken.grid,
        place=aim.place(taken.grid),
        head=taken.head,
        heads=heads,
        step=aim.step,
        steps=explanations.steps_of(saved),
        passes=taken.passes,
        timestep=taken.timestep,
        chosen=dict(aim.chosen),
        kept=None,
        changed=changed,
        rule=taken.edited is not None,
        seed=about.seed,
        model=about.model,
        pipeline=about.pipeline,
        scheduler=about.scheduler,
        dtype=about.dtype,
        image_prompt=end.adds,
        spans=tuple(
            (one.start, one.end) for one in taken.table.words if {*one.tokens} & {*aim.tokens}
        ),
    )
    tokens = tuple(TokenTold(one.position, one.text, one.kind) for one in taken.table.tokens)
    found = Explanation(told, tokens, given, saved.image)
    return found.with_added(taken.joined) if end.adds else found


def _apart(side: Recording | None, taken: Taken, found: Explanation, aim: Aim) -> float | None:
    """Return the largest difference of the saved maps from the new P; None if they lack it.

    The saved maps of a step of several passes are a mean, and cannot be compared.
    """
    if side is None or not {"layer", "step"} <= side.keep or taken.passes[1] > 1:
        return None
    heads, tokens = found.acted.shape
    alike = [(one.name, one.heads, one.grid) for one in side.layers]
    mine = (taken.layer, heads, taken.grid)
    if mine not in alike or any(position >= tokens for position in side.positions):
        raise RunError(
            f"the saved maps are of another model: here {found.about.short} has "
            f"{plural(heads, 'head')} and a grid of {taken.grid[0]}×{taken.grid[1]}; use the model "
            "that the settings name"
        )
    row, column = found.about.place
    kept = side.arrays[alike.index(mine)][aim.step, :, row * taken.grid[1] + column]  # (H, K')
    acted = found.acted[:, list(side.positions)]
    if "head" not in side.keep:
        acted = acted.mean(axis=0, keepdims=True)
    return float(np.abs(kept - acted).max())
