"""What the first command of the README made: every picture, the maps, the page, read back.

python .ci/made.py FOLDER    where FOLDER holds one run
"""

import json
import sys
from pathlib import Path

from PIL import Image
from safetensors import safe_open

import heedmap

PROMPT = "a red house next to a blue tree"


def check(outputs: Path) -> str:
    """Look at all of it; a line about what there is.

    Raises:
        AssertionError: if something is missing or not as it must be.
    """
    (folder,) = (path.parent for path in outputs.glob("*/run.json"))
    assert "site-packages" in heedmap.__file__, f"not the installed package: {heedmap.__file__}"
    about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    assert PROMPT in json.dumps(about), "run.json does not name the prompt"
    overlays = [f"words/{path.name}" for path in (folder / "words").iterdir()]
    pictures = ["image.png", "sheet.png", *overlays]
    for name in pictures:
        with Image.open(folder / name) as picture:
            picture.load()
            assert min(picture.size) >= 128, f"{name} is {picture.size}"
            assert name != "image.png" or "parameters" in picture.info, "no parameters in image.png"
    for word in ("red", "house", "blue", "tree"):
        assert any(name.endswith(f"-{word}.png") for name in pictures), f"no overlay for {word!r}"
    with safe_open(folder / "maps.safetensors", "np") as maps:
        assert list(maps.keys()), "maps.safetensors is empty"
    for page in folder.glob("*.html"):
        assert "<html" in page.read_text(encoding="utf-8"), f"{page.name} is no page"
    run = heedmap.Run.load(folder)
    assert run.maps["house"].values.max() > 0, "the map of 'house' is empty"
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return f"{folder.name}: {len(pictures)} pictures, {size / 2**20:.1f} MiB in all"


if __name__ == "__main__":
    print(check(Path(sys.argv[1])))
