"""The budget of attention: an observer of the mean share of each key, and of the entropy."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from heedmap.maps.budgets import Budget
from heedmap.mathematics.events import AttentionEvent
from heedmap.options import Axis
from heedmap.recording.accumulation import AttentionAccumulator
from heedmap.recording.calls import Call
from heedmap.recording.recorder import Recorder, copied
from heedmap.text.words import TokenTable

_GROUPS = {
    "text": "words",
    "start": "start",
    "end": "end",
    "pad": "padding",
    "image": "references",
}
"""The group of each kind of token."""


class BudgetRecorder:
    """An observer of one call that averages the share of attention of each key.

    What it keeps is small beside the maps, which have all positions for each token.

    Args:
        recorder: that of the call, which knows the passes to record.
        keep: the axes to keep.
    """

    def __init__(self, recorder: Recorder, keep: frozenset[Axis]) -> None:
        self._recorder = recorder
        self._means = AttentionAccumulator(keep, (1, 1))

    @torch.no_grad()
    def __call__(self, event: AttentionEvent) -> None:
        """Add the attention of a layer that attends to the text, in the rows of the prompt."""
        if not self._recorder.is_recording:
            return
        call = self._recorder.call
        site = replace(event.site, grid=(1, 1))
        passes = call.schedule.steps.count(site.step)
        for image in range(call.images):
            number = event.layout.rows_of(image, "conditional")[0]
            shares = event.row(number, values=False).key_shares()
            if "head" not in self._means.keep:
                shares = shares.mean(dim=0, keepdim=True)
            self._means.add(image, [[site]], shares[None, :, None], passes)

    def budgets(self) -> Iterator[Budget]:
        """Yield the budget of each image."""
        recorder = self._recorder
        for image in range(recorder.call.images):
            recording = recorder.recording("conditional", image)
            steps = [0]
            if "step" in recording.keep:
                steps = [*recorder.records["conditional"].timesteps]
            names = [layer.name for layer in recording.layers]
            if "layer" not in recording.keep:
                names = [""]
            means = [self._means.mean(image, name, steps) for name in names]
            keys = _keys(recording.table, recorder.call)
            table = TokenTable.of_texts([*keys, "entropy"])
            yield Budget(
                replace(
                    recording,
                    layers=tuple(replace(one, grid=(1, 1)) for one in recording.layers),
                    arrays=tuple(copied(means)),
                    positions=table.positions(),
                    table=replace(table, prompt=recording.table.prompt),
                    refined=None,
                    share_of=None,
                )
            )


def _keys(table: TokenTable, call: Call) -> list[str]:
    """Return the group and the text of each key: of a token, or row and column of a position."""
    groups = dict(_GROUPS)
    for kind in ("start", "end"):
        if len(table.positions(kind)) > len(table.encoder_positions):
            groups[kind] = "template"
    keys = [f"{groups[token.kind]} {token.text}" for token in table.tokens]
    if call.family.is_joint:
        parts = {
            "image": next(iter(call.grids.values())),
            "padding of the image": (1, call.layout.padding),
        }
        for number, grid in enumerate(call.references):
            parts[f"references {number}"] = grid
        for name, grid in parts.items():
            keys += [f"{name} {place}" for place in np.ndindex(grid)]
    return keys
