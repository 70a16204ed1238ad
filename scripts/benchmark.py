"""Measure what recording costs.

    python scripts/benchmark.py record                  at the shape of Stable Diffusion 1.5
    python scripts/benchmark.py record --json           the same, as one JSON object
    python scripts/benchmark.py record --width 64 --latent 32 --rounds 5       a quick look
    python scripts/benchmark.py record --device cuda    whole runs by the clock, SD 1.5 and SDXL

`record` runs one step of a real pipeline with random weights and takes down what every attention
layer is given. Then these layers alone are replayed, bare and recorded in turn, many times: what
the recorded ones take longer, in CPU time, as a share of the whole UNet's forward pass, is the cost
of recording. A replay is a call of the UNet with another forward pass in it, so whatever a recorder
put on the UNet and its layers acts as in a run.

Three methods of other tools, in their shortest form, are measured in the same way:
classic             diffusers' classic processor; the mean over heads is averaged over the steps
store_everything    the same processor; the maps of every layer, head, branch and step are kept
attention_store     as prompt-to-prompt: self-attention too, what has at most 32² positions is kept
"""

import argparse
import copy
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import diffusers
import torch
import transformers
from diffusers.models.attention_processor import Attention, AttnProcessor
from rich.console import Console
from rich.table import Table

from heedmap import models
from heedmap.maps import HeatMaps
from heedmap.recordings import Recording
from heedmap.tracing import trace

PROMPT = "a red house next to a blue tree in snow"  # ten tokens; twelve with start and end
TOKENS: dict[str, Any] = {"all_tokens": "all", "prompt_tokens": "prompt"}
BARS = {"all_tokens": 1.2, "prompt_tokens": 0.5}  # percent, at the full shape
PEERS = ("classic", "store_everything", "attention_store")
SETTING = ("width", "latent", "dtype", "threads")
Figures = dict[str, Any]


# --- a pipeline of random weights -------------------------------------------------------------


def random_pipeline(options: argparse.Namespace, *, xl: bool = False) -> Any:
    """A pipeline with a UNet of the shape of Stable Diffusion 1.5 or XL; the rest is small."""
    torch.manual_seed(0)
    width, tokenizer = options.width, models.tokenizer()
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
        shape = {"hidden_size": width, "intermediate_size": width, "projection_dim": width}
        shape |= {"num_hidden_layers": 1, "num_attention_heads": width // 64}
        shape |= {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
        config = transformers.CLIPTextConfig(vocab_size=len(tokenizer), **shape)
        return getattr(transformers, kind)(config).eval()

    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, options.dtype))  # a float32 copy would be the peak
    try:
        parts = {
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
        none = {"safety_checker": None, "feature_extractor": None}
        pipe = diffusers.StableDiffusionPipeline(**parts, **none, requires_safety_checker=False)
    pipe.set_progress_bar_config(disable=True)
    return pipe.to(options.device)


def run(pipe: Any, steps: int = 1, each: Callable[[int, Any], None] | None = None) -> None:
    """Denoise with guidance, that is in a batch of two; the latent is not decoded.

    After each step, `each` is called with its number and timestep.
    """

    def after(pipe: Any, number: int, timestep: Any, state: dict[str, Any]) -> dict[str, Any]:
        if each is not None:
            each(number, timestep)
        return {}

    pipe(
        PROMPT, num_inference_steps=steps, generator=torch.Generator().manual_seed(0),
        output_type="latent", callback_on_step_end=after,
    )  # fmt: skip


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


def attention_layers(unet: torch.nn.Module, *, cross_only: bool) -> dict[str, Attention]:
    found = {name: m for name, m in unet.named_modules() if isinstance(m, Attention)}
    return {name: m for name, m in found.items() if m.is_cross_attention or not cross_only}


def take_down(pipe: Any) -> dict[str, Call]:
    """The calls of all attention layers, and of the UNet itself (named ""), in one real step."""
    calls: dict[str, Call] = {}

    def take(name: str, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        calls[name] = Call(args, kwargs, output[0] if isinstance(output, tuple) else output)

    modules = {"": pipe.unet, **attention_layers(pipe.unet, cross_only=False)}
    hooks = [
        module.register_forward_hook(partial(take, name), with_kwargs=True)
        for name, module in modules.items()
    ]
    run(pipe)
    for hook in hooks:
        hook.remove()
    return calls


def replayer(pipe: Any, calls: dict[str, Call], *, cross_only: bool) -> Any:
    """A twin whose UNet runs only the attention layers, each on what it was given in `calls`."""
    other = twin(pipe)
    layers = attention_layers(other.unet, cross_only=cross_only)
    todo = [(layer, calls[name].args, calls[name].kwargs) for name, layer in layers.items()]

    def forward(*_: Any, **__: Any) -> tuple[torch.Tensor, ...]:
        return calls[""].output, *(layer(*args, **kwargs) for layer, args, kwargs in todo)

    other.unet.forward = forward
    return other


def cpu_seconds(action: Callable[[], object]) -> float:
    """CPU time of this process: the time in which others hold the cores is not counted."""
    start = time.process_time()
    action()
    return time.process_time() - start


def held_mb() -> float:
    """Megabytes of all tensors that anything still refers to, less what was frozen before."""
    gc.collect()
    tensors = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values()) / 1e6


def quartiles(values: Sequence[float], times: float = 1.0) -> list[float]:
    """Lower quartile, median and upper quartile."""
    found = statistics.quantiles(values, method="inclusive") if values[1:] else [*values] * 3
    return [round(value * times, 4) for value in found]


# --- recorders: opened on a pipeline, they record until they are closed ------------------------

Recorder = Callable[[Any], AbstractContextManager[Any]]
HEEDMAP: dict[str, Recorder] = {n: partial(trace, keep={"layer"}, tokens=TOKENS[n]) for n in TOKENS}


@contextmanager
def peer(pipe: Any, name: str) -> Iterator[None]:
    """The method of another tool: all compute the output from an explicit softmax."""
    kept: dict[str, Any] = {}

    def add(layer: str, p: torch.Tensor) -> None:
        kept[layer] = kept[layer].add_(p) if layer in kept else p.clone()

    def scores(layer: str, compute: Callable[..., torch.Tensor], *args: Any) -> torch.Tensor:
        p = compute(*args)  # (B·H, Q, K), the conditional branch last
        if name == "store_everything":
            kept.setdefault(layer, []).append(p)
        elif name == "classic":
            add(layer, p[len(p) // 2 :].float().mean(dim=0))
        elif p.shape[1] <= 32**2:
            add(layer, p[len(p) // 2 :])
        return p

    layers = attention_layers(pipe.unet, cross_only=name != "attention_store")
    for path, layer in layers.items():
        layer.set_processor(AttnProcessor())
        layer.get_attention_scores = partial(scores, path, layer.get_attention_scores)
    yield


RECORDERS = HEEDMAP | {name: partial(peer, name=name) for name in PEERS}


class Cost(NamedTuple):
    """What recording took and held."""

    bare_s: list[float]
    extra_s: list[float]  # recorded less bare, a pair each
    held_mb: dict[int, float]  # by calls of the UNet
    identical: bool


def compare(
    pipe: Any, calls: dict[str, Call], record: Recorder, rounds: int, *, cross_only: bool = True
) -> Cost:
    """Replay a step's layers bare and recorded, in turn; who goes first changes every time.

    It is done after each step of a run of the pipeline, once more with the step's timestep, so that
    the recorder sees a run. The first step is to warm up and to compare what comes out.
    """
    cost = Cost([], [], {}, True)
    same: list[bool] = []
    sample, _, *_ = calls[""].args
    plain = replayer(pipe, calls, cross_only=cross_only)
    for steps in (1, 1 + rounds):
        pipes = (plain, replayer(pipe, calls, cross_only=cross_only))

        def each(number: int, timestep: Any, pipes: tuple[Any, Any] = pipes) -> None:
            bare, recorded = (partial(p.unet, sample, timestep, **calls[""].kwargs) for p in pipes)
            if number == 0:
                same.extend(torch.equal(a, b) for a, b in zip(bare(), recorded(), strict=True))
                return
            order = (bare, recorded) if number % 2 else (recorded, bare)
            seconds = {step: cpu_seconds(step) for step in order}
            cost.bare_s.append(seconds[bare])
            cost.extra_s.append(seconds[recorded] - seconds[bare])

        before = held_mb()
        with record(pipes[1]):
            run(pipes[1], steps, each)
            cost.held_mb[2 * steps] = round(held_mb() - before, 3)
    return cost._replace(identical=all(same))


def real_step(pipe: Any, calls: dict[str, Call], record: Recorder) -> tuple[bool, Recording]:
    """Record a whole step: whether all layers and the UNet gave the same to the bit."""
    other = twin(pipe)
    with record(other) as recorded:
        again = take_down(other)
    same = all(torch.equal(again[name].output, call.output) for name, call in calls.items())
    return same, recorded.recordings[0]


def map_ms(recording: Recording) -> dict[str, float]:
    """CPU time from a saved recording to the map of one word, and to the maps of all words."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "maps.safetensors"
        recording.save(path)
        ways = {
            "one_word": lambda: HeatMaps(Recording.load(path))["house"],
            "all_words": lambda: list(HeatMaps(Recording.load(path))),
        }
        return {n: quartiles([cpu_seconds(w) for _ in range(15)], 1e3)[1] for n, w in ways.items()}


# --- peak memory, in processes of their own ---------------------------------------------------


def run_peak(options: argparse.Namespace) -> None:
    """The sub-command `peak`: prints the highest resident memory, in MB, of two steps."""
    pipe = random_pipeline(options)
    with trace(pipe) if options.recorded else nullcontext() as recorded:
        run(pipe, steps=2)
    if recorded and not recorded.recordings:
        raise SystemExit("nothing was recorded")
    # Not from getrusage, which tells the parent's peak where that is higher.
    lines = Path("/proc/self/status").read_text().splitlines()
    print(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e6)


def peaks(options: argparse.Namespace) -> dict[str, list[float]]:
    """Peak memory in MB of bare and of recorded runs, in turn, each in a fresh process.

    glibc decides from what was freed before which tensors get pages of their own, so equal runs
    differ by some 20 MB; with a fixed limit freed tensors leave at once, and peaks tell what lived.
    """
    found: dict[str, list[float]] = {"plain": [], "recorded": []}
    fixed = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(2**17)}
    command = [sys.executable, "-W", "ignore", __file__, "peak"]
    command += [f"--{name}={getattr(options, name)}" for name in SETTING]
    for name in list(found) * options.repeats:
        more = ["--recorded"] if name == "recorded" else []
        peak = subprocess.check_output([*command, *more], env=fixed, text=True)
        found[name].append(round(float(peak), 1))
    return found


# --- the figures ------------------------------------------------------------------------------


@torch.no_grad()
def record(options: argparse.Namespace) -> Figures:
    """What recording costs on the CPU."""
    peak = peaks(options)  # first, while this process holds no model
    extra_mb = [b - a for a, b in zip(peak["plain"], peak["recorded"], strict=True)]
    pipe = random_pipeline(options)
    calls = take_down(pipe)
    whole = {name: real_step(pipe, calls, record) for name, record in HEEDMAP.items()}
    gc.collect()
    gc.freeze()  # what is there already is no longer looked through for tensors
    forwards: list[float] = []
    costs: dict[str, Cost] = {}
    for name, recorder in RECORDERS.items():
        print(f"{time.strftime('%H:%M:%S')} {name}", file=sys.stderr, flush=True)
        forward = partial(pipe.unet, *calls[""].args, **calls[""].kwargs)
        forwards.append(cpu_seconds(forward))
        # Self-attention is slow to replay, and costs so much that fewer rounds tell it.
        slow = name == "attention_store"
        rounds = max(2, options.rounds // 4) if slow else options.rounds
        costs[name] = compare(pipe, calls, recorder, rounds, cross_only=not slow)
    gc.unfreeze()
    share = 100 / statistics.median(forwards)
    extra = {name: quartiles(cost.extra_s, share) for name, cost in costs.items()}
    held = {name: list(cost.held_mb.values())[-1] for name, cost in costs.items()}
    recording = whole["prompt_tokens"][1]
    return {
        "extra_percent": {name: extra[name][1] for name in TOKENS},
        "retained_mb": max(held["prompt_tokens"], round(recording.nbytes / 1e6, 3)),
        "peak_extra_mb": round(statistics.median(extra_mb), 1) if extra_mb else None,
        "bit_identical": all(whole[name][0] and costs[name].identical for name in TOKENS),
        "peers": {n: {"extra_percent": extra[n][1], "retained_mb": held[n]} for n in PEERS},
        "map_ms": map_ms(recording),
        "spread": {
            "extra_percent": extra,  # quartiles
            "layers_percent": {n: quartiles(c.bare_s, share) for n, c in costs.items()},
            "forward_s": [round(seconds, 3) for seconds in forwards],
            "retained_mb": {name: cost.held_mb for name, cost in costs.items()},  # by UNet calls
            "identical": {name: cost.identical for name, cost in costs.items()},
            "peak_mb": peak,
        },
        "setting": {name: getattr(options, name) for name in (*SETTING, "rounds")}
        | {"parameters": pipe.unet.num_parameters(), "torch": torch.__version__},
    }


def record_by_the_clock(options: argparse.Namespace) -> Figures:
    """How much longer whole runs take: wall time, recorded to bare, and kernels started a step."""
    ways = {"plain": None, **TOKENS}

    def seconds(pipe: Any, tokens: Any, steps: int = options.steps) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        with trace(pipe, tokens=tokens) if tokens else nullcontext() as recorded:
            run(pipe, steps)
        if recorded:
            assert recorded.recordings  # off the device
        torch.cuda.synchronize()
        return time.perf_counter() - start

    def launches(pipe: Any, tokens: Any) -> float:
        counts = []
        for steps in (2, 4):
            with torch.profiler.profile() as profile:
                seconds(pipe, tokens, steps)
            counts.append(sum(e.count for e in profile.key_averages() if "LaunchK" in e.key))
        return (counts[1] - counts[0]) / 2

    figures: Figures = {"wall_ratio": {}, "spread": {}, "launches_per_step": {}}
    for shape in ("sd15", "sdxl"):
        pipe = random_pipeline(options, xl=shape == "sdxl")
        for tokens in ways.values():
            seconds(pipe, tokens)  # to warm up
        rounds = [{n: seconds(pipe, t) for n, t in ways.items()} for _ in range(options.rounds)]
        ratios = {n: quartiles([each[n] / each["plain"] for each in rounds]) for n in TOKENS}
        figures["wall_ratio"][shape] = {name: ratio[1] for name, ratio in ratios.items()}
        plain = quartiles([each["plain"] for each in rounds])
        figures["spread"][shape] = {"plain_s": plain, **ratios}
        figures["launches_per_step"][shape] = {n: launches(pipe, t) for n, t in ways.items()}
    return figures


# --- the command line -------------------------------------------------------------------------


def report(figures: Figures) -> None:
    """Print what `record` measured as a table."""
    spread, setting = figures["spread"], figures["setting"]
    table = Table(title=", ".join(f"{name} {value}" for name, value in setting.items()))
    table.add_column("recorder")
    for column in ("extra CPU time", "quartiles", "bar", "holds, first to last", "output"):
        table.add_column(column, justify="right")
    for name, (low, middle, high) in spread["extra_percent"].items():
        ours = name in TOKENS
        held = " to ".join(f"{mb:,.1f}" for mb in spread["retained_mb"][name].values())
        table.add_row(
            f"heedmap {name}" if ours else name, f"{middle:.2f} %", f"{low:.2f} to {high:.2f}",
            f"{BARS[name]} %" if ours else "", f"{held} MB",
            "same" if spread["identical"][name] else "differs",
        )  # fmt: skip
    bare = spread["layers_percent"]["prompt_tokens"][1]
    forward = quartiles(spread["forward_s"])[1]
    console = Console(highlight=False, width=110)
    console.print(table)
    for what, value in (
        ("whole forward pass", f"{forward:.2f} s of CPU time; bare layers {bare:.2f} % of it"),
        ("bit-identical", "yes" if figures["bit_identical"] else "NO"),
        ("peak memory", f"{figures['peak_extra_mb']} MB more: {spread['peak_mb']}"),
        ("maps after the run", f"{figures['map_ms']} ms"),
    ):
        console.print(f"{what:21}{value}")


def run_record(options: argparse.Namespace) -> None:
    """The sub-command `record`."""
    figures = record_by_the_clock(options) if options.device == "cuda" else record(options)
    if options.json:
        print(json.dumps(figures))
    elif options.device == "cuda":
        Console().print_json(data=figures)
    else:
        report(figures)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(required=True, metavar="WHAT")
    recording = verbs.add_parser("record", help="what recording costs")
    peak = verbs.add_parser("peak", help="the peak memory of one run; `record` asks for it")
    for verb, function in ((recording, run_record), (peak, run_peak)):
        verb.add_argument("--width", type=int, default=320, help="channels of the UNet (320)")
        verb.add_argument("--latent", type=int, default=64, help="side of the latent (64)")
        verb.add_argument("--dtype", choices=models.DTYPES[1:], default="bfloat16")
        verb.add_argument("--threads", type=int, default=1, help="(1)")
        verb.set_defaults(function=function, device="cpu")
    recording.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    recording.add_argument("--rounds", type=int, default=24, help="pairs compared (24)")
    recording.add_argument("--repeats", type=int, default=3, help="pairs of peaks measured (3)")
    recording.add_argument("--steps", type=int, default=50, help="of a run on a GPU (50)")
    recording.add_argument("--json", action="store_true", help="print one JSON object")
    peak.add_argument("--recorded", action="store_true", help="with heedmap")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    options.function(options)


if __name__ == "__main__":
    main()
