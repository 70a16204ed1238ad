"""Generate images from prompts, and record where the model read each word.

`generate` checks its arguments, and `generate_batch` calls the pipeline with a trace, also for
`edit` and `locate`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack, overload

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import adaptive_avg_pool2d

from heedmap.backends import loading
from heedmap.backends.autoencoders import fit_colours
from heedmap.backends.base import Family, Pipeline, parameters
from heedmap.backends.image_schedulers import showing
from heedmap.backends.modular import is_modular
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import (
    DIFFUSERS_NAMES,
    STEP_LISTS,
    default_size,
    family_of,
    for_batch,
)
from heedmap.backends.schedules import noise_of_steps
from heedmap.checks import as_ordered_list, check_prompt
from heedmap.errors import ArgumentError, ModelError, plural, quoted, warn
from heedmap.figures.overlays import STEP_SIDE, StepPictures, to_rgb
from heedmap.io.places import check_places
from heedmap.io.schemas import Settings
from heedmap.io.word_edits import Mask
from heedmap.maps.heatmaps import HeatMaps
from heedmap.mathematics.rules import Rule
from heedmap.options import GenerateKeywords, GenerateOptions
from heedmap.pipelines import settings
from heedmap.pipelines.arguments import (
    argument_note,
    check_seed,
    has_usual_area,
    resolve_options,
    takes_options,
)
from heedmap.pipelines.guiding import (
    checked_guides,
    latent_guide,
    with_defaults,
)
from heedmap.recording.controller import Steering
from heedmap.recording.edits import Edit, checked_edits, saved_edits, weights_rule
from heedmap.recording.guidance import AnyGuide
from heedmap.recording.probing import Probe
from heedmap.recording.recorder import RecordingSpec
from heedmap.recording.steps import AfterStep, StepState
from heedmap.recording.tracing import Trace
from heedmap.results.runs import ReferenceImage, Run
from heedmap.text.prompts import untaught, untaught_warning
from heedmap.text.weights import (
    WeightedPrompt,
    bracket_warning,
    parse_weights,
    token_weights,
    unread_weights,
)

Progress = Callable[[int, int], None]
"""Called after every step with the number of steps done and of all steps."""
Preview = Callable[[torch.Tensor], None]
"""Called after every step with a copy of the latents (B, C, h, w)."""


@overload
def generate(  # pyright: ignore[reportOverlappingOverload]  # a str is a sequence of them
    pipe: Pipeline,
    prompt: str,
    *,
    seed: int | None = None,
    edits: Iterable[Edit] = (),
    guide: Iterable[AnyGuide] = (),
    progress: Progress | None = None,
    preview: Preview | None = None,
    **options: Unpack[GenerateKeywords],
) -> Run: ...
@overload
def generate(
    pipe: Pipeline,
    prompt: Sequence[str],
    *,
    seed: int | Sequence[int] | None = None,
    edits: Iterable[Edit] = (),
    guide: Iterable[AnyGuide] = (),
    progress: Progress | None = None,
    preview: Preview | None = None,
    **options: Unpack[GenerateKeywords],
) -> list[Run]: ...
@takes_options(GenerateOptions)
def generate(
    pipe: Pipeline,
    prompt: str | Sequence[str],
    *,
    seed: int | Sequence[int] | None = None,
    edits: Iterable[Edit] = (),
    guide: Iterable[AnyGuide] = (),
    progress: Progress | None = None,
    preview: Preview | None = None,
    **options: Unpack[GenerateKeywords],
) -> Run | list[Run]:
    """Generate an image, and record where the model read each word.

        run = heedmap.generate(pipe, "a red house next to a blue tree", seed=7)
        run.image; run.maps["house"].overlay(); run.save("outputs/house")
        cat, dog = heedmap.generate(pipe, ["a cat", "a dog"], seed=[7, 8])

    Args:
        pipe: a pipeline of a supported model, such as `load` returns.
        prompt: the prompt, or a list of prompts, which are generated in one batch. Weights in
            brackets, `(word:1.5)`, multiply the attention to a word.
        seed: the seed of the noise, from 0, or a list with one for each image; of one prompt, each
            seed is an image. Default: random, and saved in the settings.
        steps: denoising steps, 1 to 999. Default: the model's.
        guidance: classifier-free guidance scale. Default: the model's.
        size: (width, height) in pixels. Default: the model's.
        negative: negative prompt.
        keep: the axes to store separately: any of "layer", "step" and "head", or "all". The maps
            are averaged over the others during the run.
        tokens: "prompt" records the prompt's tokens, "all" the padding, too.
        branches: "conditional" records the prompt's maps, "negative" also those of the negative
            prompt (`Run.negative_maps`).
        concepts: words and phrases to map that the prompt need not contain (`Run.concepts`), by
            the image's queries: after OVAM (Marcos-Manchón et al., 2024, arXiv 2403.14291).
        places: places of the image, whose attention to the image is recorded, too (`Run.places`):
            pixels (x, y), boxes (left, top, right, bottom) in pixels, masks of the image's size as
            in `Confine`, or words of the prompt, for their masks. A map is the mean over the
            place's positions of their attention to all positions of the image: self-attention, or
            the image's part of joint attention. On a layer's grid, a pixel is the position that
            holds it; a box or mask has the positions of which at least half is inside (or else the
            fullest one). Edits of words do not count. With words the image is generated twice,
            first for their masks.
        reads: if True, and text and image share one softmax, the attention of each word to the
            image is recorded, too (`HeatMaps.reads`), and to the other words
            (`Run.text_attention`).
        share_of: where text and image share one softmax (SD 3, Flux), the values of maps are shares
            of "all" attention, also that to the image. With "text" they are shares of the attention
            to the text: at each site divided by its sum over the text.
        budget: if True, also record where all attention goes, that which no word gets too
            (`Run.budget`): the mean share of each key of the softmax, at the axes kept.
        limit: bytes that the maps may take, 2 GiB by default; a run that needs more is refused
            before it starts.
        edits: changes of the attention: `Reweight`, `Confine`, or rules of your own, each a
            callable `rule(P, site) -> P'`. They act in order, but `Confine` acts first, before the
            softmax.
        guide: goals for the attention of words: `Excite`, `Inside`, `Bind`, `Separate`, or
            losses of your own, each a callable `loss(maps, step) -> Tensor` of the maps (h, w) of
            the words of an image, as tensors with their graph (`maps["cat"]`). Before a step, the
            latents are changed against the losses (`Run.guide_report`).
        progress: called after every step with the number of steps done and of all steps.
        preview: called after every step with a copy of the latents (B, C, h, w).
        options: other arguments of the pipeline. diffusers' names (num_inference_steps,
            guidance_scale, negative_prompt, height, width, generator) work, too.

    Returns:
        The image with its maps, and for a list of prompts or of seeds a list of these. The image is
        bit-identical to one without a recording.

    Raises:
        ArgumentError: if an argument is out of range, there are more or fewer seeds than prompts, a
            weight is not a number, or an edit does not fit the image.
        TraceError: if the maps could not be recorded.
        TruncatedWordError: if a weighted or edited word lies beyond the model's token limit.
        UnknownWordError: if a word that is edited is not in the prompt.
    """
    sampling, seed = resolve_options(generate, pipe, seed, options)
    prompts, seeds = _image_inputs(prompt, seed)
    runs, _ = generate_batch(
        pipe,
        prompts,
        seeds,
        sampling,
        edits=checked_edits(edits),
        guide=checked_guides(guide),
        progress=progress,
        preview=preview,
    )
    is_single = isinstance(prompt, str) and as_ordered_list(seed) is None
    return runs[0] if is_single else runs


def _image_inputs(prompt: Any, seed: Any) -> tuple[list[str], list[int]]:
    """Return the prompt and the seed of each image, checked."""
    prompts = as_ordered_list(prompt)
    seeds = as_ordered_list(seed)
    count = len(prompts or seeds or [seed])
    if prompts is None:
        prompts = [prompt] * count
    if seeds is None:
        seeds = [seed] * count
    if not prompts or len(seeds) != len(prompts):
        raise ArgumentError(
            f"{plural(len(prompts), 'prompt')} and {plural(len(seeds), 'seed')} are given: pass a "
            "prompt or more, and one seed for all or one for each"
        )
    return list(map(check_prompt, prompts)), list(map(check_seed, seeds))


# --- one call of the pipeline ---


def generate_batch(
    pipe: Pipeline,
    prompts: Sequence[str],
    seeds: Sequence[int],
    options: GenerateOptions,
    *,
    edits: Sequence[Edit] = (),
    steering: Steering | None = None,
    latents: torch.Tensor | None = None,
    image: Image.Image | None = None,
    change: AfterStep | None = None,
    progress: Progress | None = None,
    preview: Preview | None = None,
    probe: Probe | None = None,
    maps: Sequence[HeatMaps] | None = None,
    guide: Sequence[AnyGuide] = (),
    first_guided: int = 0,
) -> tuple[list[Run], Trace]:
    """Generate an image for each prompt and seed in one call of the pipeline, with a trace.

    The options fit the pipeline (`resolve_options`). The attention is changed by `steering`
    (default: by the weights in the prompts), then by the edits. The run begins with the `latents`
    (default: noise of the seeds); with an `image`, these are the image's, and a single prompt is
    located in it. After each call of the scheduler, `change` returns the latents to go on with; it
    gets the current maps of each image. Before each step, the `guide` changes the latents of the
    images from `first_guided`. A `probe` ends the run with `probing.StopRun`, and records no
    places. The masks of words among the places are those of the `maps` of each image (default: of
    the same run without places). Errors are those of `generate`.
    """
    family = family_of(pipe)
    parsed = [parse_weights(prompt) for prompt in prompts]
    texts = [prompt.text for prompt in parsed]
    if probe is not None:
        options = replace(options, places=())
    places = check_places(options.places)
    words = [place for place in places if isinstance(place, str)]
    if words and maps is None:
        for text in texts:
            table = prompt_table(pipe, text, options.arguments)
            for word in words:
                table.find(word)
        # The first pass refuses other places that are wrong.
        others = tuple(place for place in places if not isinstance(place, str))
        plain, _ = generate_batch(
            pipe,
            prompts,
            seeds,
            replace(options, places=others, concepts=(), reads=False),
            edits=edits,
            guide=guide,
            first_guided=first_guided,
            latents=latents,
            image=image,
            progress=sub_progress(progress, 0, 2),
        )
        maps = [run.maps for run in plain]
        progress = sub_progress(progress, 1, 2)
    masks = [
        {word: Mask.of(heats[word].mask()) for word in words} for heats in maps or ()
    ]
    if steering is None:
        steering = steering_of(pipe, parsed, options)
    guide = with_defaults(pipe, guide)
    engine = latent_guide(pipe, texts, options, guide, first_guided)
    spec = RecordingSpec(
        replace(options, branches={"conditional", *options.branches}),
        masks=tuple(masks),
        weights_read=True,
    )
    recorder = StepRecorder() if "step" in spec.keep else None
    trace = Trace(
        pipe,
        spec,
        edits=tuple(edits),
        steering=steering,
        after_step=_after_step(progress, change, preview, recorder),
        probe=probe,
        guide=engine,
        steered=None if steering is None else texts,
    )
    # Before the run: a callback or an interrupt may change the number of steps.
    effective, sources = settings.effective_options(pipe, options)
    shared = {
        **vars(effective),
        **settings.describe(pipe),
        "defaults": sources,
        "keep": tuple(sorted(options.keep)),
        "branches": tuple(sorted(options.branches)),
        "edits": saved_edits(edits),
        "arguments": argument_note(options.arguments),
    }
    negative = options.negative or ""
    vocabulary = loading.model_card(loading.name_of(pipe)).vocabulary
    others = [negative, *spec.options.concepts]
    unknown = untaught([*texts, *others], vocabulary) or ()
    doubts = [untaught_warning(unknown)]
    if image is None:
        doubts += map(bracket_warning, parsed)
    for text in filter(None, [*doubts, *_warnings(pipe, options)]):
        warn(text)
    call = for_batch(pipe, texts, seeds, effective)
    with noise_of_steps(pipe.scheduler, call["generator"]), trace:
        images, flags = _call(family, call, latents, image)
    black = [prompt for prompt, flag in zip(prompts, flags, strict=True) if flag]
    for text in _warnings_after(family, options, trace.guided, black):
        warn(text)
    if engine is not None:
        for note, acted in zip(saved_edits(guide), engine.acted, strict=True):
            if not acted:
                warn(
                    f"a guide changed nothing ({note}): its loss was at most its target at each "
                    "step from its start to its end, or there was no step"
                )
    if sources.get("steps") in STEP_LISTS:
        # The last sigma of a list may be the end of the last step. An interrupt changes nothing.
        shared["steps"] = trace.steps
    recorded = _recorded(trace, spec)
    first = recorded["maps"][0].recording
    if recorder is not None:
        recorded["step_pictures"] = recorder.images(images, len(first.timesteps))
    references = trace.reference_maps
    reference_places = trace.reference_place_maps
    runs: list[Run] = []
    for n, generated in enumerate(images):
        values = {
            **shared,
            "prompt": prompts[n],
            "text": recorded["maps"][n].tokens.prompt,
            "seed": seeds[n],
            "size": generated.size,
            "concepts": spec.options.concepts,
            "places": spec.options.places,
            "untaught": untaught([texts[n], *others], vocabulary),
            "nsfw_content_detected": flags[n],
        }
        if len(images) > 1:  # sums over a batch are rounded differently
            values["batch_place"] = (n, len(images))
        more: dict[str, Any] = {}
        for name, items in recorded.items():
            more[name] = items[n]
            if isinstance(items[n], HeatMaps):
                more[name] = replace(items[n], image=generated)
        more["references"] = _references(
            family, references[n], reference_places[n], call, n
        )
        if engine is not None and n >= first_guided:
            values["guide"] = saved_edits(guide)
            more["guide_report"] = engine.report(n)
        runs.append(Run(generated, settings=Settings(**values), **more))
    return runs, trace


def _recorded(trace: Trace, spec: RecordingSpec) -> dict[str, Sequence[Any]]:
    """Return the recordings of each image, by the attribute of a run."""
    recorded: dict[str, Sequence[Any]] = {"maps": trace.maps}
    if "negative" in spec.options.branches:
        recorded["negative_maps"] = trace.negative_maps
    if spec.options.concepts:
        recorded["concepts"] = trace.concept_maps
    if spec.options.places:
        recorded["places"] = trace.place_maps
    if spec.options.reads:
        recorded["text_attention"] = trace.text_attention
    if spec.options.budget:
        recorded["attention_budget"] = trace.budgets
    return recorded


def _references(
    family: Family,
    maps: Sequence[HeatMaps],
    places: Sequence[HeatMaps],
    call: Mapping[str, Any],
    number: int,
) -> tuple[ReferenceImage, ...]:
    """Return the reference images of one image of a call, by their maps."""
    images: Any = call.get("image")
    if isinstance(images, list) and not family.lists_references:
        images = images[number]
    if not isinstance(images, list):
        images = [images]
    is_known = call.get("image_reference") is None and len(images) == len(maps)
    references: list[ReferenceImage] = []
    for n, one in enumerate(maps):
        picture = None
        if is_known and isinstance(images[n], Image.Image):
            picture = to_rgb(images[n]).resize(one.recording.size)
        place_maps = replace(places[n], image=picture) if places else None
        references.append(ReferenceImage(replace(one, image=picture), place_maps))
    return tuple(references)


def steering_of(
    pipe: Any,
    prompts: Sequence[WeightedPrompt],
    options: GenerateOptions,
) -> Steering | None:
    """Return the edits by the weights in the prompts of a batch; None without weights."""
    rules: dict[int, list[Rule]] = {}
    for number, prompt in enumerate(prompts):
        if not prompt.spans:
            continue
        table = prompt_table(pipe, prompt.text, options.arguments)
        weights = token_weights(prompt.spans, table)
        if any(weight != 1 for weight in weights.values()):
            rules[number] = [weights_rule(weights, table)]
    return Steering(rules) if rules else None


def _warnings(
    pipe: Any,
    options: GenerateOptions,
) -> Iterator[str]:
    """Yield a warning, or an empty text, for each doubtful option."""
    negative = options.negative or ""
    if negative and "negative" not in options.branches:  # else the trace warns
        yield prompt_table(pipe, negative, options.arguments).unread
    yield unread_weights(negative)
    yield unread_weights(str(options.arguments.get("prompt_2") or ""))
    if options.size is not None and not has_usual_area(pipe, options.size):
        w, h = options.size
        width, height = default_size(pipe)
        other = "larger" if w * h > width * height else "smaller"
        yield f"{w}×{h} is much {other} than the model's {width}×{height}: the image may be bad"


def _warnings_after(
    family: Family,
    options: GenerateOptions,
    is_guided: bool,
    black: Sequence[str],
) -> Iterator[str]:
    """Yield a warning of each option that changed nothing, and of prompts with black images."""
    if options.negative and not is_guided:
        yield (
            f"the negative prompt {quoted(options.negative)} changed nothing, since guidance was "
            f"off: pass {family.negative_guidance} above {family.guidance_off:g}"
        )
    if (options.guidance or 0) > 1 and _ignores_guidance(family, is_guided):
        yield (
            f"the guidance {options.guidance:g} changed nothing, since this model has none: leave "
            "it out (a negative prompt with true_cfg_scale guides Flux and Qwen-Image)"
        )
    if black:
        yield (
            f"the safety checker replaced the images of {quoted(black)} with black: use another "
            "seed or prompt, or load the pipeline with safety_checker=None"
        )


def _ignores_guidance(family: Family, is_guided: bool) -> bool:
    """Return whether a call's guidance, `guidance_scale` in diffusers, acted on nothing."""
    config = family.model.config
    if config.get("guidance_embeds") or config.get("time_cond_proj_dim"):
        return False
    # Which guides in its place.
    return not is_guided or "true_cfg_scale" in parameters(family.pipe)


def _call(
    family: Family,
    call: dict[str, Any],
    latents: torch.Tensor | None,
    image: Image.Image | None,
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the images, and for each whether the safety checker made it black."""
    pipe = family.pipe
    if latents is not None and image is not None:
        (noise,) = call["generator"]
        steps = call[DIFFUSERS_NAMES["steps"]]
        with showing(pipe, latents, noise, steps) as first:
            # Nothing is decoded.
            pipe(**call, latents=first.to(pipe.dtype), output_type="latent")
        return [image], [None]
    if latents is not None:
        call["latents"] = family.initial(latents.to(pipe.dtype))
    if is_modular(pipe):
        images = pipe(**call, output="images")
        return images, [None] * len(images)
    result = pipe(**call)
    images = result[0]  # LDM3D's depth maps follow
    flags = getattr(result, "nsfw_content_detected", None) or [None] * len(images)
    return images, flags


# --- after each step ---


def sub_progress(progress: Progress | None, done: int, count: int) -> Progress | None:
    """Return the progress of one of `count` equal parts after `done` others."""
    if progress is None:
        return None
    return lambda step, steps: progress(done * steps + step, count * steps)


def _after_step(
    progress: Progress | None,
    change: AfterStep | None,
    preview: Preview | None,
    recorder: "StepRecorder | None",
) -> AfterStep:

    def after_step(state: StepState) -> torch.Tensor:
        moment = state.moment
        if change is not None:
            state = replace(state, latents=change(state))
        if recorder is not None:
            recorder.record(state)
        latents = state.latents
        if not moment.last:
            return latents
        if progress is not None:
            progress(moment.step + 1, moment.steps)
        if preview is not None:
            # A copy: the preview must not change the image.
            preview(latents.detach().clone())
        if moment.step + 1 == moment.steps and not latents.isfinite().all():
            raise ModelError(
                f"after {moment.steps} steps the latents hold values that are not finite, of which "
                "no image can be made: generate in float32, with another scheduler, or without "
                "rules of your own"
            )
        return latents

    return after_step


class StepRecorder:
    """A recorder of small latents of each step, and the images that they show.

    No decoder runs, since it takes as long as a step. Colours are fitted to the finished image and
    the last latents (`backends.autoencoders.fit_colours`), and applied to the latents of each step.
    """

    def __init__(self) -> None:
        self._predicted: dict[int, torch.Tensor] = {}
        self._noisy: dict[int, torch.Tensor] = {}

    def record(self, state: StepState) -> None:
        """Record the latents after a call of the scheduler, and the step's first prediction."""
        if state.predicted is not None:
            self._predicted.setdefault(state.moment.step, _small(state.predicted))
        if state.moment.last:
            self._noisy[state.moment.step] = _small(state.latents)

    def images(self, images: Sequence[Any], steps: int) -> list[StepPictures | None]:
        """Return the steps of each finished image; None if a step is missing."""
        latents = self._predicted
        kind = "prediction"
        if len(latents) < steps:
            latents = self._noisy
            kind = "latents"
        rows = {len(one) for one in (*latents.values(), *self._noisy.values())}
        if len(self._noisy) < steps or rows != {len(images)}:
            return [None] * len(images)
        frames = torch.stack(list(latents.values()), dim=1).cpu()
        last = self._noisy[steps - 1].cpu()
        return [
            StepPictures(tuple(_colour(frames[n], last[n : n + 1], image)), kind)
            for n, image in enumerate(images)
        ]


def _small(latents: torch.Tensor) -> torch.Tensor:
    h, w = latents.shape[-2:]
    part = min(1.0, STEP_SIDE / min(h, w))
    size = (round(h * part), round(w * part))
    return adaptive_avg_pool2d(latents.detach().float(), size)


def _colour(
    frames: torch.Tensor,
    final: torch.Tensor,
    image: Image.Image,
) -> Iterator[Image.Image]:
    """Draw latents (S, C, h, w), by the latents (1, C, h, w) of a known image."""
    h, w = final.shape[-2:]
    finer = max(1, STEP_SIDE // min(h, w))
    small = image.convert("RGB").resize((w * finer, h * finer), Image.Resampling.BOX)
    colours = fit_colours(final, pixels_of(small), around=2, ridge=0.2)(frames)
    return map(image_of, colours)


def pixels_of(image: Image.Image) -> torch.Tensor:
    """Return an RGB image as a tensor (1, 3, H, W), 0 to 1."""
    return torch.from_numpy(np.array(image)).movedim(-1, 0)[None] / 255


def image_of(pixels: torch.Tensor) -> Image.Image:
    """Return a tensor (3, H, W), 0 to 1, as an image."""
    return Image.fromarray((pixels * 255).round().byte().movedim(0, -1).numpy())
