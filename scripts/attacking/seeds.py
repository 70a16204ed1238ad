"""Small results that heedmap saved itself: what the fuzzed folders are made of.

A run with weights, a region, every axis and the maps of its negative prompt; a plain run; an edit
that was blended; one of a picture that one has; a grid; a run that was located, with a concept; an
explanation of the first; the second without a word. Pictures of 32×32 pixels of the embedded
model, two steps: 0.1 MB each.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

NEEDED = (".json", ".safetensors", "image.png", "given.png", "blend.png", "steps.png")
"""What is read of a folder; the pages and sheets beside it are made anew."""
DRAWN = ("run", "every", "pair", "grid")
NAMES = (*DRAWN, "own", "seen", "why", "without")


def draw(pipe: Any, out: Path) -> None:
    """Draw them all, with the embedded model."""
    import heedmap as hm

    how: dict[str, Any] = {"seed": 3, "steps": 2, "size": (32, 32)}
    hm.generate(pipe, "a red house", **how).save(out / "run")
    hm.generate(
        pipe, "a (red:2) house, a cat", negative="a dog", keep={"layer", "step", "head"},
        branches={"conditional", "negative"}, edits=[hm.Confine("cat", (0, 0, 16, 32))], **how,
    ).save(out / "every")  # fmt: skip
    drawn = out / "run" / "image.png"
    hm.locate(pipe, drawn, "a red house", concepts=["cat"], **how).save(out / "seen")
    hm.explain(pipe, out / "every", "red", (9, 9), step=1).save(out / "why")
    hm.ablate(pipe, out / "run", "red").save(out / "without")
    hm.edit(pipe, "a cat on grass", "a dog on grass", only="cat->dog", **how).save(out / "pair")
    hm.edit(pipe, "a (red:4) house", image=drawn, **how).save(out / "own")
    size = {name: value for name, value in how.items() if name != "seed"}
    hm.grid(pipe, "a red house", weights={"red": [-1.0, 2.0]}, seeds=[3], **size).save(out / "grid")


def make(folder: Path) -> Path:
    """Draw and save them, in a process of its own: the process that reads them is to load no model.

    Args:
        folder: where to; one that has them is left as it is.

    Returns:
        The folder, with one folder a result, each with what is read of it and nothing else.
    """
    if folder.is_dir():
        return folder
    with tempfile.TemporaryDirectory(prefix="attack-seeds-") as scratch:
        command = [sys.executable, "-m", "attacking.seeds", scratch]
        here = Path(__file__).resolve().parents[1]
        done = subprocess.run(command, capture_output=True, text=True, cwd=here)
        if done.returncode:
            raise RuntimeError(f"the seeds could not be drawn:\n{done.stderr}")
        return needed(Path(scratch), folder)


def needed(drawn: Path, folder: Path) -> Path:
    """Copy what is read of results, and nothing else, to a folder that is not there yet."""
    for path in sorted(drawn.rglob("*")):
        if path.is_file() and path.name.endswith(NEEDED):
            copy = folder / path.relative_to(drawn)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    return folder


def files(folder: Path) -> list[str]:
    """The files of a result, below its folder."""
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def main() -> None:
    import torch

    import heedmap

    torch.set_num_threads(1)
    pipe = heedmap.load()
    pipe.set_progress_bar_config(disable=True)
    draw(pipe, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
