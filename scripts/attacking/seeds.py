"""Small results that heedmap saved itself: what the fuzzed folders are made of.

A run with weights, a region, every axis and the maps of its negative prompt; a plain run; an edit
that was blended; a grid. Pictures of 32×32 pixels of the embedded model, two steps: 0.1 MB each.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NEEDED = (".json", ".safetensors", "image.png", "blend.png")
"""What is read of a folder; the pages and sheets beside it are made anew."""
NAMES = ("run", "every", "pair", "grid")

_MAKE = """
import sys
from pathlib import Path
import torch
import heedmap as hm

torch.set_num_threads(1)
out = Path(sys.argv[1])
pipe = hm.load()
pipe.set_progress_bar_config(disable=True)
how = {"seed": 3, "steps": 2, "size": (32, 32)}
hm.generate(pipe, "a red house", **how).save(out / "run")
hm.generate(
    pipe, "a (red:2) house, a cat", negative="a dog", keep={"layer", "step", "head"},
    branches={"conditional", "negative"}, edits=[hm.Confine("cat", (0, 0, 16, 32))], **how,
).save(out / "every")
hm.edit(pipe, "a cat on grass", "a dog on grass", only="cat->dog", **how).save(out / "pair")
hm.grid(
    pipe, "a red house", weights={"red": [-1.0, 2.0]}, seeds=[3], steps=2, size=(32, 32)
).save(out / "grid")
"""


def make(folder: Path) -> Path:
    """Draw and save them, in a process of its own: what reads them shall load no model.

    Args:
        folder: where to; one that has them is left as it is.

    Returns:
        The folder, with one folder a result, each with what is read of it and nothing else.
    """
    if folder.is_dir():
        return folder
    with tempfile.TemporaryDirectory(prefix="attack-seeds-") as scratch:
        subprocess.run([sys.executable, "-c", _MAKE, scratch], check=True, capture_output=True)
        partial = Path(scratch) / "needed"
        for path in sorted(Path(scratch).rglob("*")):
            if path.is_file() and path.name.endswith(NEEDED):
                copy = partial / path.relative_to(scratch)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
        shutil.move(partial, folder)
    return folder


def files(folder: Path) -> list[str]:
    """The files of a result, below its folder."""
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
