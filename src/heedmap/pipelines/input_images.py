"""Images of the user's: to locate words in, and to edit.

To locate words, the encoded image is given to the model at several timesteps, each time with new
noise of that timestep's strength, as in its training, without guidance: DDPM's (Ho et al., arXiv
2006.11239, eq. 4), or flow matching's (Lipman et al., arXiv 2210.02747; Liu et al., arXiv
2209.03003). The attention is recorded as in any run, and averaged over the timesteps.

An edit of an image starts from the image's latents with noise. At each step the source is the image
with new noise of that step's strength, and the edits keep their difference from the source: the
scheduler's error for the source is taken off the edits, too. So no inversion is needed, and an edit
that draws as its source does returns the image. After FlowEdit (Kulikov et al., 2024, arXiv
2412.08629), which it is for a flow, and InfEdit (Xu et al., 2023, arXiv 2312.04965), for any
scheduler whose noise levels are known.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod, sqrt
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

import torch
from PIL import Image, ImageOps

from heedmap.backends.autoencoders import latents_of, pictures_of, rescaled, unscaled
from heedmap.backends.base import Pipeline, device_of, parameters
from heedmap.backends.modular import is_modular
from heedmap.backends.noise_levels import flow_level, is_flow, noise_levels
from heedmap.backends.registry import (
    DIFFUSERS_NAMES,
    STEP_LISTS,
    check_size,
    default_size,
    family_of,
    noise,
)
from heedmap.backends.schedules import SchedulerCall
from heedmap.checks import check_prompt
from heedmap.errors import ArgumentError, ModelError, quoted, warn
from heedmap.figures.overlays import to_rgb
from heedmap.io import reading
from heedmap.io.schemas import InputImageSettings
from heedmap.io.writing import digest_of
from heedmap.maps.heatmaps import HeatMaps
from heedmap.options import LOCATE_STEPS, GenerateOptions, LocateKeywords
from heedmap.pipelines.arguments import (
    check_seed,
    has_usual_area,
    resolve_options,
    takes_options,
)
from heedmap.pipelines.generation import (
    Progress,
    generate_batch,
    image_of,
    pixels_of,
)
from heedmap.pipelines.measures import image_difference
from heedmap.pipelines.settings import effective_options
from heedmap.recording.probing import Probe
from heedmap.results.runs import Run
from heedmap.text.weights import parse_weights

LEAST_PSNR = 20.0
"""Decibels below which a warning says that the autoencoder does not return the image."""


# --- any image ---


def open_image(image: object) -> Image.Image:
    """Return a Pillow image, or that of a file, upright in RGB; transparent pixels become white.

    Raises:
        ArgumentError: if it is none, or cannot be read.
    """
    if isinstance(image, str | PathLike):
        image = reading.read_photograph(reading.path_of(image))
    if not isinstance(image, Image.Image):
        raise ArgumentError(
            f"the image is {quoted(image)}: expected a Pillow image, or the path of a file"
        )
    return ImageOps.exif_transpose(to_rgb(image))


def fitting_size(pipe: Pipeline, size: tuple[int, int]) -> tuple[int, int]:
    """Return the default (width, height) at which the model sees an image of a size.

    It is the image's size if the model can draw it and it has half to twice as many pixels as the
    model's; else one close to the image's proportions with about as many pixels as the model's.

    Raises:
        ArgumentError: if the image is too long.
    """
    factor = family_of(pipe).unit
    if any(side % factor for side in size) or not has_usual_area(pipe, size):
        scale = sqrt(prod(default_size(pipe)) / prod(size)) / factor
        w, h = (max(1, round(side * scale)) * factor for side in size)
        size = (w, h)
    return check_size(pipe, size)


def check_takes_latents(pipe: Pipeline) -> None:
    """Raise a ModelError if a pipeline cannot start from the latents of an image."""
    names = parameters(pipe)
    kind = type(pipe).__name__
    # The blocks of a modular pipeline may begin in either way.
    begins_with_image = "strength" in names and not is_modular(pipe)
    if (
        "latents" not in names
        or begins_with_image
        or DIFFUSERS_NAMES["size"] not in names
    ):
        raise ModelError(
            f"{kind} begins with an image of its own: expected a pipeline of the same model that "
            "draws from a text alone, as diffusers' AutoPipelineForText2Image.from_pipe(pipe)"
        )
    if not hasattr(pipe.vae, "encode"):
        raise ModelError(
            f"{kind} has no autoencoder that encodes an image: load the model with all its parts"
        )


def refuse_arguments(arguments: Iterable[str], names: Iterable[str]) -> None:
    """Raise an ArgumentError if an argument is given that the image decides."""
    for name in sorted({*arguments} & {*names}):
        raise ArgumentError(f"an image is given, so {name} cannot be set: leave it out")


@dataclass(frozen=True, eq=False)
class InputImage:
    """An image of the user's, encoded for a model.

    Attributes:
        image: RGB, at the size that the model sees.
        latents: (1, C, h, w), as the pipeline scales them; float32.
        settings: the entry of the image in a run's settings.
    """

    image: Image.Image
    latents: torch.Tensor
    settings: InputImageSettings


@torch.no_grad()
def encode_image(
    pipe: Pipeline,
    image: Image.Image,
    size: tuple[int, int],
) -> InputImage:
    """Encode an RGB image at a size (width, height) that the model draws."""
    small = image.resize(size, Image.Resampling.LANCZOS)
    vae = pipe.vae
    latents = latents_of(vae, pixels_of(small), device_of(pipe))
    settings = InputImageSettings(size=image.size, sha256=digest_of(small))
    return InputImage(small, rescaled(vae, latents), settings)


@torch.no_grad()
def autoencoder_psnr(pipe: Pipeline, image: InputImage) -> float | None:
    """Return the PSNR in dB of an image that the autoencoder decodes again; None if exact."""
    vae = pipe.vae
    latents = unscaled(vae, image.latents).to(device_of(pipe))
    pixels = pictures_of(vae, latents)[0].clamp(0, 1)
    return image_difference(image.image, image_of(pixels)).psnr_db


def distortion_warning(psnr_db: float | None) -> str:
    """Return the warning of an image that the autoencoder distorts; empty if it does not."""
    if psnr_db is None or psnr_db >= LEAST_PSNR:
        return ""
    return (
        f"the model's autoencoder distorts this image (PSNR {psnr_db:.1f} dB, and {LEAST_PSNR:g} "
        "or more is needed), so its maps and edits are unreliable"
    )


# --- locate ---


@takes_options(GenerateOptions)
def locate(
    pipe: Pipeline,
    picture: Image.Image | str | Path,
    prompt: str,
    *,
    seed: int | None = None,
    progress: Progress | None = None,
    **options: Unpack[LocateKeywords],
) -> Run:
    """Find where the model sees each word of a prompt in an image of yours.

        found = heedmap.locate(pipe, "photo.jpg", "a cat next to a car")
        found.maps["cat"].mask(), found.maps.segment(), found.save("outputs/photo")

    Nothing is generated: noise is added to the image at several levels, and the model's attention
    is averaged. A word that the image does not show has heat somewhere, too.

    Args:
        pipe: a pipeline that generates from text alone, such as `load` returns.
        picture: a Pillow image, or a file (PNG, JPEG, WebP, BMP). Transparent pixels become white.
        prompt: the words to find. Weights have no meaning here.
        seed: the seed of the noise. Default: random, and saved in the settings.
        steps: the number of noise levels: the training timesteps are divided into this many equal
            parts, and the middle of each is used. Default: 10.
        size: (width, height) in pixels that the model sees. Default: that of the image if the model
            can draw it and it has half to twice the pixels of the model's own; else about as many
            as the model's, close to the image's proportions.
        keep: as in `generate`.
        tokens: as in `generate`.
        concepts: as in `generate`.
        places: as in `generate`.
        reads: as in `generate`.
        share_of: as in `generate`.
        budget: as in `generate`.
        limit: as in `generate`.
        progress: called after every step with the number of steps done and of all steps.
        options: other arguments of the pipeline, as in `generate`.

    Returns:
        A run whose image is yours at the size that the model saw.

    Raises:
        ArgumentError: if the image cannot be read, the prompt has weights, or an argument is wrong.
        ModelError: if the pipeline starts from an image, or the noise of the model's training is
            not known.
        TraceError: if the maps could not be recorded.
    """
    opened = open_image(picture)
    sampling, seed = resolve_location(pipe, opened, prompt, seed, options)
    return run_location(pipe, opened, prompt, check_seed(seed), sampling, progress)


def run_location(
    pipe: Pipeline,
    image: Image.Image,
    prompt: str,
    seed: int,
    options: GenerateOptions,
    progress: Progress | None = None,
    probe: Probe | None = None,
    maps: HeatMaps | None = None,
) -> Run:
    """Locate the words of a prompt, with options of `resolve_location`."""
    assert options.size is not None
    encoded = encode_image(pipe, image, options.size)
    if warning := distortion_warning(autoencoder_psnr(pipe, encoded)):
        warn(warning)
    (run,), _ = generate_batch(
        pipe,
        [prompt],
        [seed],
        options,
        latents=encoded.latents,
        image=encoded.image,
        progress=progress,
        probe=probe,
        maps=None if maps is None else [maps],
    )
    return replace(run, settings=replace(run.settings, located=encoded.settings))


def resolve_location(
    pipe: Pipeline,
    image: Image.Image,
    prompt: str,
    seed: Any,
    arguments: Mapping[str, Any],
) -> tuple[GenerateOptions, Any]:
    """Return the checked options and the seed of `locate`."""
    options, seed = resolve_options(locate, pipe, seed, arguments, has_image=True)
    check_takes_latents(pipe)
    refused = (
        "latents",
        "num_images_per_prompt",
        "guidance_scale",
        "negative_prompt",
        *STEP_LISTS,
    )
    refuse_arguments(arguments, refused)
    text = parse_weights(check_prompt(prompt))
    if text.spans:
        raise ArgumentError(
            f"the prompt {quoted(prompt)} has weights, which locate cannot use: write "
            f"{quoted(text.text)}"
        )
    takes_guidance = DIFFUSERS_NAMES["guidance"] in parameters(pipe)
    options = replace(
        options,
        steps=options.steps or LOCATE_STEPS,
        guidance=family_of(pipe).guidance_off if takes_guidance else None,
        size=options.size or fitting_size(pipe, image.size),
    )
    return options, seed


# --- the image of an edit ---


class ImageSource:
    """An image as the source of edits, with the noise that it gets at each step.

    Attributes:
        image: the image, encoded at the size of the options.
    """

    def __init__(
        self,
        pipe: Pipeline,
        image: Image.Image,
        seed: int,
        options: GenerateOptions,
    ) -> None:
        assert options.size is not None
        effective, _ = effective_options(pipe, options)
        count: Any = effective.steps
        self._flow = pipe.scheduler if is_flow(pipe) else None
        # those of a flow's beginning
        self._levels = [(0.0, 1.0)]
        self._scale = 1.0
        if self._flow is None:
            self._levels, self._scale = noise_levels(pipe, count)
            count = len(self._levels) - 1
        self.image = encode_image(pipe, image, options.size)
        generator = noise(seed)
        latents = self.image.latents
        # One for each step that is taken: some schedulers take more than are asked of them.
        self._noises = [
            torch.randn(latents.shape, generator=generator).to(latents.device)
            for _ in range(count)
        ]

    def start(self, count: int) -> torch.Tensor:
        """Return the initial latents of a source and its edits, (count, C, h, w)."""
        return (self._at(0, self._levels[0]) / self._scale).repeat(count, 1, 1, 1)

    def next_latents(
        self,
        moment: SchedulerCall,
        latents: torch.Tensor,
    ) -> torch.Tensor:
        """Return the latents (B, C, h, w) to go on with after a call of the scheduler."""
        if not moment.last:
            return latents
        step = moment.step + 1
        new = latents.float()
        level = self._levels[step] if self._flow is None else flow_level(self._flow)
        source = self._at(step, level)
        return (source + (new - new[:1])).to(latents)

    def _at(self, step: int, level: tuple[float, float]) -> torch.Tensor:
        """Return the source's latents (1, C, h, w) at the start of a step, or after the last."""
        a, s = level
        return (
            a * self.image.latents + s * self._noises[min(step, len(self._noises) - 1)]
        )


def extract_image(
    pipe: Pipeline,
    image: Any,
    arguments: Mapping[str, Any],
) -> tuple[Image.Image | None, Mapping[str, Any]]:
    """Open the image to edit, or make it an argument of a pipeline that takes an image.

    A list is of reference images. Blocks of a modular pipeline that begin with a part of the image
    take it if they are given a `strength` or a mask.
    """
    if image is None:
        return None, arguments
    names = parameters(pipe)
    begins = {"strength", "mask_image"}
    family = family_of(pipe)
    draws_from_text = family.reads_images
    if is_modular(pipe) and not family.needs_image and not begins & arguments.keys():
        draws_from_text |= "strength" in names
    is_to_edit = draws_from_text and not isinstance(image, list)
    if "image" in names and not is_to_edit:
        image = open_image(image) if isinstance(image, str | PathLike) else image
        return None, {**arguments, "image": image}
    check_takes_latents(pipe)
    if family.has_quirk("unblended"):
        raise ModelError(
            f"{type(pipe).__name__} does not draw from the latents of its steps alone, so that "
            "your image would not come back: expected another pipeline of such a model, "
            "as StableDiffusionPipeline with an LCMScheduler"
        )
    refuse_arguments(arguments, ("latents", "denoising_end", *STEP_LISTS))
    return open_image(image), arguments
