"""Record the text cross-attention of a pipeline: install, keep what was asked for, restore.

A trace puts a processor of its own in front of the processor of every text cross-attention layer
(`processors`) and listens to what the pipeline encodes (`encodings`). From the queries and keys
that the picture is made with it computes the probabilities of the wanted tokens beside it, and
keeps their means over the axes that were not asked for.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

import torch
from diffusers import DiffusionPipeline
from torch.nn.functional import interpolate

from heedmap import attention, encodings
from heedmap.attention import Scores
from heedmap.encodings import Branch, Encoding
from heedmap.errors import ArgumentError, NothingRecordedError, TraceError
from heedmap.layers import (
    cross_attention_layers,
    install,
    run_uncompiled,
    self_attention_layers,
)
from heedmap.maps import HeatMaps
from heedmap.processors import RecordingProcessor, uncompiled
from heedmap.recordings import AXES, Axis, Layer, Recording
from heedmap.steering import Now, Steerer, Steering
from heedmap.tallies import Tally, plain

Tokens = Literal["prompt", "all"]
BranchName = Literal["conditional", "negative"]
LIMIT = 2 * 2**30
"""Bytes that a trace may keep, unless told otherwise."""
WARN = 256 * 2**20
"""Bytes from which on a trace says beforehand how much it will keep."""


def trace(
    pipe: DiffusionPipeline,
    keep: Iterable[Axis] = ("layer",),
    *,
    tokens: Tokens = "prompt",
    branches: Iterable[BranchName] = ("conditional",),
    prompts: str | Sequence[str] | None = None,
    limit: int = LIMIT,
    steering: Steering | None = None,
) -> "Trace":
    """Record the text cross-attention of a pipeline while the `with` block is open.

        with heedmap.trace(pipe, keep={"layer", "step"}) as trace:
            images = pipe(["a cat", "a dog"]).images
        trace.maps[0]["cat"]

    The pictures are bit-identical to those of the bare pipeline, and the pipeline is as it was
    afterwards, whatever happened inside.

    Args:
        pipe: a Stable Diffusion pipeline.
        keep: the axes to keep, of "layer", "step", "head"; the others are averaged while it runs
            (steps: over the calls of the UNet).
        tokens: "prompt" for the prompt's own tokens with start and end, "all" for the padding too.
        branches: what to record of a guided run: "conditional", "negative", or both.
        prompts: the texts that `prompt_embeds` were made of, where the pipeline is given these; the
            words are else the positions of the tokens.
        limit: how many bytes may be kept; a run that would keep more is refused before its first
            step.
        steering: what to change in the attention of the conditional branch; the pictures of the
            images that it names are then others. Their maps are of what was changed.

    Raises:
        ArgumentError: if an axis, a branch or the choice of tokens is not known.
        ModelError: if the model has no text cross-attention.
    """
    wanted = frozenset(keep)
    if not wanted <= set(AXES):
        raise ArgumentError(
            f"keep={sorted(wanted)} is not known: expected any of 'layer', 'step', 'head'"
        )
    if tokens not in ("prompt", "all"):
        raise ArgumentError(f"tokens={tokens!r} is not known: expected 'prompt' or 'all'")
    sides = frozenset(branches)
    if not sides or not sides <= {"conditional", "negative"}:
        raise ArgumentError(
            f"branches={sorted(sides)} is not known: expected 'conditional', 'negative' or both"
        )
    texts = (prompts,) if isinstance(prompts, str) else None if prompts is None else tuple(prompts)
    return Trace(pipe, wanted, tokens, sides, texts, limit, steering)


@dataclass(eq=False)
class _Side:
    """What one branch of a call has left so far."""

    branch: Branch
    tally: Tally
    block: int | None = None  # which block of the UNet's batch it is; None while it is not there
    timesteps: dict[int, float] = field(default_factory=dict)  # of the steps it was there


@dataclass(eq=False)
class _Call:
    """What one call of the pipeline has left so far."""

    encoding: Encoding
    sides: dict[BranchName, _Side]
    schedule: list[float] = field(default_factory=list)  # the timestep of each pass to come
    steps: list[int] = field(default_factory=list)  # the step that each of these belongs to
    at: int = -1  # where in the schedule the run is
    over: bool = False
    states: torch.Tensor | None = None  # the text states of the last pass
    latent: tuple[int, int] = (0, 0)
    grids: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def images(self) -> int:
        return len(self.encoding.conditional.tables)

    @property
    def step(self) -> int:
        return self.steps[self.at]


class Trace:
    """An open recording; made by `trace`. `maps` has one entry an image, in the order of images."""

    def __init__(
        self, pipe: Any, keep: frozenset[Axis], tokens: Tokens, branches: frozenset[BranchName],
        prompts: tuple[str, ...] | None, limit: int, steering: Steering | None,
    ) -> None:  # fmt: skip
        self._pipe = pipe
        self._keep = keep
        self._tokens: Tokens = tokens
        self._branches = branches
        self._prompts = prompts
        self._limit = limit
        self._layers = cross_attention_layers(pipe)
        self._own = self_attention_layers(pipe) if steering and steering.sources else {}
        self.steerer = Steerer(steering, self._now) if steering else None
        """What was changed, and how much; None without steering."""
        self._calls: list[_Call] = []
        self._installed: dict[str, RecordingProcessor] = {}
        self._undo: list[Callable[[], None]] = []
        self._open = False

    # --- what was recorded ---

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """One recording an image, in the order of the images, over all calls so far."""
        return self._recordings("conditional")

    @property
    def negative_recordings(self) -> tuple[Recording, ...]:
        """The same of the negative branch, where it was asked for."""
        return self._recordings("negative")

    @property
    def maps(self) -> tuple[HeatMaps, ...]:
        """The heat maps of each image, in the order of the images, over all calls so far."""
        return tuple(HeatMaps(recording) for recording in self.recordings)

    @property
    def negative_maps(self) -> tuple[HeatMaps, ...]:
        """The same of the words of the negative prompt, where that branch was asked for."""
        return tuple(HeatMaps(recording) for recording in self.negative_recordings)

    @property
    def steps(self) -> int:
        """How many steps the running call has in all."""
        return max(self._calls[-1].steps) + 1

    def so_far(self, image: int, tokens: Sequence[int]) -> torch.Tensor:
        """Where tokens act, as far as the open run has come: (h, w), for the blend of latents.

        The mean over steps, heads and the layers of middle resolution (16 to 32 cells on the short
        side; where there are none, the finest), of the summed probabilities of the tokens.
        """
        call = self._calls[-1]
        tally = call.sides["conditional"].tally
        columns = [tally.positions[image].index(token) for token in tokens]
        grids = call.grids if "layer" in self._keep else {"": call.latent}
        finest = max(min(grid) for grid in grids.values())
        middle = [n for n, grid in grids.items() if 16 <= min(grid) <= 32] or [
            n for n, grid in grids.items() if min(grid) == finest
        ]
        largest = max(grids[name] for name in middle)
        total = torch.zeros(largest)
        for name in middle:
            mean = tally.so_far(image, name)[..., columns].sum(dim=-1).mean(dim=(0, 1)).cpu()
            total += interpolate(mean.reshape(1, 1, *grids[name]), size=largest, mode="bilinear")[
                0, 0
            ]
        return total / len(middle)

    def _recordings(self, name: BranchName) -> tuple[Recording, ...]:
        done = [call for call in self._calls if call.at >= 0]
        if not done:
            raise NothingRecordedError(
                "nothing was recorded: call the pipeline inside of the `with` block of the trace"
            )
        if name not in self._branches:
            raise NothingRecordedError(
                f"the {name} branch was not recorded: pass branches including '{name}' to the trace"
            )
        return tuple(
            self._recording(call, call.sides[name], image)
            for call in done
            for image in range(call.images)
        )

    def _recording(self, call: _Call, side: _Side, image: int) -> Recording:
        if not side.timesteps:
            raise NothingRecordedError(
                "the negative branch did not run: guidance was off throughout"
            )
        names = list(call.grids) if "layer" in self._keep else [""]
        arrays = []
        steps = tuple(side.timesteps) if "step" in self._keep else (0,)
        for name in names:
            means = side.tally.mean(image, name, steps)
            if not bool(means.isfinite().all()):
                raise TraceError(
                    f"the attention of {name or 'the UNet'} holds NaN or Inf, so the latents did: "
                    "no map can be made; load the model with dtype 'float32' if it overflows"
                )
            arrays.append(means.cpu().numpy())
        layers = tuple(
            Layer(name, self._layers[name].heads, call.grids[name]) for name in names if name
        )
        if not layers:
            heads = max(layer.heads for layer in self._layers.values())
            layers = (Layer("mean", heads, call.latent),)
        factor = int(getattr(self._pipe, "vae_scale_factor", 8))
        h, w = call.latent
        return Recording(
            layers, tuple(arrays), self._keep, tuple(side.timesteps.values()),
            side.tally.positions[image], side.branch.tables[image], call.latent,
            (w * factor, h * factor),
        )  # fmt: skip

    # --- install and restore ---

    def __enter__(self) -> "Trace":
        if self._open:
            raise TraceError("this trace is open already: open it once, or make another")
        try:
            self._install()
        except BaseException:
            self._restore()
            raise
        self._open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._restore()

    def _install(self) -> None:
        steerer = self.steerer
        self._installed = install(
            self._layers, self._record, self._undo.append, steerer and steerer.cross
        )
        if steerer is not None:
            self._installed |= install(self._own, _ignore, self._undo.append, steerer.own)
        run_uncompiled(self._pipe.unet, self._undo.append)
        handle = self._pipe.unet.register_forward_pre_hook(self._before_pass, with_kwargs=True)
        self._undo.append(handle.remove)
        self._undo.append(encodings.watch(self._pipe, self._prompts, self._begin, self._end))

    def _restore(self) -> None:
        self._open = False
        self._installed.clear()
        first: BaseException | None = None
        while self._undo:
            try:
                self._undo.pop()()
            except BaseException as error:  # the rest must be undone all the same
                first = first or error
        if first is not None:
            raise first

    # --- while it runs ---

    def _begin(self, encoding: Encoding) -> None:
        """A call of the pipeline begins: its prompts, as the text encoder read them."""
        kinds = (
            ("start", "text", "end", "pad") if self._tokens == "all" else ("start", "text", "end")
        )
        sides: dict[BranchName, _Side] = {}
        for name, branch in (
            ("conditional", encoding.conditional), ("negative", encoding.negative)
        ):  # fmt: skip
            if name not in self._branches:
                continue
            if branch is None:
                raise TraceError(
                    "the negative branch was asked for, but this call has none (guidance is off, "
                    "or embedded in the model): pass a guidance above 1, or leave it out"
                )
            positions = [table.positions(*kinds) for table in branch.tables]
            sides[name] = _Side(branch, Tally(self._keep, positions))
        self._calls.append(_Call(encoding, sides))

    @uncompiled
    def _before_pass(
        self, unet: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """The UNet is about to run: which step this is, and the latent's true size."""
        for name, recorder in self._installed.items():
            layer = self._layers.get(name) or self._own[name]
            if layer.processor is not recorder:
                raise TraceError(
                    f"the attention processor of {name} was replaced while the trace was open "
                    "(attention slicing, fused projections, xformers and load_ip_adapter do that): "
                    "do it before the trace is opened"
                )
        if not self._calls or self._calls[-1].over:
            raise TraceError(
                "the UNet ran before the pipeline of this trace encoded a prompt: call that very "
                "pipeline, with the prompt as text, inside of the trace"
            )
        call = self._calls[-1]
        sample = args[0] if args else kwargs["sample"]
        timestep = args[1] if len(args) > 1 else kwargs["timestep"]
        states = args[2] if len(args) > 2 else kwargs["encoder_hidden_states"]
        if states is not call.states:
            blocks = call.encoding.blocks_in(states)
            for name, side in call.sides.items():
                side.block = blocks.get(name)
            call.states = states
            if "conditional" not in blocks:
                raise TraceError(
                    f"the UNet was given text states of shape {tuple(states.shape)} that are not "
                    "those of the prompt: expected the pipeline of this trace to run with what it "
                    "encoded (another pipeline on the same UNet? states changed by a callback?)"
                )
        now = float(torch.as_tensor(timestep).flatten()[0])
        if call.at < 0:
            self._start(call, sample, now)
        call.at = _next_pass(call.schedule, call.at, now)
        for side in call.sides.values():
            if side.block is not None:
                side.timesteps.setdefault(call.step, now)

    def _end(self) -> None:
        """The pipeline has finished a call."""
        if self._calls:
            self._calls[-1].over = True
            self._calls[-1].states = None

    def _now(self) -> Now:
        """Where the run is, for rules."""
        call = self._calls[-1]
        block = call.sides["conditional"].block
        assert block is not None
        return Now(block * call.images, call.step, max(call.steps) + 1, call.latent)

    def _start(self, call: _Call, sample: torch.Tensor, timestep: float) -> None:
        """Before the first step of a call: the latent is sound, and what is kept fits."""
        if not bool(sample.isfinite().all()):
            raise ArgumentError(
                "the latents hold NaN or Inf before the first step: expected finite numbers; look "
                "at the latents or the picture that the pipeline was given"
            )
        call.latent = (sample.shape[-2], sample.shape[-1])
        order = int(getattr(self._pipe.scheduler, "order", 1))
        call.schedule = _schedule(self._pipe.scheduler, timestep, order)
        call.steps = _steps(call.schedule, order)
        size = self._bytes(call)
        if size > self._limit:
            raise ArgumentError(
                f"keep={sorted(self._keep)} would take {size / 2**20:,.0f} MiB, and the limit is "
                f"{self._limit / 2**20:,.0f} MiB: keep fewer axes, or pass a higher limit"
            )
        if size > WARN:
            warnings.warn(
                f"keep={sorted(self._keep)} will take {size / 2**20:,.0f} MiB of memory",
                stacklevel=2,
            )

    def _bytes(self, call: _Call) -> int:
        """What a call will keep. A stage of the UNet halves its grid, rounding up."""
        unet: Any = getattr(self._pipe.unet, "_orig_mod", self._pipe.unet)
        last = len(unet.config.block_out_channels) - 1
        cells = 0
        for name, layer in self._layers.items():
            stage, _, rest = name.partition(".")
            number = int(rest.partition(".")[0]) if stage != "mid_block" else last
            h, w = call.latent
            for _ in range(last - number if stage == "up_blocks" else number):
                h, w = (h + 1) // 2, (w + 1) // 2
            if "layer" not in self._keep:
                h, w = call.latent
            each = h * w * (layer.heads if "head" in self._keep else 1)
            cells = cells + each if "layer" in self._keep else max(cells, each)
        steps = max(call.steps) + 1 if "step" in self._keep else 1
        columns = sum(len(p) for side in call.sides.values() for p in side.tally.positions)
        return 4 * cells * steps * columns

    def _record(self, name: str, scores: Scores) -> None:
        """Take in what one layer's attention is made of, for all rows of the batch."""
        call = self._calls[-1]
        _, heads, positions, _ = scores.query.shape
        grid = attention.grid_of(positions, call.latent)
        call.grids[name] = grid
        for side in call.sides.values():
            if side.block is None:
                continue
            for image in range(call.images):
                of = plain(scores, side.block * call.images + image)
                if side is call.sides.get("conditional") and self.steerer is not None:
                    of = self.steerer.probabilities(scores, image, name, of)
                device = scores.query.device
                side.tally.add(image, name, call.step, of, heads, grid, call.latent, device)


def _schedule(scheduler: Any, first: float, order: int) -> list[float]:
    """The timesteps of the passes to come, from the first one: img2img begins later than others."""
    timesteps = [float(t) for t in scheduler.timesteps]
    starts = [i for i, t in enumerate(timesteps) if t == first]
    # A run begins with a whole step, so of repeated timesteps not within one.
    start = next((i for i in starts if i % order == 0), starts[0] if starts else 0)
    return timesteps[start:]


def _steps(timesteps: Sequence[float], order: int) -> list[int]:
    """The step that each pass of a schedule belongs to.

    Second-order schedulers (Heun) make two passes a step. PNDM repeats its second timestep: the
    first two passes make the first step.
    """
    if order > 1:
        return [number // order for number in range(len(timesteps))]
    steps, step = [], 0
    for number, now in enumerate(timesteps):
        steps.append(step)
        ahead = timesteps[number + 1 : number + 3]
        # A pass whose timestep comes again belongs to the same step as the pass before it.
        step += not (len(ahead) == 2 and ahead[0] == ahead[1] != now)
    return steps


def _next_pass(schedule: list[float], at: int, now: float) -> int:
    """Where in the schedule a pass with the timestep `now` is, after one at `at`.

    A pipeline may run its UNet several times with one timestep. One that the schedule does not hold
    (a callback changed it) is taken for the next.
    """
    if now in schedule[at + 1 :]:
        return schedule.index(now, at + 1)
    return at if at >= 0 and now == schedule[at] else min(at + 1, len(schedule) - 1)


def _ignore(name: str, scores: Scores) -> None:
    """What self-attention is made of is not recorded."""
