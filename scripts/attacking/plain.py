"""Plain files, and whatever stands in their place."""

import shutil
import stat
from pathlib import Path


def written(path: Path, data: bytes) -> None:
    """Write a file in place of whatever is there."""
    gone(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def content(path: Path) -> bytes | None:
    """The content of a plain file of a normal size; None for anything else."""
    try:
        about = path.lstat()
        plain = stat.S_ISREG(about.st_mode) and about.st_size < 2**27
        return path.read_bytes() if plain else None
    except OSError:
        return None


def gone(path: Path) -> None:
    """Take away whatever is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
