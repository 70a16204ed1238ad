"""The words of a prompt in a picture of the user's.

The encoded picture is given to the model at several timesteps, each time with new noise of that
timestep's strength, as in DDPM's training (Ho et al., arXiv 2006.11239, eq. 4), without guidance.
The attention is recorded as in any run, and averaged over the timesteps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from msgspec import structs
from PIL import Image

from heedmap import checks
from heedmap.backends.arguments import STEP_LISTS, THEIR_NAMES
from heedmap.backends.family import Pipeline, parameters
from heedmap.backends.registry import check_served
from heedmap.errors import ArgumentError, quoted
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.selections import stability_of
from heedmap.options import GenerateOptions, LocateOptions
from heedmap.pipelines.arguments import LocateKeywords, spelled_out
from heedmap.pipelines.batch import Batch, Progress, as_noted, check_prompts, draw, drawn_seed
from heedmap.pipelines.given_pictures import (
    check_pipeline,
    refuse_set,
    seen,
    upright_rgb,
    usual_for,
)
from heedmap.recording.probing import Probe
from heedmap.results.runs import Run
from heedmap.text.weights import parse_weights

_OURS = {"latents", "num_images_per_prompt", "guidance_scale", "negative_prompt", *STEP_LISTS}
"""Arguments of pipelines that cannot be set here."""
MOST_LOOKS = 999
"""The most timesteps: more would repeat some of the 1000 of the training."""


@spelled_out(LocateOptions)
def locate(
    pipe: Pipeline,
    picture: Image.Image | str | Path,
    prompt: str,
    *,
    seed: int | None = None,
    progress: Progress | None = None,
    probe: Probe | None = None,
    **options: Unpack[LocateKeywords],
) -> Run:
    """Find where the model sees each word of a prompt in a picture of yours.

        found = heedmap.locate(pipe, "photo.jpg", "a cat next to a car")
        found.maps["cat"].mask(), found.maps.segment(), found.save("outputs/photo")

    The result is a run whose image is your picture at the size that the model saw. A word that the
    picture does not show has heat somewhere, too.

    Args:
        pipe: a pipeline that generates from text alone, as `load` returns it.
        picture: a Pillow image, or a file (PNG, JPEG, WebP, BMP). Transparent pixels become white.
        prompt: the words to find. Weights have no meaning here.
        seed: the seed of the noise. Default: random, and saved in the settings.
        progress: called after every step.
        probe: ends the run when it has found what it looks for.
        options: those below, and any other argument of the pipeline.

    Raises:
        ArgumentError: if an argument is wrong.
        ModelError: if the pipeline starts from a picture, or the noise of the model's training is
            not known.
        TraceError: if the maps could not be recorded.
    """
    rest: dict[str, Any] = {**options}
    asked = LocateOptions.taken(rest)
    check_served(pipe)
    check_pipeline(pipe)
    (prompt,), (seed,) = check_prompts([prompt], [drawn_seed() if seed is None else seed])
    _check_asked(prompt, rest)
    given = upright_rgb(picture)
    noted = GenerateOptions(
        steps=checks.whole("steps", asked.steps, least=1, most=MOST_LOOKS),
        guidance=1.0 if THEIR_NAMES["guidance"] in parameters(pipe) else None,
        size=usual_for(pipe, given.size) if asked.size is None else asked.size,
        keep=asked.keep,
        tokens=asked.tokens,
        concepts=asked.concepts,
        limit=asked.limit,
        arguments=rest,
    )
    noted = as_noted(pipe, noted)
    assert noted.size is not None
    shown = seen(pipe, given, noted.size)
    shown.warn_if_unlike(pipe)
    batch = Batch([prompt], [prompt], [seed], looked=shown)
    (run,), trace = draw(pipe, batch, noted, progress=progress, probe=probe)
    return replace(
        run,
        maps=_stable(run.maps, trace.halves("conditional")),
        concepts=None if run.concepts is None else _stable(run.concepts, trace.halves("concepts")),
        settings=structs.replace(run.settings, located=shown.noted),
    )


def _stable(maps: HeatMaps, halves: Sequence[Mapping[tuple[int, int], np.ndarray]]) -> HeatMaps:
    """Return the maps with the stability of each word over the two halves of the steps."""
    return replace(maps, stability=stability_of(maps.recording, halves))


def _check_asked(prompt: str, arguments: dict[str, Any]) -> None:
    refuse_set(arguments, _OURS)
    parsed = parse_weights(prompt)
    if parsed.spans:
        raise ArgumentError(
            f"the prompt {quoted(prompt)} has weights, which locate cannot use: write "
            f"{quoted(parsed.text)}"
        )
