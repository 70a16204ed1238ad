"""A noun or a colour swapped for another: does the target appear, and does the rest stay?

Every swap is drawn by `heedmap.edit`, as a user would who wants the rest to stay: blended where
the phrase of the changed word acts (`only="cat->dog"`). Beside it, from the same noise:
word_alone        the same with the mask of the changed word without its phrase (`"cat"->"dog"`)
plain             the target's caption with nothing taken from the source
without_blend     the edit in the whole picture
cross_only        the same without the source's self-attention
published_rules   the edit in the whole picture with the replacement mapper as prompt-to-prompt
                  published it

The judge says what is in a picture and where; what stayed is plain arithmetic of pixels.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image

import heedmap
from evaluation import judge
from evaluation.cases import Progress, Swap, SwapKind, as_array, swaps
from evaluation.measures import (
    Figures,
    cells,
    mean,
    overlap,
    pixels,
    ratios,
    share,
    squared_error,
    widened,
)
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import family_of
from heedmap.errors import ArgumentError
from heedmap.figures.plots import Panel
from heedmap.mathematics.rules import Inject
from heedmap.pipelines import generation
from heedmap.pipelines.arguments import resolve_options
from heedmap.recording.controller import Steering
from heedmap.text.words import TokenTable

BATCH = 4  # swaps that are drawn at once; each makes three pictures
BESIDE = ("plain", "published_rules")
BASELINES = ("same_seed", "word_alone", "without_blend", "cross_only", "published_rules")
CUT = 0.2  # of an edit's own thing, in squared error, above which a mask has cut into it


# --- the rules of others ----------------------------------------------------------------------


def published_columns(source: TokenTable, target: TokenTable) -> torch.Tensor:
    """The replacement mapper M (K source, K target) as published with prompt-to-prompt.

    Words are whatever stands between spaces, with their punctuation. Read from left to right with a
    place in each prompt: a swapped word maps token to token if both have as many, else each of its
    b target tokens takes 1/b of all its source tokens; what lies before it maps to what stands
    there. After the last swap target token n takes the source's column n, whatever the swaps did to
    the number of tokens: where that changed, the words that follow, the end and the padding get
    their neighbours' attention. It ends where either place is past the last token: of a target that
    became shorter by k tokens the last k columns take nothing.

    Raises:
        ArgumentError: if the prompts have different numbers of words.
    """
    size = len(source.tokens)
    columns = torch.zeros(size, len(target.tokens))
    words = _between_spaces(source), _between_spaces(target)
    if len(words[0]) != len(words[1]):
        raise ArgumentError(f"{source.prompt!r} and {target.prompt!r} differ in words")
    here = there = 0
    for (before, rows), (after, taking) in zip(*words, strict=True):
        if before == after:
            continue
        for k in range(rows[0] - here):
            columns[here + k, there + k] = 1
        if len(rows) == len(taking):
            columns[rows, taking] = 1
        else:
            for n in taking:
                columns[rows, n] = 1 / len(taking)
        here, there = rows[-1] + 1, taking[-1] + 1
    for n in range(there, there + size - max(here, there)):
        columns[n, n] = 1
    return columns


def _between_spaces(table: TokenTable) -> list[tuple[str, list[int]]]:
    """What stands between the spaces of a prompt, with the positions of its tokens."""
    found = []
    for match in re.finditer(r"[^ ]+", table.prompt):
        tokens = [t for t in table.tokens if t.kind == "text"]
        inside = [t.position for t in tokens if match.start() <= t.start < match.end()]
        found.append((match[0], inside))
    return found


def taking(columns: torch.Tensor, cross: float) -> Inject:
    """The rule that takes these columns up to a fraction of the run."""
    start = torch.zeros(columns.shape[1])
    return Inject(columns, start, torch.full_like(start, cross))


# --- drawing ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Drawn:
    """A swap with its pictures uint8 (128, 128, 3) by name, and what the judge saw in each.

    Names: "source", "plain", "edit", and the baselines; of these "same_seed" is "plain".
    """

    swap: Swap
    pictures: dict[str, np.ndarray]
    said: dict[str, judge.Judgement]

    def right(self, name: str) -> bool:
        """Whether a picture shows just what the target's caption says."""
        return self.said[name].kinds == self.swap.target.kinds

    def edited_cells(self, name: str) -> np.ndarray:
        """Where a picture has something other than the things that stay: bool (32, 32)."""
        things = self.said[name].things
        return cells(thing for thing in things if thing.noun not in self.swap.staying)

    def region(self, name: str) -> np.ndarray:
        """Where an edit had something to do: bool (128, 128).

        The thing that changes, as it is in the source, in this picture and in the plain one.
        """
        names = ("source", name, "plain")
        return pixels(widened(np.logical_or.reduce([self.edited_cells(n) for n in names])))

    def outside(self, name: str, region: np.ndarray) -> float:
        """The squared error to the source outside of a region."""
        return squared_error(self.pictures[name], self.pictures["source"], ~region)

    def inside(self, name: str) -> tuple[float, float]:
        """The squared error to the edit of the whole picture, inside of the thing that it made.

        Of this picture, and of the source: as much as that is lost where nothing is let in.
        """
        whole = self.pictures["without_blend"]
        thing = pixels(self.edited_cells("without_blend"))
        lost, all_of_it = (squared_error(self.pictures[n], whole, thing) for n in (name, "source"))
        return lost, all_of_it

    @property
    def verdict(self) -> str:
        """A line for people."""
        if self.right("edit"):
            return "right" if self.right("plain") else "right, though plain is not"
        saw = ", ".join(f"{t.colour} {t.noun}" for t in self.said["edit"].things[:4]) or "nothing"
        return f"WRONG: {saw}" + ("" if self.right("plain") else " (plain is wrong too)")


def draw(
    pipe: Any,
    kind: SwapKind,
    todo: Sequence[Swap],
    eye: judge.Judge,
    progress: Progress,
    **how: Any,
) -> list[Drawn]:
    """Draw all pictures of some swaps, and judge them."""
    drawn: list[Drawn] = []
    for first in range(0, len(todo), BATCH):
        part = todo[first : first + BATCH]
        for swap, beside in zip(part, _beside(pipe, kind, part, **how), strict=True):
            texts = swap.source.caption.text, swap.target.caption.text
            things = [plan.layout.things[swap.thing] for plan in (swap.source, swap.target)]
            words = [thing.noun if kind == "noun" else thing.colour for thing in things]
            ways: dict[str, dict[str, Any]] = {
                "edit": {"only": "->".join(words)},
                "word_alone": {"only": "->".join(f'"{word}"' for word in words)},
                "without_blend": {},
                "cross_only": {"self_replace": 0.0},
            }
            pairs = {
                name: heedmap.edit(pipe, *texts, seed=swap.source.seed, **more, **how)
                for name, more in ways.items()
            }
            pictures = {"source": as_array(pairs["edit"].source)}
            pictures |= {name: as_array(pair.edited) for name, pair in pairs.items()} | beside
            said = judge.detect(np.stack(list(pictures.values())), eye)
            drawn.append(Drawn(swap, pictures, dict(zip(pictures, said, strict=True))))
        progress(f"{kind}_swap", len(drawn), len(todo))
    return drawn


def _beside(
    pipe: Any, kind: SwapKind, part: Sequence[Swap], **how: Any
) -> list[dict[str, np.ndarray]]:
    """For each swap the pictures to compare its edit with, all in one batch.

    Their windows are those that the edit has by itself.
    """
    cross, own_window = family_of(pipe).windows["swap" if kind == "noun" else "colour"]
    options, _ = resolve_options(generation.generate, pipe, None, {"limit": 2**30, **how})
    prompts: list[str] = []
    seeds: list[int] = []
    rules, sources, windows = {}, {}, {}
    for swap in part:
        source, target = swap.source.caption.text, swap.target.caption.text
        tables = [prompt_table(pipe, text, options.arguments) for text in (source, target)]
        at = len(prompts)  # of the source; after it those of BESIDE
        prompts += [source, *[target] * len(BESIDE)]
        seeds += [swap.source.seed] * (1 + len(BESIDE))
        rules[at + 2] = [taking(published_columns(*tables), cross)]
        sources[at + 2], windows[at + 2] = at, (0.0, own_window)
    runs, _ = generation.generate_batch(
        pipe, prompts, seeds, options,
        steering=Steering(rules, sources, windows),
    )  # fmt: skip
    pictures = [as_array(run) for run in runs]
    each = 1 + len(BESIDE)
    return [
        dict(zip(BESIDE, pictures[at + 1 : at + each], strict=True))
        for at in range(0, len(pictures), each)
    ]


# --- figures ----------------------------------------------------------------------------------


def figures_of(drawn: Sequence[Drawn], name: str = "edit") -> Figures:
    """The figures of the edits, or of a baseline.

    Returns:
        n: swaps.
        source_right: share of the sources that show what their caption says.
        attainable: share of the targets that plain generation from this noise shows.
        success: share of the pictures that show the target.
        success_of_attainable: the same of the attainable ones alone.
        outside_mse_ratio: the squared error to the source outside of the region, by that of the
            plain picture outside of the same region: the ratio of the means.
        outside_mse_ratio_median: the median of the ratios of the single swaps.
        inside_mse_ratio: the squared error to the edit of the whole picture inside of its thing, by
            that of the source: how much of the edit was not let in.
        cut: share of the swaps of which that is more than `CUT`.
        same_place: the mean overlap of the thing before and after, where source, plain picture and
            edit are right; "plain" is that of the plain picture, "n" how many.
        retokenized: n, success and ratio of the swaps that change the number of tokens.
    """
    name = "plain" if name == "same_seed" else name
    changed = [d for d in drawn if d.swap.retokenized]
    return {
        **_shares(drawn, name),
        "source_right": share([d.said["source"].kinds == d.swap.source.kinds for d in drawn]),
        "same_place": _same_place(drawn, name),
        "retokenized": _shares(changed, name),
    }


def _shares(drawn: Sequence[Drawn], name: str) -> Figures:
    regions = [d.region(name) for d in drawn]
    edited = [d.outside(name, region) for d, region in zip(drawn, regions, strict=True)]
    plain = [d.outside("plain", region) for d, region in zip(drawn, regions, strict=True)]
    ratio, median = ratios(edited, plain)
    lost, wholes = zip(*(d.inside(name) for d in drawn), strict=True) if drawn else ((), ())
    return {
        "n": len(drawn),
        "attainable": share([d.right("plain") for d in drawn]),
        "success": share([d.right(name) for d in drawn]),
        "success_of_attainable": share([d.right(name) for d in drawn if d.right("plain")]),
        "outside_mse_ratio": ratio,
        "outside_mse_ratio_median": median,
        "inside_mse_ratio": ratios(lost, wholes)[0],
        "cut": share([a > CUT * b for a, b in zip(lost, wholes, strict=True) if b]),
    }


def _same_place(drawn: Sequence[Drawn], name: str) -> Figures:
    told = [
        d for d in drawn
        if d.said["source"].kinds == d.swap.source.kinds and d.right("plain") and d.right(name)
    ]  # fmt: skip

    def kept(name: str) -> float | None:
        return mean([overlap(d.edited_cells("source"), d.edited_cells(name)) for d in told])

    return {"n": len(told), "overlap": kept(name), "plain": kept("plain")}


def measure(
    pipe: Any, n: int, seed: int, eye: judge.Judge, progress: Progress, **how: Any
) -> tuple[Figures, list[Drawn]]:
    """The figures "noun_swap", "colour_swap" and "baselines", and all that was drawn."""
    kinds: tuple[SwapKind, ...] = ("noun", "colour")
    drawn = {k: draw(pipe, k, swaps(k, n, seed), eye, progress, **how) for k in kinds}
    figures: Figures = {f"{kind}_swap": figures_of(rows) for kind, rows in drawn.items()}
    figures["baselines"] = {
        name: {f"{kind}_swap": figures_of(rows, name) for kind, rows in drawn.items()}
        for name in BASELINES
    }
    return figures, [d for rows in drawn.values() for d in rows]


def panels(drawn: Sequence[Drawn], most: int = 24) -> list[Panel]:
    """Source, edit and plain picture of some swaps: what went wrong first, then the rest."""
    chosen = sorted(drawn, key=lambda d: (d.right("edit"), not d.right("plain")))[:most]
    return [
        Panel(caption, Image.fromarray(d.pictures[name]), note)
        for d in chosen
        for name, caption, note in (
            ("source", d.swap.source.caption.text, "source"),
            ("edit", d.swap.target.caption.text, d.verdict),
            ("plain", "plain, same noise", "right" if d.right("plain") else "wrong"),
        )
    ]
