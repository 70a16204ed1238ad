"""A picture that a user has as the source of edits.

At each step the source is the picture itself with fresh noise of that step's strength, and the
edits are carried as their difference from it: by as much as a step of the scheduler misses the
source's next latents, it is taken to miss those of the edits. So no noise is looked for that the
picture might have come from, and where an edit draws as its source does, it is the picture.

After FlowEdit (Kulikov et al., 2024, arXiv 2412.08629) and InfEdit (Xu et al., 2023, arXiv
2312.04965); for any scheduler that says its noise, and with the attention of prompt-to-prompt.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import torch
from msgspec import structs
from PIL import Image

from heedmap.backends import arguments as called
from heedmap.backends.base import Pipeline, default_of, parameters
from heedmap.backends.latents import NoiseLevels, noise_levels
from heedmap.backends.loading import check_size
from heedmap.backends.registry import family_of
from heedmap.backends.schedules import Moment
from heedmap.errors import ArgumentError, ModelError
from heedmap.io.writing import digest_of
from heedmap.options import EditOptions, GenerateOptions
from heedmap.pipelines.arguments import apply_model_defaults
from heedmap.pipelines.given_pictures import (
    SeenPicture,
    at_size,
    check_pipeline,
    refuse_set,
    seen,
    upright_rgb,
    usual_for,
)
from heedmap.results.runs import Run

_SET = ("latents", "denoising_end", *called.STEP_LISTS)
"""Arguments of pipelines that a picture in the place of noise decides."""


@dataclass(frozen=True, eq=False)
class PictureSource:
    """A picture, and the noise that it is given at each step.

    Attributes:
        seen: the picture as the model sees it.
        levels: how strong the noise is where each step begins.
        noises: of variance 1, one a step, each (1, C, h, w).
    """

    seen: SeenPicture
    levels: NoiseLevels
    noises: tuple[torch.Tensor, ...]

    @classmethod
    def of(
        cls, pipe: Pipeline, picture: Image.Image, seed: int, options: GenerateOptions
    ) -> "PictureSource":
        """An opened picture, to be edited as options say, which have its size."""
        assert options.size is not None
        steps = apply_model_defaults(pipe, options).steps or default_of(
            pipe, called.THEIR_NAMES["steps"]
        )
        shown, chance = seen(pipe, picture, options.size), called.noise(seed)
        shape, where = shown.latents.shape, shown.latents.device
        levels = noise_levels(pipe, steps)
        # One for each step that is taken: some schedulers take more than are asked of them.
        noises = tuple(torch.randn(shape, generator=chance).to(where) for _ in levels.mixed[:-1])
        return cls(shown, levels, noises)

    def start(self, count: int) -> torch.Tensor:
        """What the pipeline is to be given for a source and its edits, so many: (B, C, h, w)."""
        return (self._at(0) / self.levels.scale).repeat(count, 1, 1, 1)

    def carried(self, moment: Moment, latents: torch.Tensor) -> torch.Tensor:
        """The latents (B, C, h, w) to go on with after a call of the scheduler."""
        if not moment.last:
            return latents
        there, made = self._at(moment.step + 1), latents.float()
        return (there + (made - made[:1])).to(latents)  # a row that is the source's is `there`

    def noted(self, run: Run) -> Run:
        """A run of the batch, which tells of the picture."""
        about = structs.replace(run.settings, given=self.seen.noted)
        return replace(run, settings=about, given=self.seen.image)

    def _at(self, step: int) -> torch.Tensor:
        """The source's latents (1, C, h, w) where a step begins; after the last, the picture's."""
        noise = self.noises[min(step, len(self.noises) - 1)]
        return self.levels.at(step, self.seen.latents, noise)


def extract_image(
    pipe: Pipeline, options: EditOptions, sampling: GenerateOptions
) -> tuple[EditOptions, GenerateOptions]:
    """Open the image to edit; the image of a pipeline that takes one becomes its argument.

    Raises:
        ArgumentError: if it is no image, cannot be read, or an argument does not go with it.
        ModelError: if the pipeline cannot start from an image's latents.
    """
    if options.image is None:
        return options, sampling
    if "image" in parameters(pipe):
        image = options.image
        image = upright_rgb(image) if isinstance(image, str | PathLike) else image
        arguments = {**sampling.arguments, "image": image}
        return replace(options, image=None), replace(sampling, arguments=arguments)
    check_pipeline(pipe)
    if family_of(pipe).why_unblended(pipe) is not None:
        raise ModelError(
            f"{type(pipe).__name__} does not draw from the latents of its steps alone, so that "
            "your picture would not come back: expected another pipeline of such a model, "
            "as StableDiffusionPipeline with an LCMScheduler"
        )
    refuse_set(sampling.arguments, _SET)
    return replace(options, image=upright_rgb(options.image)), sampling


def sized(pipe: Pipeline, options: EditOptions, sampling: GenerateOptions) -> GenerateOptions:
    """Choose the size at which an image is edited."""
    if options.image is None or sampling.size is not None:
        return sampling
    return replace(sampling, size=check_size(pipe, usual_for(pipe, options.image.size)))


def picture_of(run: Run, given: Mapping[str, Any]) -> tuple[Image.Image | None, dict[str, Any]]:
    """The picture that a saved run was edited from, and what else was given to draw it again.

    Raises:
        ArgumentError: if it is not there, or another picture was given in its place.
    """
    noted, rest = run.settings.given, dict(given)
    if noted is None:
        return None, rest
    picture = rest.pop("image", run.given)
    if picture is None:
        raise ArgumentError(
            "the picture that was edited, given.png, is not with this run any more: put it there "
            "again, or pass it, as in hm.repeat(pipe, run, image=…)"
        )
    picture = upright_rgb(picture)
    picture = at_size(picture, run.settings.size)
    if digest_of(picture) != noted.sha256:
        raise ArgumentError(
            "the image that was passed is not the one that this run is an edit of: expected the "
            "very same"
        )
    return picture, rest
