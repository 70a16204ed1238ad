"""What a call of heedmap takes beside the model's own passes, in CPU time.

After every pass of the UNet the same one is made once more by a twin to which nobody listens: that
is what the passes take, a pass beside a pass. The autoencoder, which encodes a picture once and
decodes what was drawn, is told apart. All else, from the call to its result, is heedmap's.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import diffusers
import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

import heedmap
from benchmarking.replay import (
    PROMPT,
    SETTING,
    Figures,
    cpu_seconds,
    quartiles,
    random_pipeline,
    twin,
)

CONCEPTS = ("sky", "grass", "dog", "window")
TARGET = PROMPT.replace("house", "boat")
BARS = {"locate": 3.0}  # percent
CALLS = (
    *("locate", "locate with concepts", "generate", "generate with concepts", "ablate"),
    *("edit", "edit of a picture"),
)


def shaped(options: argparse.Namespace) -> Any:
    """A pipeline with an autoencoder of the shape of Stable Diffusion 1.5 beside its UNet."""
    pipe = random_pipeline(options)
    shape: dict[str, Any] = {
        "block_out_channels": [options.width * part // 80 * 16 for part in (2, 4, 8, 8)],
        "down_block_types": ["DownEncoderBlock2D"] * 4,
        "up_block_types": ["UpDecoderBlock2D"] * 4,
    }
    vae = diffusers.AutoencoderKL(
        **shape, layers_per_block=2, norm_num_groups=16, sample_size=8 * options.latent
    )
    parts = {**pipe.components, "vae": vae.eval().to(pipe.unet.dtype)}
    whole = type(pipe)(**parts, requires_safety_checker=False)
    whole.set_progress_bar_config(disable=True)
    return whole


def ways(
    pipe: Any, picture: Image.Image, steps: int, calls: Sequence[str] = CALLS
) -> dict[str, Callable[[int], object]]:
    """What is measured, by name: each takes the number of its round for a seed."""
    seen = partial(heedmap.locate, pipe, picture, PROMPT, steps=steps)
    drawn = partial(heedmap.generate, pipe, PROMPT, steps=steps)
    some = list(CONCEPTS)
    every: dict[str, Callable[[int], object]] = {
        "locate": lambda n: seen(seed=n),
        "locate with concepts": lambda n: seen(seed=n, concepts=some),
        "generate": lambda n: drawn(seed=n),
        "generate with concepts": lambda n: drawn(seed=n, concepts=some),
        "edit": lambda n: heedmap.edit(pipe, PROMPT, TARGET, steps=steps, seed=n),
        "edit of a picture": lambda n: heedmap.edit(
            pipe, PROMPT, TARGET, image=picture, steps=steps, seed=n
        ),
        "ablate": lambda n: heedmap.ablate(pipe, drawn(seed=n), "house"),
    }
    return {name: every[name] for name in calls}


class Passes:
    """Beside each pass of a pipeline's UNet the same, bare; and what the autoencoder takes.

    Attributes:
        bare_s: CPU seconds of each bare pass.
        vae_s: of each pass of the encoder or the decoder.
    """

    def __init__(self, pipe: Any) -> None:
        self.bare_s: list[float] = []
        self.vae_s: list[float] = []
        self._bare = twin(pipe).unet
        pipe.unet.register_forward_hook(self._again, with_kwargs=True)
        for half in (pipe.vae.encoder, pipe.vae.decoder):
            half.register_forward_pre_hook(self._begin)
            half.register_forward_hook(self._end)
        self._start = 0.0

    def _again(self, unet: Any, args: Any, kwargs: Any, output: Any) -> None:
        self.bare_s.append(cpu_seconds(partial(self._bare, *args, **kwargs)))

    def _begin(self, *_: Any) -> None:
        self._start = time.process_time()

    def _end(self, *_: Any) -> None:
        self.vae_s.append(time.process_time() - self._start)

    def beside(self, action: Callable[[], object]) -> Figures:
        """One call: its passes, what it takes beside them, in percent, and its autoencoder."""
        self.bare_s, self.vae_s = [], []
        whole = cpu_seconds(action)
        bare = sum(self.bare_s)
        # Of the whole one pass of each pair is the bare one.
        return {
            "passes": len(self.bare_s),
            "extra_percent": 100 * ((whole - bare - sum(self.vae_s)) / bare - 1),
            "vae_passes": sum(self.vae_s) / statistics.mean(self.bare_s),
            "pass_s": statistics.mean(self.bare_s),
        }


@torch.no_grad()
def passes(options: argparse.Namespace) -> Figures:
    """What each of `ways` takes, in turns."""
    pipe = shaped(options)
    side = 8 * options.latent
    pixels = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    every = ways(pipe, Image.fromarray(pixels), options.steps, options.calls)
    beside = Passes(pipe)
    pipe(PROMPT, num_inference_steps=1)  # to warm up
    found: dict[str, list[Figures]] = {name: [] for name in every}
    for number in range(options.rounds):
        for name, way in every.items():
            print(f"{time.strftime('%H:%M:%S')} {number} {name}", file=sys.stderr, flush=True)
            found[name].append(beside.beside(partial(way, number)))
    return {
        name: {
            "passes": rounds[0]["passes"],
            **{
                what: quartiles([one[what] for one in rounds])
                for what in ("extra_percent", "vae_passes", "pass_s")
            },
        }
        for name, rounds in found.items()
    } | {
        "setting": {name: getattr(options, name) for name in (*SETTING, "rounds", "steps")}
        | {"parameters": pipe.unet.num_parameters(), "torch": torch.__version__}
        | {"concepts": len(CONCEPTS)}
    }


def report(figures: Figures) -> None:
    """Print what `passes` measured as a table."""
    table = Table(title=", ".join(f"{name} {v}" for name, v in figures["setting"].items()))
    table.add_column("call")
    for column in ("passes", "more than these", "quartiles", "bar", "autoencoder, in passes"):
        table.add_column(column, justify="right")
    for name in (name for name in CALLS if name in figures):
        row = figures[name]
        low, middle, high = row["extra_percent"]
        table.add_row(
            name, f"{row['passes']}", f"{middle:.2f} %", f"{low:.2f} to {high:.2f}",
            f"{BARS[name]} %" if name in BARS else "", f"{row['vae_passes'][1]:.2f}",
        )  # fmt: skip
    Console(highlight=False, width=110).print(table)
