"""What recording costs, and what the methods of other tools cost in their shortest form.

classic             diffusers' classic processor; the mean over heads is averaged over the steps
store_everything    the same processor; the maps of every layer, head, branch and step are kept
attention_store     as prompt-to-prompt: self-attention too, what has at most 32² positions is kept
"""

import argparse
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from diffusers.models.attention_processor import AttnProcessor
from rich.console import Console
from rich.table import Table

from benchmarking.replay import (
    SETTING,
    Call,
    Figures,
    Turns,
    attention_layers,
    cpu_seconds,
    pass_by_pass,
    quartiles,
    random_pipeline,
    replayer,
    run,
    take_down,
    twin,
)
from heedmap.backends.registry import family_of
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.recordings import Recording
from heedmap.recording.refining import propagation_layers
from heedmap.recording.tracing import trace

TOKENS: dict[str, Any] = {"all_tokens": "all", "prompt_tokens": "prompt"}
BARS = {"all_tokens": 1.2, "prompt_tokens": 0.5}  # percent, at the full shape
PEERS = ("classic", "store_everything", "attention_store")
PROGRAM = Path(__file__).parents[1] / "benchmark.py"


def held_mb() -> float:
    """Megabytes of all tensors that anything still refers to, less what was frozen before."""
    gc.collect()
    tensors = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values()) / 1e6


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
    extra_s: list[float]  # recorded less bare, for each pair
    held_mb: dict[int, float]  # by calls of the UNet
    identical: bool


def heard(pipe: Any) -> list[str]:
    """The layers heedmap listens to: all that read the text, and those that refine its maps."""
    size = pipe.unet.config.sample_size
    family = family_of(pipe)
    layers, grid = (family.image_layers(), family.text_layers()), family.grid
    own, cross = ({name: grid(name, (size, size)) for name in some} for some in layers)
    return [*cross, *propagation_layers(own, cross)]


def compare(
    pipe: Any, calls: dict[str, Call], record: Recorder, rounds: int, names: Collection[str]
) -> Cost:
    """Replay a step's layers bare and recorded, in turn, after each step of two runs.

    Maps are refined in the later half of a run, so that a step of each half makes a pair.
    """
    cost = Cost([], [], {}, True)
    same: list[bool] = []
    bare = replayer(pipe, calls, names)
    for steps in (2, 2 + 2 * rounds):
        recorded = replayer(pipe, calls, names)
        turns = Turns(bare, recorded, calls[""])
        before = held_mb()
        with pass_by_pass(), record(recorded):
            run(recorded, steps, turns)
            cost.held_mb[steps] = round(held_mb() - before, 3)
        same += turns.same
        if steps > 2:
            early, late = turns.extra_s[:rounds], turns.extra_s[rounds : 2 * rounds]
            cost.bare_s.extend(turns.bare_s)
            cost.extra_s.extend((a + b) / 2 for a, b in zip(early, late, strict=True))
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
    command = [sys.executable, "-W", "ignore", str(PROGRAM), "peak"]
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
        layers = (
            heard(pipe) if name in HEEDMAP else attention_layers(pipe.unet, cross_only=not slow)
        )
        costs[name] = compare(pipe, calls, recorder, rounds, layers)
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
    """How much longer whole runs take: wall time, recorded to bare."""
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

    figures: Figures = {"wall_ratio": {}, "spread": {}}
    for shape in ("sd15", "sdxl"):
        pipe = random_pipeline(options, xl=shape == "sdxl")
        for tokens in ways.values():
            seconds(pipe, tokens)  # to warm up
        rounds = [{n: seconds(pipe, t) for n, t in ways.items()} for _ in range(options.rounds)]
        ratios = {n: quartiles([each[n] / each["plain"] for each in rounds]) for n in TOKENS}
        figures["wall_ratio"][shape] = {name: ratio[1] for name, ratio in ratios.items()}
        plain = quartiles([each["plain"] for each in rounds])
        figures["spread"][shape] = {"plain_s": plain, **ratios}
    return figures


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
