"""One call of a pipeline within a trace: what it reads, at which step it is, what it has left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from heedmap.encodings import Branch, Encoding
from heedmap.errors import TraceError
from heedmap.schedules import Moment, Schedule, matches
from heedmap.tallies import Tally

BranchName = Literal["conditional", "negative"]
Grid = tuple[int, int]

EXTRA_PASSES = frozenset({"StableDiffusionSAGPipeline"})
"""Pipelines that run their UNet a second time before the scheduler goes on, on latents that are not
the picture's: self-attention guidance on blurred ones (Hong et al., 2023). The first counts."""

SOURCE_BESIDE = frozenset({"CycleDiffusionPipeline"})
"""Pipelines whose batch reads a source prompt before the prompt that is drawn (Wu & De la Torre,
2022): if both are the same text, the last rows are the picture's."""


@dataclass(eq=False)
class Side:
    """What one branch of a call has left so far."""

    branch: Branch
    tally: Tally
    block: int | None = None  # which block of the UNet's batch is recorded; None while none is
    heard: bool = False  # whether it was recorded since the scheduler was last called
    timesteps: dict[int, float] = field(default_factory=dict)  # of the steps it was there


@dataclass(eq=False)
class Call:
    """What one call of the pipeline has left so far.

    Attributes:
        read: what was encoded before the first pass; the pipeline's own is among it.
        encoding: the one whose states the UNet is given, from the first pass on.
        sides: the branches that are recorded.
        watch: for each image that is watched for a blend, the means of its tokens in `watched`.
        schedule: the calls of the scheduler to come, from the first pass on.
        done: how many of them were made.
        over: whether the pipeline has finished.
        latent: (h, w) of the latent.
        grids: of each layer.
        size: bytes that are kept of it.
        blocks: the blocks of the UNet's batch that read the prompt in this pass.
    """

    read: list[Encoding]
    encoding: Encoding | None = None
    sides: dict[BranchName, Side] = field(default_factory=dict)
    watch: Tally | None = None
    watched: tuple[str, ...] = ()
    schedule: Schedule | None = None
    done: int = 0
    over: bool = False
    latent: Grid = (0, 0)
    grids: Mapping[str, Grid] = field(default_factory=dict)
    size: int = 0
    blocks: Sequence[int] = ()
    _states: torch.Tensor | None = None
    _found: dict[str, list[int]] = field(default_factory=dict)

    @property
    def started(self) -> bool:
        """Whether the UNet has run."""
        return self.schedule is not None

    @property
    def images(self) -> int:
        """How many pictures it draws."""
        assert self.encoding is not None
        return len(self.encoding.conditional.tables)

    @property
    def moment(self) -> Moment:
        """The call of the scheduler that comes next."""
        assert self.schedule is not None
        return self.schedule.moment(self.done)

    def choose(self, states: torch.Tensor) -> None:
        """Find what the UNet reads among what was encoded."""
        if self.encoding is not None:
            return
        fitting = []
        for number, encoding in enumerate(self.read):
            blocks = encoding.blocks_in(states)
            if blocks:
                last = max(blocks.get("conditional", [-1]))
                fitting.append((len(encoding.conditional.tables), last, number))
        if not fitting:
            raise _foreign(states)
        # What was encoded by hand before, or by a call that failed, may be there too.
        self.encoding = self.read[max(fitting)[2]]

    def enter(self, states: torch.Tensor, timestep: float, pipe: Any) -> None:
        """A pass of the UNet begins: which rows of it are read by which branch.

        Raises:
            TraceError: if it is no pass of this call on the picture's own latents.
        """
        assert self.encoding is not None and self.schedule is not None
        if states is not self._states:
            self._found = self.encoding.blocks_in(states)
            self._states = states
        if not self._found:
            raise _foreign(states)
        if not matches(self.schedule, self.done, timestep):
            raise TraceError(
                f"the UNet ran at timestep {timestep:g}, which is not that of call {self.done + 1} "
                f"of {len(self.schedule.timesteps)} of this run's scheduler: expected the passes "
                "of this picture alone (another pipeline on the same UNet? or does "
                f"{type(pipe).__name__} draw several views, or change its schedule on the way?)"
            )
        self.blocks = self._found.get("conditional", [])
        if type(pipe).__name__ in SOURCE_BESIDE:
            self.blocks = self.blocks[-1:]
        now = self.moment.step
        for name, side in self.sides.items():
            found = self.blocks if name == "conditional" else self._found.get(name, [])
            side.block = found[0] if found else None
            if side.block is None:
                continue
            if side.heard and type(pipe).__name__ not in EXTRA_PASSES:
                raise TraceError(
                    f"{type(pipe).__name__} ran its UNet twice on this prompt before the scheduler "
                    "went on, and heedmap cannot tell which of the two draws the picture (another "
                    "pipeline on the same UNet? an optimisation of the latents?)"
                )
            if side.heard:
                side.block = None
                continue
            side.heard = True
            side.timesteps.setdefault(now, timestep)

    def leave(self) -> None:
        """The scheduler was called."""
        self.done += 1
        for side in self.sides.values():
            side.heard = False

    def end(self) -> None:
        """The pipeline has finished."""
        self.over = True
        self._states = None


def _foreign(states: torch.Tensor) -> TraceError:
    return TraceError(
        f"the UNet was given text states of shape {tuple(states.shape)} that are not those of the "
        "prompt: expected the pipeline of this trace to run with what it encoded (another pipeline "
        "on the same UNet? states changed by a callback?)"
    )
