"""Saved results in a folder: their names, images and pages."""

import html
from functools import lru_cache
from pathlib import Path

from PIL import Image

from heedmap.errors import ArgumentError, RunError, quoted
from heedmap.page import pages

MOST = 200
"""The number of results that are listed, the newest first."""
_IMAGES = ("image.png", "edited/image.png", "grid.png")
_THUMB = 320  # pixels
_FRAME = 900  # pixels of a page's height until it reports its own


def names(folder: str | Path | None) -> list[str]:
    """List the results of a folder, the newest first; none if it is None."""
    found = [] if folder is None else [one.parent for one in Path(folder).glob("*/index.html")]
    found.sort(key=lambda one: one.stat().st_mtime, reverse=True)
    return [one.name for one in found[:MOST]]


def path_of(folder: str | Path | None, name: str) -> Path:
    """Find a result by its name.

    Raises:
        RunError: if the folder has no such result.
    """
    if folder is None or name not in names(folder):
        raise RunError(f"there is no result {quoted(name)}: choose one from the list")
    return Path(folder, name)


def thumbnails(folder: str | Path | None) -> list[tuple[Image.Image, str]]:
    """Read a small image of each result, with its name."""
    found: list[tuple[Image.Image, str]] = []
    for name in names(folder):
        images = [Path(folder or "", name, image) for image in _IMAGES]
        found += [(_thumbnail(one, one.stat().st_mtime_ns), name) for one in images if one.exists()]
    return found


@lru_cache(2 * MOST)
def _thumbnail(path: Path, changed: int) -> Image.Image:
    image = Image.open(path)
    image.thumbnail((_THUMB, _THUMB))
    return image.convert("RGB")


def page(path: Path) -> str:
    """Read a result's page, in a sandboxed frame."""
    frame = pages.frame((path / "index.html").read_text("utf-8"), height=_FRAME)
    return f'<div class="page" data-result="{html.escape(path.name)}">{frame}</div>'


def run_paths(path: Path) -> list[Path]:
    """List the runs in a result: two of an edit, each cell's edited run of a grid."""
    if (path / "edited").is_dir():
        return [path / "source", path / "edited"]
    return sorted((path / "cells").glob("*")) or [path]


def run_path(path: Path, cell: int | None) -> Path:
    """Find the run to explain: the edited one of an edit, or a cell of a grid. Default: the first.

    Raises:
        ArgumentError: if the grid has no such cell.
    """
    runs = run_paths(path)
    if (path / "edited").is_dir():
        return runs[-1]
    if not 1 <= (cell or 1) <= len(runs):
        raise ArgumentError(f"the cell is {cell}: expected a number from 1 to {len(runs)}")
    return runs[(cell or 1) - 1]
