"""The words of a prompt in an image of the user's.

The encoded image is given to the model at several timesteps, each time with new noise of that
timestep's strength, as in DDPM's training (Ho et al., arXiv 2006.11239, eq. 4), without guidance.
The attention is recorded as in any run, and averaged over the timesteps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs
from PIL import Image

from heedmap import checks
from heedmap.backends.arguments import STEP_LISTS, THEIR_NAMES
from heedmap.backends.base import Pipeline, parameters
from heedmap.errors import ArgumentError, quoted, warn
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.selections import stability_of
from heedmap.options import LOCATE_STEPS, GenerateOptions, Keep, Tokens
from heedmap.pipelines.arguments import check_seed, options_of, resolve_options
from heedmap.pipelines.generation import Batch, Progress, sample
from heedmap.pipelines.input_images import (
    autoencoder_psnr,
    check_takes_latents,
    distortion_warning,
    encode_image,
    fitting_size,
    open_image,
    refuse_arguments,
)
from heedmap.recording.probing import Probe
from heedmap.results.runs import Run
from heedmap.text.weights import parse_weights


def locate(
    pipe: Pipeline,
    picture: Image.Image | str | Path,
    prompt: str,
    *,
    seed: int | None = None,
    steps: int | None = None,
    size: tuple[int, int] | None = None,
    keep: Keep = GenerateOptions.keep,
    tokens: Tokens = GenerateOptions.tokens,
    concepts: Sequence[str] = GenerateOptions.concepts,
    limit: int = GenerateOptions.limit,
    progress: Progress | None = None,
    probe: Probe | None = None,
    **arguments: Any,
) -> Run:
    """Find where the model sees each word of a prompt in an image of yours.

        found = heedmap.locate(pipe, "photo.jpg", "a cat next to a car")
        found.maps["cat"].mask(), found.maps.segment(), found.save("outputs/photo")

    The result is a run whose image is yours at the size that the model saw. A word that the image
    does not show has heat somewhere, too.

    Args:
        pipe: a pipeline that generates from text alone, as `load` returns it.
        picture: a Pillow image, or a file (PNG, JPEG, WebP, BMP). Transparent pixels become white.
        prompt: the words to find. Weights have no meaning here.
        seed: the seed of the noise. Default: random, and saved in the settings.
        steps: the number of noise levels at which the model is asked, the middles of equal parts
            of the training's timesteps. Default: 10.
        size: (width, height) in pixels that the model sees. Default: that of the image if the model
            can draw it and it has half to twice the pixels of the model's own; else about as many
            as the model's, close to the image's proportions.
        keep: as in `generate`.
        tokens: as in `generate`.
        concepts: as in `generate`.
        limit: as in `generate`.
        progress: called after every step.
        probe: ends the run when it has found its numbers.
        arguments: other arguments of the pipeline, as in `generate`.

    Raises:
        ArgumentError: if an argument is wrong.
        ModelError: if the pipeline starts from an image, or the noise of the model's training is
            not known.
        TraceError: if the maps could not be recorded.
    """
    options = options_of(GenerateOptions, locals())
    options, seed = resolve_options(pipe, options, locate, seed, has_image=True)
    check_takes_latents(pipe)
    refused = ("latents", "num_images_per_prompt", "guidance_scale", "negative_prompt", *STEP_LISTS)
    refuse_arguments(arguments, refused)
    text = parse_weights(checks.prompt(prompt))
    if text.spans:
        raise ArgumentError(
            f"the prompt {quoted(prompt)} has weights, which locate cannot use: write "
            f"{quoted(text.text)}"
        )
    image = open_image(picture)
    size = options.size or fitting_size(pipe, image.size)
    options = replace(
        options,
        steps=LOCATE_STEPS if options.steps is None else options.steps,
        guidance=1.0 if THEIR_NAMES["guidance"] in parameters(pipe) else None,
        size=size,
    )
    encoded = encode_image(pipe, image, size)
    if warning := distortion_warning(autoencoder_psnr(pipe, encoded)):
        warn(warning)
    batch = Batch([prompt], [prompt], [check_seed(seed)], image=encoded)
    (run,), trace = sample(pipe, batch, options, progress=progress, probe=probe)
    return replace(
        run,
        maps=_stable(run.maps, trace.halves("conditional")),
        concepts=None if run.concepts is None else _stable(run.concepts, trace.halves("concepts")),
        settings=structs.replace(run.settings, located=encoded.settings),
    )


def _stable(maps: HeatMaps, halves: Sequence[Mapping[tuple[int, int], np.ndarray]]) -> HeatMaps:
    """Return the maps with the stability of each word over the two halves of the steps."""
    return replace(maps, stability=stability_of(maps.recording, halves))
