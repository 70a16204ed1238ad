"""An independent judge of pictures of the drawn world: which things, in which colours, where.

A small fully convolutional net that has only ever seen rendered scenes, never a generated picture,
so that nothing of the model under test is in it. It labels every cell of a 32×32 grid with a noun
and a colour, and the picture with a setting; connected cells of one noun are a thing.

`python scripts/evaluate.py judge` trains it, and says how often it is right.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

from training.muon import Muon
from world import layouts, scenes

WEIGHTS = Path(__file__).with_name("judge.safetensors")
GRID = 32
"""Cells on a side of what the judge says; a cell is 4×4 pixels."""
CELL = scenes.SIZE // GRID
COLOURS, SETTINGS = tuple(layouts.COLOURS), tuple(layouts.SETTINGS)
LEAST_CELLS, LEAST_SHARE = 14, 0.15
"""A fragment is ignored below this many cells, or this share of the largest thing's cells.

The smallest thing of the world covers about 40 cells, and 0.25 of a large one beside it.
"""
MOST_LARGER = 1.6
"""The largest of things alike by the smallest: as rendered 1.3 at most of two, and of three 1.5 in
99 of 100 (400 held-out scenes each)."""
SPLIT, SURE = 0.15, 0.9
"""Cells of one noun are two things where a second colour surely holds at least this share of them.

Surely: with that probability. A single thing in a muddy colour stays one thing.
"""


@dataclass(frozen=True, slots=True)
class Found:
    """A thing in a picture.

    `mask`: bool (32, 32). `centre`: the mean (x, y) of its cells, and `area`: their share, both as
    fractions of the picture.
    """

    noun: str
    colour: str
    mask: np.ndarray
    centre: tuple[float, float]
    area: float

    def covers(self, pixel: tuple[int, int]) -> bool:
        """Whether a pixel (x, y) lies in one of the thing's cells."""
        return bool(self.mask[pixel[1] // CELL, pixel[0] // CELL])


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is in a picture: its things, the largest first, and its setting."""

    things: tuple[Found, ...]
    setting: str

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """Colour and noun of each thing, sorted."""
        return sorted((thing.colour, thing.noun) for thing in self.things)


# --- the net ----------------------------------------------------------------------------------


def block(inside: int, outside: int, side: int = 3, stride: int = 1) -> nn.Sequential:
    """Convolution, batch normalisation, rectifier."""
    return nn.Sequential(
        nn.Conv2d(inside, outside, side, stride, side // 2, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(inplace=True),
    )


class Judge(nn.Module):
    """Three grids (32, 16, 8) down and up again; about 240,000 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.PixelUnshuffle(2), block(12, 32, 5, 2))
        self.fine = block(32, 32)
        self.down = nn.Sequential(block(32, 64, stride=2), block(64, 64))
        self.deep = nn.Sequential(block(64, 72, stride=2), block(72, 72))
        self.middle = block(64 + 72, 40)
        self.top = block(32 + 40, 40)
        self.cells = nn.Conv2d(40, 1 + len(layouts.NOUNS) + 1 + len(COLOURS), 1)
        self.setting = nn.Linear(72 + 32, len(SETTINGS))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Pictures (B, 3, 128, 128) in [-1, 1] to logits.

        Returns:
            noun (B, 15, 32, 32) and colour (B, 12, 32, 32), 0 being "none"; setting (B, 6).
        """
        fine = self.fine(self.stem(x))
        down = self.down(fine)
        deep = self.deep(down)
        middle = self.middle(torch.cat([down, F.interpolate(deep, scale_factor=2.0)], dim=1))
        top = self.top(torch.cat([fine, F.interpolate(middle, scale_factor=2.0)], dim=1))
        noun, colour = self.cells(top).split((1 + len(layouts.NOUNS), 1 + len(COLOURS)), dim=1)
        whole = torch.cat([deep.mean((2, 3)), fine.mean((2, 3))], dim=1)
        return noun, colour, self.setting(whole)


def to_tensor(pictures: np.ndarray) -> torch.Tensor:
    """Pictures uint8 (B, 128, 128, 3) to float (B, 3, 128, 128) in [-1, 1]."""
    x = torch.from_numpy(pictures.astype(np.float32))
    return x.permute(0, 3, 1, 2).div(127.5).sub_(1)


def load(path: Path = WEIGHTS) -> Judge:
    """The trained judge."""
    judge = Judge()
    judge.load_state_dict(load_file(path))
    return judge.eval()


# --- judging ----------------------------------------------------------------------------------


@torch.inference_mode()
def detect(pictures: np.ndarray, judge: Judge | None = None) -> list[Judgement]:
    """What is in each of the pictures uint8 (B, 128, 128, 3)."""
    judge = judge or load()
    noun, colour, setting = judge(to_tensor(pictures))
    noun = F.avg_pool2d(noun.softmax(1), 3, 1, 1, count_include_pad=False)
    nouns, settings = noun.argmax(1).numpy(), setting.argmax(1).numpy()
    colours = colour[:, 1:].softmax(1).numpy()
    return [
        Judgement(_things(n, c), SETTINGS[s])
        for n, c, s in zip(nouns, colours, settings, strict=True)
    ]


@torch.inference_mode()
def setting_shares(pictures: np.ndarray, judge: Judge | None = None) -> np.ndarray:
    """How probable each of `SETTINGS` is in pictures uint8 (B, 128, 128, 3): float64 (B, 6)."""
    judge = judge or load()
    return judge(to_tensor(pictures))[2].double().softmax(dim=1).numpy()


def _things(nouns: np.ndarray, colours: np.ndarray) -> tuple[Found, ...]:
    """From nouns (32, 32), 0 for none, and shares of the colours (11, 32, 32)."""
    pieces = [
        (noun, part)
        for noun in np.unique(nouns[nouns > 0])
        for piece in components(nouns == noun)
        if piece.sum() >= LEAST_CELLS
        for part in _by_colour(piece, colours)
    ]
    largest = max((int(mask.sum()) for _, mask in pieces), default=0)
    least = max(LEAST_CELLS, LEAST_SHARE * largest)
    found = [_found(n, mask, colours) for n, mask in pieces if mask.sum() >= least]
    return tuple(sorted(found, key=lambda thing: -thing.area))


def _by_colour(piece: np.ndarray, colours: np.ndarray) -> list[np.ndarray]:
    """The piece, or its two halves where things of one noun in two colours touch."""
    votes = (colours[:, piece] > SURE).sum(1)
    second, first = np.argsort(votes, kind="stable")[-2:]
    if votes[second] < SPLIT * piece.sum():
        return [piece]
    is_first = colours[first] >= colours[second]
    halves = (piece & is_first, piece & ~is_first)
    return [p for half in halves for p in components(half) if p.sum() >= LEAST_CELLS]


def _found(noun: int, mask: np.ndarray, colours: np.ndarray) -> Found:
    y, x = np.nonzero(mask)
    colour = COLOURS[int(colours[:, mask].sum(1).argmax())]
    centre = (float(x.mean() + 0.5) / GRID, float(y.mean() + 0.5) / GRID)
    return Found(layouts.NOUNS[noun - 1], colour, mask, centre, len(x) / GRID**2)


def of_one_size(things: Sequence[Found]) -> bool:
    """Whether things alike, as the drawn world has them beside one another, are one by one.

    Where two of them touch they are one piece, twice as large as the others.
    """
    areas = [thing.area for thing in things]
    return not areas or max(areas) <= MOST_LARGER * min(areas)


def components(mask: np.ndarray) -> list[np.ndarray]:
    """The connected pieces (by the sides of cells) of a bool (h, w), each a mask of its own."""
    left = {(int(y), int(x)) for y, x in np.argwhere(mask)}
    pieces = []
    while left:
        edge, piece = [left.pop()], np.zeros_like(mask)
        while edge:
            y, x = edge.pop()
            piece[y, x] = True
            near = {(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)} & left
            left -= near
            edge += near
        pieces.append(piece)
    return pieces


# --- how often it is right on rendered scenes -------------------------------------------------


def rendered_right(n: int = 600, judge: Judge | None = None) -> dict[str, float]:
    """How often a held-out rendered scene is told whole: things, colours, count and setting.

    Returns:
        the share over `n` scenes, as many of each group, under "all"; and the shares of the groups:
        of different things "one", "two" and "three", "twins", of things alike "several".
    """
    judge = judge or load()
    groups: dict[str, tuple[int | None, layouts.Kind]] = {
        "one": (1, "different"), "two": (2, "different"), "three": (3, "different"),
        "twins": (2, "twins"), "several": (None, "several"),
    }  # fmt: skip
    right: dict[str, list[bool]] = {name: [] for name in groups}
    for name, (count, kind) in groups.items():
        seeds = range(layouts.HELD_OUT_SEED, layouts.HELD_OUT_SEED + n // len(groups))
        for start in range(0, len(seeds), 50):
            drawn = [
                scenes.render(layouts.lay_out(seed, count, held_out=True, kind=kind))
                for seed in seeds[start : start + 50]
            ]
            said = detect(np.stack([scene.image for scene in drawn]), judge)
            right[name] += [is_right(j, s.layout) for j, s in zip(said, drawn, strict=True)]
    shares = {name: float(np.mean(marks)) for name, marks in right.items()}
    return {"all": float(np.mean(list(shares.values()))), **shares}


def is_right(said: Judgement, layout: layouts.Layout) -> bool:
    """Whether the judgement names exactly the layout's things, with their colours, and setting."""
    return said.setting == layout.setting and said.kinds == sorted(
        (thing.colour, thing.noun) for thing in layout.things
    )


# --- training ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Example:
    """A drawn scene: image uint8 (128, 128, 3); noun, colour int64 and weight float32 (32, 32)."""

    image: np.ndarray
    noun: np.ndarray
    colour: np.ndarray
    weight: np.ndarray
    setting: int


def example(seed: int, rng: Random) -> Example:
    """A training scene with its targets; half of them with their things moved closer or apart.

    One scene in ten shows a pair of `layouts.UNSEEN_PAIRS`: those are kept from the model under
    test, not from its judge, who could not tell a green cat otherwise.
    """
    kinds: tuple[layouts.Kind, ...] = ("different", "twins", "several")
    kind = rng.choices(kinds, (65, 15, 20))[0]
    count = rng.choices((1, 2, 3), (25, 45, 30))[0] if kind == "different" else None
    layout = layouts.lay_out(seed, count, held_out=False, kind=kind)
    things = list(layout.things)
    if rng.random() < 0.5:
        things = [_moved(thing, rng) for thing in things]
    if rng.random() < 0.1:
        colour, noun = rng.choice(sorted(layouts.UNSEEN_PAIRS))
        things[0] = replace(things[0], colour=colour, noun=noun)
    layout = replace(layout, things=tuple(things))
    scene = scenes.render(layout)
    cover = scene.masks.reshape(-1, GRID, CELL, GRID, CELL).mean((2, 4), dtype=np.float32)
    cover = np.concatenate([1 - cover.sum(0, keepdims=True), cover])  # the background first
    owner = cover.argmax(0)
    nouns = np.array([0] + [1 + layouts.NOUNS.index(t.noun) for t in layout.things])
    colours = np.array([0] + [1 + COLOURS.index(t.colour) for t in layout.things])
    weight = np.where(cover.max(0) < 0.7, 0.2, np.where(owner > 0, 2.0, 1.0))
    setting = SETTINGS.index(layout.setting)
    return Example(scene.image, nouns[owner], colours[owner], weight.astype(np.float32), setting)


def _moved(thing: layouts.Thing, rng: Random) -> layouts.Thing:
    radius = thing.radius * rng.uniform(0.85, 1.15)
    x, y = (min(max(c + rng.uniform(-0.07, 0.07), radius), 1 - radius) for c in (thing.x, thing.y))
    return replace(thing, radius=radius, x=x, y=y)


def examples(seed: int, keep: int = 4000) -> Iterator[Example]:
    """Without end: one in four newly drawn, the others drawn before."""
    rng, pool = Random(seed), []
    while True:
        pool.append(example(rng.randrange(layouts.HELD_OUT_SEED), rng))
        if len(pool) > keep:
            pool.pop(rng.randrange(len(pool) - 1))
        yield pool[-1]
        yield from (pool[rng.randrange(len(pool))] for _ in range(3))


def soften(x: torch.Tensor) -> torch.Tensor:
    """The pictures (B, 3, h, w) a little blurred, coarsened, tinted and noisy, each its own way."""
    n = len(x)
    blurred = F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, 1)
    coarse = F.interpolate(F.avg_pool2d(x, 2), scale_factor=2.0, mode="bilinear")
    x = torch.lerp(x, blurred, torch.rand(n, 1, 1, 1) * (torch.rand(n, 1, 1, 1) < 0.6))
    x = torch.lerp(x, coarse, 0.8 * torch.rand(n, 1, 1, 1) * (torch.rand(n, 1, 1, 1) < 0.3))
    x = x * (1 + 0.04 * torch.randn(n, 1, 1, 1)) + 0.025 * torch.randn(n, 3, 1, 1)
    for side, strength in ((16, 0.04), (scenes.SIZE, 0.03)):
        noise = torch.randn(n, 3, side, side)
        if side < scenes.SIZE:
            noise = F.interpolate(noise, scale_factor=scenes.SIZE / side, mode="bilinear")
        x = x + strength * torch.rand(n, 1, 1, 1) * noise
    return x.clamp(-1, 1)


def batch_of(source: Iterator[Example], n: int) -> tuple[torch.Tensor, ...]:
    """Softened pictures and their targets; half of them mirrored."""
    chosen = [next(source) for _ in range(n)]
    x = soften(to_tensor(np.stack([e.image for e in chosen])))
    maps = [torch.from_numpy(np.stack([getattr(e, k) for e in chosen]))
            for k in ("noun", "colour", "weight")]  # fmt: skip
    mirror = torch.rand(n) < 0.5
    for values in (x, *maps):
        values[mirror] = values[mirror].flip(-1)
    return x, *maps, torch.tensor([e.setting for e in chosen])


def loss_of(judge: Judge, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Cross-entropies: nouns of cells, colours of cells (things foremost), setting."""
    x, noun_is, colour_is, weight, setting_is = batch
    noun, colour, setting = judge(x)
    nouns = weight * F.cross_entropy(noun, noun_is, reduction="none")
    colour_weight = weight * torch.where(colour_is > 0, 1.0, 0.3)
    colours = colour_weight * F.cross_entropy(colour, colour_is, reduction="none")
    return nouns.mean() + colours.mean() + 0.1 * F.cross_entropy(setting, setting_is)


def train(minutes: float, out: Path, seed: int, begin: Path | None, batch: int = 32) -> None:
    """Train for so many minutes of processor time, with a rate that falls to nothing.

    With `begin` go on from those weights, at a third of the rate.
    """
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    judge = (load(begin) if begin else Judge()).train()
    print(sum(p.numel() for p in judge.parameters()), "parameters", flush=True)
    inner = [p for n, p in judge.named_parameters()
             if p.ndim == 4 and not n.startswith(("stem", "cells"))]  # fmt: skip
    rest = [p for p in judge.parameters() if not any(p is q for q in inner)]
    optimiser = Muon(inner, rest, lr=8e-3, rest_lr=3e-3)
    source, start, step, done = examples(seed), time.process_time(), 0, 0.0
    losses: list[float] = []
    while done < 1:
        loss = loss_of(judge, batch_of(source, batch))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        done = min((time.process_time() - start) / (60 * minutes), 1.0)
        for group in optimiser.param_groups:
            rate = group["initial_lr"] / (3 if begin else 1)
            group["lr"] = rate * min((step + 1) / 40, 1.0) * (1.02 - done)
        optimiser.step()
        step += 1
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"step {step}  done {done:.2f}  loss {np.mean(losses[-50:]):.4f}", flush=True)
    state = judge.state_dict()
    save_file({k: v.half() if v.is_floating_point() else v for k, v in state.items()}, out)
