"""One batch of pictures with its trace: what generating and editing have in common."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import adaptive_avg_pool2d

from heedmap.backends import arguments as called
from heedmap.backends import loading
from heedmap.backends.base import Pipeline
from heedmap.backends.latents import fitted, showing
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import family_of, usual_size
from heedmap.backends.schedules import scheduler_class
from heedmap.errors import ModelError, RunError, quoted, reason, warn
from heedmap.figures.animations import STEP_SIDE, StepPictures
from heedmap.io.settings import Scheduler, Settings
from heedmap.maps.heatmaps import HeatMaps
from heedmap.options import GenerateOptions
from heedmap.pipelines import settings
from heedmap.pipelines.arguments import apply_model_defaults, argument, argument_note, is_restorable
from heedmap.pipelines.given_pictures import SeenPicture, is_near_usual
from heedmap.pipelines.settings import scheduler_note
from heedmap.recording.calls import RecordingSpec
from heedmap.recording.edits import Edit, note_of
from heedmap.recording.probing import Probe, branches_of
from heedmap.recording.steering import Steering
from heedmap.recording.tracing import AfterStep, StepState, Trace
from heedmap.results.runs import Run
from heedmap.text.prompts import said_of, untaught
from heedmap.text.weights import bracket_warning, parse_weights, unread_weights
from heedmap.text.words import TokenTable

_AROUND = 2  # cells on each side that have a part in a cell's colours
_RIDGE = 0.2


class StepWatch:
    """Keeps the latents of each step, as many cells as a small picture has.

    No decoder runs: it would cost as much as a step. When the picture is there, colours are fitted
    to it and to the last latents (`backends.latents`), and each step's are made with these.
    """

    def __init__(self) -> None:
        self._predicted: dict[int, torch.Tensor] = {}
        self._noisy: dict[int, torch.Tensor] = {}

    def see(self, state: StepState) -> None:
        """Keep what there is after a call of the scheduler; changes nothing.

        Of a step with several calls the first prediction counts.
        """
        if state.predicted is not None:
            self._predicted.setdefault(state.moment.step, _small(state.predicted))
        if state.moment.last:
            self._noisy[state.moment.step] = _small(state.latents)

    def pictures(self, images: Sequence[Any], steps: int) -> list[StepPictures | None]:
        """The steps of each picture (Pillow); None where a step was not seen, or has no colours.

        Args:
            images: the finished pictures, in the order of the batch.
            steps: how many steps were recorded.
        """
        foretold = len(self._predicted) == steps
        kept = self._predicted if foretold else self._noisy
        every = [kept.get(step) for step in range(steps)]
        last = self._noisy.get(steps - 1)
        if last is None or any(one is None or len(one) != len(images) for one in every):
            return [None] * len(images)
        shown = torch.stack([one for one in every if one is not None], dim=1).float().cpu()
        if not bool(shown.isfinite().all() and last.isfinite().all()):
            return [None] * len(images)
        finals = last.float().cpu()
        return [
            StepPictures(
                tuple(_coloured(frames, final[None], image)),
                "prediction" if foretold else "latents",
            )
            for frames, final, image in zip(shown, finals, images, strict=True)
        ]


def _small(latents: torch.Tensor) -> torch.Tensor:
    """Latents (B, C, h, w) averaged to no more cells than a small picture has pixels; a copy."""
    h, w = latents.shape[-2:]
    part = min(1.0, STEP_SIDE / min(h, w))
    size = (round(h * part), round(w * part))
    return adaptive_avg_pool2d(latents.detach().float(), size) if part < 1 else latents.clone()


def _coloured(frames: torch.Tensor, final: torch.Tensor, image: Image.Image) -> list[Image.Image]:
    """Latents (S, C, h, w) as pictures, by those (1, C, h, w) of which a picture was made."""
    h, w = final.shape[-2:]
    finer = max(1, STEP_SIDE // min(h, w))
    small = image.convert("RGB").resize((w * finer, h * finer), Image.Resampling.BOX)
    wanted = torch.from_numpy(np.array(small)).movedim(-1, 0)[None] / 255
    colours = fitted(final, wanted, around=_AROUND, ridge=_RIDGE)
    pixels = (colours(frames).movedim(1, -1) * 255).round().byte().numpy()
    return [Image.fromarray(each) for each in pixels]


@contextmanager
def saved_schedulers(pipe: Any, settings: Settings) -> Iterator[None]:
    """Give a pipeline the schedulers of saved settings within the block, and then its own back.

    Raises:
        RunError: if the pipeline or diffusers has no such scheduler, or it cannot be made.
    """
    before: dict[str, Any] = {}
    try:
        for name, saved in settings.schedulers.items():
            own = getattr(pipe, name, None)
            if own is None:
                raise RunError(
                    f"the run has a {name} and {type(pipe).__name__} has none: pass a pipeline of "
                    f"the class {quoted(settings.pipeline)}"
                )
            if saved != scheduler_note(own):
                before[name] = own
                setattr(pipe, name, _scheduler(type(own), saved))
        yield
    finally:
        for name, scheduler in before.items():
            setattr(pipe, name, scheduler)


def _scheduler(own: type, saved: Scheduler) -> Any:
    name, config = saved.kind, dict(saved.config)
    kind = scheduler_class(own, name)
    if kind is None:
        raise RunError(
            f"diffusers {version('diffusers')} has no scheduler {quoted(name)}: pass a pipeline "
            "that has it, or install another version of diffusers"
        )
    if not is_restorable(config):
        raise RunError(
            f"the configuration of the scheduler {name} holds objects that are not saved: pass a "
            "pipeline that has this scheduler"
        )
    try:
        return kind.from_config(argument(config))
    except Exception as error:  # constructors raise errors of any type
        raise RunError(
            f"the scheduler {name} cannot be made from the saved configuration ({reason(error)}): "
            "pass a pipeline that has it"
        ) from error


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
    """The pictures that are drawn at once.

    Attributes:
        prompts: what the model reads.
        written: the same with the weights that the user wrote.
        seeds: of their noise.
        edits: what was asked for, for the settings.
        tables: what the model reads of the prompts, as far as it is known.
        looked: what is looked at, where nothing is drawn; of one prompt.
        start: the latents (B, C, h, w) that the pipeline is given; None where it draws noise.
    """

    prompts: Sequence[str]
    written: Sequence[str]
    seeds: Sequence[int]
    edits: Sequence[Edit] = ()
    tables: Sequence[TokenTable] = ()
    looked: SeenPicture | None = None
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
    """One batch with its trace: what `generate` and `edit` have in common.

    Errors are those of `generate`; `steering` is what to change. `change` is called after each call
    of the scheduler, and returns the latents to go on with; `watch` are the tokens of each image
    whose maps it is given (`StepState.current_maps`). With a
    `probe` the run ends where that has seen what it looks for, with `probing.Reached`.
    """
    prompts, seeds, negative = batch.prompts, batch.seeds, options.negative
    sides = branches_of(options.branches, probe)
    # Whoever keeps the steps of the maps keeps the picture at each, too.
    seen = StepWatch() if "step" in options.keep else None
    asked = (options.keep, options.tokens, sides, options.concepts, options.limit)
    halves = batch.looked is not None
    spec = replace(
        RecordingSpec.checked(*asked), tables=batch.tables, weights_read=True, split_halves=halves
    )
    recorder = Trace(
        pipe,
        spec,
        steering=steering,
        map_tokens=watch,
        after_step=_after_step(progress, change, preview, seen),
        probe=probe,
        predicts=seen is not None,
    )
    # Noted before the run: what is asked for, not what a callback or an interrupt makes of it.
    noted = _noted(pipe, options, batch.edits)
    taught = loading.model_card(loading.name_of(pipe)).vocabulary
    _tell_unread(pipe, options, "negative" in sides)
    if strange := untaught([*prompts, negative or "", *options.concepts], taught):
        warn(said_of(strange))
    written = [] if batch.looked else map(parse_weights, batch.written)
    for said in filter(None, [*map(bracket_warning, written), unread_weights(negative or "")]):
        warn(said)
    if options.size is not None and not is_near_usual(pipe, options.size):
        (w, h), (width, height) = options.size, usual_size(pipe)
        warn(
            f"the size {w}×{h} has {w * h / (width * height):.2g} times the pixels of the model's "
            f"own {width}×{height}, so the image may be bad: expected half to twice as many"
        )
    call = called.for_batch(pipe, prompts, seeds, apply_model_defaults(pipe, options))
    with recorder, nullcontext() if progress is None else called.without_bar(pipe):
        images, flags = _images(pipe, call, batch)
    _tell_idle(negative, recorder)
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
    pictures = [None] * len(seeds) if seen is None else seen.pictures(images, steps)
    runs: list[Run] = []
    parts = (batch.written, prompts, images, flags, recordings, negatives, beside, seeds, pictures)
    for prompt, read, image, flag, recording, other, extra, seed, shown in zip(*parts, strict=True):
        used = Settings(
            prompt=prompt,
            text=recording.table.prompt,
            seed=seed,
            size=options.size or image.size,
            # Sums of a batch round otherwise than those of one picture.
            batch_place=(len(runs), len(prompts)) if len(prompts) > 1 else None,
            untaught=untaught([read, negative or "", *options.concepts], taught),
            nsfw_content_detected=flag,
            **noted,
        )
        against, found = (None if one is None else HeatMaps(one, image) for one in (other, extra))
        runs.append(Run(image, HeatMaps(recording, image), used, against, shown, found))
    return runs, recorder


def _images(pipe: Any, call: dict[str, Any], batch: Batch) -> tuple[Sequence[Any], list[Any]]:
    """Draw the images, or show the model the given one; also what the safety checker flagged."""
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


def _tell_unread(pipe: Pipeline, options: GenerateOptions, recorded: bool) -> None:
    """Warn of what is not read of the negative prompt; the trace does where it is recorded."""
    if options.negative and not recorded:
        unread = prompt_table(pipe, options.negative, options.arguments).unread
        if unread:
            warn(unread)


def _tell_idle(negative: str | None, recorder: Trace) -> None:
    """Warn if a negative prompt was read for nothing."""
    if negative and not recorder.guided:
        warn(
            f"the negative prompt {quoted(negative)} changed nothing, since guidance was off: pass "
            "a guidance above 1"
        )


def _noted(pipe: Any, options: GenerateOptions, edits: Sequence[Edit]) -> dict[str, Any]:
    """The settings that all runs of a batch have in common."""
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
    seen: StepWatch | None,
) -> AfterStep:
    """All that is done after a step, as one."""

    def after_step(state: StepState) -> torch.Tensor:
        moment = state.moment
        if progress is not None and moment.last:
            progress(moment.step + 1, moment.steps)
        if change is not None:
            state = replace(state, latents=change(state))
        if seen is not None:
            seen.see(state)
        latents = state.latents
        if preview is not None and moment.last:
            # A copy: whoever looks must not be able to change the picture.
            preview(latents.detach().clone())
        if moment.last and moment.step + 1 == moment.steps and not bool(latents.isfinite().all()):
            raise ModelError(
                f"after {moment.steps} steps the latents hold values that are not finite, of which "
                "no picture can be made: draw with another scheduler, or in float32"
            )
        return latents

    return after_step
