"""One call of a pipeline within a trace: what it reads, at which step it is, what it has left."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal

import numpy as np
import torch

from heedmap.backends.base import Family, GridShape, made_from
from heedmap.backends.prompts import Branch, Encoding
from heedmap.backends.schedules import Moment, Schedule, matches
from heedmap.errors import NothingRecordedError, TraceError, plural
from heedmap.maps.recordings import AVERAGED, Layer, Recording, cells
from heedmap.mathematics.probabilities import Scores
from heedmap.mathematics.rules import Rule, Site
from heedmap.options import Axis, BranchName, Tokens
from heedmap.recording.accumulation import Probabilities, Refiner, Tally, regrid
from heedmap.text.words import TokenTable


@dataclass(frozen=True)
class Wanted:
    """What is to be recorded.

    Attributes:
        keep: the axes that are kept.
        tokens: whose probabilities are.
        branches: of a guided run.
        limit: bytes that may be kept in all.
        concepts: what is looked for beside the prompt.
        halves: whether what both halves of the steps drew is told apart.
        prompts: the texts of `prompt_embeds`, where a pipeline is given these.
        tables: words and tokens of prompts that were read before, by prompt.
        weights_read: whether weights were already read from the prompts.
    """

    keep: frozenset[Axis]
    tokens: Tokens
    branches: frozenset[BranchName]
    limit: int
    concepts: tuple[str, ...]
    halves: bool = False
    prompts: tuple[str, ...] | None = None
    tables: Mapping[str, TokenTable] = field(default_factory=dict)
    weights_read: bool = False


SideName = BranchName | Literal["concepts"]
"""What is recorded apart: the branches of a guided call, and the concepts beside its prompt."""
Beside = Callable[[str, Scores, int], Callable[[int], Probabilities]]
"""From a layer that has run, its scores and the row of the first image, to what other keys have of
each image."""


@dataclass(eq=False)
class BranchRecord:
    """What one branch of a call has left so far, or the concepts beside it.

    Attributes:
        tables: for each image its words.
        beside: gives the probabilities of concepts; None for a branch.
        passes: by step, how many of the model's passes were recorded.
        ran: by layer and step, in how many of them the layer computed attention.
    """

    tables: tuple[TokenTable, ...]
    tally: Tally
    block: int | None = None  # which block of the model's batch is recorded; None while none is
    heard: bool = False  # whether it was recorded since the scheduler was last called
    refiner: Refiner | None = None  # None where no layer carries
    timesteps: dict[int, float] = field(default_factory=dict)  # of the steps it was there
    beside: Beside | None = None
    passes: Counter[int] = field(default_factory=Counter)
    ran: Counter[tuple[str, int]] = field(default_factory=Counter)

    def incomplete(self, layers: Collection[str]) -> dict[str, list[int]]:
        """Return, by layer, the steps at which it did not run once in each pass."""
        odd = {
            name: [step for step, passes in self.passes.items() if self.ran[name, step] != passes]
            for name in layers
        }
        return {name: steps for name, steps in odd.items() if steps}

    def check(self, layers: Collection[str], skipping: Sequence[str]) -> None:
        """Raise a TraceError unless every layer was recorded at every step that ran.

        Args:
            layers: those of the model.
            skipping: tools that are known to skip whole layers at some steps; then it is enough
                that no layer ran in a part of a step's passes alone.
        """
        odd = self.incomplete(layers)
        if skipping:
            odd = {
                name: found
                for name, steps in odd.items()
                if (found := [step for step in steps if self.ran[name, step]])
            }
        if odd:
            name, steps = next(iter(odd.items()))
            raise TraceError(
                f"{plural(len(odd), 'layer')} of {len(layers)} did not run exactly once in each "
                f"pass of the model: {name} at step {', '.join(map(str, steps))}; the maps would "
                "be wrong. A cache or a tool that skips or replaces attention is in use: switch it "
                "off"
            )


@dataclass(eq=False)
class Call:
    """What one call of the pipeline has left so far.

    Attributes:
        read: what was encoded before the first pass; the pipeline's own is among it.
        encoding: the one whose states the model is given, from the first pass on.
        sides: the branches that are recorded, and the concepts.
        watch: what the tokens of `watched` do, for a blend; None where none is watched. It hears
            for itself: what is kept of the run plays no part in what is drawn.
        watched: for each image the tokens that are.
        schedule: the calls of the scheduler to come, from the first pass on.
        done: how many of them were made.
        over: whether the pipeline has finished.
        latent: (h, w) of the latent.
        grids: of each layer.
        carriers: the self-attention layers that refine its maps, with their grids.
        size: bytes that are kept of it.
        blocks: the blocks of the model's batch that read the prompt in this pass.
        edited: for each image, of each edit of the trace, its rules.
        rows: how many rows the batch of the present pass has.
        skipping: tools that may skip layers at some steps.
        frame: of the pipeline's call; None where the denoising loop is not the pipeline's.
    """

    read: list[Encoding]
    encoding: Encoding | None = None
    sides: dict[SideName, BranchRecord] = field(default_factory=dict)
    watch: Refiner | None = None
    watched: Sequence[tuple[int, ...]] = ()
    schedule: Schedule | None = None
    done: int = 0
    over: bool = False
    latent: GridShape = (0, 0)
    grids: Mapping[str, GridShape] = field(default_factory=dict)
    carriers: Mapping[str, GridShape] = field(default_factory=dict)
    size: int = 0
    blocks: Sequence[int] = ()
    edited: Sequence[Sequence[Sequence[Rule]]] = ()
    rows: int = 0
    skipping: tuple[str, ...] = ()
    frame: FrameType | None = None

    @property
    def started(self) -> bool:
        """Whether the model has run."""
        return self.schedule is not None

    @property
    def images(self) -> int:
        """How many pictures it draws."""
        assert self.encoding is not None
        return len(self.encoding.conditional.tables)

    @property
    def steps(self) -> int:
        """How many steps it has in all."""
        assert self.schedule is not None
        return self.schedule.count

    @property
    def sites(self) -> list[Site]:
        """Its layers at each of its steps."""
        return [
            Site(name, step, self.steps, grid)
            for name, grid in self.grids.items()
            for step in range(self.steps)
        ]

    @property
    def mean_grid(self) -> GridShape:
        """(h, w) of the maps: where layers are averaged, each is brought to it by itself.

        A map is the same so whether its layers were averaged here or kept: on the latent's grid
        they would be brought to another size twice.
        """
        w, h = cells(self.latent)
        return h, w

    @property
    def moment(self) -> Moment:
        """The call of the scheduler that comes next."""
        assert self.schedule is not None
        return self.schedule.moment(self.done)

    @property
    def passes(self) -> int:
        """How many passes of the model the present step takes."""
        assert self.schedule is not None
        return self.schedule.steps.count(self.moment.step)

    def bytes(self, keep: Collection[Axis], heads: Mapping[str, int], steps: int) -> int:
        """What it will keep in so many steps, of layers with so many heads each."""
        cells = 0
        for name, count in heads.items():
            h, w = self.grids[name] if "layer" in keep else self.mean_grid
            each = h * w * (count if "head" in keep else 1)
            cells = cells + each if "layer" in keep else max(cells, each)
        columns = sum(len(p) for side in self.sides.values() for p in side.tally.positions)
        return 4 * cells * (steps if "step" in keep else 1) * columns

    def choose(self, states: torch.Tensor) -> None:
        """Find what the model reads among what was encoded."""
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

    def enter(self, states: torch.Tensor, timestep: float, pipe: Any, family: Family) -> None:
        """A pass of the model begins: which rows of it are read by which branch.

        Args:
            states: the text states that the model is given.
            timestep: that it is given.
            pipe: whose model it is.
            family: what is known of that pipeline.

        Raises:
            TraceError: if it is not a pass of this call on the picture's own latents.
        """
        assert self.encoding is not None and self.schedule is not None
        # Compared by value in every pass: a callback may change the text states in place.
        found = self.encoding.blocks_in(states)
        self.rows = len(states)
        blocks = self.rows // self.images
        if "conditional" not in found and len(found.get("negative", ())) < blocks:
            raise _foreign(states)  # none of the prompt, and some that nobody encoded
        if not matches(self.schedule, self.done, timestep):
            raise TraceError(
                f"the model ran at timestep {timestep:g}, which is not that of call "
                f"{self.done + 1} of {len(self.schedule.timesteps)} of this run's scheduler: "
                "expected the passes of this picture alone (another pipeline on the same model? or "
                f"does {type(pipe).__name__} draw several views, or change its schedule on the "
                "way?)"
            )
        self.blocks = found.get("conditional", [])
        source_first = made_from(pipe, family.source_first)
        if source_first:
            self.blocks = self.blocks[-1:]
        now = self.moment.step
        for name, side in self.sides.items():
            mine = found.get(name, []) if name == "negative" else self.blocks
            side.block = mine[-1 if source_first else 0] if mine else None
            if side.block is None:
                continue
            if side.heard and not made_from(pipe, family.repeats_passes):
                raise TraceError(
                    f"{type(pipe).__name__} ran its model twice on this prompt before the "
                    "scheduler went on, and heedmap cannot tell which of the two draws the "
                    "picture: expected one pass a step (another pipeline on the same model? an "
                    "optimisation of the latents?)"
                )
            if side.heard:
                side.block = None
                continue
            side.heard = True
            side.timesteps.setdefault(now, timestep)
            side.passes[now] += 1

    def so_far(self, image: int, tokens: Sequence[int]) -> np.ndarray:
        """Where watched tokens act (2, h, w), as `Trace.so_far` has it."""
        assert self.watch is not None
        columns = [self.watched[image].index(token) for token in tokens]
        plain = self.watch.plain(image)
        refined = self.watch.mean(image)
        both = [plain if refined is None else refined, plain]
        return np.stack([np.abs(maps[..., columns]).sum(axis=-1) for maps in both])

    def recording(
        self,
        name: SideName,
        image: int,
        heads: Mapping[str, int],
        factor: int,
        keep: frozenset[Axis],
    ) -> Recording:
        """What one side of one image has left.

        Args:
            name: of the side.
            image: the number of the image.
            heads: of each layer, by its path, in the order of the model.
            factor: pixels of the picture on the side of a cell of the latent.
            keep: the axes to keep; the tally may have kept the layers as well.

        Raises:
            NothingRecordedError: if the branch did not run.
            TraceError: if its attention holds NaN or Inf, or layers are missing.
        """
        side = self.sides[name]
        if not side.timesteps:
            raise NothingRecordedError(
                "the negative branch did not run: guidance was off throughout"
            )
        side.check(heads, self.skipping)
        ran = {layer for layer, _ in side.ran}
        names = [layer for layer in heads if layer in ran] if "layer" in side.tally.keep else [""]
        arrays = []
        steps = tuple(side.timesteps) if "step" in keep else (0,)
        for layer in names:
            means = side.tally.mean(image, layer, steps)
            if not bool(means.isfinite().all()):
                raise TraceError(
                    f"the attention of {layer or 'the model'} holds NaN or Inf, so the latents "
                    "did: no map can be made; load the model with dtype 'float32' if it overflows"
                )
            if layer and "layer" not in keep:
                flat = regrid(means.flatten(0, 1), self.grids[layer], self.mean_grid)
                means = flat.unflatten(0, means.shape[:2])
            arrays.append(means.cpu().numpy())
        if "layer" not in keep:
            arrays, names = [np.mean(arrays, axis=0) if len(arrays) > 1 else arrays[0]], [""]
        layers = tuple(Layer(n, heads[n], self.grids[n]) for n in names if n)
        h, w = self.latent
        return Recording(
            layers or (Layer(AVERAGED, max(heads.values()), self.mean_grid),),
            tuple(arrays),
            keep,
            tuple(side.timesteps.values()),
            side.tally.positions[image],
            side.tables[image],
            self.latent,
            (w * factor, h * factor),
            None if side.refiner is None else side.refiner.mean(image),
        )

    def leave(self) -> None:
        """The scheduler was called."""
        self.done += 1
        for side in self.sides.values():
            side.heard = False

    def end(self) -> None:
        """End the call: the pipeline has finished."""
        self.over = True
        self.frame = None


def sides(
    encoding: Encoding, wanted: Wanted, keep: frozenset[Axis]
) -> dict[SideName, BranchRecord]:
    """The branches that are recorded of what is read, with nothing in them yet.

    Args:
        encoding: what the model is given.
        wanted: what is recorded of it; the padding too, where all tokens are.
        keep: the axes that are kept while it runs.

    Raises:
        TraceError: if the negative branch is wanted and there is none.
    """
    every = wanted.tokens == "all"
    kinds = ("start", "text", "end", "pad") if every else ("start", "text", "end")
    there: dict[BranchName, Branch | None] = {
        "conditional": encoding.conditional,
        "negative": encoding.negative,
    }
    found: dict[SideName, BranchRecord] = {}
    for name, branch in there.items():
        if name not in wanted.branches:
            continue
        if branch is None:
            raise TraceError(
                "the negative branch was asked for, but this call has none (guidance is off, or "
                "embedded in the model): pass a guidance above 1, or leave it out"
            )
        positions = [table.positions(*kinds) for table in branch.tables]
        found[name] = BranchRecord(branch.tables, Tally(keep, positions, wanted.halves))
    return found


def _foreign(states: torch.Tensor) -> TraceError:
    return TraceError(
        f"the model was given text states of shape {tuple(states.shape)} that are not those of the "
        "prompt: expected the pipeline of this trace to run with what it encoded (another pipeline "
        "on the same model? states changed by a callback?)"
    )
