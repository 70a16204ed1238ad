"""Does the embedded model draw what it is told?

Pictures of held-out captions (combinations that training never shows, told with nouns, colours and
relation) are looked at with the judge, and so are the heat maps of their words: is the hottest
place inside of the thing?
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

import heedmap
from evaluation import cases, judge, natural, strangers, weights
from evaluation.cases import BATCH, Plan, Progress, is_unseen
from evaluation.measures import Figures, share
from heedmap.maps.heatmaps import HeatMaps
from world import captions, layouts, scenes

STEPS, GUIDANCE = 25, 4.0  # guidance where neither --guidance nor the card says one
DIRECTIONS = ("left", "right", "above", "below")


# --- what is drawn ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """What is drawn for a row.

    `things`: how many. `belongs`: which layouts are meant, besides being held out or not. `kind`:
    what the things are to each other. `colours`: whether captions tell natural ones.
    """

    things: int
    belongs: Callable[[layouts.Layout], bool] = lambda layout: not is_unseen(layout)
    kind: layouts.Kind = "different"
    colours: bool = True
    held_out: bool | None = True


def _natural(layout: layouts.Layout) -> bool:
    things = layout.things
    return all(t.natural for t in things) and len({t.noun for t in things}) == len(things)


# Colours and nouns that training never shows together are a row of their own. Of single things in
# their natural colours there are but 84, and those that are held out have half of the nouns: their
# row takes all of them.
ROWS: dict[str, Row] = {
    "one_object": Row(1),
    "two_objects": Row(2),
    "relation": Row(2, lambda layout: layout.relation in DIRECTIONS and not is_unseen(layout)),
    "unseen_pairs": Row(1, is_unseen),
    "no_colour_one": Row(1, _natural, colours=False, held_out=None),
    "no_colour_two": Row(2, _natural, colours=False),
    "count_two": Row(2, kind="several"),
    "count_three": Row(3, kind="several"),
    "same_noun": Row(2, kind="twins"),
}


def plans(row: str, n: int, seed: int = 0) -> list[Plan]:
    """The first n pictures of a row: captions are the row's own, the noise is of `seed` too."""
    return list(islice(_plans(row, seed), n))


def _plans(row: str, seed: int) -> Iterator[Plan]:
    told = ROWS[row]
    first = layouts.HELD_OUT_SEED + list(ROWS).index(row) * 10_000_000
    laid = (layouts.lay_out(k, told.things, told.held_out, told.kind) for k in count(first))
    for index, layout in enumerate(filter(told.belongs, laid)):
        caption = captions.object_caption(layout, Random(layout.seed), colours=told.colours)
        yield Plan(layout, caption, Random(f"{seed} {row} {index}").getrandbits(31))


# --- what came of it --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Point:
    """Whether a word's map is hottest inside of its thing; `layer` is "" for the mean of all."""

    kind: str
    layer: str
    inside: bool


@dataclass(frozen=True, slots=True)
class Result:
    """A picture with what the judge saw in it and where its words pointed."""

    plan: Plan
    run: heedmap.Run
    said: judge.Judgement
    points: tuple[Point, ...]

    @property
    def picture(self) -> np.ndarray:
        """What was drawn, uint8 (128, 128, 3)."""
        return cases.as_array(self.run)

    @property
    def right(self) -> bool:
        """Exactly the things of the caption are there, each in its colour.

        Things alike that touch are one for the judge, a larger one: they must be of one size, too.
        """
        return self.said.kinds == self.plan.kinds and not self.touching

    @property
    def touching(self) -> bool:
        """Whether of several things alike, as the caption has them, some seem to touch."""
        kinds = self.plan.kinds
        alike = len(kinds) > 1 and len(set(kinds)) == 1
        return alike and not judge.of_one_size(self.said.things)

    @property
    def setting_right(self) -> bool | None:
        """Whether the setting is the caption's; None where it says none."""
        if not any(mention.kind == "setting" for mention in self.plan.caption.mentions):
            return None
        return self.said.setting == self.plan.layout.setting

    @property
    def relation_right(self) -> bool | None:
        """Whether the first thing lies to the second as the caption says.

        None where the caption says no direction, or not both are there.
        """
        relation = self.plan.layout.relation
        if relation not in DIRECTIONS or not self.right:
            return None
        where = {(t.colour, t.noun): t.centre for t in self.said.things}
        first, second = (where[t.colour, t.noun] for t in self.plan.layout.things)
        axis = 0 if relation in ("left", "right") else 1
        before = first[axis] < second[axis]
        return before if relation in ("left", "above") else not before

    @property
    def small_there(self) -> list[bool]:
        """Whether each thing that is told to be small is there, in its colour."""
        told = {m.things[0] for m in self.plan.caption.mentions if m.kind == "size"}
        things = [t for k, t in enumerate(self.plan.layout.things) if k in told]
        return [(t.colour, t.noun) in self.said.kinds for t in things if t.size == "small"]

    @property
    def verdict(self) -> str:
        """A line for people: "right", or what the judge saw instead."""
        things = ", ".join(f"{t.colour} {t.noun}" for t in self.said.things[:4]) or "nothing"
        if not self.right or self.setting_right is False:
            more = ", of which some may be two that touch" if self.touching else ""
            return f"wrong: {things}{more}; {self.said.setting}"
        return "wrong: lies otherwise" if self.relation_right is False else "right"


def draw(
    pipe: Any, row: str, todo: Sequence[Plan], eye: judge.Judge, progress: Progress, **how: Any
) -> list[Result]:
    """Make the pictures of the plans, and judge them."""
    texts, seeds = [plan.caption.text for plan in todo], [plan.seed for plan in todo]
    drawn = cases.draw(pipe, row, texts, seeds, eye, progress, keep={"layer"}, **how)
    return [
        Result(plan, run, said, tuple(points_of(plan, run.maps, said)))
        for plan, (run, said) in zip(todo, drawn, strict=True)
    ]


def points_of(plan: Plan, maps: HeatMaps, said: judge.Judgement) -> Iterator[Point]:
    """Where the maps of nouns and colours are hottest, for the things that were found."""
    parts = {"": maps} | {layer.name: maps.select(layers=layer.name) for layer in maps.layers}
    for mention in plan.caption.mentions:
        if mention.kind not in ("noun", "colour"):
            continue
        thing = plan.layout.things[mention.things[0]]
        found = [t for t in said.things if (t.colour, t.noun) == (thing.colour, thing.noun)]
        if not found:
            continue
        # By its characters, since a noun may stand twice in a caption.
        word = next(w for w in maps.tokens.words if w.start <= mention.start < w.end)
        for name, part in parts.items():
            peak = part.at(word.number).peak
            yield Point(mention.kind, name, any(t.covers(peak) for t in found))


# --- figures ----------------------------------------------------------------------------------


def obey(
    pipe: Any,
    *,
    n: int = 300,
    seed: int = 0,
    steps: int = STEPS,
    guidance: float = GUIDANCE,
    progress: Progress = lambda row, done, total: None,
) -> tuple[Figures, dict[str, list[Result]], list[strangers.Drawn]]:
    """How well a model does what captions say.

    Args:
        pipe: a model of the drawn world.
        n: pictures a row. The row "relation" gets as many as make about n in which both things
            are there, together with those of the row "two_objects", but n at most. The row
            "reweighting" has three pictures a caption; "no_colour" has n, one in four of them of
            two things; "counts" has n of two things and n of three.
        seed: of the noise.
        steps: denoising steps.
        guidance: classifier-free guidance scale.
        progress: called after each batch with row, pictures done and pictures in all.

    Returns:
        the figures, the results by row, and what was drawn for unknown words.
    """
    eye = judge.load()
    how: dict[str, Any] = {"steps": steps, "guidance": guidance}
    rows: dict[str, list[Result]] = {}
    for row in ("one_object", "two_objects", "unseen_pairs"):
        rows[row] = draw(pipe, row, plans(row, n, seed), eye, progress, **how)
    both = sum(r.right for r in rows["two_objects"])
    there = sum(r.relation_right is not None for r in rows["two_objects"])
    more = min(n, math.ceil((n - there) * n / max(both, 1)))
    rows["relation"] = draw(pipe, "relation", plans("relation", more, seed), eye, progress, **how)
    pairs = n // 4
    sizes = {"no_colour_one": n - pairs, "no_colour_two": pairs}
    for row in ("no_colour_one", "no_colour_two", "count_two", "count_three", "same_noun"):
        some = plans(row, sizes.get(row, n), seed)
        rows[row] = draw(pipe, row, some, eye, progress, **how)
    again = weights.reweighting(pipe, n, seed, eye, progress, **how)
    unknown, drawn = strangers.measure(pipe, n, seed, eye, progress, **how)
    return {**figures_of(rows), "reweighting": again, "unknown_words": unknown}, rows, drawn


def figures_of(rows: dict[str, list[Result]]) -> Figures:
    """The figures of all rows."""
    seen = [r for row in ("one_object", "two_objects", "relation") for r in rows[row]]
    plain = [*rows["no_colour_one"], *rows["no_colour_two"]]
    twins = rows["same_noun"]
    related = [r.relation_right for r in seen if r.relation_right is not None]
    settings = [r.setting_right for r in seen if r.setting_right is not None]
    small = [there for r in seen for there in r.small_there]
    return {
        "one_object": _kinds_row(rows["one_object"], "noun", "colour"),
        "two_objects": _kinds_row(rows["two_objects"], "nouns", "colours"),
        "unseen_pairs": _kinds_row(rows["unseen_pairs"], "noun", "colour"),
        "relation": {"n": len(related), "right": share(related)},
        "setting": {"n": len(settings), "right": share(settings)},
        "small": {"n": len(small), "there": share(small)},
        "pointing": _pointing(rows["one_object"], rows["two_objects"]),
        "no_colour": natural.figures_of([(r.picture, r.said, r.plan.kinds) for r in plain]),
        "counts": {
            name: share([r.right for r in rows[f"count_{name}"]]) for name in ("two", "three")
        },
        "same_noun": {
            "both_right": share([r.right for r in twins]),
            "pointing": share(
                [p.inside for r in twins for p in r.points if (p.kind, p.layer) == ("noun", "")]
            ),
        },
    }


def _kinds_row(results: Sequence[Result], noun: str, colour: str) -> Figures:
    said = [list(zip(*r.said.kinds, strict=True)) or [(), ()] for r in results]
    told = [list(zip(*r.plan.kinds, strict=True)) for r in results]
    pairs = list(zip(said, told, strict=True))
    return {
        "n": len(results),
        f"{noun}_and_{colour}": share([r.right for r in results]),
        noun: share([sorted(s[1]) == sorted(t[1]) for s, t in pairs]),
        colour: share([sorted(s[0]) == sorted(t[0]) for s, t in pairs]),
        "count": share([len(s[0]) == len(t[0]) for s, t in pairs]),
    }


def _pointing(one: Sequence[Result], two: Sequence[Result]) -> Figures:
    groups = {
        f"{kind}_{name}": [p for r in results for p in r.points if p.kind == kind]
        for name, results in (("one", one), ("two", two))
        for kind in ("noun", "colour")
    }

    def of(layer: str) -> Figures:
        return {
            name: share([p.inside for p in points if p.layer == layer])
            for name, points in groups.items()
        }

    counts = {name: sum(p.layer == "" for p in points) for name, points in groups.items()}
    layers = next((r.run.maps.layers for r in one), ())
    return {
        **of(""),
        "n": counts,
        "layers": {layer.name: {"grid": min(layer.grid), **of(layer.name)} for layer in layers},
    }


@torch.inference_mode()
def vae_psnr(pipe: Any, n: int) -> float:
    """Peak signal-to-noise ratio, in dB, of n held-out scenes that the autoencoder gives back.

    Of the mean squared error of all: the mean of the pictures' own ratios would be higher.
    """
    errors = []
    for start in range(0, n, BATCH):
        seeds = range(layouts.HELD_OUT_SEED + start, layouts.HELD_OUT_SEED + min(start + BATCH, n))
        images = np.stack([scenes.render(layouts.lay_out(s, held_out=True)).image for s in seeds])
        x = judge.to_tensor(images).to(pipe.device, pipe.vae.dtype)
        back = pipe.vae.decode(pipe.vae.encode(x).latent_dist.mode()).sample
        back = back.float().add(1).mul(127.5).round().clamp(0, 255).permute(0, 2, 3, 1)
        errors += list(np.square(images - back.cpu().numpy()).mean(axis=(1, 2, 3)))
    return round(float(10 * np.log10(255**2 / np.mean(errors))), 2)


def size_mib(folder: Path) -> float:
    """Of all files of a model."""
    return round(sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 2**20, 2)
