"""The stage `latents`: scenes drawn and encoded once, so that the UNet's training need not.

A shard is a file of scenes. It names their seeds and groups (`GROUPS`), from which the
layouts, and so any number of captions, are made again when it is read.
"""

import argparse
import itertools
import math
import sys
from pathlib import Path
from random import Random

import numpy as np
import torch
from safetensors.numpy import load_file
from safetensors.torch import save_file
from torch.utils.data import ConcatDataset, DataLoader, Dataset

from training.models import latents_of, trained_vae
from training.pictures import to_tensor, training_layout
from training.run import Run
from world import layouts, scenes

BATCH = 64
"""Scenes encoded at a time."""
GROUPS: tuple[tuple[int, layouts.Kind], ...] = (
    (1, "different"), (2, "different"), (3, "different"), (2, "several"), (3, "several"),
    (2, "twins"),
)  # fmt: skip
"""How many things, and what they are to each other: training draws from each group by itself."""
TURNS = ((0, 0), (1, 1), (3, 4), (5, 5), (0, 1), (2, 4))
"""The groups of even and of odd seeds, shard by shard; six shards hold every group."""


class Drawn(Dataset[tuple[np.ndarray, np.ndarray]]):
    """A shard's scenes in batches: pictures (n, h, w, 3), and `cell_cover`, both uint8."""

    def __init__(self, shard: int, size: int, side: int) -> None:
        self.shard, self.side = shard, side
        seeds = range(shard * size, (shard + 1) * size)
        self.batches = [seeds[at : at + BATCH] for at in range(0, size, BATCH)]

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        seeds = self.batches[number]
        drawn = [scenes.render(layout_of(seed, group_of(self.shard, seed))) for seed in seeds]
        masks = np.stack([scene.masks.any(axis=0) for scene in drawn])
        return np.stack([scene.image for scene in drawn]), cell_cover(masks, self.side)


def make_latents(rank: int, options: argparse.Namespace) -> None:
    """Shards of encoded scenes: latents, the share of thing pixels in every cell, seeds, groups."""
    run = Run(rank, options)
    vae = trained_vae(run.work).to(run.device).eval()
    folder = run.work / "latents"
    folder.mkdir(exist_ok=True)

    @run.compiled
    def encode(x: torch.Tensor) -> torch.Tensor:
        with run.autocast():
            return latents_of(vae, x)

    size = options.shard
    shards = range(rank, math.ceil(options.scenes / size), run.world)
    wanted = [n for n in shards if not (folder / f"{n:05d}.safetensors").exists()]
    if not wanted:
        return
    batches = ConcatDataset([Drawn(n, size, options.latent_side) for n in wanted])
    loader = iter(DataLoader(batches, batch_size=None, num_workers=options.workers))
    for shard in wanted:
        latents, cover = [], []
        for images, share in itertools.islice(loader, math.ceil(size / BATCH)):
            with torch.no_grad():
                latents.append(encode(to_tensor(images, run.device)).half().cpu())
            cover.append(share)
        seeds = torch.arange(shard * size, (shard + 1) * size)
        arrays = {
            "latents": torch.cat(latents),
            "cover": torch.cat(cover),
            "seeds": seeds,
            "groups": torch.tensor([group_of(shard, int(s)) for s in seeds], dtype=torch.uint8),
        }
        path = folder / f"{shard:05d}.safetensors"
        save_file({k: v.contiguous() for k, v in arrays.items()}, path.with_suffix(".partial"))
        path.with_suffix(".partial").replace(path)
        run.log(shard=shard)


def group_of(shard: int, seed: int) -> int:
    """The number in `GROUPS` of a scene of a shard."""
    return TURNS[shard % len(TURNS)][seed % 2]


def layout_of(seed: int, group: int) -> layouts.Layout:
    """A layout of a group."""
    return training_layout(seed, *GROUPS[group])


def cell_cover(masks: np.ndarray, side: int) -> np.ndarray:
    """The share of each latent cell that masks (n, h, w) cover: uint8 (n, side, side) up to 255."""
    n, cell = len(masks), masks.shape[-1] // side
    cells = masks.astype(np.float32).reshape(n, side, cell, side, cell)
    return (cells.mean((2, 4)) * 255).astype(np.uint8)


class Latents:
    """All shards in memory, with their layouts, drawn from by group."""

    def __init__(self, folder: Path) -> None:
        shards = [load_file(path) for path in sorted(folder.glob("*.safetensors"))]
        if not shards:
            sys.exit("no latents there: run the stage 'latents' first")
        self.latents, self.cover, seeds, groups = (
            np.concatenate([s[k] for s in shards]) for k in ("latents", "cover", "seeds", "groups")
        )
        self.layouts = [layout_of(int(s), int(g)) for s, g in zip(seeds, groups, strict=True)]
        self.by_group = [np.flatnonzero(groups == g) for g in range(len(GROUPS))]

    def batch(self, rng: Random, shares: tuple[float, ...], n: int) -> np.ndarray:
        """N indices, the groups (as in `GROUPS`) drawn with the given shares."""
        groups = rng.choices(range(len(GROUPS)), shares, k=n)
        return np.array([self.by_group[g][rng.randrange(len(self.by_group[g]))] for g in groups])
