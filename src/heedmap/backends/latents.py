"""Latents: their steps and noise by a schedule, their images, and as many as fit into memory.

A timestep does not identify a step: rounded timesteps repeat where a schedule is dense (Karras and
exponential sigmas, many steps), second-order schedulers have timesteps within a step, and other
pipelines on the same model have their own. So the calls of `scheduler.step` are counted, and their
timesteps are compared with those of the schedule.

Axes: B image · C channel · h, w rows and columns of the latent · H, W of the image.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass
from functools import partial
from inspect import signature, unwrap
from typing import Any, TypeVar

import diffusers
import psutil
import torch
from diffusers import (
    DDPMScheduler,
    FlowMatchEulerDiscreteScheduler,
    FlowMatchHeunDiscreteScheduler,
)
from diffusers.schedulers.scheduling_ddpm import DDPMSchedulerOutput
from torch import Tensor
from torch.nn.functional import pad, pixel_shuffle, pixel_unshuffle, unfold

from heedmap.backends.base import device_of, replace_method
from heedmap.backends.registry import family_of, usual_size
from heedmap.errors import ModelError, TraceError

# --- the steps of a run ---

SCHEDULERS = ("scheduler", "low_res_scheduler")
"""The names of schedulers in a pipeline."""
SAME = 1e-6
"""The relative error of a timestep in float32."""
_RUNGE_KUTTA = 4  # calls of the scheduler in such a step of PNDM (Liu et al., 2022)


def scheduler_class(kind: type, name: str) -> Any:
    """Return the scheduler class of a name: a pipeline's own, or one of diffusers."""
    return kind if kind.__name__ == name else getattr(diffusers, name)


@dataclass(frozen=True)
class Moment:
    """A call of the scheduler: its step, from 0, of how many, and whether it is the step's last."""

    step: int
    steps: int
    last: bool


@dataclass(frozen=True)
class Schedule:
    """The calls of the scheduler in a run.

    Attributes:
        timesteps: the timestep of each call.
        steps: the step of each call, from 0, without gaps.
    """

    timesteps: tuple[float, ...]
    steps: tuple[int, ...]

    @property
    def count(self) -> int:
        """Return the number of steps."""
        return self.steps[-1] + 1

    def moment(self, call: int) -> Moment:
        """Return the step of a call, by the call's number from 0."""
        step = self.steps[call]
        return Moment(
            step, self.count, call + 1 == len(self.steps) or self.steps[call + 1] > step
        )


def announced(pipe: Any, first: float, error: float = SAME) -> Schedule:
    """Return the schedule of the run that begins with a pass at the timestep `first`.

    The timestep has a relative `error`, by its rounding.
    Image to image begins in the middle of the scheduler's timesteps, and `denoising_end` stops
    before their end.

    Raises:
        TraceError: if the scheduler has no such timestep.
    """
    scheduler = pipe.scheduler
    every = list(map(float, scheduler.timesteps.tolist()))
    order = int(getattr(scheduler, "order", 1))
    # Most pipelines count their calls before each first pass, some before they apply
    # `denoising_end`.
    count = (
        getattr(pipe, "num_timesteps", None)
        if hasattr(type(pipe), "num_timesteps")
        else None
    )
    end = getattr(pipe, "denoising_end", None)
    if isinstance(end, float) and 0 < end < 1:
        cutoff = round(scheduler.config.num_train_timesteps * (1 - end))
        before_end = sum(t >= cutoff for t in every)
        count = before_end if count is None else min(count, before_end)
    starts = [i for i, t in enumerate(every) if _is_same(t, first, error)]
    begin = getattr(scheduler, "begin_index", None)
    # A run begins with a whole step; if timesteps repeat, with the one that leaves `count` calls.
    whole = [i for i in starts if i % order == 0] or starts
    fitting = [i for i in whole if i + (count or 0) == len(every)]
    start = begin if begin in starts else next(iter(fitting + whole), None)
    if start is None:
        raise TraceError(
            f"the model ran at timestep {first:g}, which is not among the {len(every)} of its "
            f"{type(scheduler).__name__}: expected a pipeline that runs with its own scheduler"
        )
    timesteps = every[start : None if count is None else start + count]
    return Schedule(tuple(timesteps), tuple(_steps(scheduler, start, timesteps)))


def _steps(scheduler: Any, start: int, timesteps: Sequence[float]) -> list[int]:
    order = int(getattr(scheduler, "order", 1))
    if order > 1:  # Heun, KDPM2, DPM++ SDE: the last step has one call
        return [number // order for number in range(len(timesteps))]
    if not hasattr(scheduler, "prk_timesteps"):
        return list(range(len(timesteps)))
    # PNDM: four calls in a Runge-Kutta step; without such steps its second timestep comes twice,
    # and the first two calls make the first step.
    prk = (
        max(len(scheduler.prk_timesteps) - start, 0)
        if len(scheduler.prk_timesteps)
        else 0
    )
    steps = [number // _RUNGE_KUTTA for number in range(min(prk, len(timesteps)))]
    step = -(-prk // _RUNGE_KUTTA)
    for number in range(prk, len(timesteps)):
        steps.append(step)
        ahead = timesteps[number + 1 : number + 3]
        step += not (len(ahead) == 2 and ahead[0] == ahead[1] != timesteps[number])
    return steps


def _is_same(a: float, b: float, error: float) -> bool:
    return abs(a - b) <= error * max(abs(a), 1.0)


def rounding_of(timesteps: Tensor) -> float:
    """Return the relative error of timesteps, which some pipelines convert to half types."""
    return (
        max(SAME, 2 * torch.finfo(timesteps.dtype).eps)
        if timesteps.is_floating_point()
        else SAME
    )


class TimestepReader:
    """A reader of the timesteps of passes, which waits for the device as seldom as it can.

    A timestep that is an element of the scheduler's is known by its place there.
    """

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe
        self._scheduled: Tensor | None = None
        self._values: list[float] = []

    def read(self, timesteps: Tensor) -> float:
        """Return the timestep of the rows of a pass (B).

        Raises:
            TraceError: if the rows have several.
        """
        scheduled = self._pipe.scheduler.timesteps
        place = _place_in(timesteps, scheduled)
        if place is not None:
            if scheduled is not self._scheduled:
                self._scheduled = scheduled
                self._values = scheduled.tolist()
            return float(self._values[place])
        values = {*map(float, timesteps.tolist())}
        if len(values) > 1:
            raise TraceError(
                f"{type(self._pipe).__name__} runs several timesteps in one batch, so the rows of "
                "its model are not the images: expected a pipeline that draws step by step"
            )
        return values.pop()


def _place_in(view: Tensor, whole: Any) -> int | None:
    """Return the index of the only element of a tensor (N) that a view shows; None if none."""
    if not isinstance(whole, Tensor) or view.dtype != whole.dtype:
        return None
    same = view.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
    if not same or (len(view) > 1 and view.stride(0)):
        return None
    return (view.storage_offset() - whole.storage_offset()) // max(1, whole.stride(0))


def matches(
    schedule: Schedule, call: int, timestep: float, error: float = SAME
) -> bool:
    """Return whether a pass at this timestep can belong to this call of the scheduler."""
    return call < len(schedule.timesteps) and _is_same(
        schedule.timesteps[call], timestep, error
    )


def listen(
    scheduler: Any,
    after: Callable[[Tensor], Tensor],
    before: Callable[..., None] | None = None,
) -> Callable[[], None]:
    """Intercept the calls of a scheduler; return a function that ends it.

    Args:
        scheduler: its method `step` is replaced on the instance.
        after: a function of the latents (B, C, h, w) of each call that returns others or the same.
        before: a function of the scheduler and the arguments of each call.
    """
    step, inside = scheduler.step, False

    def stepped(*args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside:  # a scheduler that calls itself makes one step
            return step(*args, **kwargs)
        if before is not None:
            before(scheduler, *args, **kwargs)
        inside = True
        try:
            result = step(*args, **kwargs)
        finally:
            inside = False
        latents = after(result[0])
        if isinstance(result, tuple):
            return (latents, *result[1:])
        result.prev_sample = latents
        return result

    return replace_method(scheduler, "step", stepped)


@contextmanager
def noise_of_steps(
    scheduler: Any, generators: Sequence[torch.Generator]
) -> Iterator[None]:
    """Let a scheduler take its noise from a call's generators.

    Some pipelines, such as Stable Diffusion 3's, do not pass them on; the scheduler then uses
    torch's global generator, and a seed does not fix the image.
    """
    step = scheduler.step
    if "generator" not in signature(step).parameters:
        yield
        return

    def step_with_noise(*args: Any, **kwargs: Any) -> Any:
        return step(*args, **{"generator": generators, **kwargs})

    undo = replace_method(scheduler, "step", step_with_noise)
    try:
        yield
    finally:
        undo()


# --- the autoencoder ---


def unscaled(vae: Any, latents: Tensor) -> Tensor:
    """Convert latents (B, C, h, w) of a pipeline to those of its autoencoder."""
    latents = latents.to(vae.device, vae.dtype)
    factor, shift, spread = _scaling(vae, latents)
    return latents / factor * spread + shift


def rescaled(vae: Any, latents: Tensor) -> Tensor:
    """Convert latents (B, C, h, w) of an autoencoder to those of its pipeline, in float32."""
    latents = latents.float()
    factor, shift, spread = _scaling(vae, latents)
    return (latents - shift) / spread * factor


def _scaling(vae: Any, like: Tensor) -> tuple[float, Any, Any]:
    config = vae.config
    factor = getattr(config, "scaling_factor", 1.0)
    if hasattr(
        vae, "bn"
    ):  # Flux.2 normalizes four cells together, packed into channels
        mean, spread = (
            vae.bn.running_mean,
            (vae.bn.running_var + config.batch_norm_eps).sqrt(),
        )
        grid = (like.shape[-2] // 2, like.shape[-1] // 2)
        packed = (
            one.to(like).view(-1, 1, 1).expand(-1, *grid) for one in (mean, spread)
        )
        shift, spread = (pixel_shuffle(one, 2) for one in packed)
        return 1.0, shift, spread
    if getattr(config, "latents_mean", None) is None:
        return factor, getattr(config, "shift_factor", None) or 0.0, 1.0
    mean, spread = config.latents_mean, config.latents_std
    return (
        factor,
        like.new_tensor(mean).view(-1, 1, 1),
        like.new_tensor(spread).view(-1, 1, 1),
    )


def is_of_frames(vae: Any) -> bool:
    """Return whether an autoencoder codes videos: Qwen-Image uses one frame."""
    return hasattr(vae.config, "temperal_downsample")


def pictures_of(vae: Any, latents: Tensor) -> Tensor:
    """Decode latents of an autoencoder to images (B, 3, H, W), 0 to 1."""
    with _upcast(vae):
        latents = latents.to(vae.dtype)
        if is_of_frames(vae):
            return (
                vae.decode(latents[:, :, None]).sample[:, :, 0].float().cpu() / 2 + 0.5
            )
        return vae.decode(latents).sample.float().cpu() / 2 + 0.5


def latents_of(vae: Any, pixels: Tensor, device: torch.device | None = None) -> Tensor:
    """Encode images (B, 3, H, W), 0 to 1, to latents of an autoencoder, on a device if given."""
    with _upcast(vae):
        pixels = (pixels * 2 - 1).to(device or vae.device, vae.dtype)
        encoded = vae.encode(pixels[:, :, None] if is_of_frames(vae) else pixels)
        latents = (
            encoded.latent_dist.mode()
            if hasattr(encoded, "latent_dist")
            else encoded[0]
        )
        return latents[:, :, 0] if is_of_frames(vae) else latents


@contextmanager
def _upcast(vae: Any) -> Iterator[None]:
    dtype = vae.dtype
    overflows = dtype == torch.float16 and getattr(vae.config, "force_upcast", False)
    try:
        if overflows:
            vae.to(torch.float32)
        yield
    finally:
        if overflows:
            vae.to(dtype)


def fitted(
    latents: Tensor, colours: Tensor, *, around: int = 0, ridge: float = 0.0
) -> Callable[[Tensor], Tensor]:
    """Fit a linear map from cells of latents, with their neighbours, to colours by least squares.

    Args:
        latents: (B, C, h, w).
        colours: (B, 3, h·finer, w·finer), 0 to 1, as the returned function gives them.
        around: the distance of the farthest neighbours, in cells.
        ridge: the penalty on weights, as a share of the mean variance of the inputs.
    """
    finer = colours.shape[-1] // latents.shape[-1]
    wanted = pixel_unshuffle(colours.cpu().double(), finer).flatten(2).transpose(1, 2)
    inputs = _neighbours(latents, around)
    inputs, wanted = inputs.flatten(0, 1), wanted.flatten(0, 1)  # (B·h·w, …)
    mean, middle = inputs.mean(dim=0), wanted.mean(dim=0)
    inputs = inputs - mean
    penalty = (
        ridge * inputs.square().sum(dim=0).mean() * torch.eye(inputs.shape[1]).double()
    )
    # "gelsd" takes the smallest of all maps that fit, where there are fewer cells than channels.
    weights = torch.linalg.lstsq(
        inputs.T @ inputs + penalty, inputs.T @ (wanted - middle), driver="gelsd"
    ).solution
    offset = (middle - mean @ weights).float()
    weights = weights.float()  # (C·(2·around + 1)², 3·finer²)

    def draw(latents: Tensor) -> Tensor:
        colours = _neighbours(latents, around).float() @ weights + offset
        cells = colours.transpose(1, 2).unflatten(2, latents.shape[-2:])
        return pixel_shuffle(cells, finer).clamp(0, 1)

    return draw


def _neighbours(latents: Tensor, around: int) -> Tensor:
    """Return each cell with its neighbours, float64 (B, h·w, C·(2·around + 1)²)."""
    padded = pad(latents.cpu().double(), (around,) * 4, mode="replicate")
    return unfold(padded, 2 * around + 1).transpose(1, 2)


# --- noise levels ---

_PREDICTIONS = ("epsilon", "sample", "v_prediction")
_FLOWS = (FlowMatchEulerDiscreteScheduler, FlowMatchHeunDiscreteScheduler)
_STEP_ARGUMENTS = ("model_output", "timestep", "sample")


def noise_levels(pipe: Any, steps: int) -> tuple[list[tuple[float, float]], float]:
    """Return the noise levels of a run.

    Returns:
        (a, s) of the latents a · clean + s · noise at the beginning of each step, and (1, 0) at the
        end of the last one; and the pipeline's factor for the first latents that it is given.

    Raises:
        ModelError: if the scheduler does not define them.
    """
    scheduler = deepcopy(pipe.scheduler)
    unknown = ModelError(
        f"{type(scheduler).__name__} does not define how much noise there is at a step: expected "
        f"one of the usual schedulers of {type(pipe).__name__}"
    )
    if scheduler.config.get(
        "use_dynamic_shifting"
    ):  # the pipeline shifts them by the size
        raise unknown
    scheduler.set_timesteps(steps)
    step_of_call = _steps(scheduler, 0, [float(t) for t in scheduler.timesteps])
    levels: list[tuple[float, float]] = []
    for call in map(
        step_of_call.index, dict.fromkeys(step_of_call)
    ):  # the first of each step
        try:
            level = level_of(scheduler, scheduler.timesteps[call], call)
        except (
            NotImplementedError,
            IndexError,
        ):  # some have the method without a use for it
            level = None
        if level is None:
            raise unknown
        levels.append(level)
    return [*levels, (1.0, 0.0)], float(getattr(scheduler, "init_noise_sigma", 1.0))


def is_flow(pipe: Any) -> bool:
    """Return whether a pipeline follows a flow from noise to image, without noise on the way."""
    scheduler = pipe.scheduler
    others = map(scheduler.config.get, ("stochastic_sampling", "invert_sigmas"))
    if not isinstance(scheduler, _FLOWS) or any(others):
        return False
    # Pipelines of diffusion scale their noise for the scheduler.
    return (
        "init_noise_sigma" not in unwrap(type(pipe).prepare_latents).__code__.co_names
    )


def flow_level(scheduler: Any) -> tuple[float, float]:
    """Return the noise level (1 − σ, σ) of the latents that a running flow has just made.

    They are (1 − σ) · clean + σ · noise. A pipeline sets σ by the size of the image when it runs,
    and begins with noise alone.
    """
    sigma = float(scheduler.sigmas[scheduler.step_index])
    return 1 - sigma, sigma


def predicted(scheduler: Any, *args: Any, **kwargs: Any) -> Tensor | None:
    """Return the clean latents (B, C, h, w), float32, that a model's output predicts.

    The arguments are those of the scheduler's next step; the scheduler stays as it is. The result
    is None for schedulers that precondition the model (EDM), flows, and other predictions.
    """
    arguments = dict(zip(_STEP_ARGUMENTS, args, strict=False)) | kwargs
    kind = getattr(scheduler.config, "prediction_type", None)
    if kind not in _PREDICTIONS or hasattr(scheduler, "precondition_outputs"):
        return None
    level = level_of(scheduler, arguments["timestep"])
    if level is None:
        return None
    x = arguments["sample"].float()
    output = arguments["model_output"].float()[
        :, : x.shape[1]
    ]  # a learned variance may follow
    if kind == "sample":
        return output
    a, s = level
    if kind == "epsilon":
        return None if a == 0 else (x - s * output) / a
    norm = (a * a + s * s) ** 0.5  # above 1 if the scheduler scales the model's input
    return (a / norm) * (x / norm) - (s / norm) * output


def level_of(
    scheduler: Any, timestep: Any, call: int = 0
) -> tuple[float, float] | None:
    """Return the shares (a, s) of clean latents and of noise at a timestep; None if unknown.

    A scheduler that is at no step yet needs the number of the call.
    """
    if not hasattr(scheduler, "add_noise"):
        return None
    other = copy(
        scheduler
    )  # some move a table of theirs to the device of what they are given
    if hasattr(other, "set_begin_index") and hasattr(other, "step_index"):
        other.set_begin_index(
            call
        )  # rounded timesteps repeat, so it must go by this count
    if hasattr(
        other, "_sigma_to_alpha_sigma_t"
    ):  # SASolver adds noise otherwise than it steps
        at = call if other.step_index is None else other.step_index
        a, s = other._sigma_to_alpha_sigma_t(other.sigmas[at])
        return float(a), float(s)
    clean = torch.tensor([1.0, 0.0]).view(2, 1, 1, 1)
    now = torch.as_tensor(timestep).detach().cpu().reshape(1).expand(2)
    a, s = other.add_noise(clean, clean.flip(0), now).flatten().tolist()
    return a, s


# --- a given image in place of the drawn one ---


class ImageScheduler:
    """A part of schedulers that give the model one image with fresh noise at each timestep."""

    config: Any
    image: Tensor
    """(1, …), as the pipeline has latents, in float32: half types would round the noise."""
    noise: torch.Generator

    def set_timesteps(
        self,
        num_inference_steps: int | None = None,
        device: Any = None,
        sigmas: Any = None,
        timesteps: Any = None,
        *_: Any,
        **__: Any,
    ) -> None:
        """Divide the timesteps into equal parts, one a step or a sigma, and set their middles."""
        count = int(num_inference_steps or (1 if sigmas is None else len(sigmas)))
        every = int(self.config["num_train_timesteps"])
        self.num_inference_steps, self.custom_timesteps = count, False
        parts = [(every * (2 * (count - n) - 1), 2 * count) for n in range(count)]
        timesteps, self._shares = zip(
            *(self.level(*part) for part in parts), strict=True
        )
        self.timesteps = torch.tensor(timesteps, device=device)
        self._call, self.noised = 0, self._add_noise(0, self._first)

    def level(self, above: int, below: int) -> tuple[float, tuple[float, float]]:
        """Return the timestep above / below, and the shares of clean latents and of noise there."""
        raise NotImplementedError

    def start(self, image: Tensor, noise: torch.Generator, steps: int) -> Tensor:
        """Set the image (1, …) and its noise; return the first latents."""
        self.image, self.noise = image.float(), noise
        self._first = self._draw()  # pipelines call set_timesteps again
        self.set_timesteps(steps)
        return self.noised

    def step(
        self,
        model_output: Tensor,
        timestep: Any,
        sample: Tensor,
        generator: Any = None,
        return_dict: bool = True,
    ) -> DDPMSchedulerOutput | tuple[Tensor, ...]:
        """Return the image with the noise of the next timestep; after the last, without noise."""
        if not torch.equal(sample, self.noised.to(sample).expand_as(sample)):
            raise TraceError(
                "the pipeline changes latents between steps: use a text-to-image one"
            )
        self._call += 1
        over = self._call == len(self.timesteps)
        self.noised = self.image if over else self._add_noise(self._call, self._draw())
        latents = self.noised.to(sample).expand_as(sample)
        return (
            DDPMSchedulerOutput(prev_sample=latents)
            if return_dict
            else (latents, latents)
        )

    def _draw(self) -> Tensor:
        return torch.randn(self.image.shape, generator=self.noise).to(self.image.device)

    def _add_noise(self, call: int, noise: Tensor) -> Tensor:
        a, s = self._shares[call]
        return a * self.image + s * noise


class DiffusedImage(ImageScheduler, DDPMScheduler):  # pyright: ignore[reportIncompatibleMethodOverride]
    """An image with the noise of diffusion, by the betas of a scheduler."""

    def level(self, above: int, below: int) -> tuple[int, tuple[float, float]]:
        """Return a whole timestep, √ᾱ and √(1 - ᾱ)."""
        share = float(self.alphas_cumprod[above // below])
        return above // below, (share**0.5, (1 - share) ** 0.5)


class FlowingImage(ImageScheduler, FlowMatchEulerDiscreteScheduler):  # pyright: ignore[reportIncompatibleMethodOverride]
    """An image on its way to noise, as flow matching trains: (1 - σ) · clean + σ · noise."""

    shift_noise: Callable[[Any], Any] = float
    """The function that makes σ of a timestep's share of the schedule."""

    def level(self, above: int, below: int) -> tuple[float, tuple[float, float]]:
        """Return a timestep, 1 - σ and σ, which is that of the timestep unless it is shifted."""
        sigma = self.shift_noise(above / below / self.config["num_train_timesteps"])
        return above / below, (1 - sigma, sigma)


@contextmanager
def showing(
    pipe: Any, latents: Tensor, noise: torch.Generator, steps: int
) -> Iterator[Tensor]:
    """Give a pipeline's model these latents (1, C, h, w) at each step, with fresh noise.

    The noise is that of the training: for flow matching at evenly spaced σ, which no shift of the
    pipeline's scheduler changes, unless a timestep has another σ for each size of the image
    (`Family.noise_shift`); else by the betas of that scheduler. It comes back after the block. The
    first latents for the pipeline's call are yielded, as the pipeline packs them.
    """
    before, family = pipe.scheduler, family_of(pipe)
    shift = family.noise_shift((latents.shape[-2], latents.shape[-1]))
    pipe.scheduler = scheduler = _image_scheduler(before, family.matches_flow, shift)
    try:
        yield scheduler.start(family.pack(latents), noise, steps)
    finally:
        pipe.scheduler = before


def _image_scheduler(
    scheduler: Any, matches_flow: bool, shift: float | None
) -> ImageScheduler:
    config = scheduler.config
    if matches_flow:
        flowing = FlowingImage(
            num_train_timesteps=config.get("num_train_timesteps", 1000)
        )
        if shift is not None:
            flowing.shift_noise = partial(scheduler.time_shift, shift, 1.0)
        return flowing
    betas = (
        "num_train_timesteps",
        "beta_start",
        "beta_end",
        "beta_schedule",
        "prediction_type",
    )
    known = (
        all(name in config for name in betas) and config.prediction_type in _PREDICTIONS
    )
    # `from_config` would ignore the defaults of the pipeline's own scheduler.
    names = [
        name for name in signature(DDPMScheduler.__init__).parameters if name in config
    ]
    try:
        if not known or config.get("use_flow_sigmas"):
            raise NotImplementedError
        return DiffusedImage(**{name: config[name] for name in names})
    except NotImplementedError:  # also of an unknown schedule of betas
        raise ModelError(
            f"{type(scheduler).__name__} defines no schedule of betas, as of the noise of the "
            "training: expected a model that is trained with such noise or by flow matching, and "
            "one of its usual schedulers"
        ) from None


# --- memory ---

T = TypeVar("T")
R = TypeVar("R")
_PICTURE = 6  # tensors of the decoder's widest stage alive at once; measured: 5.2 (256, 512 px)
_SHARE = 0.8  # of the free memory, to leave some for other programs


def image_bytes(pipe: Any, size: tuple[int, int]) -> int:
    """Estimate the memory of an image of (width, height) pixels by the decoder's widest stage."""
    config = getattr(family_of(pipe).decoder, "config", None)
    widths = getattr(config, "block_out_channels", None) or (128, 256)
    # The second stage is enlarged to the image's size before it is narrowed.
    return _PICTURE * math.prod(size) * max(widths[:2]) * pipe.dtype.itemsize


def free_bytes(device: torch.device) -> int:
    """Return the free memory of a device, including what torch has reserved and not used."""
    if device.type == "cuda":
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(
            device
        )
        return torch.cuda.mem_get_info(device)[0] + reserved
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return psutil.virtual_memory().available


def fitting(pipe: Any, size: tuple[int, int] | None) -> int:
    """Return the number of images of a (width, height) that fit into memory, at least 2."""
    each = image_bytes(pipe, size or usual_size(pipe))
    return max(2, int(_SHARE * free_bytes(device_of(pipe)) / each))


def in_batches(
    things: Sequence[T], most: int, draw: Callable[[Sequence[T], int, int], R]
) -> list[R]:
    """Draw things in batches of at most `most`, about equally full; return the results.

    A batch that runs out of memory is halved, and those after it are no larger. `draw` is given
    some things, the number of batches done, and the number of those to do.
    """
    done: list[R] = []
    while things:
        batches = math.ceil(len(things) / most)
        some = things[: math.ceil(len(things) / batches)]
        try:
            done.append(draw(some, len(done), batches))
            things = things[len(some) :]
            continue
        except (MemoryError, RuntimeError) as error:
            texts = ("out of memory", "not enough memory", "can't allocate memory")
            is_memory = any(text in str(error).lower() for text in texts)
            if len(some) == 1 or not (is_memory or isinstance(error, MemoryError)):
                raise
            most = math.ceil(len(some) / 2)
        # After the except block nothing refers to the tensors of the failed batch any more.
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return done
