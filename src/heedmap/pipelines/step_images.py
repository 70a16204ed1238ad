"""Small images of the steps of a run, without a decoder."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import adaptive_avg_pool2d

from heedmap.backends.latents import fitted
from heedmap.figures.overlays import STEP_SIDE, StepPictures
from heedmap.recording.tracing import StepState

_AROUND = 2  # neighbouring cells on each side that determine a cell's colours
_RIDGE = 0.2


class StepRecorder:
    """Records small latents of each step, and makes images of them at the end.

    No decoder runs, since it takes as long as a step. Colours are fitted to the finished image and
    the last latents (`backends.latents.fitted`), and applied to the latents of each step.
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
        """Return the steps of each image; None if a step is missing or not finite.

        Args:
            images: the finished images, in the order of the batch.
            steps: the number of recorded steps.
        """
        is_predicted = len(self._predicted) == steps
        kept = self._predicted if is_predicted else self._noisy
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
                "prediction" if is_predicted else "latents",
            )
            for frames, final, image in zip(shown, finals, images, strict=True)
        ]


def _small(latents: torch.Tensor) -> torch.Tensor:
    """Return a copy of latents (B, C, h, w), averaged to the size of a small image."""
    h, w = latents.shape[-2:]
    part = min(1.0, STEP_SIDE / min(h, w))
    size = (round(h * part), round(w * part))
    return adaptive_avg_pool2d(latents.detach().float(), size) if part < 1 else latents.clone()


def _coloured(frames: torch.Tensor, final: torch.Tensor, image: Image.Image) -> list[Image.Image]:
    """Return images of latents (S, C, h, w), by the latents (1, C, h, w) of a known image."""
    h, w = final.shape[-2:]
    finer = max(1, STEP_SIDE // min(h, w))
    small = image.convert("RGB").resize((w * finer, h * finer), Image.Resampling.BOX)
    wanted = torch.from_numpy(np.array(small)).movedim(-1, 0)[None] / 255
    colours = fitted(final, wanted, around=_AROUND, ridge=_RIDGE)
    pixels = (colours(frames).movedim(1, -1) * 255).round().byte().numpy()
    return [Image.fromarray(each) for each in pixels]
