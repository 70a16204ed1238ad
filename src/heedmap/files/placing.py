"""Where something was to be saved, and where it is: also after an interrupt at any moment."""

import os
from collections.abc import Callable
from pathlib import Path


class Places:
    """Places at which results are put, one after the other.

    Args:
        holds: whether a result is at a place, whole.
    """

    def __init__(self, holds: Callable[[Path], bool] = os.path.isfile) -> None:
        self._holds = holds
        self._before: dict[Path, tuple[int, int] | None] = {}

    def begin(self, path: Path) -> None:
        """Something is about to be saved at a place, where something may be already."""
        self._before[path] = self._there(path)

    def saved(self) -> list[Path]:
        """The places that have what was saved there since `begin`."""
        now = {path: self._there(path) for path in self._before}
        return [path for path, before in self._before.items() if now[path] not in (None, before)]

    def _there(self, path: Path) -> tuple[int, int] | None:
        """What tells the result at a place from one that takes its place; None if there is none."""
        try:
            about = os.stat(path)
            return (about.st_dev, about.st_ino) if self._holds(path) else None
        except OSError:
            return None
