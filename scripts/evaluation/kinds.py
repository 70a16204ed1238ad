"""Edits of every kind: does each do what it is for with the windows that it has by itself?

Of captions that training never shows, with one thing changed: a noun (swap), a colour, a size, how
two things lie to each other (relation), the setting, a thing more (addition) or fewer (removal).
Nothing is blended, as where nothing is said. The judge says what came of it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from random import Random
from typing import Any

import numpy as np
from PIL import Image

import heedmap
from evaluation import judge
from evaluation.cases import FIRST, ROOM, Progress, as_array, is_unseen
from evaluation.measures import Figures, cells, pixels, ratios, share, squared_error, widened
from heedmap.figures.plots import Panel
from heedmap.options import EditPurpose
from world import layouts
from world.layouts import Layout

KINDS: tuple[EditPurpose, ...] = (
    *("swap", "colour", "addition", "removal", "size", "relation", "setting"),
)
"""The purposes of edits; the place of one chooses its scenes."""
GROWN = 1.3
"""How many times larger a thing is that became big, or smaller one that became small, at least.

In area; in the world it is 3 to 5 times.
"""
OPPOSITE = {"left": "right", "right": "left", "above": "below", "below": "above"}
Windows = tuple[float, float]
"""Up to when cross-attention and self-attention are taken, as parts of the run."""


@dataclass(frozen=True, slots=True)
class Case:
    """One edit: what the source shows, what it shall become, and the seed of the noise."""

    kind: EditPurpose
    source: Layout
    target: Layout
    seed: int

    @property
    def texts(self) -> tuple[str, str]:
        """Both captions, in one wording."""
        return told(self.source), told(self.target)


def told(layout: Layout) -> str:
    """A plain caption that says all of a layout; the wordings are those of its seed."""
    rng = Random(layout.seed)
    link = {name: rng.choice(ways) for name, ways in layouts.RELATIONS.items()}
    where = {name: rng.choice(ways) for name, ways in layouts.SETTINGS.items()}
    said = []
    for thing in layout.things:
        words = " ".join(filter(None, (thing.size, thing.colour, thing.noun)))
        said.append(f"{'an' if words[0] in 'aeiou' else 'a'} {words}")
    text = f" {link[layout.relation]} ".join(said) if layout.relation else said[0]
    return text if layout.setting == "none" else f"{text} {where[layout.setting]}"


def cases(kind: EditPurpose, n: int, seed: int = 0) -> list[Case]:
    """The first n edits of a kind; the noise is of `seed` too."""
    return list(islice(_cases(kind, seed), n))


def _cases(kind: EditPurpose, seed: int) -> Iterator[Case]:
    number = 0
    for k in count(FIRST + ROOM * (10 + KINDS.index(kind))):
        rng = Random(f"{seed} {kind} {k}")
        two = kind in ("addition", "removal", "relation") or (kind != "size" and number % 3 == 2)
        layout = layouts.lay_out(k, 2 if two else 1, held_out=True)
        layout = replace(layout, things=tuple(replace(t, size="") for t in layout.things))
        targets = [other for other in _changed(kind, layout, rng) if _is_fit(kind, layout, other)]
        if not targets:
            continue
        noise = Random(f"{seed} {kind} {number}").getrandbits(31)
        yield Case(kind, *rng.choice(targets), noise)
        number += 1


def _changed(kind: EditPurpose, layout: Layout, rng: Random) -> Iterator[tuple[Layout, Layout]]:
    """All edits of a kind that a layout can be part of, each as source and target."""
    things = layout.things
    place = rng.randrange(len(things))

    def with_thing(**changes: Any) -> Layout:
        other = replace(things[place], **changes)
        return replace(layout, things=(*things[:place], other, *things[place + 1 :]))

    if kind == "swap":
        yield from ((layout, with_thing(noun=noun)) for noun in layouts.NOUNS)
    elif kind == "colour":
        yield from ((layout, with_thing(colour=colour)) for colour in layouts.COLOURS)
    elif kind == "size":
        small, big = with_thing(size="small"), with_thing(size="big")
        yield from ((small, big), (big, small))
    elif kind == "setting":
        yield from ((layout, replace(layout, setting=name)) for name in layouts.SETTINGS)
    elif kind == "relation":
        if layout.relation in OPPOSITE:
            yield layout, replace(layout, relation=OPPOSITE[layout.relation])
    else:
        both = replace(layout, relation="with")
        one = replace(layout, relation="", things=things[:1])
        yield (one, both) if kind == "addition" else (both, one)


def _is_fit(kind: EditPurpose, layout: Layout, edit: tuple[Layout, Layout]) -> bool:
    """Whether an edit changes something, is of what training never shows, and can be judged."""
    source, target = edit
    larger = max(edit, key=lambda one: len(one.things))
    nouns = {thing.noun for thing in larger.things}
    settings = {source.setting, target.setting}
    return (
        source != target
        and len(nouns) == len(larger.things)
        and not any(map(is_unseen, edit))
        and layouts.is_held_out(target if len(source.things) == len(target.things) else larger)
        and (kind != "setting" or "none" not in settings)
        and layout.seed == target.seed
    )


# --- drawing ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Drawn:
    """An edit with its pictures uint8 (128, 128, 3) by name, and what the judge saw in each.

    Names: "source", "plain" (the target's caption with nothing taken from the source), and those of
    the edits.
    """

    case: Case
    pictures: dict[str, np.ndarray]
    said: dict[str, judge.Judgement]

    def right(self, name: str) -> bool:
        """Whether a picture shows what the target's caption says."""
        case, said = self.case, self.said[name]
        asked = sorted((t.colour, t.noun) for t in case.target.things)
        if said.kinds != asked:
            return False
        if case.kind == "setting":
            return said.setting == case.target.setting
        if case.kind == "size":
            before = [thing.area for thing in self.said["source"].things]
            factor = said.things[0].area / before[0] if before else 0.0
            return factor >= GROWN if case.target.things[0].size == "big" else factor <= 1 / GROWN
        return case.kind != "relation" or self._lies_right(said)

    def _lies_right(self, said: judge.Judgement) -> bool:
        where = {(t.colour, t.noun): t.centre for t in said.things}
        first, second = (where[t.colour, t.noun] for t in self.case.target.things)
        axis = 0 if self.case.target.relation in ("left", "right") else 1
        return (first[axis] < second[axis]) is (self.case.target.relation in ("left", "above"))

    def region(self, name: str) -> np.ndarray:
        """Where the edit had something to do: bool (128, 128).

        What is to change, in the source, in this picture and in the plain one; of a setting, all
        that is none of the things.
        """
        seen = [self.said[one].things for one in ("source", name, "plain")]
        if self.case.kind == "setting":
            return ~pixels(cells(seen[0]))
        stays = set()
        if self.case.kind in ("swap", "colour", "addition", "removal"):
            sides = [{(t.colour, t.noun) for t in one.things}
                     for one in (self.case.source, self.case.target)]  # fmt: skip
            stays = sides[0] & sides[1]
        changed = [t for things in seen for t in things if (t.colour, t.noun) not in stays]
        return pixels(widened(cells(changed)))

    def outside(self, name: str, region: np.ndarray) -> float:
        """The squared error to the source outside of a region."""
        return squared_error(self.pictures[name], self.pictures["source"], ~region)


def draw(
    pipe: Any,
    todo: Sequence[Case],
    eye: judge.Judge,
    progress: Progress,
    edit: Callable[[Case], dict[str, heedmap.EditResult]],
    **how: Any,
) -> list[Drawn]:
    """Draw edits with `edit`, which gives pairs by name, and judge them.

    Nothing of the attention is kept (`keep`): that changes no picture, and is a fifth faster.
    """
    drawn = []
    for case in todo:
        pairs = edit(case)
        plain = heedmap.generate(pipe, case.texts[1], seed=case.seed, **how)
        source = next(iter(pairs.values())).source
        runs = {"source": source, "plain": plain}
        runs |= {name: pair.edited for name, pair in pairs.items()}
        pictures = {name: as_array(run) for name, run in runs.items()}
        said = judge.detect(np.stack(list(pictures.values())), eye)
        drawn.append(Drawn(case, pictures, dict(zip(pictures, said, strict=True))))
        progress(case.kind, len(drawn), len(todo))
    return drawn


def measure(
    pipe: Any, n: int, seed: int, eye: judge.Judge, progress: Progress, **how: Any
) -> tuple[Figures, list[Drawn]]:
    """The figures "kinds" and all that was drawn: `heedmap.edit` as it is by itself."""
    how = {**how, "keep": ()}

    def edit(case: Case) -> dict[str, heedmap.EditResult]:
        return {"edit": heedmap.edit(pipe, *case.texts, seed=case.seed, **how)}

    rows = {k: draw(pipe, cases(k, n, seed), eye, progress, edit, **how) for k in KINDS}
    figures = {kind: figures_of(drawn) for kind, drawn in rows.items()}
    return figures, [one for drawn in rows.values() for one in drawn]


def figures_of(drawn: Sequence[Drawn], name: str = "edit") -> Figures:
    """The figures of one kind.

    Returns:
        n: edits.
        attainable: share of the targets that plain generation from this noise shows.
        success_of_attainable: share of these that the edit shows.
        outside_mse_ratio: the squared error to the source outside of what is to change, by that of
            the plain picture there: the ratio of the means.
    """
    regions = [d.region(name) for d in drawn]
    pairs = [(d, region) for d, region in zip(drawn, regions, strict=True)]
    edited, plain = ([d.outside(one, r) for d, r in pairs] for one in (name, "plain"))
    return {
        "n": len(drawn),
        "attainable": share([d.right("plain") for d in drawn]),
        "success_of_attainable": share([d.right(name) for d in drawn if d.right("plain")]),
        "outside_mse_ratio": ratios(edited, plain)[0],
    }


# --- which windows? ---------------------------------------------------------------------------


def over_windows(
    pipe: Any,
    n: int,
    seed: int,
    eye: judge.Judge,
    progress: Progress,
    cross: Sequence[float],
    own: Sequence[float],
    kinds: Sequence[EditPurpose] = KINDS,
    **how: Any,
) -> tuple[dict[str, dict[str, Figures]], list[Drawn]]:
    """The figures of each kind by windows ("0.8 0.4": cross, then self), and what was drawn."""
    how = {**how, "keep": ()}
    names = {f"{c:g} {s:g}": {"cross_replace": c, "self_replace": s} for c in cross for s in own}

    def edit(case: Case) -> dict[str, heedmap.EditResult]:
        if len(names) == 1:  # no grid
            ((name, windows),) = names.items()
            pair = heedmap.edit(pipe, *case.texts, seed=case.seed, **windows, **how)
            return {name: pair}
        made = heedmap.grid(
            pipe,
            *case.texts,
            cross_replace=list(cross),
            self_replace=list(own),
            seeds=case.seed,
            **how,
        )
        return {f"{cell.cross_replace[1]:g} {cell.self_replace[1]:g}": cell.result for cell in made}

    rows = {k: draw(pipe, cases(k, n, seed), eye, progress, edit, **how) for k in kinds}
    figures = {
        kind: {name: figures_of(drawn, name) for name in names} for kind, drawn in rows.items()
    }
    return figures, [one for drawn in rows.values() for one in drawn]


def windows_table(
    figures: dict[str, dict[str, Figures]], usual: Mapping[EditPurpose | None, Windows]
) -> str:
    """What `over_windows` found, as a table of Markdown: done of what is attainable, and the ratio.

    The model's usual windows are in bold; under each kind, how many edits.
    """
    bold: dict[str | None, str] = {k: f"{cross:g} {own:g}" for k, (cross, own) in usual.items()}
    found = {name for rows in figures.values() for name in rows}
    names = sorted(found, key=lambda name: [-float(end) for end in name.split()])

    def cell(kind: str, name: str) -> str:
        row = figures[kind].get(name)
        if row is None:
            return ""
        done, ratio = row["success_of_attainable"], row["outside_mse_ratio"]
        said = ", ".join((
            "none to judge" if done is None else f"{done:.0%}".replace("%", " %"),
            "–" if ratio is None else f"{ratio:.2f}",
        ))  # fmt: skip
        return f"**{said}**" if bold[kind] == name else said

    ends = [str(next(iter(rows.values()))["n"]) for rows in figures.values()]
    lines = [["cross, self", *figures], ["---"] * (len(figures) + 1)]
    lines += [[name.replace(" ", ", "), *(cell(kind, name) for kind in figures)] for name in names]
    return "\n".join(f"| {' | '.join(line)} |" for line in [*lines, ["edits", *ends]])


def panels(drawn: Sequence[Drawn], most: int = 24) -> list[Panel]:
    """Source, edit and plain picture of some edits: what went wrong first, then the rest."""
    chosen = sorted(drawn, key=lambda d: (d.right("edit"), not d.right("plain")))[:most]
    return [
        Panel(caption, Image.fromarray(d.pictures[name]), note)
        for d in chosen
        for name, caption, note in (
            ("source", d.case.texts[0], d.case.kind),
            ("edit", d.case.texts[1], "right" if d.right("edit") else "WRONG"),
            ("plain", "plain, same noise", "right" if d.right("plain") else "wrong"),
        )
    ]
