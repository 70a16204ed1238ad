"""Where do maps say that words are? Beside the exact masks of rendered scenes.

The model is shown pictures of held-out scenes, as `heedmap.locate` does it, and their
captions; the maps of each noun and each colour are held against the mask of its thing. So it is
asked where words are *seen*, whatever the model would have drawn itself.

`METHODS` are heedmap's ways to make a map, `rivals.RIVALS` those of others, fed by a recorder that
is none of heedmap's (`listening`). What is measured of a way, at the picture's pixels:

- `point`: is its hottest cell inside of the thing?
- `ap`: average precision, the area under precision over recall of all thresholds.
- `iou_best`: intersection over union at the one threshold, between the map's least and greatest
  value, that is best for all of this method's maps.
- `iou_shipped`: the same of the mask that is made of it where nobody says a threshold.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, cycle, islice
from random import Random
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import interpolate

import heedmap
from evaluation.cases import Progress, is_unseen
from evaluation.listening import listening
from evaluation.measures import Figures
from evaluation.rivals import RIVALS, Gathered, as_map, goca_gated, plain
from heedmap.figures.overlays import resize_map
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.masks import REACH, suppress_rivals
from heedmap.mathematics.probabilities import guided
from heedmap.options import MASK_THRESHOLD
from heedmap.text.prompts import is_content
from world import captions, layouts, scenes

FIRST = layouts.HELD_OUT_SEED + 600_000_000
"""Layouts of this question begin here; no other question has them, nor has any training."""
KINDS: tuple[tuple[str, int, layouts.Kind], ...] = (
    ("one", 1, "different"),
    ("two", 2, "different"),
    ("three", 3, "different"),
    ("same noun", 2, "twins"),
    ("several", 2, "several"),
)
"""The scenes, in turn: their name, how many things they have, what these are to one another."""
STEPS = 10
THRESHOLDS = np.linspace(0, 1, 41)
DAAM = 0.4  # of the greatest value: the threshold of its masks (Tang et al., arXiv 2210.04885)
CONTESTED_CUT = 0.35
DRAWS = 1000  # of the bootstrap


@dataclass(frozen=True)
class Asked:
    """A word whose map is held against the truth.

    Attributes:
        group: of the scene and the word, as "same noun, noun".
        words: the numbers of its words in the caption.
        phrase: of all the words that speak of the same thing.
        truth: the pixels of its things, bool (128, 128).
    """

    group: str
    words: tuple[int, ...]
    phrase: tuple[int, ...]
    truth: np.ndarray


# --- methods ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Map:
    """A map (h, w) and the mask that is made of it where nobody says a threshold (128, 128)."""

    values: np.ndarray
    mask: np.ndarray


def _cut(values: np.ndarray, least: float) -> np.ndarray:
    return resize_map(values, (scenes.SIZE, scenes.SIZE)) >= least


def half_way(values: np.ndarray) -> Map:
    """Cut as `HeatMap.mask` cuts maps of a selection: half-way between least and greatest."""
    return _between(values, MASK_THRESHOLD)


def _between(values: np.ndarray, cut: float) -> Map:
    low, high = float(values.min()), float(values.max())
    return Map(values, _cut(values, low + cut * (high - low)))


def _sum(maps: HeatMaps, words: Sequence[int]) -> np.ndarray:
    return np.sum([maps.at(word).values for word in words], axis=0)


def _mean(maps: HeatMaps, asked: Asked) -> Map:
    return half_way(_sum(maps, asked.words))


def _daam(maps: HeatMaps, asked: Asked) -> Map:
    """As DAAM adds its maps up: each layer's enlarged bicubically, and nothing below 0."""
    told = maps.recording
    tokens = [told.columns[t] for word in asked.words for t in maps.words[word].tokens]
    total = np.zeros((64, 64), np.float32)
    for layer, array in zip(told.layers, told.arrays, strict=True):
        plane = torch.from_numpy(array[0, 0][:, tokens].copy()).T.reshape(1, -1, *layer.grid)
        large = interpolate(plane, size=(64, 64), mode="bicubic").clamp(min=0)
        total += large[0].sum(dim=0).numpy()
    return Map(total, _cut(total, DAAM * float(total.max())))


def _middle(maps: HeatMaps, asked: Asked) -> Map:
    """Prompt-to-prompt's choice: the layers of 16×16 places alone."""
    return half_way(_sum(maps.select(resolution=16), asked.words))


def _share(maps: HeatMaps, asked: Asked) -> Map:
    """Its share among all content words, each counted where it stands."""
    content = [word.number for word in maps.words if is_content(word.text)]
    every = _sum(maps, sorted({*content, *asked.words}))
    return half_way(_sum(maps, asked.words) / np.maximum(every, 1e-12))


def _phrase(maps: HeatMaps, asked: Asked) -> Map:
    return half_way(_sum(maps, asked.phrase))


def _refined(maps: HeatMaps, asked: Asked) -> Map:
    return half_way(_sum(maps.refined, asked.words))


def _refined_phrase(maps: HeatMaps, asked: Asked) -> Map:
    return half_way(_sum(maps.refined, asked.phrase))


def _contested(maps: HeatMaps, asked: Asked) -> Map:
    """What a mask is made of, without the picture's edges."""
    return _as_shipped(replace(maps, image=None), asked)


def _refined_edges(maps: HeatMaps, asked: Asked) -> Map:
    """With the picture's edges, but against no other phrase."""
    assert maps.recording.refined is not None
    soft = _edged(maps, _sum(maps.refined, asked.phrase), min(maps.recording.refined.shape[:2]))
    return Map(soft, soft >= MASK_THRESHOLD)


def _edged(maps: HeatMaps, values: np.ndarray, cells: int) -> np.ndarray:
    """A map, from 0 to 1, of so many cells a side, brought to the picture's edges."""
    assert maps.image is not None
    large = resize_map((values - values.min()) / max(np.ptp(values), 1e-12), maps.image.size)
    return guided(np.asarray(maps.image), large[None], round(REACH * scenes.SIZE / cells))[0]


def _as_shipped(maps: HeatMaps, asked: Asked) -> Map:
    """What `HeatMap.soft_mask` and `HeatMap.mask` have of the word where it stands."""
    heats = [maps.at(word) for word in asked.words]
    return Map(
        np.max([heat.soft_mask() for heat in heats], axis=0),
        np.logical_or.reduce([heat.mask() for heat in heats]),
    )


def ceiling(maps: HeatMaps, asked: Asked, side: int = 16) -> Map:
    """The truth itself, on a grid of `side` × `side`."""
    cells = asked.truth.reshape(side, scenes.SIZE // side, side, -1)
    return half_way(cells.mean(axis=(1, 3)).astype(np.float32))


METHODS: Mapping[str, Callable[[HeatMaps, Asked], Map]] = {
    "mean": _mean,
    "daam": _daam,
    "16×16 layers": _middle,
    "share": _share,
    "phrase": _phrase,
    "refined": _refined,
    "refined phrase": _refined_phrase,
    "contested": _contested,
    "refined phrase, edges": _refined_edges,
    "mask": _as_shipped,
    "truth at 16×16": ceiling,
}
"""The ways to make a map of a word. The last is no way, but what none can pass on that grid."""


def tokens_of(maps: HeatMaps, words: Sequence[int]) -> list[int]:
    """The positions of the tokens of words, by their numbers."""
    return [token for word in words for token in maps.words[word].tokens]


def contested_goca(maps: HeatMaps, heard: Gathered, asked: Asked) -> Map:
    """What the mask is made of, but GoCA's aggregation over the gated graph for the refined maps.

    Against the other phrases and with the picture's edges, as `soft_masks` does it; but cut where
    it does best on the scenes that rivals are chosen on.
    """
    phrases = [[word.number for word in words] for words in maps.tokens.phrases]
    if asked.phrase not in map(tuple, phrases):
        phrases.append(list(asked.phrase))
    tokens = [tokens_of(maps, words) for words in phrases]
    drawn = ([as_map(way(heard, some)) for some in tokens] for way in (goca_gated, plain))
    left = suppress_rivals(*map(np.array, drawn))[[tuple(p) for p in phrases].index(asked.phrase)]
    soft = _edged(maps, left, len(left))
    soft = (soft - soft.min()) / max(np.ptp(soft), 1e-12)
    return Map(soft, soft >= CONTESTED_CUT)


ROWS = (*list(METHODS)[:-1], *RIVALS, "goca phrase, gated, contested, edges", "truth at 16×16")
"""The rows of the table, in order."""


def made(maps: HeatMaps, heard: Gathered, asked: Asked) -> Iterator[tuple[str, Map]]:
    """The map of every row."""
    for name in ROWS:
        if name in METHODS:
            yield name, METHODS[name](maps, asked)
        elif name in RIVALS:
            rival = RIVALS[name]
            tokens = tokens_of(maps, asked.phrase if rival.phrase else asked.words)
            yield name, _between(as_map(rival.way(heard, tokens)), rival.cut)
        else:
            yield name, contested_goca(maps, heard, asked)


# --- what is measured -------------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """What a map is worth: `point`, `ap`, and the overlap by threshold (41) and as shipped."""

    scene: int
    group: str
    point: bool
    ap: float
    ious: np.ndarray
    shipped: float


def score(made: Map, asked: Asked, scene: int = 0) -> Score:
    """Hold one map against the truth."""
    truth = asked.truth
    values = resize_map(made.values, truth.shape[::-1])
    low, high = float(values.min()), float(values.max())
    scaled = (values - low) / max(high - low, 1e-12)
    y, x = np.unravel_index(int(made.values.argmax()), made.values.shape)
    (height, width), (h, w) = truth.shape, made.values.shape
    inside = bool(truth[int((y + 0.5) * height / h), int((x + 0.5) * width / w)])
    ious = overlaps(scaled, truth, THRESHOLDS)
    precision = average_precision(values, truth)
    return Score(scene, asked.group, inside, precision, ious, _overlap(made.mask, truth))


def overlaps(values: np.ndarray, truth: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """The overlap of what is at least a threshold with the truth, for each of the thresholds."""
    order = np.argsort(-values, axis=None, kind="stable")
    within = np.searchsorted(-values.ravel()[order], -thresholds, side="right")
    found = np.concatenate([[0], np.cumsum(truth.ravel()[order])])[within]
    return found / np.maximum(within + truth.sum() - found, 1)


def average_precision(values: np.ndarray, truth: np.ndarray) -> float:
    """The mean precision over the pixels of the truth, each at the threshold that lets it in."""
    order = np.argsort(-values, axis=None, kind="stable")
    hit, ranked = truth.ravel()[order], values.ravel()[order]
    found = np.cumsum(hit)
    # Pixels of one value come in together.
    last = np.searchsorted(-ranked, -ranked, side="right") - 1
    return float((found[last] / (last + 1))[hit].mean())


def _overlap(mask: np.ndarray, truth: np.ndarray) -> float:
    return float((mask & truth).sum() / max((mask | truth).sum(), 1))


def figures_of(scores: Sequence[Score], rng: np.random.Generator) -> Figures:
    """The means over maps, and where 95 of 100 draws of as many scenes lie."""
    by = np.array([one.scene for one in scores])
    ap, shipped = (np.array([getattr(one, n) for one in scores]) for n in ("ap", "shipped"))
    ious = np.stack([one.ious for one in scores]).mean(axis=0)
    best = int(ious.argmax())
    there, where = np.unique(by, return_inverse=True)
    drawn = rng.integers(len(there), size=(DRAWS, len(there)))
    total = np.bincount(where)[drawn].sum(axis=1)
    means = [
        np.bincount(where, weights=values)[drawn].sum(axis=1) / total for values in (ap, shipped)
    ]
    low, high = np.percentile(means, [2.5, 97.5], axis=1).round(4).tolist()
    return {
        "n": len(scores),
        "point": round(float(np.mean([one.point for one in scores])), 4),
        "iou_best": round(float(ious[best]), 4),
        "iou_shipped": round(float(shipped.mean()), 4),
        "ap": round(float(ap.mean()), 4),
        "threshold_best": float(THRESHOLDS[best]),
        "interval": {"ap": [low[0], high[0]], "iou_shipped": [low[1], high[1]]},
    }


def brief(figures: Figures) -> Figures:
    """What a table has of `figures_of`."""
    return {name: figures[name] for name in ("n", "point", "ap", "iou_shipped", "iou_best")}


# --- the scenes -------------------------------------------------------------------------------


def held_out(first: int = FIRST) -> Iterator[tuple[str, layouts.Layout]]:
    """Layouts that training never saw, kind after kind in turn, each with what it is called."""
    of_kinds = [
        (name, _laid(first + 10_000_000 * n, things, kind))
        for n, (name, things, kind) in enumerate(KINDS)
    ]
    for name, laid in cycle(of_kinds):
        yield name, next(laid)


def _laid(first: int, things: int, kind: layouts.Kind) -> Iterator[layouts.Layout]:
    every = (layouts.lay_out(seed, things, True, kind) for seed in count(first))
    nouns = things if kind == "different" else 1  # two that differ may be of one noun, by chance
    return (
        layout
        for layout in every
        if not is_unseen(layout) and len({thing.noun for thing in layout.things}) == nouns
    )


def asked_of(
    name: str, masks: np.ndarray, caption: captions.Caption, maps: HeatMaps
) -> list[Asked]:
    """The nouns and colours of a caption that are read, with the masks of what they speak of.

    Of the masks bool (things, 128, 128), those of a thing that is nowhere are empty; words that
    speak of none but such are left out.
    """
    words: dict[tuple[int, ...], list[tuple[str, tuple[int, ...]]]] = {}
    for mention in caption.mentions:
        there = [w for w in maps.words if w.start < mention.end and w.end > mention.start]
        numbers = tuple(word.number for word in there)
        if mention.things and numbers:
            words.setdefault(mention.things, []).append((mention.kind, numbers))
    found: list[Asked] = []
    for things, told in words.items():
        truth = np.logical_or.reduce(masks[list(things)])
        phrase = tuple(sorted(n for kind, numbers in told if kind != "count" for n in numbers))
        found += [
            Asked(f"{name}, {kind}", numbers, phrase, truth)
            for kind, numbers in told
            if kind in ("noun", "colour") and truth.any()
        ]
    return found


def seen(pipe: Any, picture: np.ndarray, prompt: str, seed: int, steps: int) -> HeatMaps:
    """The maps of a prompt over a picture uint8 (h, w, 3) that the model did not draw."""
    image = Image.fromarray(picture)
    return heedmap.locate(pipe, image, prompt, seed=seed, steps=steps, keep={"layer"}).maps


@dataclass(frozen=True, eq=False)
class Shown:
    """A picture with its prompt's maps, what else was heard, and the words that are asked for."""

    maps: HeatMaps
    heard: Gathered
    asked: Sequence[Asked]


def rendered(pipe: Any, n: int, seed: int, progress: Progress, steps: int) -> Iterator[Shown]:
    """The first n scenes as they are rendered, shown to the model with noise."""
    for number, (name, layout) in enumerate(islice(held_out(), n)):
        scene = scenes.render(layout)
        caption = captions.object_caption(layout, Random(layout.seed))
        with listening(pipe) as heard:
            maps = seen(pipe, scene.image, caption.text, seed + number, steps)
        yield Shown(maps, Gathered.of(heard), asked_of(name, scene.masks, caption, maps))
        progress("scenes", number + 1, n)


def scores_of(shown: Iterable[Shown]) -> Iterator[tuple[str, Score]]:
    """Score all methods over pictures."""
    for number, one in enumerate(shown):
        for asked in one.asked:
            for method, found in made(one.maps, one.heard, asked):
                yield method, score(found, asked, number)


def compared(every: Iterable[tuple[str, Score]], seed: int) -> Figures:
    """Compare methods by their scores over the same words of the same pictures.

    Returns:
        `n` maps, the `best` method by overlap as shipped, and by method and by group the figures.
        A method whose name begins with "truth" is a bound and no method.
    """
    scores: dict[str, list[Score]] = {}
    for method, one in every:
        scores.setdefault(method, []).append(one)
    rng = np.random.default_rng(seed)
    methods = {name: figures_of(some, rng) for name, some in scores.items()}
    groups: Figures = {}
    for group in sorted({one.group for one in scores["mean"]}):
        groups[group] = {
            name: figures_of([one for one in some if one.group == group], rng)
            for name, some in scores.items()
        }
    rivals = [name for name in methods if not name.startswith("truth")]
    best = max(rivals, key=lambda name: methods[name]["iou_shipped"])
    return {"n": len(scores["mean"]), "best": best, "methods": methods, "groups": groups}


def measure(pipe: Any, n: int, seed: int, progress: Progress, steps: int = STEPS) -> Figures:
    """All methods over the first n scenes, as `compared` has them."""
    return compared(scores_of(rendered(pipe, n, seed, progress, steps)), seed)
