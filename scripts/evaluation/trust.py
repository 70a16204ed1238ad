"""Can one believe the heat? Maps beside cause: what leaving a word out changes in the picture.

Scenes of two things that differ, each in its colour, one to a side of the other. Of each, three
words are left out (`heedmap.ablate`): the noun and the colour of one of the things, and the
relation. What that changes is held against the word's maps, on the grid of the maps:

- `rank`: Spearman's rank correlation of the map and the change.
- `auc`: how often a place of the changed region (Otsu's threshold of the change) has more of the
  map than a place outside of it; 0.5 by chance.

`MAPS` are the maps. The last three are none of the word, but say what the figures are worth: the
outline of the thing that it speaks of, as the judge sees it (`thing`), the map of another word of
the same kind, and what the other way to leave it out changes. Only pictures count in which the
judge sees what the caption tells.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, count, islice
from random import Random
from typing import Any

import numpy as np

import heedmap
from evaluation import judge, truth
from evaluation.cases import Plan, Progress, as_array, is_unseen
from evaluation.measures import Figures
from heedmap.figures.overlays import heat, resize_map
from heedmap.figures.plots import Panel
from heedmap.maps.recordings import rank_correlation
from heedmap.results.ablations import WAYS, Ablation, auc, changed_region
from world import captions, layouts

FIRST = layouts.HELD_OUT_SEED + 700_000_000
"""Layouts of this question begin here; no other question has them, nor has any training."""
DIRECTIONS = ("left", "right", "above", "below")
KINDS = ("noun", "colour", "relation")
MAPS = ("mean", "refined", "mask", "thing", "another word", "other way")
NOISES = 3
"""In each of which a picture is looked at, to see how far its maps agree."""
DRAWS = 1000  # of the bootstrap
RENORMALIZED = 4  # one picture in so many
LEAST_MOVED = 0.01
"""The mean change of a picture's pixels below which a word is said to have done little."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a caption that is left out.

    Attributes:
        kind: one of `KINDS`.
        text: as it stands there, once.
        things: the numbers of what it speaks of.
        other: another word of the same kind; of a relation a noun.
    """

    kind: str
    text: str
    things: tuple[int, ...]
    other: str


@dataclass(frozen=True, slots=True)
class Told:
    """What leaving a word out in one way did: by map, rank correlation and AUC.

    Attributes:
        moved: the mean change of the picture, 0 to 1.
        on_thing: the AUC of the change for the thing that the word speaks of.
    """

    maps: Mapping[str, tuple[float | None, float | None]]
    moved: float
    on_thing: float | None


@dataclass(frozen=True, slots=True)
class Case:
    """A word left out of a picture that shows what its caption tells.

    Attributes:
        picture: its number.
        ways: what came of it, by way.
        stable: by map, how far it agrees over noises.
        renormalized: the rank correlation of the change with that of probabilities made to sum to 1
            again, and of the heat with either; None where that was not drawn.
    """

    picture: int
    word: Word
    found: Ablation
    ways: Mapping[str, Told]
    stable: Mapping[str, float | None]
    renormalized: tuple[float | None, float | None, float | None] | None = None


# --- what is drawn ----------------------------------------------------------------------------


def plans(n: int, seed: int = 0) -> list[Plan]:
    """The first n pictures; the noise is of `seed` too."""
    return list(islice(_plans(seed), n))


def _plans(seed: int) -> Iterator[Plan]:
    index = 0
    for k in count(FIRST):
        layout = layouts.lay_out(k, 2, held_out=True)
        nouns, colours = ({getattr(t, n) for t in layout.things} for n in ("noun", "colour"))
        apart = len(nouns) == len(colours) == 2 and layout.relation in DIRECTIONS
        if apart and not is_unseen(layout):
            caption = captions.object_caption(layout, Random(layout.seed))
            yield Plan(layout, caption, Random(f"{seed} trust {index}").getrandbits(31))
            index += 1


def words_of(plan: Plan) -> list[Word]:
    """The words of a caption that are left out: of one of its things, in turn, and the relation."""
    text, mine = plan.caption.text, plan.seed % 2
    said = {(m.kind, m.things): text[m.start : m.end] for m in plan.caption.mentions}
    found = [
        Word(kind, said[kind, (mine,)], (mine,), said[kind, (1 - mine,)])
        for kind in ("noun", "colour")
    ]
    ways = sorted(layouts.RELATIONS[plan.layout.relation], key=len, reverse=True)
    relation = next(way for way in ways if f" {way} " in text)
    return [*found, Word("relation", relation, (0, 1), found[0].text)]


def things_of(plan: Plan, said: judge.Judgement, word: Word, grid: tuple[int, int]) -> np.ndarray:
    """Where the judge sees what a word speaks of: bool (h, w)."""
    kinds = [(plan.layout.things[n].colour, plan.layout.things[n].noun) for n in word.things]
    masks = [thing.mask for thing in said.things if (thing.colour, thing.noun) in kinds]
    whole = np.logical_or.reduce(masks)
    return resize_map(whole.astype(np.float32), (grid[1], grid[0])) >= 0.5


def drawn(pipe: Any, plan: Plan, picture: int, eye: judge.Judge, **how: Any) -> list[Case]:
    """The words of a picture left out; none where the judge does not see what the caption tells."""
    words = words_of(plan)
    run = heedmap.generate(pipe, plan.caption.text, seed=plan.seed, **how)
    found = [heedmap.ablate(pipe, run, word.text) for word in words]
    (said,) = judge.detect(as_array(found[0].run)[None], eye)
    if said.kinds != plan.kinds:
        return []
    seen = [
        truth.seen(pipe, as_array(found[0].run), plan.caption.text, plan.seed + n, truth.STEPS)
        for n in range(NOISES)
    ]
    cases = []
    for word, one in zip(words, found, strict=True):
        stable = {
            "mean": stability([maps[word.text].values for maps in seen]),
            "refined": stability([maps.refined[word.text].values for maps in seen]),
        }
        whole = None
        if word.kind == "noun" and picture % RENORMALIZED == 0:
            whole = renormalized(pipe, plan, one, **how)
        mask = things_of(plan, said, word, one.run.maps[word.text].values.shape)
        cases.append(Case(picture, word, one, compared(one, word, mask), stable, whole))
    return cases


def stability(maps: Sequence[np.ndarray]) -> float | None:
    """Return the mean rank correlation of all pairs of maps that are not constant."""
    found = [rank_correlation(a, b) for a, b in combinations(maps, 2)]
    known = [one for one in found if one is not None]
    return sum(known) / len(known) if known else None


def compared(found: Ablation, word: Word, thing: np.ndarray) -> dict[str, Told]:
    """What an ablation changed, both ways, beside each of `MAPS`."""
    heat = found.run.maps[found.word]
    grid = heat.values.shape[::-1]
    changes = {way: resize_map(found.difference(way), grid) for way in WAYS}
    maps = {
        "mean": heat.values,
        "refined": found.run.maps.refined[word.text].values,
        "mask": resize_map(heat.soft_mask(), grid),
        "thing": thing.astype(np.float32),
        "another word": found.run.maps[word.other].values,
    }
    told: dict[str, Told] = {}
    for way, other in zip(WAYS, reversed(WAYS), strict=True):
        cause = changes[way]
        region = changed_region(cause)
        every = {**maps, "other way": changes[other]}
        both = {
            name: (rank_correlation(values, cause), auc(values, region))
            for name, values in every.items()
        }
        told[way] = Told(both, float(cause.mean()), auc(cause, thing))
    return told


def renormalized(
    pipe: Any, plan: Plan, found: Ablation, **how: Any
) -> tuple[float | None, float | None, float | None]:
    """Whether the ranking is another one where rows sum to 1 again: see `Case`."""
    edit = heedmap.Reweight(found.word, 0, renormalize=True)
    run = heedmap.generate(pipe, plan.caption.text, seed=plan.seed, edits=[edit], **how)
    whole = replace(found, without={**found.without, "attention": run})
    heat = found.run.maps[found.word].values
    mine, other = (
        resize_map(one.difference("attention"), heat.shape[::-1]) for one in (found, whole)
    )
    pairs = ((mine, other), (heat, mine), (heat, other))
    one, two, three = (rank_correlation(a, b) for a, b in pairs)
    return one, two, three


# --- figures ----------------------------------------------------------------------------------


def measure(
    pipe: Any, n: int, seed: int, eye: judge.Judge, progress: Progress, **how: Any
) -> tuple[Figures, list[Case]]:
    """The figures of n pictures, and all that was drawn.

    Returns:
        n: pictures.
        right: the share that shows what its caption tells; the others do not count.
        kinds: by kind of word and way, of each map rank correlation, AUC and the share of AUCs that
            are below chance; the mean change (`moved`), the share of words that did little
            (`idle`), and how well the change finds the thing (`on_thing`, an AUC).
        stability: by kind, the mean rank correlation of a word's maps over noises.
        renormalized: whether the ranking is another where rows sum to 1 again.
    """
    cases: list[Case] = []
    todo = plans(n, seed)
    for number, plan in enumerate(todo):
        cases += drawn(pipe, plan, number, eye, **how)
        progress("trust", number + 1, n)
    return summed(cases, n, np.random.default_rng(seed)), cases


def summed(cases: Sequence[Case], n: int, rng: np.random.Generator) -> Figures:
    """The figures of all cases of n pictures."""
    right = len({case.picture for case in cases})
    figures: Figures = {"n": n, "right": round(right / n, 4), "kinds": {}, "stability": {}}
    for kind in KINDS:
        some = [case for case in cases if case.word.kind == kind]
        figures["kinds"][kind] = {way: _of_way(some, way, rng) for way in WAYS}
        figures["stability"][kind] = {
            name: mean_of([case.stable[name] for case in some], rng) for name in ("mean", "refined")
        }
    again = [case.renormalized for case in cases if case.renormalized is not None]
    names = ("with attention", "heat and attention", "heat and renormalized")
    figures["renormalized"] = {
        name: mean_of([one[at] for one in again], rng) for at, name in enumerate(names)
    }
    return figures


def _of_way(cases: Sequence[Case], way: str, rng: np.random.Generator) -> Figures:
    told = [case.ways[way] for case in cases]
    maps: Figures = {}
    for name in MAPS:
        rank, auc = ([one.maps[name][at] for one in told] for at in (0, 1))
        below = [value < 0.5 for value in auc if value is not None]
        maps[name] = {
            "rank": mean_of(rank, rng),
            "auc": mean_of(auc, rng),
            "below_chance": round(sum(below) / len(below), 4) if below else None,
        }
    moved = [one.moved for one in told]
    idle = sum(one < LEAST_MOVED for one in moved) / len(moved) if moved else None
    return {
        "maps": maps,
        "moved": mean_of(moved, rng),
        "idle": None if idle is None else round(idle, 4),
        "on_thing": mean_of([one.on_thing for one in told], rng),
    }


def mean_of(values: Sequence[float | None], rng: np.random.Generator) -> Figures | None:
    """The mean of one value a picture, and where 95 of 100 draws of as many pictures lie.

    Returns:
        `n`, `mean` and `interval`; None of nothing.
    """
    told = np.array([value for value in values if value is not None])
    if not told.size:
        return None
    means = told[rng.integers(told.size, size=(DRAWS, told.size))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5]).round(4).tolist()
    return {"n": int(told.size), "mean": round(float(told.mean()), 4), "interval": [low, high]}


# --- what is shown ----------------------------------------------------------------------------


def table(figures: Figures) -> str:
    """The figures as a table of a page: rank correlation and AUC, both ways."""
    head = "| word | map | attention: rank | AUC | prompt: rank | AUC |"
    lines = [head, "| --- | --- | --- | --- | --- | --- |"]
    for kind, ways in figures["kinds"].items():
        for name in MAPS:
            cells = [_cell(ways[way]["maps"][name][of]) for way in WAYS for of in ("rank", "auc")]
            lines.append(f"| {kind if name == MAPS[0] else ''} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(found: Figures | None) -> str:
    if found is None:
        return "–"
    low, high = found["interval"]
    return f"{found['mean']:.2f} ({low:.2f} to {high:.2f})"


def lines(figures: Figures) -> Iterator[tuple[str, str]]:
    """The same for a terminal, a line each: what it is of, and what it is."""
    for kind, ways in figures["kinds"].items():
        for way, told in ways.items():
            for name, one in told["maps"].items():
                below = one["below_chance"]
                said = "" if below is None else f"   below chance {100 * below:.0f} %"
                values = f"rank {_cell(one['rank'])}   AUC {_cell(one['auc'])}{said}"
                yield f"{kind}, {way}: {name}", values
            yield (
                f"{kind}, {way}",
                f"moved {_cell(told['moved'])}   idle {told['idle']}   "
                f"change on the thing {_cell(told['on_thing'])}",
            )
        for name, stable in figures["stability"][kind].items():
            yield f"{kind}: {name} over noises", f"rank {_cell(stable)}"
    for name, one in figures["renormalized"].items():
        yield f"renormalized: {name}", f"rank {_cell(one)}"


def panels(cases: Sequence[Case], most: int = 4) -> list[Panel]:
    """The words of each kind whose heat and cause agree least, a row each, both ways."""
    found: list[Panel] = []
    for kind in KINDS:
        some = [case for case in cases if case.word.kind == kind]
        for case in sorted(some, key=_agreed)[:most]:
            found += row(case.found, case.word)
    return found


def _agreed(case: Case) -> float:
    return case.ways["attention"].maps["mean"][0] or 0.0


def row(found: Ablation, word: Word) -> list[Panel]:
    """The picture, the heat, and for each way the picture without the word, and what changed."""
    panels = [
        Panel(found.run.settings.prompt, found.run.image),
        Panel(f"heat of {word.text}", found.run.maps[word.text].overlay(short_side=128), word.kind),
    ]
    for way, told in found.agreement.items():
        changed = found.difference(way)
        top = max(float(changed.max()), 1 / 255)
        drawn_hot = heat(changed, found.run.image.size, low=0, high=top)
        without = {"attention": "no attention to it", "prompt": "it is not in the prompt"}[way]
        panels.append(Panel(without, found.without[way].image))
        panels.append(Panel(f"changes up to {told.largest:.0%}", drawn_hot, str(told.heat)))
    return panels
