"""Saved results in a folder: their names, pictures and pages."""

import html
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import Image

from heedmap import explorer
from heedmap.errors import ArgumentError, RunError, quoted

MOST = 200
"""The results that are listed, the newest first."""
_PICTURES = ("image.png", "edited/image.png", "grid.png")
_THUMB = 320  # pixels
_FRAME = 900  # pixels of a page's height until it says its own


def names(folder: Path | None) -> list[str]:
    """List the results of a folder, the newest first."""
    if folder is None or not folder.is_dir():
        return []
    found = [one.parent for one in folder.glob("*/index.html") if not one.parent.is_symlink()]
    found.sort(key=lambda one: one.stat().st_mtime, reverse=True)
    return [one.name for one in found[:MOST]]


def path_of(folder: Path | None, name: str) -> Path:
    """Find a result by its name.

    Raises:
        RunError: if the folder has no such result.
    """
    if folder is None or name not in names(folder):
        raise RunError(f"there is no result {quoted(name)}: it was deleted, or never made")
    return folder / name


def new_path(folder: Path, prompt: str, seed: int) -> Path:
    """Choose a free place for a result, named after its prompt and seed."""
    slug = re.sub(r"\W+", "-", prompt.lower())[:48].strip("-") or "result"
    name, number = f"{slug}-{seed}", 1
    while (folder / name).exists():
        number += 1
        name = f"{slug}-{seed}-{number}"
    return folder / name


def thumbnails(folder: Path | None) -> list[tuple[Image.Image, str]]:
    """Read a small picture of each result, with its name."""
    found: list[tuple[Image.Image, str]] = []
    for name in names(folder):
        for picture in _PICTURES:
            path = Path(folder or "", name, picture)
            if path.is_file():
                found.append((_thumbnail(path, path.stat().st_mtime_ns), name))
                break
    return found


@lru_cache(2 * MOST)
def _thumbnail(path: Path, changed: int) -> Image.Image:
    image = Image.open(path)
    image.thumbnail((_THUMB, _THUMB))
    return image.convert("RGB")


def page(path: Path) -> str:
    """Read a result's page, in a frame that is shut off from the app."""
    text = (path / "index.html").read_text(encoding="utf-8")
    frame = explorer.frame(text, height=_FRAME)
    return f'<div class="page" data-result="{html.escape(path.name)}">{frame}</div>'


def run_paths(path: Path) -> list[Path]:
    """List the runs in a result: of an edit two, of a grid each edit."""
    if (path / "edited").is_dir():
        return [path / "source", path / "edited"]
    return sorted((path / "cells").glob("*")) or [path]


def run_path(path: Path, cell: int | None) -> Path:
    """Find the run to explain: the edited one of an edit; of a grid a cell, numbered from 1.

    Raises:
        ArgumentError: if there is no such cell.
    """
    runs = run_paths(path)
    if not (path / "cells").is_dir():
        return runs[-1]
    number = 1 if cell is None else cell
    if not 1 <= number <= len(runs):
        raise ArgumentError(f"the cell is {number}: expected a number from 1 to {len(runs)}")
    return runs[number - 1]


def summary(result: Any) -> tuple[str, int, str]:
    """Name what a result was made with: its prompt, its seed, and a line of all else."""
    if hasattr(result, "cells"):
        result = result.cells[0].pair
    result = getattr(result, "edited", result)
    about = getattr(result, "settings", None) or result.about
    prompt = about.prompt if hasattr(result, "settings") else f"why {about.word}"
    size = "×".join(map(str, about.size))
    return prompt, about.seed, f"seed {about.seed} · {about.steps} steps · {size} · {about.model}"
