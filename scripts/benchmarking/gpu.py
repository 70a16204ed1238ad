"""What recording costs on a GPU, and whether it is exact there: models of the true size.

All models have random weights. Of each family and type of number, latents are compared to the bit,
bare and recorded, and probabilities with float64. A step is timed by the clock with each recorder
in turn. The file is written again after each family, so that a run that is stopped tells something.

naive   an explicit softmax over all keys; the mean over heads of the text's columns is summed
stash   queries and keys are kept by reference, and nothing is computed (memory grows with steps)
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional

from benchmarking import joint, replay
from benchmarking.replay import PROMPT, Figures
from heedmap.backends.registry import family_of
from heedmap.mathematics.events import AttentionEvent, take
from heedmap.recording.tracing import observe, trace

FAMILIES = ("sd15", "sdxl", "sd3", "flux")
DTYPES = ("float16", "bfloat16", "float32")
BLOCKS = {"sd3": 24, "flux": 12}  # all of SD 3 medium; 12 of Flux's 57
TEXT_TOKENS = {"sd3": 77 + 256, "flux": 512}
ROOT = Path(__file__).parents[2]


def pipeline(family: str, dtype: str, options: argparse.Namespace) -> Any:
    """Return a pipeline of random weights, made on the device."""
    shape = argparse.Namespace(dtype=dtype, device=options.device, family=family)
    shape.latent = options.latent or (128 if family in BLOCKS else 64)
    shape.width = options.width or 320
    with torch.device(options.device):
        if family in BLOCKS:
            shape.blocks = options.blocks or BLOCKS[family]
            shape.text_tokens = TEXT_TOKENS[family]
            shape.width = 6 * options.width if options.width else joint.WIDTHS[family]
            return joint.random_pipeline(shape)
        return replay.random_pipeline(shape, xl=family == "sdxl")


def run(pipe: Any, family: str, options: argparse.Namespace, batch: int, steps: int) -> Any:
    """Denoise a batch from one noise; return the latents."""
    more: dict[str, Any] = {}
    if family in BLOCKS:
        tokens = TEXT_TOKENS[family] - (joint.CLIP if family == "sd3" else 0)
        side = 8 * (options.latent or 128)
        more = {"height": side, "width": side, "max_sequence_length": tokens}
    if family == "flux":
        more["guidance_scale"] = 1.0
    generators = [torch.Generator().manual_seed(seed) for seed in range(batch)]
    return pipe(
        [PROMPT] * batch,
        num_inference_steps=steps,
        generator=generators,
        output_type="latent",
        **more,
    ).images


@contextmanager
def intercepted(
    pipe: Any, family: str, add: Callable[[int, Any, Any, float], None]
) -> Iterator[None]:
    """Call `add` with the number, Q, K and scale of each attention to the text."""
    kernel = functional.scaled_dot_product_attention
    layers: list[int] = []

    def attend(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        tokens = TEXT_TOKENS.get(family, joint.CLIP)
        is_joint = family in BLOCKS and query.shape[2] == key.shape[2] > tokens
        is_cross = family not in BLOCKS and key.shape[2] == tokens < query.shape[2]
        if is_joint or is_cross:
            layers.append(0)
            add(len(layers), query, key, query.shape[-1] ** -0.5)
        return kernel(query, key, value, *args, **kwargs)

    functional.scaled_dot_product_attention = attend
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = kernel


def naive(pipe: Any, family: str) -> AbstractContextManager[Any]:
    """Return a recorder that computes a whole softmax."""
    sums: dict[torch.Size, torch.Tensor] = {}
    layout = family_of(pipe).layout
    tokens = TEXT_TOKENS.get(family, joint.CLIP)

    def add(number: int, query: Any, key: Any, scale: float) -> None:
        row = layout(tokens, key.shape[2] - tokens).row(0)
        half = slice(len(query) // 2, None) if family != "flux" else slice(None)
        p = (query[half].float() @ key[half].float().mT * scale).softmax(dim=-1)
        mean = take(take(p, row.positions).mean(dim=1), row.tokens, -1)
        sums[mean.shape] = sums[mean.shape].add_(mean) if mean.shape in sums else mean.clone()

    return intercepted(pipe, family, add)


def stash(pipe: Any, family: str) -> AbstractContextManager[Any]:
    """Return a recorder that keeps queries and keys."""
    kept: list[Any] = []
    return intercepted(pipe, family, lambda _, query, key, scale: kept.append((query, key)))


WAYS: dict[str, Callable[[Any, str], AbstractContextManager[Any]]] = {
    "bare": lambda pipe, family: nullcontext(),
    "heedmap": lambda pipe, family: trace(pipe),
    "heedmap, all tokens": lambda pipe, family: trace(pipe, tokens="all"),
    "naive": naive,
    "stash": stash,
}


def largest_error(pipe: Any, family: str, options: argparse.Namespace) -> float:
    """Return the largest error of a probability in one step, beside float64."""
    errors: list[torch.Tensor] = []

    def compare(event: AttentionEvent) -> None:
        number = len(event.layout.rows) - 1
        row = event.row(number)
        found = row.probabilities()
        for head in range(len(found)):
            scores = row.query[head].double() @ row.keys[head].double().mT * row.scale
            p = take(scores.softmax(dim=-1), row.layout.tokens, -1)
            errors.append((p - found[head]).abs().max())

    with observe(pipe, compare):
        run(pipe, family, options, batch=1, steps=1)
    return float(torch.stack(errors).max())


def is_identical(pipe: Any, family: str, options: argparse.Namespace) -> bool:
    """Return whether recorded latents are the bare ones to the bit."""
    bare = run(pipe, family, options, batch=1, steps=2)
    with trace(pipe, tokens="all"):
        recorded = run(pipe, family, options, batch=1, steps=2)
    return torch.equal(bare, recorded)


def synchronize(options: argparse.Namespace) -> None:
    """Wait for the device."""
    if options.device == "cuda":
        torch.cuda.synchronize()


def times(pipe: Any, family: str, options: argparse.Namespace, batch: int) -> Figures:
    """Return, for each way, milliseconds a step, their ratio to bare ones, and the peak memory."""
    milliseconds: dict[str, list[float]] = {name: [] for name in WAYS}
    peaks = dict.fromkeys(WAYS, 0.0)
    for round_ in range(options.rounds + 1):  # the first warms up
        for name, way in WAYS.items():
            if options.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            synchronize(options)
            start = time.perf_counter()
            with way(pipe, family):
                run(pipe, family, options, batch, options.steps)
            synchronize(options)
            spent = (time.perf_counter() - start) * 1e3 / options.steps
            if round_:
                milliseconds[name].append(spent)
            if options.device == "cuda":
                peaks[name] = torch.cuda.max_memory_allocated() / 2**20
    rows: Figures = {}
    for name, each in milliseconds.items():
        ratios = [ours / bare for ours, bare in zip(each, milliseconds["bare"], strict=True)]
        rows[name] = {
            "ms": round(statistics.median(each), 2),
            "ratio": round(statistics.median(ratios), 4),
            "ratio_range": [round(min(ratios), 4), round(max(ratios), 4)],
            "peak_mib": round(peaks[name]),
        }
    return rows


def cuda_tests() -> str:
    """Run the tests that need a GPU; return the last line that pytest prints."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-k", "cuda"]
    done = subprocess.run(
        [*command, "tests/mathematics"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    lines = done.stdout.strip().splitlines()
    return lines[-1] if lines else done.stderr[-200:]


@torch.no_grad()
def gpu(options: argparse.Namespace) -> Figures:
    """Measure all families; what does not fit into the time is named as left out."""
    begun = time.monotonic()
    figures: Figures = {
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "CPU",
        "torch": torch.__version__,
        "tests": cuda_tests() if options.device == "cuda" else "not run: no GPU",
        "families": {},
        "left_out": [],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for family in options.families:
        rows = figures["families"][family] = {}
        for dtype in options.dtypes:
            if time.monotonic() - begun > options.seconds:
                figures["left_out"].append(f"{family} {dtype}")
                continue
            pipe = pipeline(family, dtype, options)
            row = rows[dtype] = {
                "same_image": is_identical(pipe, family, options),
                "largest_error": largest_error(pipe, family, options),
            }
            if dtype == options.dtypes[0]:
                row["batches"] = {
                    str(batch): times(pipe, family, options, batch) for batch in options.batches
                }
            del pipe
            if options.device == "cuda":
                torch.cuda.empty_cache()
            options.out.write_text(json.dumps(figures, indent=1))
            print(f"{time.monotonic() - begun:.0f} s: {family} {dtype}", file=sys.stderr)
    options.out.write_text(json.dumps(figures, indent=1))
    return figures


def report(figures: Figures) -> None:
    """Print the figures as two tables."""
    console = Console(highlight=False, width=110)
    console.print(f"{figures['device']}, torch {figures['torch']}; tests: {figures['tests']}")
    exact = Table("family", "type", "same latents", "largest error of a probability")
    timed = Table("family", "batch", "recorder", "ms a step", "× bare", "range", "peak MiB")
    for family, rows in figures["families"].items():
        for dtype, row in rows.items():
            same = "yes" if row["same_image"] else "NO"
            exact.add_row(family, dtype, same, f"{row['largest_error']:.1e}")
            for batch, ways in row.get("batches", {}).items():
                for name, way in ways.items():
                    low, high = way["ratio_range"]
                    spread = f"{low} to {high}"
                    cells = (family, batch, name, str(way["ms"]), str(way["ratio"]), spread)
                    timed.add_row(*cells, str(way["peak_mib"]))
    console.print(exact)
    console.print(timed)
    if figures["left_out"]:
        console.print(f"Left out, since the time was over: {', '.join(figures['left_out'])}")


def add_parser(verbs: Any) -> None:
    """Add the sub-command `gpu`."""
    parser = verbs.add_parser("gpu", help="exactness and time of recording on a GPU: 8 minutes")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, default=Path("outputs/gpu.json"))
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES)
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=DTYPES)
    parser.add_argument("--batches", nargs="+", type=int, default=(1, 4))
    parser.add_argument("--steps", type=int, default=8, help="of a timed run (8)")
    parser.add_argument("--rounds", type=int, default=5, help="of all recorders in turn (5)")
    parser.add_argument("--seconds", type=float, default=420, help="after which none begins (420)")
    for name in ("width", "latent", "blocks"):
        parser.add_argument(f"--{name}", type=int, help="default: the true one")
    parser.set_defaults(function=run_gpu, threads=1)


def run_gpu(options: argparse.Namespace) -> None:
    """Run the sub-command."""
    report(gpu(options))
