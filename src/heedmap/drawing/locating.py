"""Where a model sees the words of a prompt in a picture that it did not draw.

The picture is encoded, and at each of several timesteps the model is given it with fresh noise of
that timestep's strength (as DDPM's training does, Ho et al., arXiv 2006.11239, eq. 4), in a run
without guidance. What the words draw is recorded as in any run, and averaged over the noises.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from msgspec import structs
from PIL import Image

from heedmap import checks
from heedmap.drawing.batch import Batch, Progress, as_noted, check_prompts, draw, drawn_seed
from heedmap.drawing.given_pictures import check_pipeline, refuse_set, seen, upright_rgb, usual_for
from heedmap.drawing.keywords import LocateKeywords, spelled_out
from heedmap.errors import ArgumentError, quoted
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.stability import stability_of
from heedmap.options import GenerateOptions, LocateOptions
from heedmap.recording.probing import Probe
from heedmap.results.runs import Run
from heedmap.text.weights import parse_weights
from heedmap.wiring.arguments import STEP_LISTS, THEIR_NAMES
from heedmap.wiring.family import Pipeline, parameters
from heedmap.wiring.registry import check_served

_OURS = {"latents", "num_images_per_prompt", "guidance_scale", "negative_prompt", *STEP_LISTS}
"""Arguments of pipelines that are set by what is looked at."""
MOST_LOOKS = 999
"""Of more parts of a training's thousand timesteps the middles would be none of their own."""


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
    """Where the model sees each word of a prompt in a picture that you have.

        found = heedmap.locate(pipe, "photo.jpg", "a cat next to a car")
        found.maps["cat"].mask(), found.maps.segment(), found.save("outputs/photo")

    A run like any other, but that nothing was drawn: its picture is yours, at the size that the
    model saw. It attends to a word that the picture does not show as well, somewhere.

    Args:
        pipe: a pipeline that draws from a text alone, as `load` gives it.
        picture: of Pillow, or a file (PNG, JPEG, WebP, BMP). What is transparent is white.
        prompt: what is to be found. Weights have no meaning here.
        seed: of the noise; drawn, and noted in the run's settings, if None.
        progress: called after every step.
        probe: with one the run ends where that has seen what it looks for.
        options: those below, and any other argument of the pipeline.

    Raises:
        ArgumentError: if an argument is wrong.
        ModelError: if the pipeline begins with a picture of its own, or its model was not trained
            on noise that is known.
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
        maps=_held(run.maps, trace.halves("conditional")),
        concepts=None if run.concepts is None else _held(run.concepts, trace.halves("concepts")),
        settings=structs.replace(run.settings, located=shown.noted),
    )


def _held(maps: HeatMaps, halves: Sequence[Mapping[tuple[int, int], np.ndarray]]) -> HeatMaps:
    """The same maps, which know how far the two halves of the looks agree."""
    return replace(maps, stability=stability_of(maps.recording, halves))


def _check_asked(prompt: str, arguments: dict[str, Any]) -> None:
    refuse_set(arguments, _OURS)
    parsed = parse_weights(prompt)
    if parsed.spans:
        raise ArgumentError(
            f"the prompt {quoted(prompt)} has weights, and nothing is drawn that they could "
            f"change: write {quoted(parsed.text)}"
        )
