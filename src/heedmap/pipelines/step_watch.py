"""The picture at each step, kept small while a batch is drawn.

Axes: S step · B image · C channel · h, w rows and columns of the latent.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import adaptive_avg_pool2d

from heedmap.backends.colours import fitted
from heedmap.backends.schedules import Moment
from heedmap.figures.step_pictures import STEP_SIDE, StepPictures
from heedmap.recording.recorder import Trace

_AROUND = 2  # cells on each side that have a part in a cell's colours
_RIDGE = 0.2


class StepWatch:
    """Keeps the latents of each step, as many cells as a small picture has.

    No decoder runs: it would cost as much as a step. When the picture is there, colours are fitted
    to it and to the last latents (`wiring.colours`), and each step's are made with these.
    """

    def __init__(self) -> None:
        self._predicted: dict[int, torch.Tensor] = {}
        self._noisy: dict[int, torch.Tensor] = {}

    def see(self, trace: Trace, moment: Moment, latents: torch.Tensor) -> None:
        """Keep what there is after a call of the scheduler; changes nothing.

        Args:
            trace: with what the model foretold.
            moment: of the call; of a step with several calls the first prediction counts.
            latents: (B, C, h, w) to go on with.
        """
        if trace.predicted is not None:
            self._predicted.setdefault(moment.step, _small(trace.predicted))
        if moment.last:
            self._noisy[moment.step] = _small(latents)

    def pictures(self, images: Sequence[Any], steps: int) -> list[StepPictures | None]:
        """The steps of each picture (Pillow); None where a step was not seen, or has no colours.

        Args:
            images: the finished pictures, in the order of the batch.
            steps: how many steps were recorded.
        """
        foretold = len(self._predicted) == steps
        kept = self._predicted if foretold else self._noisy
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
                "prediction" if foretold else "latents",
            )
            for frames, final, image in zip(shown, finals, images, strict=True)
        ]


def _small(latents: torch.Tensor) -> torch.Tensor:
    """Latents (B, C, h, w) averaged to no more cells than a small picture has pixels; a copy."""
    h, w = latents.shape[-2:]
    part = min(1.0, STEP_SIDE / min(h, w))
    size = (round(h * part), round(w * part))
    return adaptive_avg_pool2d(latents.detach().float(), size) if part < 1 else latents.clone()


def _coloured(frames: torch.Tensor, final: torch.Tensor, image: Image.Image) -> list[Image.Image]:
    """Latents (S, C, h, w) as pictures, by those (1, C, h, w) of which a picture was made."""
    h, w = final.shape[-2:]
    finer = max(1, STEP_SIDE // min(h, w))
    small = image.convert("RGB").resize((w * finer, h * finer), Image.Resampling.BOX)
    wanted = torch.from_numpy(np.array(small)).movedim(-1, 0)[None] / 255
    colours = fitted(final, wanted, around=_AROUND, ridge=_RIDGE)
    pixels = (colours(frames).movedim(1, -1) * 255).round().byte().numpy()
    return [Image.fromarray(each) for each in pixels]
