"""Generate one batch of images with a trace, for `generate`, `edit` and `locate`."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from heedmap.backends import loading
from heedmap.backends import registry as called
from heedmap.backends.base import Pipeline
from heedmap.backends.latents import showing
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import family_of, usual_size
from heedmap.errors import ModelError, quoted, warn
from heedmap.io.schemas import Settings
from heedmap.maps.heatmaps import HeatMaps
from heedmap.options import GenerateOptions
from heedmap.pipelines import settings
from heedmap.pipelines.arguments import apply_model_defaults, argument_note
from heedmap.pipelines.input_images import InputImage, has_usual_area
from heedmap.pipelines.step_images import StepRecorder
from heedmap.recording.calls import RecordingSpec
from heedmap.recording.edits import Edit, Steering, note_of
from heedmap.recording.probing import Probe, branches_of
from heedmap.recording.tracing import AfterStep, StepState, Trace
from heedmap.results.runs import Run
from heedmap.text.prompts import said_of, untaught
from heedmap.text.weights import bracket_warning, parse_weights, unread_weights

Progress = Callable[[int, int], None]
"""Called after every step with the number of steps done and the number of all."""
Preview = Callable[[torch.Tensor], None]
"""Called after every step with a copy of the latents (B, C, h, w), as they go on from there."""


def sub_progress(progress: Progress | None, done: int, count: int) -> Progress | None:
    """Return the progress of one of `count` equal parts, of which `done` are done."""
    if progress is None:
        return None
    return lambda step, steps: progress(done * steps + step, count * steps)


@dataclass(frozen=True)
class Batch:
    """The images of one call of the pipeline.

    Attributes:
        prompts: the prompts as the model reads them.
        written: the prompts with weights, as the user wrote them.
        seeds: the seeds of the noise.
        edits: the edits, for the settings.
        looked: the image to locate a single prompt in, instead of generating one.
        start: the initial latents (B, C, h, w). Default: noise of the seeds.
    """

    prompts: Sequence[str]
    written: Sequence[str]
    seeds: Sequence[int]
    edits: Sequence[Edit] = ()
    looked: InputImage | None = None
    start: torch.Tensor | None = None


def draw(
    pipe: Pipeline,
    batch: Batch,
    options: GenerateOptions,
    steering: Steering | None = None,
    *,
    progress: Progress | None = None,
    preview: Preview | None = None,
    watch: Mapping[int, Sequence[int]] | None = None,
    change: AfterStep | None = None,
    probe: Probe | None = None,
) -> tuple[list[Run], Trace]:
    """Generate one batch with its trace.

    Args:
        pipe: a pipeline.
        batch: the images.
        options: options that fit the pipeline (`resolve_options`).
        steering: changes of the attention.
        progress: called after every step with the number of steps done and of all steps.
        preview: called after every step with a copy of the latents (B, C, h, w).
        watch: tokens of each image whose maps so far `change` gets (`StepState`).
        change: called after each call of the scheduler; returns the latents to go on with.
        probe: ends the run with `probing.Reached` when it has found its numbers.

    Returns:
        A run for each image, and the trace.

    Raises:
        HeedmapError: as in `generate`.
    """
    prompts, seeds, negative = batch.prompts, batch.seeds, options.negative
    sides = branches_of(options.branches, probe)
    steps_seen = StepRecorder() if "step" in options.keep else None
    asked = (options.keep, options.tokens, sides, options.concepts, options.limit)
    halves = batch.looked is not None
    spec = replace(RecordingSpec.checked(*asked), weights_read=True, split_halves=halves)
    recorder = Trace(
        pipe,
        spec,
        steering=steering,
        map_tokens=watch,
        after_step=_after_step(progress, change, preview, steps_seen),
        probe=probe,
        predicts=steps_seen is not None,
    )
    # Before the run: a callback or an interrupt may change the number of steps.
    common = _common_settings(pipe, options, batch.edits)
    taught = loading.model_card(loading.name_of(pipe)).vocabulary
    table = prompt_table(pipe, negative, options.arguments) if negative else None
    if table is not None and table.unread and "negative" not in sides:  # else the trace warns
        warn(table.unread)
    if strange := untaught([*prompts, negative or "", *options.concepts], taught):
        warn(said_of(strange))
    written = [] if batch.looked else map(parse_weights, batch.written)
    for said in filter(None, [*map(bracket_warning, written), unread_weights(negative or "")]):
        warn(said)
    if options.size is not None and not has_usual_area(pipe, options.size):
        (w, h), (width, height) = options.size, usual_size(pipe)
        warn(
            f"the size {w}×{h} has {w * h / (width * height):.2g} times the pixels of the model's "
            f"own {width}×{height}, so the image may be bad: expected half to twice as many"
        )
    call = called.for_batch(pipe, prompts, seeds, apply_model_defaults(pipe, options))
    with recorder, nullcontext() if progress is None else called.without_bar(pipe):
        images, flags = _images(pipe, call, batch)
    if negative and not recorder.guided:
        warn(
            f"the negative prompt {quoted(negative)} changed nothing, since guidance was off: pass "
            "a guidance above 1"
        )
    each = zip(batch.written, seeds, flags, strict=True)
    if black := dict.fromkeys(f"{quoted(one)} (seed {seed})" for one, seed, flag in each if flag):
        warn(
            f"the safety checker replaced these images with black: {', '.join(black)}; "
            "use another seed or prompt, or load the pipeline with safety_checker=None"
        )
    negatives = recorder.negative_recordings if "negative" in sides else [None] * len(seeds)
    beside = recorder.concept_recordings if options.concepts else [None] * len(seeds)
    recordings = recorder.recordings
    steps = len(recordings[0].timesteps)
    pictures = [None] * len(seeds) if steps_seen is None else steps_seen.images(images, steps)
    runs: list[Run] = []
    parts = (batch.written, prompts, images, flags, recordings, negatives, beside, seeds, pictures)
    for prompt, read, image, flag, recording, other, extra, seed, shown in zip(*parts, strict=True):
        used = Settings(
            prompt=prompt,
            text=recording.table.prompt,
            seed=seed,
            size=options.size or image.size,
            # Sums over a batch are rounded differently.
            batch_place=(len(runs), len(prompts)) if len(prompts) > 1 else None,
            untaught=untaught([read, negative or "", *options.concepts], taught),
            nsfw_content_detected=flag,
            **common,
        )
        against, found = (None if one is None else HeatMaps(one, image) for one in (other, extra))
        runs.append(Run(image, HeatMaps(recording, image), used, against, shown, found))
    return runs, recorder


def _images(pipe: Any, call: dict[str, Any], batch: Batch) -> tuple[Sequence[Any], list[Any]]:
    """Return the images, and whether the safety checker made each black."""
    if batch.looked is None:
        start = {} if batch.start is None else {"latents": batch.start.to(pipe.dtype)}
        made = pipe(**call, **start)
        images = family_of(pipe).pictures(made)
        flags = getattr(made, "nsfw_content_detected", None)
        return images, [None] * len(images) if flags is None else list(map(bool, flags))
    (noise,), steps = call["generator"], call[called.THEIR_NAMES["steps"]]
    with showing(pipe, batch.looked.latents, noise, steps) as first:
        pipe(**call, latents=first.to(pipe.dtype), output_type="latent")  # nothing is decoded
    return [batch.looked.image], [None]


def _common_settings(pipe: Any, options: GenerateOptions, edits: Sequence[Edit]) -> dict[str, Any]:
    """Return the settings that all runs of a batch share."""
    steps, steps_by = settings.effective_value(pipe, "steps", options.steps, options.arguments)
    guidance, guidance_by = settings.effective_value(pipe, "guidance", options.guidance)
    size_by = "pipeline" if options.size is None else None
    whose = {"steps": steps_by, "guidance": guidance_by, "size": size_by}
    return {
        "negative": options.negative,
        "steps": steps,
        "guidance": guidance,
        "defaults": {name: by for name, by in whose.items() if by is not None},
        "keep": tuple(sorted(options.keep)),
        "tokens": options.tokens,
        "branches": tuple(sorted(options.branches)),
        "concepts": tuple(options.concepts),
        **settings.describe(pipe),
        "edits": tuple(map(note_of, edits)),
        "arguments": {name: argument_note(value) for name, value in options.arguments.items()},
    }


def _after_step(
    progress: Progress | None,
    change: AfterStep | None,
    preview: Preview | None,
    recorder: StepRecorder | None,
) -> AfterStep:
    """Return one function for all that happens after a step."""

    def after_step(state: StepState) -> torch.Tensor:
        moment = state.moment
        if progress is not None and moment.last:
            progress(moment.step + 1, moment.steps)
        if change is not None:
            state = replace(state, latents=change(state))
        if recorder is not None:
            recorder.record(state)
        latents = state.latents
        if preview is not None and moment.last:
            preview(latents.detach().clone())  # a copy: the preview must not change the image
        if moment.last and moment.step + 1 == moment.steps and not bool(latents.isfinite().all()):
            raise ModelError(
                f"after {moment.steps} steps the latents hold values that are not finite, of which "
                "no picture can be made: draw with another scheduler, or in float32"
            )
        return latents

    return after_step
