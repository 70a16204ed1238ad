"""How a trace takes part in the run that it records."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from heedmap.backends.schedules import Moment
from heedmap.recording.edits import Edit
from heedmap.recording.probing import Probe
from heedmap.recording.steering import Steering

AfterStep = Callable[[Any, Moment, torch.Tensor], torch.Tensor]
"""Called after every call of the scheduler, with the open trace, the moment and the latents; gives
those to go on with."""


@dataclass(frozen=True)
class Intervention:
    """How a trace takes part in the run.

    Attributes:
        steering: what to change in the attention of the conditional branch.
        edits: what to change in it once a prompt is read, in the place of a steering.
        watch: for images, by number, the tokens whose places `Trace.so_far` shall tell.
        after_step: called after each call of the scheduler, with the latents (B, C, h, w); gives
            those to go on with.
        probe: what to look at; the run ends when it was seen, with `probing.Reached`.
        predicts: whether `Trace.predicted` is found for it.
    """

    steering: Steering | None = None
    edits: tuple[Edit, ...] = ()
    watch: Mapping[int, Sequence[int]] = field(default_factory=dict)
    after_step: AfterStep | None = None
    probe: Probe | None = None
    predicts: bool = False
