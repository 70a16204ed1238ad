"""One call of a pipeline within a trace: its text, its schedule, and the layout of each pass."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import FrameType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from heedmap.backends.base import Family, GridShape, heads_of
from heedmap.backends.prompts import Encoding, foreign_states
from heedmap.backends.schedules import (
    SAME,
    Schedule,
    SchedulerCall,
    matches,
    one_timestep,
)
from heedmap.errors import TraceError
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.recordings import Layer
from heedmap.mathematics.events import AttentionEvent, Layout, RowLayout
from heedmap.mathematics.rules import Rule, Site, Sites
from heedmap.options import AXES
from heedmap.parsing import parse_range


@dataclass(frozen=True, eq=False)
class TextInputs:
    """Text states that the model was given, and the rows that read each branch of the prompt.

    Attributes:
        states: (n·B, K, C).
        version: that of the tensor, which changes when it is written to; -1 if it has none.
        blocks: the blocks of B rows of each branch; a branch may be missing, or have several.
        is_foreign: whether some rows read neither.
        layout: where text and image stand in a pass on these.
    """

    states: Tensor
    version: int
    blocks: Mapping[str, Sequence[int]]
    is_foreign: bool
    layout: Layout


@dataclass(eq=False)
class Call:
    """One call of the pipeline, from its first pass on.

    Mappings by name are by the dotted path of a layer, grids are (h, w).

    Attributes:
        encoding: the text; None when the call is over.
        latent: (h, w) of the image's latent.
        layers: the layers that attend to the text; the constructor takes those of the model.
        branches: those that must be in each pass, beside the prompt's.
        frame: that of the pipeline's method; None where the user wrote the denoising loop.
        images: the number of images.
        guided: whether it reads a negative prompt beside the prompt.
        grids: those of these layers.
        references: those of reference images in these layers.
        edited: for each image the rules of each edit.
        blocks: the blocks of the model's batch that read each branch in this pass.
        layout: that of this pass.
        tokens: the number of text tokens of this pass.
        done: the number of calls of the scheduler.
        over: whether the pipeline has finished.
    """

    family: Family
    encoding: Encoding | None
    schedule: Schedule
    latent: GridShape
    layers: Mapping[str, Any]
    branches: Iterable[str]
    frame: FrameType | None = None
    references: Sequence[GridShape] = ()

    def __post_init__(self) -> None:
        encoding = self.encoding
        assert encoding is not None
        self.images = len(encoding.conditional.tables)
        self.guided = encoding.negative is not None
        self.layers = self.described(self.layers)
        self.grids = {name: layer.grid for name, layer in self.layers.items()}
        self.edited: Sequence[Sequence[Sequence[Rule]]] = ()
        self.done = 0
        self.over = False
        self.blocks: Mapping[str, Sequence[int]] = {}
        self.layout = Layout()
        self.tokens = 0
        self._branches = {"conditional", *self.branches}
        self._known: list[TextInputs] = []
        # Of passes whose timesteps are compared at the end: the call of the scheduler, the
        # timesteps (B), and their relative error.
        self._unread: list[tuple[int, Tensor, float]] = []
        self._check_branches(encoding)

    def _check_branches(self, encoding: Encoding) -> None:
        negative = encoding.negative
        if negative is None or not self.family.runs_negative_apart:
            return
        if torch.equal(encoding.conditional.states, negative.states):
            raise TraceError(
                "the prompt and the negative prompt have the same text states (they are the same "
                "text, or differ past the last token that is read), so that their passes cannot be "
                "told apart: change what is read of one of them, or switch guidance off with "
                f"{self.family.negative_guidance}={self.family.guidance_off:g}"
            )

    @property
    def size(self) -> tuple[int, int]:
        """The (width, height) of the image in pixels."""
        h, w = self.latent
        side = self.family.cell_side
        return w * side, h * side

    @property
    def sites(self) -> list[Site]:
        """Its layers at each of its steps."""
        steps = self.schedule.count
        return [
            Site(name, step, steps, self.grids[name])
            for name in self.grids
            for step in range(steps)
        ]

    @property
    def is_drawn(self) -> bool:
        """True after the last step."""
        return self.done == len(self.schedule.timesteps)

    @property
    def moment(self) -> SchedulerCall:
        """The next call of the scheduler."""
        return self.schedule.moment(self.done)

    def described(self, layers: Mapping[str, Any]) -> dict[str, Layer]:
        """Return the descriptions of layers of the model."""
        groups = self.family.groups([*layers])
        return {
            name: Layer(
                name,
                heads_of(layer),
                self.family.grid(name, self.latent),
                groups.get(name, ""),
            )
            for name, layer in layers.items()
        }

    def select(self, selection: tuple[Any, Any, Any]) -> Sites | None:
        """Return the sites of some layers, heads and steps; None for all.

        They are selected as by `HeatMaps.select`, and self-attention layers with those of their
        blocks. A text is a range of steps. SelectionError if the model or the run has no such site.
        """
        layers, heads, steps = selection
        if selection == (None, None, None):
            return None
        recording: Any = SimpleNamespace(
            layers=[*self.layers.values()],
            timesteps=range(self.schedule.count),
            keep=AXES,
            share_of=None,
        )
        if isinstance(steps, str):
            steps = parse_range(steps)
        if isinstance(heads, str):
            most = max(layer.heads for layer in self.layers.values())
            heads = range(most)[parse_range(heads)]
        part = HeatMaps(recording).select(layers, steps, heads)
        names = {layer.name for layer in part.layers}
        blocks = {name.rpartition(".")[0] for name in names}
        for name in self.family.image_layers():
            if name.rpartition(".")[0] in blocks:
                names.add(name)
        return Sites(frozenset(names), tuple(part.steps), tuple(part.heads))

    def begin_pass(self, states: Tensor, timestep: float, error: float = SAME) -> None:
        """Begin a pass of the model on text states (n·B, K, C): find the rows of each branch.

        The timestep has a relative `error`, by its rounding.

        Raises:
            TraceError: if it is not a pass of this call on the image's own latents.
        """
        inputs = self._inputs(states)
        if inputs.is_foreign and self._branches - inputs.blocks.keys():
            raise foreign_states(states)
        self._check_timestep(self.done, timestep, error)
        self.blocks = inputs.blocks
        self.layout = inputs.layout
        self.tokens = states.shape[1]

    def next_timestep(self, timesteps: Tensor, error: float) -> float | None:
        """Return the timestep that the schedule has next; None if it has no more.

        The timesteps (B) of the pass are compared with it at the end of the call, so that the host
        does not wait for the device.
        """
        if self.is_drawn:
            return None
        self._unread.append((self.done, timesteps.clone(), error))
        return self.schedule.timesteps[self.done]

    def check_timesteps(self) -> None:
        """Compare the timesteps that were not read during the call.

        Raises:
            TraceError: if a pass had several, or was not one of this call.
        """
        unread = self._unread
        self._unread = []
        if not unread:
            return
        values = torch.cat([timesteps for _, timesteps, _ in unread]).tolist()
        for number, timesteps, error in unread:
            count = len(timesteps)
            timestep = one_timestep(self.family.pipe, values[:count])
            self._check_timestep(number, timestep, error)
            values = values[count:]

    def _check_timestep(self, number: int, timestep: float, error: float) -> None:
        """Raise a TraceError if a pass before this call of the scheduler has another timestep."""
        if matches(self.schedule, number, timestep, error):
            return
        raise TraceError(
            f"the model ran at timestep {timestep:g}, which is not that of call "
            f"{number + 1} of {len(self.schedule.timesteps)} of this run's scheduler: "
            "expected the passes of this image alone (another pipeline on the same model? or "
            f"does {type(self.family.pipe).__name__} draw several views, or change its "
            "schedule on the way?)"
        )

    def check_images(self, states: Tensor, sample: Tensor) -> None:
        """Raise a TraceError if a loop of the user's own runs on other images beside these."""
        count = len(sample) // self.images
        if self.frame is not None or not self._inputs(states).is_foreign or count < 2:
            return
        blocks = sample[: count * self.images].unflatten(0, (count, self.images))
        if not bool((blocks == blocks[:1]).all()):
            raise TraceError(
                f"the model runs on {len(sample)} latents that differ, and the prompt that was "
                f"encoded last is for {self.images}: encode the prompts of all images in one call "
                "of encode_prompt, so that each image has maps of its own"
            )

    def is_next(self, states: Tensor, timestep: float, error: float) -> bool:
        """Return whether a pass on these text states at this timestep continues the call."""
        if not matches(self.schedule, self.done, timestep, error):
            return False
        return bool(self._inputs(states).blocks)

    def _inputs(self, states: Tensor) -> TextInputs:
        """Return the rows of each branch in text states, which are compared by value.

        A tensor that nobody has written to since it was compared is not compared again, since the
        host would wait for the device.
        """
        assert self.encoding is not None
        version = -1 if states.is_inference() else states._version
        for known in self._known:
            if known.states is states and known.version == version >= 0:
                return known
        blocks = self.encoding.blocks_in(states)
        count = len({*chain(*blocks.values())})
        if self.family.has_quirk("source_first"):
            blocks = {name: numbers[-1:] for name, numbers in blocks.items()}
        inputs = TextInputs(
            states=states,
            version=version,
            blocks=blocks,
            is_foreign=len(states) > self.images * count,
            layout=self._layout(states, blocks),
        )
        self._known = [*self._known[-3:], inputs]
        return inputs

    def _layout(self, states: Tensor, blocks: Mapping[str, Sequence[int]]) -> Layout:
        """Return the layout of a pass, with the image and the branch of each row."""
        assert self.encoding is not None
        tokens = states.shape[1]
        positions = math.prod(next(iter(self.grids.values())))
        references = list(map(math.prod, self.references))
        layout = self.family.layout(tokens, positions, references)
        branches = {block: name for name, some in blocks.items() for block in some}
        lengths = self.encoding.lengths
        named: list[RowLayout] = []
        for number, text in enumerate(states):
            name = branches.get(number // self.images, "")
            length = lengths.get(name, tokens)
            row = self.family.row_layout(text, length, positions, references)
            named.append(replace(row, image=number % self.images, branch=name))
        return replace(layout, rows=tuple(named))

    def check_shape(self, event: AttentionEvent) -> None:
        """Raise a TraceError if a layer ran for other rows or positions than were expected."""
        h, w = event.site.grid
        rows, _, queries, _ = event.query.shape
        keys = event.key.shape[2]
        positions = queries
        is_whole = rows == len(self.layout.rows)
        if event.layout.joint and event.layout.keys is None:
            is_whole = is_whole and queries == keys
            others = sum(map(math.prod, self.references)) + event.layout.padding
            positions = keys - self.tokens - others
        if not is_whole or positions != h * w:
            raise TraceError(
                f"{event.layer} ran on {positions} positions of {rows} rows: expected its grid of "
                f"{h}×{w} and {len(self.layout.rows)} rows, a text for each; remove what merges "
                "tokens, rescales the layer's input, or leaves out a part of the batch"
            )

    def end(self) -> None:
        """End the call, and release the text states."""
        self.over = True
        self.frame = None
        self.encoding = None
        self._known = []
