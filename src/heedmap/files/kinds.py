"""The kinds of folders that heedmap writes, each with the closed list of its files' names.

What a folder says of itself may come from a stranger: names read from it can only leave out some of
those listed here, and none of these leads outside of the folder.
"""

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from heedmap.errors import RunError, listed, warn
from heedmap.files import ablations, explanations, schemas
from heedmap.files.destinations import check_folder, shown
from heedmap.files.marks import Kind, walk

_RUN = {
    *("run.json", "image.png", "given.png", "index.html", "sheet.png", "steps.png"),
    "concepts.png",
    *("maps.safetensors", "negative.safetensors", "concepts.safetensors"),
}
_PAIR = {"pair.json", "index.html", "sheet.png", "difference.png", "blend.png"}
_GRID = {"grid.json", "grid.png", "grid.csv", "index.html"}
_SELECTION = {"inspect.json", "timeline.gif"}
_OF_SELECTION = r"(?:sheet|timeline|layers|heads|layers-heads|heads-layers)\.(?:png|svg|pdf)"
_SEGMENTS = {"segment.json", "labels.png", "labels.npy", "coco.json"}
_EXPLANATION = {"explain.json", "index.html", "image.png"}
_ABLATION = {
    *("ablate.json", "sheet.png", "columns.npy", "columns.png", "unread.npy", "unread.png")
}
_WORD = r"words/(?:concept-)?\d+-[^/]+\.png"


def _names(fixed: Iterable[str], *more: str) -> re.Pattern[str]:
    return re.compile("|".join([*map(re.escape, sorted(fixed)), *more]))


def _entries(about: dict[str, Any] | None, part: str) -> list[Any]:
    """A list within a JSON object; empty if it is not a list."""
    found = (about or {}).get(part)
    return found if isinstance(found, list) else []


def files_in(folder: Path, mark: str) -> list[str]:
    """The names of the files in a folder that was just filled, for its mark, which comes last."""
    names = (path.name for path in folder.iterdir() if path.is_file())
    return sorted([*names, mark])


def written_in(folder: Path, *of: Kind) -> list[str]:
    """The names of the files in a folder that heedmap wrote there, in their order.

    Args:
        folder: as it is now; links in it, and what they lead to, are left out.
        of: the kinds that it may be of; the first that fits counts. A folder of any other kind has
            no such files.
    """
    kind = next((one for one in of if one.holds(folder)), None)
    if kind is None:
        return []
    written = None if kind.written is None else kind.written(folder)
    return sorted(
        name
        for name, entry in walk(folder)
        if kind.names.fullmatch(name)
        and (written is None or name in written)
        and entry.is_file(follow_symlinks=False)
    )


def _listed(about: dict[str, Any], fixed: set[str]) -> set[str]:
    """The files that a mark lists; an older one: all fixed names."""
    listed = _entries(about, "files")
    return set(map(str, listed)) if listed else set(fixed)


def _of_run(folder: Path) -> set[str]:
    """What was written into the folder of a run: overlays only if its settings list them."""
    about = RUN.told(folder)  # also of one within an edit or a grid, where a user may have cleared
    if about is None:
        return set()
    found, words = _listed(about, _RUN), _entries(about, "words") + _entries(about, "concepts")
    return found | {str(word.get("file")) for word in words if isinstance(word, dict)}


def _within(folder: Path, inner: str) -> set[str]:
    return {f"{inner}/{name}" for name in _of_run(folder / inner)}


def _of_pair(folder: Path) -> set[str]:
    found = _listed(PAIR.told(folder) or {}, _PAIR)
    return found | _within(folder, "source") | _within(folder, "edited")


def _of_ablation(folder: Path) -> set[str]:
    found = _listed(ABLATION.told(folder) or {}, _ABLATION)
    return found.union(*(_within(folder, inner) for inner in ("run", "columns", "unread")))


def _of_grid(folder: Path) -> set[str]:
    """What was written into the folder of a grid: so many cells, and their seeds' sources."""
    about = GRID.told(folder) or {}
    found = _listed(about, _GRID)
    for number, cell in enumerate(_entries(about, "cells"), 1):
        inner = f"cells/{number:03d}"
        found |= _within(folder, inner)
        if not (isinstance(cell, dict) and cell.get("blended") is False):
            found.add(f"{inner}/blend.png")
        seed = cell.get("seed") if isinstance(cell, dict) else None
        if type(seed) is int and f"sources/{seed}/run.json" not in found:
            found |= _within(folder, f"sources/{seed}")
    return found


def _of_selection(folder: Path) -> set[str]:
    """What was written into the folder of a selection: it lists whole paths."""
    about = SELECTION.told(folder)
    words = [word.get("file") for word in _entries(about, "words") if isinstance(word, dict)]
    drawn = [(about or {}).get("sheet"), *_entries(about, "over")]
    return {"inspect.json", *_last(words, "words/"), *_last(drawn)}


def _of_segments(folder: Path) -> set[str]:
    """What was written into the folder of masks: it lists whole paths."""
    about = SEGMENTS.told(folder) or {}
    masks = [one.get("file") for one in _entries(about, "phrases") if isinstance(one, dict)]
    return {*_SEGMENTS, *_last(masks, "masks/"), *_last([about.get("sheet")])}


def _last(paths: Iterable[object], within: str = "") -> set[str]:
    """The names at the end of paths as whatever system writes them, in a folder."""
    last = (PurePosixPath(str(path).replace("\\", "/")).name for path in paths)
    return {f"{within}{name}" for name in last}


_RUN_NAMES = _names(_RUN, _WORD).pattern
RUN = Kind(
    "a run of heedmap",
    "run.json",
    schemas.RunFile,
    re.compile(_RUN_NAMES),
    _of_run,
    re.compile("words"),
)
PAIR = Kind(
    "an edit of heedmap",
    "pair.json",
    schemas.PairFile,
    _names(_PAIR, rf"(?:source|edited)/(?:{_RUN_NAMES})"),
    _of_pair,
    re.compile(r"(?:source|edited)(?:/words)?"),
)
GRID = Kind(
    "a grid of heedmap",
    "grid.json",
    schemas.GridFile,
    _names(_GRID, rf"(?:sources/-?\d+|cells/\d+)/(?:{_RUN_NAMES})", r"cells/\d+/blend\.png"),
    _of_grid,
    re.compile(r"sources|cells|(?:sources/-?\d+|cells/\d+)(?:/words)?"),
)
SELECTION = Kind(
    "a selection of a run",
    "inspect.json",
    schemas.SelectionFile,
    _names(_SELECTION, _OF_SELECTION, r"words/[^/]+\.png"),
    _of_selection,
    re.compile("words"),
)
SEGMENTS = Kind(
    "masks of a run",
    "segment.json",
    schemas.SegmentsFile,
    _names(_SEGMENTS, r"sheet\.(?:png|svg|pdf)", r"masks/\d+-[^/]+\.png"),
    _of_segments,
    re.compile("masks"),
)
EXPLANATION = Kind(
    "an explanation of heedmap",
    "explain.json",
    explanations.ExplanationFile,
    _names(_EXPLANATION),
    lambda folder: _listed(EXPLANATION.told(folder) or {}, _EXPLANATION),
)
ABLATION = Kind(
    "an ablation of heedmap",
    "ablate.json",
    ablations.AblationFile,
    _names(_ABLATION, rf"(?:run|columns|unread)/(?:{_RUN_NAMES})"),
    _of_ablation,
    re.compile(r"(?:run|columns|unread)(?:/words)?"),
)
BESIDE = {"inspect": SELECTION, "segment": SEGMENTS, "explain": EXPLANATION, "ablate": ABLATION}
"""Folders within that of a run in which others are saved, a new one each time, and their kinds."""


def all_own(folder: Path, kind: Kind) -> frozenset[str] | None:
    """The names of all files in a folder, if heedmap wrote all of them, beside the run, too."""
    try:
        own = set(check_folder(folder, kind, force=True) or ())
        files: set[str] = set()
        for name, entry in walk(folder):
            if not entry.is_dir(follow_symlinks=False):
                files.add(name)
            elif inner := BESIDE.get(PurePosixPath(name).parent.name):
                beside = check_folder(entry.path, inner, force=True) or ()
                own |= {f"{name}/{one}" for one in beside}
    except (RunError, OSError):
        return None
    return frozenset(own) if own == files else None


def tell_older(folder: str | Path, target: Path) -> None:
    """Warn of what was made of a result (`BESIDE`) and lies in the folder of the one after it.

    Args:
        folder: as it was given.
        target: where it is.
    """
    names = [
        name
        for name, entry in walk(target)
        if entry.name in BESIDE and entry.is_dir(follow_symlinks=False)
    ]
    if names:
        are = "are" if len(names) > 1 else "is"
        found = listed([shown(Path(folder) / name) for name in names[:3]], "and")
        warn(f"{found} {are} of what was replaced: delete what is of no use")
