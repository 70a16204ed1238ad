"""A picture that a user has as the source of edits: taken back to noise, and set back to.

Direct inversion (Ju et al., 2023, arXiv 2310.01506): the first row of the batch is the source, and
after each step its latents are those that the inversion had there, so that what it shows is the
picture itself, whatever the guidance.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from msgspec import structs
from PIL import Image

from heedmap.drawing.batch import Progress, with_own
from heedmap.drawing.given_pictures import (
    SeenPicture,
    at_size,
    check_pipeline,
    refuse_set,
    seen,
    upright_rgb,
    usual_for,
)
from heedmap.errors import ArgumentError, Either, ModelError
from heedmap.files.pictures import digest_of
from heedmap.models.pipelines import check_size
from heedmap.options import DrawOptions, EditOptions
from heedmap.results.runs import Run
from heedmap.wiring import arguments as called
from heedmap.wiring.family import Pipeline, parameters
from heedmap.wiring.inversion import NoiseWay, inverting
from heedmap.wiring.registry import family_of
from heedmap.wiring.schedules import Moment

_SET = ("latents", "denoising_end", *called.STEP_LISTS)
"""Arguments of pipelines that the way of a picture to noise decides."""


@dataclass(frozen=True, eq=False)
class Inverted:
    """A picture with its way to noise.

    Attributes:
        given: the picture.
        way: its latents, step by step.
    """

    given: SeenPicture
    way: NoiseWay

    def start(self, count: int) -> torch.Tensor:
        """The first latents (B, C, h, w) of a source and its edits, so many in all."""
        return self.way.first.repeat(count, 1, 1, 1)

    def set_back(self, moment: Moment, latents: torch.Tensor) -> torch.Tensor:
        """The latents (B, C, h, w) to go on with after a call of the scheduler."""
        if not moment.last:
            return latents
        latents = latents.clone()
        latents[0] = self.way.after(moment.step + 1)[0].to(latents)
        return latents

    def noted(self, run: Run) -> Run:
        """A run of the batch, which tells of the picture."""
        about = structs.replace(run.settings, inverted=self.given.noted)
        return replace(run, settings=about, given=self.given.image)


def taken_apart(
    pipe: Pipeline, how: EditOptions, arguments: dict[str, Any]
) -> tuple[EditOptions, dict[str, Any]]:
    """Options with the opened picture that is edited; a pipeline's own image is its argument.

    Raises:
        ArgumentError: if it is no picture, or an argument does not go with it.
        ModelError: if the pipeline cannot be shown one.
        RunError: if its file cannot be read.
    """
    if how.image is None:
        return how, arguments
    if "image" in parameters(pipe):
        return replace(how, image=None), {**arguments, "image": how.image}
    check_pipeline(pipe)
    if family_of(pipe).why_unblended(pipe) is not None:
        raise ModelError(
            f"{type(pipe).__name__} does not draw from the latents of its steps alone, so that "
            "your picture would not come back: expected another pipeline of such a model, "
            "as StableDiffusionPipeline with an LCMScheduler"
        )
    refuse_set(arguments, _SET)
    return replace(how, image=upright_rgb(how.image)), arguments


def sized(pipe: Pipeline, how: EditOptions, options: DrawOptions) -> DrawOptions:
    """Options with the size at which a picture is edited."""
    if how.image is None or options.size is not None:
        return options
    return replace(options, size=check_size(pipe, usual_for(pipe, how.image.size)))


@torch.no_grad()
def invert(
    pipe: Any,
    picture: Any,
    prompt: str,
    seed: int,
    options: DrawOptions,
    progress: Progress | None = None,
) -> Inverted:
    """Take a picture back to noise, by what a prompt says of it.

    Args:
        pipe: a pipeline.
        picture: opened.
        prompt: what the picture shows, without weights.
        seed: of the pipeline's own noise, where its scheduler makes some.
        options: how the edits of it are drawn, with their size.
        progress: called after every step.
    """
    assert options.size is not None
    given = seen(pipe, picture, options.size)
    arguments = {n: v for n, v in options.arguments.items() if n not in called.CALLBACKS}
    plain = replace(options, arguments=arguments, guidance=None, negative=None)
    call = called.for_batch(pipe, [prompt], [seed], with_own(pipe, plain))
    call |= called.unguided(pipe)
    with called.without_bar(pipe), inverting(pipe, given.latents, progress) as way:
        pipe(**call, latents=given.latents.to(pipe.dtype), output_type="latent")
    return Inverted(given, way)


def picture_of(run: Run, given: Mapping[str, Any]) -> tuple[Image.Image | None, dict[str, Any]]:
    """The picture that a saved run was edited from, and what else was given to draw it again.

    Raises:
        ArgumentError: if it is not there, or another picture was given in its place.
    """
    noted, rest = run.settings.inverted, dict(given)
    if noted is None:
        return None, rest
    picture = rest.pop("image", run.given)
    if picture is None:
        raise ArgumentError(
            "the picture that was edited, given.png, is not with this run any more: put it there "
            "again",
            Either(", or pass it, as in hm.repeat(pipe, run, image=…)", ""),
        )
    picture = upright_rgb(picture)
    picture = at_size(picture, run.settings.size)
    if digest_of(picture) != noted.sha256:
        raise ArgumentError(
            "the image that was passed is not the one that this run is an edit of: expected the "
            "very same"
        )
    return picture, rest
