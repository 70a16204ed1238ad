"""Draw the edits of one source beside it, and tell what each of them did.

Prompt-to-prompt (Hertz et al., 2022, arXiv 2208.01626): source and edits are drawn in one batch
from one noise; for a part of the run the edits take the source's cross-attention, word by word, and
its self-attention.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from msgspec import structs
from PIL import Image

from heedmap.backends.latents import fitting, in_batches
from heedmap.backends.loading import is_embedded
from heedmap.errors import quoted, warn
from heedmap.figures import overlays
from heedmap.io.schemas import ChangedWords, EditNoted, EditReport
from heedmap.options import USUAL, GenerateOptions
from heedmap.pipelines.batch import Batch, Preview, Progress, draw, sub_progress
from heedmap.pipelines.blending import Blending
from heedmap.pipelines.edit_plans import EditBase, Plan
from heedmap.pipelines.input_images import ImageSource, distortion_warning
from heedmap.recording.edits import Steering, weights_rule
from heedmap.recording.probing import Probe
from heedmap.recording.tracing import AfterStep, StepState, Trace
from heedmap.results.pairs import Pair, apart, change_between
from heedmap.results.runs import Run
from heedmap.text.alignment import first_of

LEAST_CHANGE = 0.02
"""Of `most_changed`, below which an edit is told to have changed almost nothing.

On the embedded model (`scripts/evaluate.py windows`); of others it is not known.
"""
LOOKING_BACK = ("PNDMScheduler", "LMSDiscreteScheduler")
"""Schedulers of which few steps do not do for a picture: they go by up to four outputs at once.

Others that go by two or three, of the denoised picture, do as well as those that go by one."""
ENOUGH_STEPS = 30
"""Of these. In 8 to 20 steps the rest of a picture, outside of a blend, was left at 14 to 37 dB, of
DDIM at 38 or more; in 30 steps at 33 to 38 (embedded model)."""

LEAST_KEPT = 20.0
"""Decibels of a picture outside of the words that an edit changed, below which that is told: of one
unlike those that a model draws it keeps little."""


@dataclass(eq=False)
class DrawnEdits:
    """What was drawn.

    Attributes:
        pairs: one a plan, in order, all with one source.
        batches: how many were drawn; in each the source was computed.
        largest: pictures in the largest of them.
    """

    pairs: list[Pair]
    batches: int = 0
    largest: int = 0


def tell_notes(pairs: Iterable[Pair]) -> None:
    """Warn once of each thing that pairs note: what did little or nothing, and was asked for."""
    for note in dict.fromkeys(note for pair in pairs for note in pair.about.notes or ()):
        warn(note)


def draw_edits(
    base: EditBase,
    plans: Sequence[Plan],
    seed: int,
    options: GenerateOptions,
    progress: Progress | None = None,
    preview: Preview | None = None,
    probe: Probe | None = None,
) -> DrawnEdits:
    """Draw a source and its edits from the noise of one seed.

    Where they do not fit into one batch the source is computed again in each; the pairs have that
    of the first, and those of the others are the same up to rounding.

    Args:
        base: the source.
        plans: the edits.
        seed: of the noise.
        options: how they are drawn.
        progress: called after every step with the steps done and those of all batches.
        preview: called after every step with a copy of the latents (B, C, h, w) of its batch: the
            source's, then the edits'.
        probe: what to look at; it ends the run with `probing.Reached`.
    """
    start, own = options.arguments.get("image"), base.options.image
    size = options.size or (start.size if isinstance(start, Image.Image) else None)
    at_once = fitting(base.pipe, size, base.options.batch) - 1

    drawn = DrawnEdits([])
    picture = None if own is None else ImageSource.of(base.pipe, own, seed, options)

    def one(some: Sequence[Plan], done: int, left: int) -> int:
        """Draw some of them; only what is told of them is kept, not what it is made of."""
        mine = sub_progress(progress, done, done + left)
        runs, recorder, blending = _draw(base, some, seed, options, picture, mine, preview, probe)
        source = drawn.pairs[0].source if drawn.pairs else runs[0]
        pairs = []
        for number, plan in enumerate(some, 1):
            mask = None if blending is None else blending.mask(number)
            pairs.append(_pair(source, runs[number], plan, recorder, number, mask))
        drawn.pairs += pairs
        return len(runs)

    sizes = in_batches(plans, at_once, one)
    drawn.batches, drawn.largest = len(sizes), max(sizes)
    drawn.pairs = [_noting(pair, plan) for pair, plan in zip(drawn.pairs, plans, strict=True)]
    return drawn


def _draw(
    base: EditBase,
    plans: Sequence[Plan],
    seed: int,
    options: GenerateOptions,
    picture: ImageSource | None,
    progress: Progress | None,
    preview: Preview | None,
    probe: Probe | None,
) -> tuple[list[Run], Trace, Blending | None]:
    """One batch: the source, then the edits."""
    rules = {number: plan.rules() for number, plan in enumerate(plans, 1)}
    sources = dict.fromkeys(rules, 0)
    if base.weights:
        rules = {0: (weights_rule(base.weights, base.table),), **rules}
    windows = {number: plan.own for number, plan in enumerate(plans, 1)}
    blending = None if base.options.only is None else Blending(base, plans)
    runs, recorder = draw(
        base.pipe,
        Batch(
            [base.table.prompt, *(plan.table.prompt for plan in plans)],
            [base.written, *(plan.written for plan in plans)],
            [seed] * (len(plans) + 1),
            start=None if picture is None else picture.start(len(plans) + 1),
        ),
        options,
        Steering(rules, sources, windows, base.options.self_cells),
        progress=progress,
        preview=preview,
        watch=None if blending is None else blending.watch,
        change=_changed(picture, blending),
        probe=probe,
    )
    if picture is not None:
        runs = [picture.with_settings(run) for run in runs]
    return runs, recorder, blending


def _changed(picture: ImageSource | None, blending: Blending | None) -> AfterStep | None:
    """What is done to the latents after each call of the scheduler: carried, then blended."""
    if picture is None:
        return blending

    def change(state: StepState) -> torch.Tensor:
        latents = picture.next_latents(state.moment, state.latents)
        return latents if blending is None else blending(replace(state, latents=latents))

    return change


# --- the evidence -----------------------------------------------------------------------------


def _pair(
    source: Run, edited: Run, plan: Plan, recorder: Trace, number: int, blended: torch.Tensor | None
) -> Pair:
    """The pair with its evidence; the edited run's settings say of what it is an edit."""
    controller, steps = recorder.controller, recorder.steps
    assert controller is not None
    before, after = plan.changed()
    mask = None
    if blended is not None:
        mask = overlays.resize_map(blended.float().numpy(), source.image.size) > 0.5
        inside = mask
    else:
        heats = [source.maps.at(n) for n in before] + [edited.maps.at(n) for n in after]
        masks = [heat.mask() for heat in heats]
        nowhere = np.zeros(source.image.size[::-1], dtype=bool)
        inside = np.logical_or.reduce([nowhere, *masks])
    moved = controller.moved.get(number)
    asked: dict[str, Any] = {
        "cross": plan.cross,
        "windows": plan.base.windows,
        "self_attention": plan.own,
        **plan.base.about(),
    }
    masked_by = None
    if blended is not None:
        tables = plan.base.table, plan.table
        masked_by = ", ".join(
            "→".join(table.text_of(tokens) for table, tokens in zip(tables, swap, strict=True))
            for swap in plan.swaps
        )
    about = EditReport(
        kind=plan.kind,
        purpose=plan.purpose,
        why=plan.alignment.why,
        weights=dict(plan.weights),
        words=ChangedWords(source=tuple(before), edited=tuple(after)),
        steps=steps,
        sites=controller.acted.get(number, 0),
        self_sites=controller.shared.get(number, 0),
        moved=sum(moved) / len(moved) if moved else 0.0,
        change=change_between(source.image, edited.image, inside),
        reconstruction=None if source.given is None else apart(source.given, source.image),
        masked_by=masked_by,
        **asked,
    )
    kinds = {"kind": plan.alignment.kind, "kind_asked": plan.base.options.kind}
    edit = EditNoted(source=plan.base.written, **kinds, **asked)
    edited = replace(edited, settings=structs.replace(edited.settings, edit=edit))
    return Pair(source, edited, about, mask)


def _noting(pair: Pair, plan: Plan) -> Pair:
    """The same pair, with what did little or nothing noted in its report."""
    notes = tuple(_troubles(pair, plan))
    return replace(pair, about=structs.replace(pair.about, notes=notes)) if notes else pair


def _troubles(pair: Pair, plan: Plan) -> list[str]:
    """List what had no effect although it was asked for, and which pairs of words are a guess.

    In words that name no argument: they are saved, and read on pages as well.
    """
    about = pair.about
    black = any(run.settings.nsfw_content_detected for run in (pair.source, pair.edited))
    steps, back = about.steps, None if black else about.reconstruction
    troubles = plan.idle(steps, about.self_sites, about.self_cells)
    if back is not None and (unlike := distortion_warning(back.psnr_db)):
        troubles.append(unlike)
    scheduler = pair.source.settings.scheduler
    if back is not None and scheduler in LOOKING_BACK and steps < ENOUGH_STEPS:
        troubles.append(
            f"{scheduler} goes by what the model said at the steps before, and a picture has other "
            f"noise at each: edits in {steps} steps are rough; take {ENOUGH_STEPS} or more, or a "
            "DDIMScheduler"
        )
    if guesses := plan.alignment.guesses:
        pairs = first_of([f"{quoted(a.text)} → {quoted(b.text)}" for a, b in guesses])
        troubles.append(
            f"the prompts differ in their number of words, so which words correspond is a guess: "
            f"{pairs}; to choose the pairs, write both prompts with the same number of words, "
            "which are then paired in order"
        )
    only, outside = plan.base.options.only, about.change.outside.psnr_db
    if back is not None and only is None and outside is not None and outside < LEAST_KEPT:
        troubles.append(
            f"the picture changed outside of the edit's words, too, to {outside:.1f} dB: let the "
            "edit in at these words alone, by a blend"
        )
    if only is not None and pair.blend is None:
        troubles.append(
            f"the blend of {quoted(only)} kept nothing in place: no step of {steps} is at or after "
            f"{about.blend_from:g} of the run, where it begins; blend from earlier on, or use more "
            "steps"
        )
    if pair.blend is not None and not pair.blend.any():
        return [
            *troubles,
            f"the blend of {quoted(only)} let the edit in nowhere, since "
            + (
                f"no place is above its threshold of {about.threshold:g}: lower it"
                if about.threshold
                else "their maps are the same everywhere: blend by other words"
            ),
        ]
    if black:
        return troubles
    images = [np.asarray(run.image.convert("RGB"), float) for run in (pair.source, pair.edited)]
    if plan.acts and np.abs(np.subtract(*images)).max() <= 1:
        troubles.append(
            f"the edit {quoted(plan.written)} changed nothing in the picture above rounding "
            f"({about.sites} sites acted): try a smaller cross window, or another seed"
        )
    elif _is_measured(plan) and (most := most_changed(*images)) < LEAST_CHANGE:
        below = min(most, LEAST_CHANGE - 1e-4)  # rounded it would be what it is compared to
        troubles.append(
            f"the edit {quoted(plan.written)} changed almost nothing (the MSE is {below:.3g} in "
            f"that 64th of the picture that changed most, and {LEAST_CHANGE:g} or more where an "
            f"edit shows): {_looser(plan)}"
        )
    return troubles


def _is_measured(plan: Plan) -> bool:
    """Whether it is known how much such an edit changes: of a word, on the embedded model."""
    return plan.purpose is not None and is_embedded(plan.base.pipe)


def most_changed(before: np.ndarray, after: np.ndarray) -> float:
    """How much the part of a picture changed that changed most, of 8 × 8 parts of one size.

    Args:
        before: (H, W, 3), 0 to 255.
        after: another of that shape.

    Returns:
        The mean squared difference there, of values from 0 to 1. A part is a whole number of
        pixels; of a picture that is no multiple of them the last rows and columns are left out.
    """
    squares = (((before - after) / 255) ** 2).mean(axis=-1)
    h, w = (max(1, side // 8) for side in squares.shape)
    rows, columns = (side // part for side, part in zip(squares.shape, (h, w), strict=True))
    parts = squares[: rows * h, : columns * w].reshape(rows, h, columns, w)
    return float(parts.mean(axis=(1, 3)).max())


def _looser(plan: Plan) -> str:
    """What to do about an edit that took too much from its source to change."""
    usual = USUAL[plan.purpose]
    windows = {"cross-attention": plan.cross, "self-attention": plan.own}
    taken = {name: high for name, (low, high) in windows.items() if low < high}
    wider = {n: taken[n] for n, most in zip(windows, usual, strict=True) if taken.get(n, 0) > most}
    if not taken:
        return "try another seed, or other words"
    said = " and ".join(f"{name} (now up to {high:g})" for name, high in (wider or taken).items())
    return f"take less from the source, with a smaller window of {said}"
