"""Where an edit is let in: outside of where its words act, the source's latents stay."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch

from heedmap.maps.masks import phrase_tokens, suppress_rivals
from heedmap.mathematics.rules import blend, blend_mask, steps_within
from heedmap.pipelines.edit_plans import EditBase, Plan
from heedmap.recording.tracing import StepState
from heedmap.text.words import TokenTable


class Blending:
    """LocalBlend: after each step, the source's latents where the words do not act."""

    def __init__(self, base: EditBase, plans: Sequence[Plan]) -> None:
        options = base.options
        self.plans = plans
        self.protected = [base.table.find(word) for word in options.protect]
        self._tables = [base.table, *(plan.table for plan in plans)]
        self.begin, self.threshold = options.blend_from, options.threshold
        self._masks: dict[int, torch.Tensor] = {}

    @property
    def watch(self) -> dict[int, tuple[int, ...]]:
        """For each image the tokens whose places decide: those asked for, and their rivals."""
        asked = {0: list(self.protected), **{n: [] for n in range(1, len(self._tables))}}
        for number, plan in enumerate(self.plans, 1):
            for before, after in plan.swaps:
                asked[0].append(before)
                asked[number].append(after)
        return {
            image: tuple(sorted({t for part in (*parts, *phrase_tokens(table)) for t in part}))
            for (image, parts), table in zip(asked.items(), self._tables, strict=True)
        }

    def __call__(self, state: StepState) -> torch.Tensor:
        """The latents (B, C, h, w) to go on with."""
        moment, latents = state.moment, state.latents
        if moment.step not in steps_within(self.begin, 1.0, moment.steps):
            return latents
        blended = latents.clone()

        @cache  # all edits ask for the same places of the source
        def acts(image: int, tokens: tuple[int, ...]) -> torch.Tensor:
            size = (latents.shape[-2], latents.shape[-1])
            parts = tokens, *rivals(self._tables[image], tokens)
            both = [state.strength(image, part) for part in parts]
            stands_out = suppress_rivals(*np.stack(both, axis=1))[0]
            return blend_mask(torch.from_numpy(stands_out), size, self.threshold)

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


def rivals(table: TokenTable, tokens: Sequence[int]) -> list[tuple[int, ...]]:
    """The phrases whose places are not those of these tokens, each as its tokens' positions.

    What stands in no phrase names neither a thing nor a property, and has none.
    """
    phrases = phrase_tokens(table)
    others = [part for part in phrases if {*part}.isdisjoint(tokens)]
    return others if len(others) < len(phrases) else []
