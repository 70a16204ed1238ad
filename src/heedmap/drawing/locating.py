"""Where a model sees the words of a prompt in a picture that it did not draw.

The picture is encoded, and at each of several timesteps the model is given it with fresh noise of
that timestep's strength (as DDPM's training does, Ho et al., arXiv 2006.11239, eq. 4), in a run
without guidance. What the words draw is recorded as in any run, and averaged over the noises.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import sqrt
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from msgspec import structs
from PIL import Image, ImageOps

from heedmap import checks
from heedmap.drawing.batch import Batch, Looked, Progress, as_noted, check_prompts, draw, drawn_seed
from heedmap.drawing.keywords import LocateKeywords, spelled_out
from heedmap.drawing.saved_options import SavedCall
from heedmap.errors import ArgumentError, Either, ModelError, RunError, quoted
from heedmap.figures.overlays import to_rgb
from heedmap.files import reading
from heedmap.files.settings import Located
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.stability import stability_of
from heedmap.options import GenerateOptions, LocateOptions
from heedmap.recording.probing import Probe
from heedmap.results.runs import Run
from heedmap.text.weights import parse_weights
from heedmap.wiring.arguments import STEP_LISTS, THEIR_NAMES
from heedmap.wiring.decoding import latents_of, rescaled
from heedmap.wiring.family import Pipeline, parameters
from heedmap.wiring.parts import device_of
from heedmap.wiring.registry import cross_attention_layers, family_of, unit, usual_size

_OURS = {"latents", "num_images_per_prompt", *STEP_LISTS}
"""Arguments of pipelines that are set by what is looked at."""
_RESAMPLING = Image.Resampling.LANCZOS
_FEW, _MANY = 0.5, 2.0
"""As many of the pixels that the model draws may a picture have that keeps its size."""


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
    cross_attention_layers(pipe)
    _check_pipeline(pipe)
    (prompt,), (seed,) = check_prompts([prompt], [drawn_seed() if seed is None else seed])
    _check_asked(prompt, rest)
    given = _opened(picture)
    noted = GenerateOptions(
        steps=checks.whole("steps", asked.steps, least=1, most=999),
        guidance=1.0 if THEIR_NAMES["guidance"] in parameters(pipe) else None,
        size=_size(pipe, given.size) if asked.size is None else asked.size,
        keep=asked.keep,
        tokens=asked.tokens,
        concepts=asked.concepts,
        limit=asked.limit,
        arguments=rest,
    )
    noted = as_noted(pipe, noted)
    assert noted.size is not None
    image = given if given.size == noted.size else given.resize(noted.size, _RESAMPLING)
    batch = Batch([prompt], [prompt], [seed], looked=Looked(image, _encoded(pipe, image)))
    (run,), seen = draw(pipe, batch, noted, progress=progress, probe=probe)
    located = Located(size=given.size, sha256=digest_of(image))
    return replace(
        run,
        maps=_held(run.maps, seen.halves("conditional")),
        concepts=None if run.concepts is None else _held(run.concepts, seen.halves("concepts")),
        settings=structs.replace(run.settings, located=located),
    )


def look_again(
    pipe: Pipeline,
    run: Run,
    asked: SavedCall,
    progress: Progress | None = None,
    probe: Probe | None = None,
) -> Run:
    """Look at a run's picture again, as its settings say.

    Raises:
        RunError: if the picture is not the one that was looked at.
    """
    located, options = run.settings.located, asked.options
    if located is None or digest_of(run.image) != located.sha256:
        raise RunError(
            "the picture of this run is not the one that was looked at: put that in its place, or "
            "locate the words in this one"
        )
    given = LocateOptions(
        steps=LocateOptions.steps if options.steps is None else options.steps,
        size=run.image.size,
        keep=options.keep,
        limit=options.limit,
        tokens=options.tokens,
        concepts=options.concepts,
        arguments=options.arguments,
    )
    told: dict[str, Any] = {"progress": progress, "probe": probe}
    made = locate(pipe, run.image, asked.prompt, seed=asked.seed, **told, **given.named())
    return replace(made, settings=structs.replace(made.settings, located=located))


def _held(maps: HeatMaps, halves: Sequence[Mapping[tuple[int, int], np.ndarray]]) -> HeatMaps:
    """The same maps, which know how far the two halves of the looks agree."""
    return replace(maps, stability=stability_of(maps.recording, halves))


def digest_of(image: Image.Image) -> str:
    """What tells the pixels of a picture from others, as `Located` notes it."""
    return hashlib.sha256(image.convert("RGB").tobytes()).hexdigest()


def _check_pipeline(pipe: Pipeline) -> None:
    """Raise a ModelError if a pipeline cannot be shown a picture in the place of its own."""
    takes, name = parameters(pipe), type(pipe).__name__
    if "latents" not in takes or "strength" in takes or THEIR_NAMES["size"] not in takes:
        raise ModelError(
            f"{name} begins with a picture of its own: expected a pipeline of the same model that "
            "draws from a text alone",
            Either(", as diffusers' AutoPipelineForText2Image.from_pipe(pipe)", ""),
        )
    if not hasattr(family_of(pipe).decoder(pipe), "encode"):
        raise ModelError(
            f"{name} has no autoencoder that encodes a picture: load the model with all its parts"
        )


def _check_asked(prompt: str, arguments: dict[str, Any]) -> None:
    for name in sorted(_OURS & arguments.keys()):
        raise ArgumentError(f"the pipeline argument {name} is set by the picture: leave it out")
    parsed = parse_weights(prompt)
    if parsed.spans:
        raise ArgumentError(
            f"the prompt {quoted(prompt)} has weights, and nothing is drawn that they could "
            f"change: write {quoted(parsed.text)}"
        )


def _opened(picture: object) -> Image.Image:
    if isinstance(picture, str | PathLike):
        picture = reading.read_photograph(reading.path_of(picture))
    if not isinstance(picture, Image.Image):
        raise ArgumentError(
            f"the picture is {quoted(picture)}: expected a Pillow image, or the path of a file"
        )
    upright = picture
    with suppress(Exception):  # of a broken note nobody knows which way it turns
        upright = ImageOps.exif_transpose(picture)
    return to_rgb(upright)


def _size(pipe: Pipeline, own: tuple[int, int]) -> tuple[int, int]:
    """The (width, height) at which a picture is shown, where nobody says one."""
    factor, (width, height) = unit(pipe), usual_size(pipe)
    part = width * height / (own[0] * own[1])
    if not any(side % factor for side in own) and _FEW <= 1 / part <= _MANY:
        return own
    w, h = (max(1, round(side * sqrt(part) / factor)) * factor for side in own)
    return w, h


@torch.no_grad()
def _encoded(pipe: Pipeline, image: Image.Image) -> torch.Tensor:
    """The latents (1, C, h, w) of a picture, as a pipeline has them; float32."""
    vae = family_of(pipe).decoder(pipe)
    pixels = torch.from_numpy(np.array(image)).movedim(-1, 0)[None] / 255
    return rescaled(vae, latents_of(vae, pixels, device_of(pipe)))
