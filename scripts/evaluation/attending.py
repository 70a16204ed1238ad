"""Attend-and-Excite and BoxDiff as they were published, beside heedmap's guides.

Both change the latents z before a step by z - α_t · ∇L, without regard to the length of the
gradient, with α_t = 20 · √s_t, where s_t falls from 1 to 0.5 over the run, in its first half. At
the beginning, after a fifth and after two fifths of the run they go on, up to 20 times, until the
loss is small. L is of maps A of the tokens in the layers of a quarter of the latents' grid (here of
half of it, the coarsest; in the transformer of all layers): softmax(100 · A) over the tokens
without the start, blurred.

- Attend-and-Excite (Chefer et al., 2023, arXiv 2301.13826): L = max over the nouns of 1 - max A.
- BoxDiff (Xie et al., 2023, arXiv 2307.10816): the sum over the nouns of 1 less the mean of the
  largest fifth inside of the box, the mean of the largest fifth outside, and the differences of the
  box's and the map's projections onto both axes at the corners.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from kornia.filters import gaussian_blur2d
from torch import Tensor
from torch.nn.functional import interpolate

from evaluation.guided import Case, Draw, boxes_of
from evaluation.obedience import GUIDANCE
from heedmap.backends.loading import default_arguments, name_of
from heedmap.io.guides import Guide
from heedmap.options import GenerateOptions
from heedmap.recording.guidance import GuideMaps, LatentGuide
from heedmap.recording.recorder import RecordingSpec
from heedmap.recording.tracing import Trace
from heedmap.tiny import defaults

SCALE, MOST = 20.0, 20
THRESHOLDS = {0.0: 0.05, 0.2: 0.5, 0.4: 0.8}
"""By the part of the run the value of max A that is to be reached."""


class Published(LatentGuide):
    """The change of the latents that both papers have."""

    def _find_shift(self, model: Any, inputs: Any) -> Tensor | None:
        call = self.call
        step, steps = call.moment.step, call.schedule.count
        if step >= steps / 2:
            return None
        length = SCALE * (1 - 0.5 * step / max(steps - 1, 1)) ** 0.5
        latents = moved = self._latents.float()
        goals = {round(part * steps): value for part, value in THRESHOLDS.items()}
        for _ in range(MOST if step in goals else 1):
            moved, losses = self._run(model, inputs, moved)
            if step in goals and float(losses.detach().max()) <= 1 - goals[step]:
                break
            moved = moved - length * self._gradient(losses.sum(), moved)
        return (moved - latents).detach()


def maps_of(maps: GuideMaps, nouns: Sequence[str]) -> Tensor:
    """A of the last token of each noun, (N, h, w)."""
    grids = {name: event.site.grid for name, event in maps.events.items()}
    names = [name for name, grid in grids.items() if grid == min(grids.values())]
    tokens = maps.tokens.positions("text", "end", "pad")
    shares = (100 * maps.select(names).of_tokens(tokens)).softmax(dim=0)
    chosen = shares[[tokens.index(maps.tokens.find(noun)[-1]) for noun in nouns]]
    return gaussian_blur2d(chosen[:, None], 3, (0.5, 0.5))[:, 0]


def attend_and_excite(case: Case) -> Callable[[GuideMaps, int], Tensor]:
    """The loss of Attend-and-Excite."""
    return lambda maps, step: (1 - maps_of(maps, case.nouns).amax(dim=(1, 2))).max()


def box_diff(case: Case) -> Callable[[GuideMaps, int], Tensor]:
    """The loss of BoxDiff."""
    boxes = boxes_of(case)

    def loss(maps: GuideMaps, step: int) -> Tensor:
        total = torch.zeros(())
        for one, box in zip(maps_of(maps, case.nouns), boxes, strict=True):
            region = torch.from_numpy(box.astype(np.float32))[None, None]
            mask = interpolate(region, size=one.shape, mode="area")[0, 0].round()
            total = total + 1 - largest(one * mask, mask) + largest(one * (1 - mask), 1 - mask)
            for axis in (0, 1):
                side, wanted = one.amax(dim=axis), mask.amax(dim=axis)
                edges = wanted.diff().nonzero().flatten()
                corners = torch.cat([edges, edges + 1])
                if len(corners):
                    total = total + (side - wanted)[corners].abs().mean()
        return total

    return loss


def largest(values: Tensor, mask: Tensor) -> Tensor:
    """The mean of the largest values, a fifth of the size of a mask."""
    return values.flatten().topk(max(1, int(0.2 * mask.sum()))).values.mean()


def drawer(loss_of: Callable[[Case], Callable[[GuideMaps, int], Tensor]], steps: int) -> Draw:
    """A way to draw cases by one of the losses."""

    def draw(pipe: Any, case: Case) -> tuple[np.ndarray, int]:
        engine = Published([loss_of(case)], Guide())
        spec = RecordingSpec(GenerateOptions(branches=()), weights_read=True)
        guidance = getattr(defaults(name_of(pipe)), "guidance", GUIDANCE)
        with Trace(pipe, spec, guide=engine):
            images = pipe(
                case.plan.caption.text,
                num_inference_steps=steps,
                guidance_scale=guidance,
                generator=torch.Generator().manual_seed(case.plan.seed),
                **default_arguments(pipe),
            ).images
        return np.asarray(images[0].convert("RGB")), engine.passes

    return draw


def others(steps: int) -> dict[str, dict[str, Draw]]:
    """The published ways of each kind of caption."""
    excite = {"Attend-and-Excite": drawer(attend_and_excite, steps)}
    box = {"BoxDiff": drawer(box_diff, steps)}
    return {
        "two": excite,
        "three": excite,
        "alike": excite,
        "colours": excite,
        "relation": box,
        "box": box,
    }
