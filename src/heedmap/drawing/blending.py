"""Where an edit is let in: outside of where its words act, the source's latents stay."""

from collections.abc import Sequence
from functools import cache

import torch

from heedmap.drawing.edit_plans import EditBase, Plan
from heedmap.mathematics.rules import blend, blend_mask
from heedmap.mathematics.windows import steps_within
from heedmap.recording.recorder import Trace
from heedmap.wiring.schedules import Moment


class Blending:
    """LocalBlend: after each step, the source's latents where the words do not act."""

    def __init__(self, base: EditBase, plans: Sequence[Plan]) -> None:
        options = base.options
        self.plans = plans
        self.protected = [base.table.find(word) for word in options.protect]
        self.begin, self.threshold = options.blend_from, options.threshold
        self._masks: dict[int, torch.Tensor] = {}

    @property
    def watch(self) -> dict[int, tuple[int, ...]]:
        """For each image the tokens whose places decide."""
        mine = {token for tokens in self.protected for token in tokens}
        found = {}
        for number, plan in enumerate(self.plans, 1):
            mine |= {token for before, _ in plan.swaps for token in before}
            theirs = {token for _, after in plan.swaps for token in after}
            found[number] = tuple(sorted(theirs))
        return {0: tuple(sorted(mine)), **found}

    def __call__(self, recorder: Trace, moment: Moment, latents: torch.Tensor) -> torch.Tensor:
        """The latents (B, C, h, w) to go on with."""
        if moment.step not in steps_within(self.begin, 1.0, moment.steps):
            return latents
        blended = latents.clone()

        @cache  # all edits ask for the same places of the source
        def acts(image: int, tokens: tuple[int, ...]) -> torch.Tensor:
            size = (latents.shape[-2], latents.shape[-1])
            return blend_mask(recorder.so_far(image, tokens), size, self.threshold)

        for number, plan in enumerate(self.plans, 1):
            mask = torch.zeros(latents.shape[-2:], dtype=torch.bool)
            for before, after in plan.swaps:
                mask |= acts(0, before) | acts(number, after)
            for tokens in self.protected:
                mask &= ~acts(0, tokens)
            self._masks[number] = mask
            blended[number] = blend(latents[0], latents[number], mask.to(latents.device))
        return blended

    def mask(self, number: int) -> torch.Tensor | None:
        """The last mask of an image, bool (h, w) of the latent; None if it was never blended."""
        return self._masks.get(number)
