"""What do guides repair, and what do they break?

Captions of several kinds are drawn plainly, and the judge says which pictures fail. The failures,
and as many successes, are then drawn again from the same noise with guides, and by the rules of
others (`attending`). All pictures and verdicts are kept in a folder, so that a run that was ended
goes on where it was.

Kinds: "two" and "three" different things; "alike", three of a kind; "colours", two things of which
each has the natural colour of the other; "relation", two things with a direction between them; and
"box", a thing that shall lie in one half of the picture.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, count
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image

import heedmap
from evaluation import judge
from evaluation.cases import Plan, Progress, is_unseen
from evaluation.measures import Figures, cells, mean, pixels, share, squared_error, widened
from evaluation.obedience import DIRECTIONS
from evaluation.places import HALVES
from world import captions, layouts, scenes

FIRST = layouts.HELD_OUT_SEED + 400_000_000
"""Layouts of guides begin here; those from which defaults were chosen, 100 million further on."""
ROOM = 10_000_000
KINDS = ("two", "three", "alike", "colours", "relation", "box")
BATCH = 8
OPPOSITE = {"left": "right", "right": "left", "above": "bottom", "below": "top"}
SAME = {"left": "left", "right": "right", "above": "top", "below": "bottom"}


# --- what is drawn ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A caption of a kind; `half` is where its thing shall lie."""

    kind: str
    number: int
    plan: Plan
    half: str = ""

    @property
    def nouns(self) -> list[str]:
        """The words that name its things, each once."""
        return [self._word(m) for m in self.plan.caption.mentions if m.kind == "noun"]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Colour and noun of each thing, as words of the caption."""
        colours = {m.things[0]: self._word(m) for m in self.plan.caption.mentions
                   if m.kind == "colour"}  # fmt: skip
        nouns = {m.things[0]: self._word(m) for m in self.plan.caption.mentions if m.kind == "noun"}
        return [(colours[thing], nouns[thing]) for thing in nouns if thing in colours]

    def _word(self, mention: captions.Mention) -> str:
        """A mention as a guide names it: the second "cat" as "cat#2"."""
        text = self.plan.caption.text
        word = text[mention.start : mention.end]
        starts = [found.start() for found in re.finditer(rf"\b{word}\b", text)]
        return f"{word}#{starts.index(mention.start) + 1}" if len(starts) > 1 else word

    def right(self, said: judge.Judgement) -> bool:
        """Whether the picture shows what the caption, or the box, says."""
        things = said.things
        if said.kinds != self.plan.kinds:
            return False
        if self.kind == "alike":
            return judge.of_one_size(things)
        if self.kind == "box":
            return inside(things[0], self.half)
        if self.kind == "relation":
            told = self.plan.layout
            where = {(t.colour, t.noun): t.centre for t in things}
            first, second = (where[t.colour, t.noun] for t in told.things)
            axis = 0 if told.relation in ("left", "right") else 1
            return (first[axis] < second[axis]) is (told.relation in ("left", "above"))
        return True


def inside(thing: judge.Found, half: str) -> bool:
    """Whether the centre of a thing lies in a half of the picture."""
    x, y = (scenes.SIZE * part for part in thing.centre)
    left, top, right, bottom = HALVES[half]
    return left <= x < right and top <= y < bottom


def cases(kind: str, seed: int = 0) -> Iterator[Case]:
    """The captions of a kind, without end; layouts and noise are of the seed."""
    first = FIRST + 100_000_000 * seed + ROOM * KINDS.index(kind)
    things = {"three": 3, "alike": 3, "box": 1}.get(kind, 2)
    alike: layouts.Kind = "several" if kind == "alike" else "different"
    laid = (layouts.lay_out(k, things, held_out=True, kind=alike) for k in count(first))
    number = 0
    for layout in laid:
        nouns = {thing.noun for thing in layout.things}
        if is_unseen(layout) or (kind != "alike" and len(nouns) < things):
            continue
        if kind == "relation" and layout.relation not in DIRECTIONS:
            continue
        if kind == "colours":
            one, two = (layouts.NATURAL[thing.noun] for thing in layout.things)
            if one == two:
                continue
            swapped = [replace(t, colour=c) for t, c in zip(layout.things, (two, one), strict=True)]
            layout = replace(layout, things=tuple(swapped))
            if is_unseen(layout):
                continue
        rng = Random(f"{seed} {kind} {number}")
        caption = captions.object_caption(layout, Random(layout.seed))
        half = rng.choice(list(HALVES)) if kind == "box" else ""
        yield Case(kind, number, Plan(layout, caption, rng.getrandbits(31)), half)
        number += 1


# --- ways to guide ----------------------------------------------------------------------------


def excite(case: Case, **options: Any) -> list[Any]:
    """Each noun excited."""
    return [heedmap.Excite(noun, **options) for noun in case.nouns]


def excite_colours(case: Case, **options: Any) -> list[Any]:
    """Each colour excited."""
    return [heedmap.Excite(colour, **options) for colour, _ in case.pairs]


def bind(case: Case, **options: Any) -> list[Any]:
    """Each colour bound to its noun."""
    return [heedmap.Bind(*pair, **options) for pair in case.pairs]


def separate(case: Case, **options: Any) -> list[Any]:
    """The nouns kept apart."""
    pairs = combinations(case.nouns, 2)
    return [heedmap.Separate(*pair, **options) for pair in pairs]


def place(case: Case, **options: Any) -> list[Any]:
    """Things inside of the halves that the caption or the box says; three alike in discs."""
    pairs = zip(case.nouns, boxes_of(case), strict=True)
    return [heedmap.Inside(noun, box, **options) for noun, box in pairs]


def boxes_of(case: Case) -> list[np.ndarray]:
    """Where each noun shall be, bool (128, 128)."""
    if case.kind == "alike":
        return [discs()]
    if case.kind == "box":
        return [half_of(case.half)]
    relation = case.plan.layout.relation
    return [half_of(SAME[relation]), half_of(OPPOSITE[relation])]


def half_of(name: str) -> np.ndarray:
    """A half of the picture, bool (128, 128)."""
    left, top, right, bottom = HALVES[name]
    mask = np.zeros((scenes.SIZE, scenes.SIZE), bool)
    mask[top:bottom, left:right] = True
    return mask


def discs() -> np.ndarray:
    """Three discs in a triangle, where the drawn world has three of a kind: bool (128, 128)."""
    y, x = (np.mgrid[: scenes.SIZE, : scenes.SIZE] + 0.5) / scenes.SIZE
    spots = ((0.25, 0.74), (0.75, 0.74), (0.5, 0.3))
    return np.any([(x - a) ** 2 + (y - b) ** 2 < 0.17**2 for a, b in spots], axis=0)


Way = Callable[[Case], list[Any]]
COLOURED: Mapping[str, Way] = {
    "Excite": excite,
    "Excite colours": excite_colours,
    "Bind": bind,
    "Separate": separate,
}
WAYS: Mapping[str, Mapping[str, Way]] = {
    "two": COLOURED,
    "three": COLOURED,
    "alike": {"Excite": excite, "Inside": place},
    "colours": COLOURED,
    "relation": {"Inside": place},
    "box": {"Inside": place},
}
"""The ways to guide captions of each kind."""


# --- drawing and judging ----------------------------------------------------------------------


class Store:
    """The verdicts of a folder, with the pictures beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "results.jsonl"
        self.rows: dict[str, Figures] = {}
        if self.path.exists():
            lines = self.path.read_text(encoding="utf-8").splitlines()
            self.rows = dict(map(json.loads, lines))

    def put(self, key: str, row: Figures, picture: np.ndarray) -> None:
        """Keep a verdict, and the picture."""
        Image.fromarray(picture).save(self.folder / f"{key}.png")
        self.rows[key] = row
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, row]) + "\n")

    def picture(self, key: str) -> np.ndarray:
        """The picture of a verdict, uint8 (128, 128, 3)."""
        return np.asarray(Image.open(self.folder / f"{key}.png"))


def key_of(case: Case, way: str) -> str:
    """The name of a picture."""
    return f"{case.kind}-{case.number:04d}-{way}"


def plain(
    pipe: Any, kind: str, n: int, most: int, seed: int, eye: judge.Judge, store: Store,
    progress: Progress, **how: Any,
) -> tuple[list[Case], list[Case]]:  # fmt: skip
    """Draw captions plainly until n failed, or `most` are drawn.

    Returns:
        the failures, and as many successes, at least n where there are as many.
    """
    marks: dict[bool, list[Case]] = {False: [], True: []}
    todo: list[Case] = []
    for case in cases(kind, seed):
        done = case.number
        if done >= most or (len(marks[False]) >= n and len(marks[True]) >= n):
            break
        key = key_of(case, "plain")
        if key not in store.rows:
            todo.append(case)
            if len(todo) < BATCH and done + 1 < most:
                continue
            draw_plain(pipe, todo, eye, store, **how)
        for drawn in todo or [case]:
            marks[store.rows[key_of(drawn, "plain")]["right"]].append(drawn)
        todo = []
        progress(f"{kind}, {len(marks[False])} fail", done + 1, most)
    return marks[False][:n], marks[True][:n]


def draw_plain(pipe: Any, todo: Sequence[Case], eye: judge.Judge, store: Store, **how: Any) -> None:
    """Draw captions plainly, in one batch, and keep what the judge says."""
    start = time.process_time()
    texts, seeds = [c.plan.caption.text for c in todo], [c.plan.seed for c in todo]
    runs = heedmap.generate(pipe, texts, seed=seeds, **how)
    seconds = (time.process_time() - start) / len(todo)
    pictures = np.stack([np.asarray(run.image.convert("RGB")) for run in runs])
    for case, picture, said in zip(todo, pictures, judge.detect(pictures, eye), strict=True):
        row = {"text": texts[todo.index(case)], "right": case.right(said), "seconds": seconds}
        store.put(key_of(case, "plain"), {**row, "saw": said.kinds}, picture)


Draw = Callable[[Any, Case], tuple[np.ndarray, int]]
"""Draws a case with a pipeline: the picture, and the number of extra passes."""


def by_guides(way: Way, pipe: Any, case: Case, **how: Any) -> tuple[np.ndarray, int]:
    """Draw a case with guides."""
    text, seed = case.plan.caption.text, case.plan.seed
    run = heedmap.generate(pipe, text, seed=seed, guide=way(case), **how)
    assert run.guide_report is not None
    return np.asarray(run.image.convert("RGB")), run.guide_report.passes


def by_another_seed(pipe: Any, case: Case, **how: Any) -> tuple[np.ndarray, int]:
    """Draw a case plainly from another noise: what anybody does first."""
    text, seed = case.plan.caption.text, case.plan.seed
    (run,) = heedmap.generate(pipe, [text], seed=[seed ^ 1], **how)
    return np.asarray(run.image.convert("RGB")), 0


def guided(pipe: Any, case: Case, name: str, draw: Draw, eye: judge.Judge, store: Store) -> Figures:
    """Draw a case in a way, unless it is there already, and return the verdict.

    `elsewhere` is the mean squared difference from the plain picture outside of the things that the
    judge saw in either.
    """
    key = key_of(case, name)
    if key in store.rows:
        return store.rows[key]
    start = time.process_time()
    picture, passes = draw(pipe, case)
    seconds = time.process_time() - start
    before = store.picture(key_of(case, "plain"))
    was, said = judge.detect(np.stack([before, picture]), eye)
    region = pixels(widened(cells([*was.things, *said.things])))
    row = {
        "right": case.right(said),
        "noun": sorted(n for _, n in said.kinds) == sorted(n for _, n in case.plan.kinds),
        "saw": said.kinds,
        "elsewhere": squared_error(before, picture, ~region),
        "passes": passes,
        "seconds": seconds,
    }
    if case.kind == "box":
        told = case.plan.layout.things[0].noun
        found = [thing for thing in said.things if thing.noun == told]
        row["seen"] = bool(found)
        row["inside"] = bool(found) and inside(found[0], case.half)
    store.put(key, row, picture)
    return row


def measure(
    pipe: Any, folder: Path, n: int, most: int, seed: int, progress: Progress,
    kinds: Sequence[str] = KINDS, others: Mapping[str, Mapping[str, Draw]] | None = None,
    chosen: Sequence[str] = (),
    **how: Any,
) -> Figures:  # fmt: skip
    """The figures of each kind and way.

    Args:
        pipe: a model of the drawn world.
        folder: keeps pictures and verdicts.
        n: failures of each kind, and successes.
        most: captions of each kind that are drawn plainly.
        seed: of layouts and noise.
        progress: called with what is drawn, how much of it is done, and how much it is in all.
        kinds: some of `KINDS`.
        others: further ways of each kind, by name.
        chosen: the ways that are drawn (all); others have the figures of what the folder keeps.
        how: arguments of each call.
    """
    eye, store = judge.load(), Store(folder)
    figures: Figures = {}
    for kind in kinds:
        failed, passed = plain(pipe, kind, n, most, seed, eye, store, progress, **how)
        drawn = [row["right"] for key, row in store.rows.items()
                 if key.startswith(f"{kind}-") and key.endswith("-plain")]  # fmt: skip
        ways: dict[str, Draw] = {
            name: partial(by_guides, way, **how) for name, way in WAYS[kind].items()
        }
        ways |= dict((others or {}).get(kind, {}))
        ways["another seed"] = partial(by_another_seed, **how)
        figures[kind] = {"plain": {"n": len(drawn), "right": share(drawn)}}
        for name, draw in ways.items():
            rows: dict[bool, list[Figures]] = {False: [], True: []}
            for number, case in enumerate([*failed, *passed]):
                is_left_out = bool(chosen) and name not in chosen
                if is_left_out and key_of(case, name) not in store.rows:
                    continue
                row = guided(pipe, case, name, draw, eye, store)
                rows[number >= len(failed)].append(row)
                progress(f"{kind} {name}", number + 1, len(failed) + len(passed))
            before = mean([store.rows[key_of(c, "plain")]["seconds"] for c in [*failed, *passed]])
            if rows[False] or rows[True]:
                figures[kind][name] = figures_of(rows[False], rows[True], before)
    return figures


def figures_of(
    failed: Sequence[Figures], passed: Sequence[Figures], seconds: float | None
) -> Figures:
    """The share of failures that are right now, and of successes that are wrong, and so on."""
    rows = [*failed, *passed]
    figures = {
        "n failed": len(failed),
        "repaired": share([row["right"] for row in failed]),
        "n passed": len(passed),
        "broken": share([not row["right"] for row in passed]),
        "elsewhere": mean([row["elsewhere"] for row in passed]),
        "passes": mean([row["passes"] for row in rows]),
        "seconds": mean([row["seconds"] for row in rows]),
        "seconds plain": seconds,
    }
    if rows and "inside" in rows[0]:
        for name in ("inside", "seen", "noun"):
            figures[name] = share([row[name] for row in rows])
    return figures


def table(figures: Figures) -> str:
    """The figures as a table of Markdown."""
    lines = [
        "| captions | way | repaired | broken | change elsewhere | further passes | time |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kind, rows in figures.items():
        first = rows["plain"]
        right = f"{100 * (first['right'] or 0):.0f} % of {first['n']} right"
        lines.append(f"| {kind} | plain: {right} | | | | | |")
        for name, row in rows.items():
            if name == "plain":
                continue
            cells_of = [
                f"{_percent(row['repaired'])} of {row['n failed']}",
                f"{_percent(row['broken'])} of {row['n passed']}",
                _number(row["elsewhere"], ".4f"),
                _number(row["passes"], ".0f"),
                _number(row["seconds"] and row["seconds"] / row["seconds plain"], ".1f") + "×",
            ]
            if "inside" in row:
                parts = (row["inside"], row["seen"], row["noun"])
                name += " ({} inside, {} the noun, {} it alone)".format(*map(_percent, parts))
            lines.append(f"| | {name} | {' | '.join(cells_of)} |")
    return "\n".join(lines)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
