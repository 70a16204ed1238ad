"""The stage `latents`: scenes drawn and encoded once, so that the UNet's training need not.

A shard is a file of `SHARD` scenes. It names their seeds and counts of things, from which the
layouts, and so any number of captions, are made again when it is read.
"""

import argparse
import math
import sys
from pathlib import Path
from random import Random

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from training.models import latents_of, trained_vae
from training.pictures import to_tensor, training_layout
from training.run import Run
from world import scenes

SHARD = 4096
"""Scenes in one file of latents."""
BATCH = 64
"""Scenes encoded at a time; a shard holds a whole number of such batches."""


def make_latents(rank: int, options: argparse.Namespace) -> None:
    """Shards of encoded scenes: latents, the share of thing pixels in every cell, seeds, counts."""
    run = Run(rank, options)
    vae = trained_vae(run.work).to(run.device).eval()
    folder = run.work / "latents"
    folder.mkdir(exist_ok=True)

    @run.compiled
    def encode(x: torch.Tensor) -> torch.Tensor:
        with run.autocast():
            return latents_of(vae, x)

    for shard in range(rank, math.ceil(options.scenes / SHARD), run.world):
        path = folder / f"{shard:05d}.safetensors"
        if path.exists():
            continue
        latents, cover, counts = [], [], []
        seeds = np.arange(shard * SHARD, (shard + 1) * SHARD)
        for start in range(0, SHARD, BATCH):
            drawn = [
                scenes.render(training_layout(int(s), shard_count(shard, int(s))))
                for s in seeds[start : start + BATCH]
            ]
            x = to_tensor(np.stack([d.image for d in drawn]), run.device)
            with torch.no_grad():
                latents.append(encode(x).half().cpu().numpy())
            masks = np.stack([d.masks.any(axis=0) for d in drawn])
            cover.append(cell_cover(masks, options.latent_side))
            counts += [len(d.layout.things) for d in drawn]
        arrays = {
            "latents": np.ascontiguousarray(np.concatenate(latents)),  # as it lies, so it is saved
            "cover": np.concatenate(cover),
            "seeds": seeds,
            "counts": np.array(counts, dtype=np.uint8),
        }
        save_file(arrays, path.with_suffix(".partial"))
        path.with_suffix(".partial").replace(path)
        run.log(shard=shard)


def shard_count(shard: int, seed: int) -> int:
    """How many things the scenes of a shard have: all one, all two, or two and three.

    Shards take turns, so that few of them already hold every kind.
    """
    return (1, 2, 2 if seed % 2 else 3)[shard % 3]


def cell_cover(masks: np.ndarray, side: int) -> np.ndarray:
    """The share of each latent cell that masks (n, h, w) cover: uint8 (n, side, side) up to 255."""
    n, cell = len(masks), masks.shape[-1] // side
    cells = masks.astype(np.float32).reshape(n, side, cell, side, cell)
    return (cells.mean((2, 4)) * 255).astype(np.uint8)


class Latents:
    """All shards in memory, with their layouts, drawn from by the number of things."""

    def __init__(self, folder: Path) -> None:
        shards = [load_file(path) for path in sorted(folder.glob("*.safetensors"))]
        if not shards:
            sys.exit("no latents there: run the stage 'latents' first")
        self.latents, self.cover, seeds, counts = (
            np.concatenate([s[k] for s in shards]) for k in ("latents", "cover", "seeds", "counts")
        )
        self.layouts = [training_layout(int(s), int(c)) for s, c in zip(seeds, counts, strict=True)]
        self.by_count = [np.flatnonzero(counts == c) for c in (1, 2, 3)]

    def batch(self, rng: Random, shares: tuple[float, float, float], n: int) -> np.ndarray:
        """N indices, the numbers of things drawn with the given shares."""
        kinds = rng.choices((0, 1, 2), shares, k=n)
        return np.array([self.by_count[k][rng.randrange(len(self.by_count[k]))] for k in kinds])
