"""The cost of recording where text and image share a softmax: a few blocks at the true width.

A pipeline of random weights runs with each recorder in turn, and each pass of its transformer is
timed: on a CPU in CPU time, on a GPU by the clock. Beside heedmap stands the method of
attention-map-diffusers, an explicit softmax of the whole matrix, whose mean over heads is kept.
"""

import argparse
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import diffusers
import torch
import transformers
from rich.console import Console
from rich.table import Table
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from benchmarking.replay import PROMPT, Figures, pass_by_pass, quartiles
from heedmap.backends import loading
from heedmap.backends.registry import family_of
from heedmap.recording.tracing import trace

WIDTHS = {"flux": 24 * 128, "sd3": 24 * 64}
CLIP = 77
BARS = {"all_tokens": 3.0, "prompt_tokens": 1.0}  # percent of recording, at the full shape
MOMENTS = ("recording", "refining")
"""The second and the third pass of three: recorded, and recorded with refined maps."""
SETTING = ("family", "width", "latent", "text_tokens", "blocks", "dtype", "threads", "rounds")


def random_pipeline(options: argparse.Namespace) -> Any:
    """A pipeline with a few blocks of Flux or of Stable Diffusion 3; its encoders are small."""
    torch.manual_seed(0)
    is_flux, heads = options.family == "flux", 24
    words = [("▁", -4.0), *((f"▁{word}", -1.0) for word in dict.fromkeys(PROMPT.split()))]
    special = [(name, 0.0) for name in ("<pad>", "</s>", "<unk>")]
    pieces = transformers.T5Tokenizer(vocab=[*special, *words], extra_ids=0)
    tokenizer = loading.tokenizer()

    def clip(width: int) -> Any:
        ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
        config = transformers.CLIPTextConfig(
            vocab_size=len(tokenizer), hidden_size=width, intermediate_size=width,
            projection_dim=width, num_hidden_layers=1, num_attention_heads=width // 64, **ends,
        )  # fmt: skip
        named = "CLIPTextModel" if is_flux else "CLIPTextModelWithProjection"
        return getattr(transformers, named)(config).eval()

    shape: dict[str, Any] = {"num_attention_heads": heads, "joint_attention_dim": 4096}
    shape["attention_head_dim"] = options.width // heads
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, options.dtype))
    try:
        config = transformers.T5Config(
            vocab_size=len(pieces), d_model=4096, d_kv=64, d_ff=64, num_heads=1, num_layers=1,
            is_encoder_decoder=False, use_cache=False,
        )  # fmt: skip
        t5: Any = transformers.T5EncoderModel(config).eval()
        scheduler = diffusers.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=is_flux)
        parts: dict[str, Any] = {"scheduler": scheduler, "vae": None, "tokenizer": tokenizer}
        if is_flux:
            d = shape["attention_head_dim"]
            side = 2 * (7 * d // 32)  # 56 of 128
            shape |= {"num_layers": 1, "num_single_layers": options.blocks - 1}
            shape |= {"axes_dims_rope": (d - 2 * side, side, side), "guidance_embeds": True}
            parts |= {"text_encoder": clip(768), "text_encoder_2": t5, "tokenizer_2": pieces}
            parts["transformer"] = diffusers.FluxTransformer2DModel(**shape).eval()
        else:
            shape |= {"caption_projection_dim": options.width, "num_layers": options.blocks}
            shape |= {"pooled_projection_dim": 768 + 1280, "pos_embed_max_size": 192}
            parts |= {"text_encoder": clip(768), "text_encoder_2": clip(1280)}
            parts |= {"text_encoder_3": t5, "tokenizer_2": tokenizer, "tokenizer_3": pieces}
            model = diffusers.SD3Transformer2DModel(sample_size=options.latent, **shape)
            parts["transformer"] = model.eval()
    finally:
        torch.set_default_dtype(before)
    pipe = (diffusers.FluxPipeline if is_flux else diffusers.StableDiffusion3Pipeline)(**parts)
    pipe.set_progress_bar_config(disable=True)
    return pipe.to(options.device)


def run(pipe: Any, options: argparse.Namespace, steps: int) -> torch.Tensor:
    """Denoise the prompt from one noise, without a negative prompt; return the latents."""
    length = options.text_tokens - (0 if options.family == "flux" else CLIP)
    return pipe(
        PROMPT, num_inference_steps=steps, generator=torch.Generator().manual_seed(0),
        guidance_scale=1.0, height=8 * options.latent, width=8 * options.latent,
        max_sequence_length=length, output_type="latent",
    ).images  # fmt: skip


class ExactMean(TorchFunctionMode):
    """The mean over heads of text columns, by an explicit softmax over all keys."""

    def __init__(self, pipe: Any, options: argparse.Namespace) -> None:
        super().__init__()
        tokens, self._layers = options.text_tokens, len(family_of(pipe).text_layers())
        self._keys = tokens + (options.latent // 2) ** 2
        first = getattr(family_of(pipe), "text_first", True)
        self._text = slice(tokens) if first else slice(-tokens, None)
        self._image = slice(tokens, None) if first else slice(-tokens)
        self._kept: dict[int, torch.Tensor] = {}
        self._count = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Replace the attention over text and image."""
        kwargs = kwargs or {}
        if func is not scaled_dot_product_attention:
            return func(*args, **kwargs)
        query, key, value = args or (kwargs[name] for name in ("query", "key", "value"))
        if query.shape[2] != self._keys:  # of a text encoder
            return func(*args, **kwargs)
        p = (query @ key.mT * query.shape[-1] ** -0.5).softmax(dim=-1)
        layer, mean = self._count % self._layers, p[:, :, self._image, self._text].mean(dim=1)
        self._count += 1
        self._kept[layer] = self._kept[layer] + mean if layer in self._kept else mean
        return p @ value


Recorder = Callable[[Any, argparse.Namespace], AbstractContextManager[Any]]
RECORDERS: dict[str, Recorder] = {
    "plain": lambda pipe, options: nullcontext(),
    "all_tokens": lambda pipe, options: trace(pipe, keep={"layer"}, tokens="all"),
    "prompt_tokens": lambda pipe, options: trace(pipe, keep={"layer"}, tokens="prompt"),
    "exact_mean": ExactMean,
}


@contextmanager
def timed(model: torch.nn.Module, device: str) -> Iterator[list[float]]:
    """Yield the seconds of each pass of a model, with all that listens to it."""
    seconds: list[float] = []

    def now() -> float:
        if device == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    hooks = [  # before anything listens
        model.register_forward_pre_hook(lambda *_: seconds.append(now())),
        model.register_forward_hook(lambda *_: seconds.append(now() - seconds.pop())),
    ]
    try:
        yield seconds
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def record(options: argparse.Namespace, held_mb: Callable[[], float]) -> Figures:
    """Measure the cost: each round runs every recorder once.

    The first of its three passes warms up. In the last one maps are refined, too, in each block:
    a whole model refines them in `PROPAGATION_LAYERS` blocks alone.
    """
    options.width = options.width or WIDTHS[options.family]
    options.latent = options.latent or 128
    pipe = random_pipeline(options)
    passes: dict[str, list[list[float]]] = {name: [] for name in RECORDERS}
    held: dict[str, dict[int, float]] = {name: {} for name in RECORDERS}
    outputs: dict[str, torch.Tensor] = {}

    def measure(name: str, steps: int, holds: bool = False) -> list[float]:
        before = held_mb() if holds else 0.0
        with timed(pipe.transformer, options.device) as seconds:
            with pass_by_pass(), (recorder := RECORDERS[name](pipe, options)):
                output = run(pipe, options, steps)
            if holds:
                held[name][steps] = round(held_mb() - before - output.nbytes / 1e6, 3)
        outputs.setdefault(name, output)
        del recorder
        return seconds[1:]

    gc.collect()
    gc.freeze()  # what is there already is no longer looked through for tensors
    for name in RECORDERS:
        for steps in (4, 2):
            measure(name, steps, holds=True)
    gc.unfreeze()
    for _ in range(options.rounds):
        for name in RECORDERS:
            passes[name].append(measure(name, 3))
    plain = passes.pop("plain")
    extra = {
        moment: {
            name: quartiles([100 * (a[k] / b[k] - 1) for a, b in zip(some, plain, strict=True)])
            for name, some in passes.items()
        }
        for k, moment in enumerate(MOMENTS)
    }
    return {
        "extra_percent": {
            moment: {name: middle for name, (_, middle, _) in some.items()}
            for moment, some in extra.items()
        },
        "identical": {name: torch.equal(outputs["plain"], outputs[name]) for name in passes},
        "held_mb": {name: held[name] for name in passes},
        "spread": {
            "extra_percent": extra,
            "pass_s": quartiles([s for some in plain for s in some]),
        },
        "setting": {name: getattr(options, name) for name in SETTING}
        | {"torch": torch.__version__, "device": options.device},
    }


def report(figures: Figures) -> None:
    """Print what `record` measured as a table."""
    setting, spread = figures["setting"], figures["spread"]
    table = Table(title=", ".join(f"{name} {value}" for name, value in setting.items()))
    table.add_column("recorder")
    for column in (*MOMENTS, "bar", "holds, by steps", "output"):
        table.add_column(column, justify="right")
    for name, identical in figures["identical"].items():
        extra = [spread["extra_percent"][moment][name] for moment in MOMENTS]
        held = ", ".join(f"{steps}: {mb:,.1f} MB" for steps, mb in figures["held_mb"][name].items())
        table.add_row(
            f"heedmap {name}" if name in BARS else name,
            *(f"{middle:.2f} % ({low:.2f} to {high:.2f})" for low, middle, high in extra),
            f"{BARS[name]} %" if name in BARS else "", held, "same" if identical else "differs",
        )  # fmt: skip
    console = Console(highlight=False, width=110)
    console.print(table)
    console.print(f"a plain pass takes {spread['pass_s'][1]:.3f} s")
