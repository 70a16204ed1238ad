"""Runs below one another: which word acted where under other seeds, prompts, settings, models."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from PIL import Image

from heedmap import checks
from heedmap.errors import ArgumentError, TruncatedWordError, WordError, plural, quoted
from heedmap.figures import plots
from heedmap.figures.overlays import centred
from heedmap.io.settings import Settings
from heedmap.maps.heatmaps import HeatMap, HeatMaps, Scale, check_scale, common_range
from heedmap.maps.word_figures import SIDE, resized
from heedmap.results.runs import Run
from heedmap.text.prompts import is_content

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SCALES: dict[Scale, str] = {
    "shared": "shared by all words and runs shown",
    "word": "each word its own, the same in all runs",
    "raw": "raw probability",
}
# What may tell runs apart, in the order in which labels say it.
_TOLD = (
    "prompt",
    "negative",
    "edit",
    "edits",
    "seed",
    "steps",
    "guidance",
    "size",
    "model",
    "scheduler",
    "dtype",
    "arguments",
)


def compare(
    runs: Sequence[Run], words: Sequence[str] | None = None, *, scale: Scale = "shared"
) -> "Figure":
    """Draw runs below one another: each with its picture and the overlays of words.

    Args:
        runs: two or more, of any size and model; each row is labelled by what differs.
        words: words or phrases; left out, those that every prompt has (but for "the", "of" and
            the like, if there are others), in the order of the first. Where a prompt lacks one, its
            place says so.
        scale: "shared" (one for all that is shown), "word" (for each word its own, the same in all
            runs) or "raw" (0 to 1).

    Raises:
        ArgumentError: if there are fewer than two runs, or no word is common to all.
        WordError: if no run has read one of the words.
    """
    given = checks.several(runs)
    if given is None or not all(hasattr(run, "maps") for run in given):
        raise ArgumentError(f"the runs are {quoted(runs)}: expected a list of runs")
    runs = given
    if words is not None:
        named = checks.several(words)
        if named is None or not all(isinstance(word, str) for word in named):
            raise ArgumentError(f"words is {quoted(words)}: expected a list of words")
        words = named
    check_scale(scale)
    if len(runs) < 2:
        raise ArgumentError(f"{plural(len(runs), 'run')} cannot be compared: expected two or more")
    texts = list(dict.fromkeys(common_words(runs) if words is None else words))
    if not texts:
        raise ArgumentError("words is empty: expected a word or more; omit it for all")
    small = [resized(replace(run.maps, image=run.image), SIDE) for run in runs]
    found = [[_found(maps, text) for maps in small] for text in texts]
    heats = [[one for one in column if isinstance(one, HeatMap)] for column in found]
    for column, there in zip(found, heats, strict=True):
        if not there and isinstance(column[0], WordError):
            raise column[0]
    own = "raw" if scale == "raw" else "word"  # "shared" is by what is shown, not by all the words
    low, high = common_range([one for there in heats for one in there], own)
    spans = [common_range(there, own) if scale == "word" else (low, high) for there in heats]
    signed = min(spans)[0] < 0
    spans = [centred(*span) for span in spans] if signed else spans
    ends = ("−most" if signed else "least", "most") if scale == "word" else (low, high)
    names: list[str] = labels(runs)
    rows = [
        (
            name,
            [
                maps.image or "",
                *(_drawn(column[n], *span) for column, span in zip(found, spans, strict=True)),
            ],
        )
        for n, (name, maps) in enumerate(zip(names, small, strict=True))
    ]
    prompts = {run.settings.prompt for run in runs}
    return plots.draw_table(
        rows,
        ["the picture", *texts],
        title=prompts.pop() if len(prompts) == 1 else f"{len(runs)} runs compared",
        note=_in_common(runs),
        bars=[plots.ScaleBar(_SCALES[scale], *ends)],
    )


def labels(runs: Sequence[Run]) -> list[str]:
    """What tells each run from the others: its prompt, seed, steps, model …, where they differ."""
    named: list[list[str]] = [[] for _ in runs]
    for name in _TOLD:
        said = [_told(name, run.settings) for run in runs]
        if len(set(said)) > 1:
            for parts, text in zip(named, said, strict=True):
                parts.append(text)
    joined = [", ".join(filter(None, parts)) for parts in named]
    if len(set(joined)) == len(joined):
        return joined
    return [", ".join(filter(None, (f"run {n}", text))) for n, text in enumerate(joined, 1)]


def _told(name: str, settings: Settings) -> str:
    """A setting in the words of a label."""
    value = getattr(settings, name)
    if value in (None, (), {}):
        return {"negative": "no negative prompt", "edits": "no edits"}.get(name, "")
    return _WORDING.get(name, str)(value)


_WORDING: dict[str, Callable[[Any], str]] = {
    "negative": "negative: {}".format,
    "edit": lambda edit: f"edited from “{edit.source}”",
    "edits": lambda edits: ", ".join(map(str, edits)),
    "seed": "seed {}".format,
    "steps": lambda steps: plural(steps, "step"),
    "guidance": "guidance {:g}".format,
    "size": lambda size: "{}×{}".format(*size),
    "arguments": lambda given: ", ".join(f"{name} {value}" for name, value in given.items()),
}


def _in_common(runs: Sequence[Run]) -> str:
    """What all runs share, but for their prompts, in the words of a label."""
    said = [
        {_told(name, run.settings) for run in runs}
        for name in ("seed", "steps", "guidance", "size", "model")
    ]
    return " · ".join(text for texts in said if len(texts) == 1 for text in texts if text)


def common_words(runs: Sequence[Run]) -> list[str]:
    """The words that all runs have read, in the order of the first; ArgumentError if none.

    Words such as "the" and "of" only where there is nothing else.
    """
    texts: dict[str, str] = {}
    for word in runs[0].maps.words:
        texts.setdefault(word.text.casefold(), word.text)
    common = [
        text
        for text in texts.values()
        if all(isinstance(_found(run.maps, text), HeatMap) for run in runs)
    ]
    if not common:
        raise ArgumentError("these prompts have no word in common: say with words which to compare")
    return [text for text in common if is_content(text)] or common


def _found(maps: HeatMaps, text: str) -> HeatMap | WordError:
    try:
        return maps[text]
    except WordError as error:
        return error


def _drawn(heat: HeatMap | WordError, low: float, high: float) -> Image.Image | str:
    """A word's overlay, or why there is none."""
    if isinstance(heat, HeatMap):
        return heat.render(low, high, short_side=1)
    return "past what is read" if isinstance(heat, TruncatedWordError) else "not in this prompt"
