"""A pipeline with random weights, one of its steps taken down, and its attention replayed.

What a recorder or an edit costs is a small part of a UNet call that takes seconds, and would drown
in the noise of whole runs. So the attention layers alone are replayed, bare and with it in turn.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import diffusers
import torch
import transformers
from diffusers.models.attention_processor import Attention

from heedmap.backends import loading
from heedmap.recording import recorder, refining

PROMPT = "a red house next to a blue tree in snow"  # ten tokens; twelve with start and end
SETTING = ("width", "latent", "dtype", "threads")
Figures = dict[str, Any]


# --- a pipeline of random weights -------------------------------------------------------------


def random_pipeline(options: argparse.Namespace, *, xl: bool = False) -> Any:
    """A pipeline with a UNet of the shape of Stable Diffusion 1.5 or XL; the rest is small."""
    torch.manual_seed(0)
    width, tokenizer = options.width, loading.tokenizer()
    unet: dict[str, Any] = {
        "sample_size": options.latent,
        "block_out_channels": (width, 2 * width, 4 * width, 4 * width),
        "attention_head_dim": 8,  # which is the number of heads
        "cross_attention_dim": 768,
    }
    if xl:
        unet = {
            "sample_size": 2 * options.latent,
            "block_out_channels": (width, 2 * width, 4 * width),
            "attention_head_dim": (width // 64, width // 32, width // 16),
            "cross_attention_dim": 768 + 1280,
            "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
            "transformer_layers_per_block": (1, 2, 10),
            "use_linear_projection": True,
            "addition_embed_type": "text_time",
            "addition_time_embed_dim": 256,
            "projection_class_embeddings_input_dim": 1280 + 6 * 256,
        }

    def text_encoder(kind: str, width: int) -> Any:
        shape: dict[str, Any] = {
            "hidden_size": width,
            "intermediate_size": width,
            "projection_dim": width,
        }
        shape |= {"num_hidden_layers": 1, "num_attention_heads": width // 64}
        shape |= {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
        config = transformers.CLIPTextConfig(vocab_size=len(tokenizer), **shape)
        return getattr(transformers, kind)(config).eval()

    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, options.dtype))  # a float32 copy would be the peak
    try:
        parts: dict[str, Any] = {
            "unet": diffusers.UNet2DConditionModel(**unet).eval(),
            "vae": diffusers.AutoencoderKL().eval(),
            "text_encoder": text_encoder("CLIPTextModel", 768),
            "tokenizer": tokenizer,
        }
        if xl:
            parts["text_encoder_2"] = text_encoder("CLIPTextModelWithProjection", 1280)
            parts["tokenizer_2"] = tokenizer
    finally:
        torch.set_default_dtype(before)
    parts["scheduler"] = diffusers.DDIMScheduler(clip_sample=False, steps_offset=1)
    if xl:
        pipe = diffusers.StableDiffusionXLPipeline(**parts)
    else:
        none: dict[str, Any] = {"safety_checker": None, "feature_extractor": None}
        pipe = diffusers.StableDiffusionPipeline(**parts, **none, requires_safety_checker=False)
    pipe.set_progress_bar_config(disable=True)
    return pipe.to(options.device)


def run(
    pipe: Any,
    steps: int = 1,
    each: Callable[[int, Any], None] | None = None,
    prompts: Sequence[str] = (PROMPT,),
) -> torch.Tensor:
    """Denoise prompts from one noise, with guidance: in a batch of two rows a prompt.

    After each step, `each` is called with its number and timestep.

    Returns:
        the latents; they are not decoded.
    """

    def after(pipe: Any, number: int, timestep: Any, state: dict[str, Any]) -> dict[str, Any]:
        if each is not None:
            each(number, timestep)
        return {}

    generators = [torch.Generator().manual_seed(0) for _ in prompts]
    return pipe(
        list(prompts), num_inference_steps=steps, generator=generators,
        output_type="latent", callback_on_step_end=after,
    ).images  # fmt: skip


def twin(pipe: Any) -> Any:
    """The pipeline with a copy of the UNet's modules, which share its weights."""
    weights = {id(w): w for w in (*pipe.unet.parameters(), *pipe.unet.buffers())}
    other = copy.copy(pipe)
    other.unet = copy.deepcopy(pipe.unet, weights)
    return other


# --- one step, taken down and replayed --------------------------------------------------------


class Call(NamedTuple):
    """What a module was given and gave."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: torch.Tensor


def attention_layers(unet: torch.nn.Module, *, cross_only: bool) -> dict[str, Any]:
    """The `Attention` modules by name; any type, since a peer puts its own scores into them."""
    found = {name: m for name, m in unet.named_modules() if isinstance(m, Attention)}
    return {name: m for name, m in found.items() if m.is_cross_attention or not cross_only}


def take_down(pipe: Any, prompts: Sequence[str] = (PROMPT,)) -> dict[str, Call]:
    """The calls of all attention layers, and of the UNet itself (named ""), in one real step."""
    calls: dict[str, Call] = {}

    def take(name: str, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        calls[name] = Call(args, kwargs, output[0] if isinstance(output, tuple) else output)

    modules = {"": pipe.unet, **attention_layers(pipe.unet, cross_only=False)}
    hooks = [
        module.register_forward_hook(partial(take, name), with_kwargs=True)
        for name, module in modules.items()
    ]
    run(pipe, prompts=prompts)
    for hook in hooks:
        hook.remove()
    return calls


def replayer(pipe: Any, calls: dict[str, Call], names: Collection[str]) -> Any:
    """A twin whose UNet runs only these attention layers, each on what it was given in `calls`."""
    other = twin(pipe)
    layers = attention_layers(other.unet, cross_only=False)
    todo = [
        (layers[name], calls[name].args, calls[name].kwargs) for name in layers if name in names
    ]

    def forward(*_: Any, **__: Any) -> tuple[torch.Tensor, ...]:
        return calls[""].output, *(layer(*args, **kwargs) for layer, args, kwargs in todo)

    other.unet.forward = forward
    return other


class Turns:
    """After every step of a run its replay bare, in turn with the step's own, by their CPU time.

    The step's own pass of the UNet is timed where it runs, with all that listens to it. The first
    step is to warm up and to compare what comes out.

    Attributes:
        bare_s: seconds of the bare replays.
        extra_s: how many more the pass of the same step took.
        same: whether each layer gave the same, to the bit.
    """

    def __init__(self, bare: Any, changed: Any, whole: Call) -> None:
        self.bare_s: list[float] = []
        self.extra_s: list[float] = []
        self.same: list[bool] = []
        self._bare, self._whole = bare, whole
        self._start = self._seconds = 0.0
        self._output: Any = None
        # Before anything listens: what runs ahead of a pass is a part of its cost.
        changed.unet.register_forward_pre_hook(self._begin)
        changed.unet.register_forward_hook(self._end)

    def _begin(self, *_: Any) -> None:
        self._start = time.process_time()

    def _end(self, unet: Any, args: Any, output: Any) -> None:
        self._seconds, self._output = time.process_time() - self._start, output

    def __call__(self, number: int, timestep: Any) -> None:
        """Take a turn: the step's own pass is over."""
        changed, seconds, self._output = self._output, self._seconds, None
        sample, _, *_ = self._whole.args
        bare = partial(self._bare.unet, sample, timestep, **self._whole.kwargs)
        if number == 0:
            self.same += [torch.equal(a, b) for a, b in zip(bare(), changed, strict=True)]
            return
        self.bare_s.append(cpu_seconds(bare))
        self.extra_s.append(seconds - self.bare_s[-1])


@contextmanager
def pass_by_pass() -> Iterator[None]:
    """Compute each pass when it ends, and refine maps at each step of a run's later half.

    So the time of a pass is its own. A run computes several passes together, and refines maps at
    two steps at most: what is measured is an upper bound.
    """
    with patch.multiple(recorder, MAX_PASSES=1), patch.multiple(refining, PROPAGATION_STEPS=999):
        refining.propagation_steps.cache_clear()
        yield
    refining.propagation_steps.cache_clear()


def cpu_seconds(action: Callable[[], object]) -> float:
    """CPU time of this process: the time in which others hold the cores is not counted."""
    start = time.process_time()
    action()
    return time.process_time() - start


def quartiles(values: Sequence[float], times: float = 1.0) -> list[float]:
    """Lower quartile, median and upper quartile."""
    found = statistics.quantiles(values, method="inclusive") if values[1:] else [*values] * 3
    return [round(value * times, 4) for value in found]
