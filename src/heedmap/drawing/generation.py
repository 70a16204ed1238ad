"""One call each: from a prompt to a run with its picture and its maps."""

import secrets
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

import torch
from diffusers import DiffusionPipeline
from PIL import Image

from heedmap import checks
from heedmap.attention.rules import Rule, Site
from heedmap.checks import is_unicode
from heedmap.drawing import settings
from heedmap.drawing.pipeline_arguments import note, plain
from heedmap.drawing.word_rules import (
    Confine,
    Edit,
    checked,
    described,
    idle,
    rules_of,
    weights_rule,
)
from heedmap.errors import ArgumentError, HeedmapWarning, quoted
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.recordings import Axis
from heedmap.models import pipelines
from heedmap.recording.steering import Steering
from heedmap.recording.tracing import LIMIT, AfterStep, BranchName, Tokens, Trace, names, trace
from heedmap.results.runs import Run
from heedmap.text.weights import parse_weights, token_weights
from heedmap.wiring.encodings import prompt_table
from heedmap.wiring.families import cross_attention_layers, family_of
from heedmap.wiring.schedules import Moment

Progress = Callable[[int, int], None]
"""Called after every step with the number of steps done and the number of all."""
Preview = Callable[[torch.Tensor], None]
"""Called after every step with a copy of the latents (B, C, h, w), as they go on from there."""

_OURS = {
    "prompt": "the prompt",
    "generator": "seed",
    "num_inference_steps": "steps",
    "guidance_scale": "guidance",
    "width": "size",
    "height": "size",
    "negative_prompt": "negative",
    "num_images_per_prompt": "a call for each seed",
    "prompt_embeds": "the prompt as text, or trace() around a call of your own",
    "output_type": "run.image",
    "return_dict": "run.image",
}


def generate(
    pipe: DiffusionPipeline,
    prompt: str,
    *,
    seed: int | None = None,
    steps: int | None = None,
    guidance: float | None = None,
    size: tuple[int, int] | None = None,
    negative: str | None = None,
    keep: Iterable[Axis] = ("layer",),
    tokens: Tokens = "prompt",
    branches: Iterable[BranchName] = ("conditional",),
    limit: int = LIMIT,
    edits: Iterable[Edit] = (),
    progress: Progress | None = None,
    preview: Preview | None = None,
    **arguments: Any,
) -> Run:
    """Generate one picture and record which word acted where.

    Args:
        pipe: a pipeline, as `load` gives it.
        prompt: what to draw. Weights in brackets, `(word:1.5)`, multiply the attention that a word
            draws; `heedmap.weights` says how they are written.
        seed: of the starting noise; drawn, and noted in the run's settings, if None.
        steps: denoising steps; the model's own default if None.
        guidance: classifier-free guidance scale; the model's own default if None.
        size: (width, height) in pixels; the model's own if None.
        negative: what to keep away from (the unconditional branch's prompt).
        keep: the axes to keep in the maps, of "layer", "step", "head".
        tokens: "prompt" for the prompt's own tokens, "all" for the padding too.
        branches: "conditional" for the prompt's maps; with "negative", those of the negative
            prompt too (`Run.negative_maps`).
        limit: bytes that the maps may take; a run that would need more is refused beforehand.
        edits: what to change in the prompt's attention: `Reweight`, `Confine`, or rules of your
            own, each a callable `rule(P, site) -> P'` as `heedmap.edits` has them. They act one
            after the other, but for `Confine`, which comes first, before the softmax.
        progress: called after every step.
        preview: called after every step with a copy of the latents (1, C, h, w); changes nothing.
        arguments: any other argument of the pipeline, passed on.

    Raises:
        ArgumentError: if an argument is out of range, a weight is no number, or an edit does not
            fit the picture.
        TraceError: if the maps could not be recorded.
        TruncatedWordError: if the model does not read a word that is weighted or edited.
        UnknownWordError: if a word that is edited is not in the prompt.
    """
    seeds = [drawn_seed() if seed is None else seed]
    return generate_batch(
        pipe,
        [prompt],
        seeds=seeds,
        steps=steps,
        guidance=guidance,
        size=size,
        negative=negative,
        keep=keep,
        tokens=tokens,
        branches=branches,
        limit=limit,
        edits=edits,
        progress=progress,
        preview=preview,
        **arguments,
    )[0]


def generate_batch(
    pipe: DiffusionPipeline,
    prompts: Sequence[str],
    *,
    seeds: Sequence[int],
    steps: int | None = None,
    guidance: float | None = None,
    size: tuple[int, int] | None = None,
    negative: str | None = None,
    keep: Iterable[Axis] = ("layer",),
    tokens: Tokens = "prompt",
    branches: Iterable[BranchName] = ("conditional",),
    limit: int = LIMIT,
    edits: Iterable[Edit] = (),
    progress: Progress | None = None,
    preview: Preview | None = None,
    **arguments: Any,
) -> list[Run]:
    """Generate several pictures in one batch: one run for each prompt with its seed.

    Arguments and errors are those of `generate`; the edits are made of every prompt.
    """
    prompts, seeds = check_prompts(prompts, seeds)
    cross_attention_layers(pipe)  # a model without them has no prompt to read either
    edits = checked(edits)
    parsed = [parse_weights(prompt) for prompt in prompts]
    pictured = _picture_size(pipe, size, arguments) if edits else (0, 0)
    rules: dict[int, list[Rule]] = {}
    made: dict[int, list[list[Rule]]] = {}  # by prompt, of each edit
    for number, prompt in enumerate(parsed):
        if not prompt.spans and not edits:
            continue
        table = prompt_table(pipe, prompt.text, arguments)
        weights = token_weights(prompt.spans, table)
        made[number] = [rules_of(edit, table, pictured) for edit in edits]
        mine = [rule for several in made[number] for rule in several]
        if any(weight != 1 for weight in weights.values()):
            mine = [weights_rule(weights, table), *mine]
        if mine:
            rules[number] = mine
    runs, recorder = draw(
        pipe,
        [prompt.text for prompt in parsed],
        written=prompts,
        seeds=seeds,
        steps=steps,
        guidance=guidance,
        size=size,
        negative=negative,
        keep=keep,
        tokens=tokens,
        branches=branches,
        limit=limit,
        progress=progress,
        preview=preview,
        arguments=arguments,
        steering=Steering(rules) if rules else None,
        edits=edits,
    )
    if edits:
        _tell_idle(edits, made, runs, recorder.steps, pictured)
    return runs


def _picture_size(
    pipe: DiffusionPipeline, size: tuple[int, int] | None, arguments: Mapping[str, Any]
) -> tuple[int, int]:
    """The (width, height) that a picture will have, for edits that name places in it."""
    if size is not None:
        return pipelines.check_size(pipe, size)
    start = arguments.get("image")
    start = start[0] if isinstance(start, list | tuple) and start else start
    factor = int(getattr(pipe, "vae_scale_factor", 8))
    # Inpainting brings its picture to the model's size; others go by the picture.
    if "mask_image" in arguments or not isinstance(start, Image.Image | torch.Tensor):
        return pipelines.own_size(pipe)
    w, h = start.size if isinstance(start, Image.Image) else start.shape[:-3:-1]
    return w - w % factor, h - h % factor


def _tell_idle(
    edits: Sequence[Edit],
    made: Mapping[int, Sequence[Sequence[Rule]]],
    runs: Sequence[Run],
    steps: int,
    pictured: tuple[int, int],
) -> None:
    """Warn of edits that did nothing, or that were made for a picture of another size."""
    for number, edit in enumerate(edits):
        for image, of_edits in made.items():
            sites = (
                Site(layer.name, step, steps, layer.grid)
                for layer in runs[image].maps.recording.layers
                for step in range(steps)
            )
            if idle(of_edits[number], sites):
                warnings.warn(
                    f"the edit {quoted(described(edit))} changed nothing in a run of {steps} "
                    "steps: widen its window, give another weight, or use more steps",
                    HeedmapWarning,
                    stacklevel=3,
                )
                break
    if runs[0].image.size != pictured and any(isinstance(edit, Confine) for edit in edits):
        warnings.warn(
            "the words were confined in a picture of {}×{} pixels, but it came out with "
            "{}×{}: pass the size".format(*pictured, *runs[0].image.size),
            HeedmapWarning,
            stacklevel=3,
        )


def draw(
    pipe: DiffusionPipeline,
    prompts: Sequence[str],
    *,
    written: Sequence[str],
    seeds: Sequence[int],
    steps: int | None,
    guidance: float | None,
    size: tuple[int, int] | None,
    negative: str | None,
    keep: Iterable[Axis],
    tokens: Tokens,
    branches: Iterable[BranchName],
    limit: int,
    progress: Progress | None,
    arguments: dict[str, Any],
    preview: Preview | None = None,
    steering: Steering | None = None,
    watch: Mapping[int, Sequence[int]] | None = None,
    change: AfterStep | None = None,
    edits: Sequence[Edit] = (),
) -> tuple[list[Run], Trace]:
    """One batch with its trace: what `generate` and `edit` have in common.

    Arguments and errors are those of `generate`; `prompts` are what the model reads, `written` the
    same with the weights that the user wrote, and `edits` what was asked for, for the settings;
    `steering` is what to change. `change` is given the open trace after each call of the scheduler,
    with the latents (B, C, h, w), and returns those to go on with; `watch` are the tokens of each
    image whose places it asks for (`Trace.so_far`).
    """
    prompts, seeds = check_prompts(prompts, seeds)
    _check_arguments(pipe, arguments)
    # As they will be noted, and drawn again: pipelines tell a float of numpy from one of Python's.
    arguments = {name: plain(value) for name, value in arguments.items()}
    for name, told in (("progress", progress), ("preview", preview)):
        if told is not None and not callable(told):
            raise ArgumentError(f"{name} is {quoted(told)}: expected a function")
    if negative is not None:
        checks.text("negative", negative, "blurry")
    given = _checked(pipe, steps, guidance, size)
    _check_taken(pipe, {**given, "negative": negative})
    _check_latents(pipe, given["size"], arguments.get("latents"))
    call = {**family_of(pipe).defaults, **_call_arguments(pipe, given)}
    call = {name: value for name, value in call.items() if name not in arguments}
    # Noise is drawn on the CPU, so that a seed means the same picture on every device.
    generators = [torch.Generator("cpu").manual_seed(seed) for seed in seeds]
    if negative is not None:
        call["negative_prompt"] = [negative] * len(prompts)
    keep, branches = names("keep", keep), names("branches", branches)
    sides: set[BranchName] = {"conditional", *branches}
    recorder = trace(
        pipe,
        keep,
        tokens=tokens,
        branches=sides,
        limit=limit,
        steering=steering,
        watch=watch,
        after_step=_after_step(progress, change, preview),
    )
    # Noted before the run: what is asked for, not what a callback or an interrupt makes of it.
    noted = _noted(pipe, given, negative, keep, tokens, branches, edits, arguments)
    with recorder, _own_bar(pipe, shown=progress is None):
        run: Any = pipe  # the base class of all pipelines is not callable itself
        made = run(prompt=list(prompts), generator=generators, **call, **arguments)
        images = made.images if hasattr(made, "images") else made.rgb  # LDM3D: beside a depth
    if negative and not recorder.guided:
        warnings.warn(
            f"the negative prompt {quoted(negative)} changed nothing, since guidance was off: pass "
            "a guidance above 1",
            HeedmapWarning,
            stacklevel=3,
        )
    negatives = recorder.negative_recordings if "negative" in sides else [None] * len(seeds)
    runs = []
    for prompt, image, recording, other, seed in zip(
        written, images, recorder.recordings, negatives, seeds, strict=True
    ):
        used = {
            "prompt": prompt,
            "text": recording.table.prompt,
            "seed": seed,
            **noted,
            "size": list(given["size"] or image.size),
        }
        if len(prompts) > 1:  # sums of a batch round otherwise than those of one picture
            used["batch_place"] = [len(runs), len(prompts)]
        against = None if other is None else HeatMaps(other, image)
        runs.append(Run(image, HeatMaps(recording, image), used, against))
    return runs, recorder


def _noted(
    pipe: Any,
    given: Mapping[str, Any],
    negative: str | None,
    keep: Iterable[Axis],
    tokens: Tokens,
    branches: Iterable[BranchName],
    edits: Sequence[Edit],
    arguments: Mapping[str, Any],
) -> dict[str, Any]:
    """The settings that all runs of a batch have in common; `size` holds its place."""
    steps, steps_by = settings.asked(pipe, "steps", given["steps"], arguments)
    guidance, guidance_by = settings.asked(pipe, "guidance", given["guidance"])
    size_by = "pipeline" if given["size"] is None else None
    whose = {"steps": steps_by, "guidance": guidance_by, "size": size_by}
    return {
        "negative": negative,
        "steps": steps,
        "guidance": guidance,
        "size": None,
        "defaults": {name: by for name, by in whose.items() if by is not None},
        "keep": sorted(keep),
        "tokens": tokens,
        "branches": sorted(branches),
        **settings.describe(pipe),
        "edits": [described(edit) for edit in edits],
        "arguments": {name: note(value) for name, value in arguments.items()},
    }


def drawn_seed() -> int:
    """A seed by chance."""
    return secrets.randbelow(2**31)


def check_prompts(prompts: Sequence[str], seeds: Sequence[int]) -> tuple[list[str], list[int]]:
    """The prompts and seeds of a batch as lists; ArgumentError if a prompt is none, or a seed."""
    asked, numbers = checks.several(prompts), checks.several(seeds)
    if asked is None or numbers is None:
        raise ArgumentError(
            f"the prompts are {quoted(prompts)} and the seeds {quoted(seeds)}: expected a list of "
            "each"
        )
    if not asked or len(asked) != len(numbers):
        raise ArgumentError(
            f"{len(asked)} prompts and {len(numbers)} seeds were given: expected one seed a prompt"
        )
    for prompt in asked:
        if isinstance(prompt, str) and not is_unicode(prompt):
            raise ArgumentError(
                f"the prompt {quoted(prompt)} holds half of a character (a lone surrogate): "
                "expected a text that can be written as UTF-8"
            )
        if not isinstance(prompt, str) or not prompt.strip():
            raise ArgumentError(
                f"the prompt {quoted(prompt)} has no words: expected a text such as 'a red house'"
            )
    return asked, [check_seed(seed) for seed in numbers]


def check_seed(seed: object) -> int:
    """A seed as a number of Python; ArgumentError if it is none."""
    return checks.whole("the seed", seed, least=0, most=2**63 - 1)


def _check_arguments(pipe: DiffusionPipeline, arguments: dict[str, Any]) -> None:
    for name in arguments.keys() & _OURS.keys():
        raise ArgumentError(f"the pipeline argument {name} is set by heedmap: use {_OURS[name]}")
    for name, value in arguments.items():
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, str):
                checks.text(name, one)
    taken = settings.parameters(pipe)  # many take any name, and do nothing with it
    for name in arguments.keys() - taken.keys() - {"callback", "callback_steps"}:
        near = get_close_matches(name, taken, n=1)
        hint = f"did you mean {near[0]}?" if near else "leave it out"
        raise ArgumentError(f"{type(pipe).__name__} takes no argument {name}: {hint}")


def _check_taken(pipe: DiffusionPipeline, asked: Mapping[str, Any]) -> None:
    """Raise an ArgumentError if a pipeline could do nothing with what was asked for."""
    taken = settings.parameters(pipe)  # many take any name, and do nothing with it
    for name, ours in _OURS.items():
        if name not in taken and asked.get(ours) is not None:
            raise ArgumentError(
                f"{ours} is {quoted(asked[ours])}, and {type(pipe).__name__} takes no {name}: "
                f"leave {ours} out"
            )


def _check_latents(pipe: DiffusionPipeline, size: tuple[int, int] | None, latents: Any) -> None:
    """Raise an ArgumentError if noise is given for another size than was asked for."""
    if size is None or not isinstance(latents, torch.Tensor) or latents.ndim < 2:
        return
    factor = int(getattr(pipe, "vae_scale_factor", 8))
    theirs = latents.shape[-1] * factor, latents.shape[-2] * factor
    if theirs != size:
        raise ArgumentError(
            f"the latents are for {theirs[0]}×{theirs[1]} pixels, and the size is "
            f"{size[0]}×{size[1]}: leave one of the two out, or make them agree"
        )


def _checked(
    pipe: DiffusionPipeline, steps: object, guidance: object, size: object
) -> dict[str, Any]:
    """The same as numbers of Python, None where nothing was asked for."""
    return {
        "steps": None if steps is None else checks.whole("steps", steps, least=1, most=999),
        "guidance": (
            None if guidance is None else checks.finite("guidance", guidance, least=0, most=100)
        ),
        "size": None if size is None else pipelines.check_size(pipe, size),
    }


def _call_arguments(pipe: DiffusionPipeline, given: dict[str, Any]) -> dict[str, Any]:
    own = pipelines.card()["defaults"] if pipelines.is_embedded(pipe) else {}
    call: dict[str, Any] = {}
    for name, argument in (("steps", "num_inference_steps"), ("guidance", "guidance_scale")):
        value = given[name] if given[name] is not None else own.get(name)
        if value is not None:
            call[argument] = value
    if given["size"] is not None:
        call["width"], call["height"] = given["size"]
    return call


def _after_step(
    progress: Progress | None, change: AfterStep | None, preview: Preview | None
) -> AfterStep | None:
    """All that is done after a step, as one."""
    if progress is None and change is None and preview is None:
        return None

    def after_step(recorder: Trace, moment: Moment, latents: torch.Tensor) -> torch.Tensor:
        if progress is not None and moment.last:
            progress(moment.step + 1, moment.steps)
        if change is not None:
            latents = change(recorder, moment, latents)
        if preview is not None and moment.last:
            preview(
                latents.detach().clone()
            )  # whoever looks must not be able to change the picture
        return latents

    return after_step


@contextmanager
def _own_bar(pipe: DiffusionPipeline, shown: bool) -> Iterator[None]:
    """The pipeline's own progress bar, where nobody else shows one."""
    if shown:
        yield
        return
    before = getattr(pipe, "_progress_bar_config", None)
    pipe.set_progress_bar_config(**{**(before or {}), "disable": True})
    try:
        yield
    finally:
        if before is None:
            del pipe._progress_bar_config
        else:
            pipe._progress_bar_config = before
