"""Which cases there are: by its number and the seed each is drawn anew, whoever asks.

A case is plain JSON: `{"seed": "pair", "changes": […], "zip": […]}`; without `zip` the folder is
opened, with it the folder is packed, sent to the app's reader and opened there.
"""

import json
import random
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attacking import chunks, seeds, shapes, zips
from attacking.changes import KINDS, parts
from attacking.spelling import any_place, any_value, at

Case = dict[str, Any]

# What is handed to the readers in place of a folder.
ODD_PATHS: dict[str, Any] = {
    "none": None, "number": 5, "bytes": b"x", "list": ["x"], "long": "x" * 300,
    "deep": "x/" * 3000, "nul": "a\0b", "empty": "", "surrogate": "\ud800", "device": "/dev/zero",
    "process": "/proc/self", "object": object(), "true": True, "home": "~", "here": ".",
    "nan": float("nan"),
}  # fmt: skip
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_EXPLAINED = 12  # one case in so many is of an explanation, and as many of an ablation
_ALONE = ("why", "without")  # no archive holds them, and no other reader opens them
_NUMBERS = (0.0, -1.0, 1e-39, 1e9, 1e29, 1e31, 3e38, "nan", "inf", "-inf")  # of an array
_MANY = (1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 5)  # changes of one case


class Deck:
    """Draws cases.

    Args:
        root: the seeds' folder (`seeds.make`).
        seed: of the draw.
    """

    def __init__(self, root: Path, seed: int) -> None:
        self._seed = seed
        self._files = {name: seeds.files(root / name) for name in seeds.NAMES}
        self._trees: dict[tuple[str, str], Any] = {}
        for name, files in self._files.items():
            for file in files:
                path = root / name / file
                if file.endswith(".json"):
                    self._trees[name, file] = json.loads(path.read_text(encoding="utf-8"))
                elif file.endswith(".safetensors"):
                    header = json.loads(parts(path.read_bytes())[0])
                    about = json.loads(header["__metadata__"]["heedmap"])
                    self._trees[name, file] = {"header": header, "about": about}

    def case(self, number: int) -> Case:
        """The case of a number."""
        chance = random.Random(f"{self._seed} {number}")
        if chance.random() < 0.0005:
            return {"path": chance.choice(sorted(ODD_PATHS))}
        seed = chance.choice(("run", "every", "seen", "own", "pair", "pair", "grid"))
        seed = {0: "why", 6: "without"}.get(number % _EXPLAINED, seed)
        found: Case = {"seed": seed}
        zipped = seed not in _ALONE and chance.random() < 0.2
        untouched = zipped and chance.random() < 0.6
        count = 0 if untouched else chance.choice(_MANY)
        found["changes"] = [self._change(chance, seed) for _ in range(count)]
        if zipped:
            count = chance.choice((1, 1, 2)) if untouched else chance.choice((0, 0, 1))
            found["zip"] = [_zip_change(chance) for _ in range(count)]
        return found

    def _change(self, chance: random.Random, seed: str) -> Mapping[str, Any]:
        files = self._files[seed]
        kind = chance.random()
        if kind < 0.03:
            return {"do": "kind", "file": chance.choice(files), "kind": chance.choice(KINDS)}
        if kind < 0.08:
            return {"do": "bytes", "file": chance.choice(files), **_byte_change(chance)}
        if kind < 0.11 and seed != "why":
            return self._shape(chance, seed)
        if kind < 0.5 and seed == "why":
            return self._array_change(chance)
        if kind < 0.24:
            return _picture_change(chance, [file for file in files if file.endswith(".png")])
        # The files that matter most, more often than the many runs of a grid.
        held = [file for file in files if (seed, file) in self._trees]
        own = [file for file in held if "/" not in file]
        file = chance.choice(own if chance.random() < 0.5 else held)
        tree, do = self._trees[seed, file], "json"
        if file.endswith(".safetensors"):
            do = "header" if chance.random() < 0.3 else "about"
            tree = tree[do]
        place = any_place(chance, tree)
        how = chance.choice(("put", "put", "put", "put", "gone", "twice"))
        change = {"do": do, "file": file, "place": place, "how": how}
        if how == "put":
            change["value"] = any_value(chance, at(tree, place))
        return change

    def _array_change(self, chance: random.Random) -> Mapping[str, Any]:
        given = self._trees["why", "explain.json"]["given"]
        names = [name for name, held in given.items() if isinstance(held, dict)]
        share, value = chance.choice((0.0, 0.1, 1.0)), chance.choice(_NUMBERS)
        return {
            "do": "array", "file": "explain.json", "name": chance.choice(names), "share": share,
            "value": value,
        }  # fmt: skip

    def _shape(self, chance: random.Random, seed: str) -> Mapping[str, Any]:
        runs = {file.removesuffix("run.json") for file in self._files[seed] if "run.json" in file}
        names = chance.sample(sorted(shapes.ODD), chance.choice((1, 1, 2, 3)))
        odd = {name: chance.choice(shapes.ODD[name]) for name in names}
        if "size" in odd:
            odd["noisy"] = chance.random() < 0.1
        return {"do": "shape", "file": chance.choice(sorted(runs)), "of": odd}


def _byte_change(chance: random.Random) -> dict[str, Any]:
    # The beginning of a file says most of what it is.
    place = chance.random() ** chance.choice((1, 4))
    how = chance.choice(("cut", "flip", "between", "put"))
    change = {"how": how, "at": round(place, 6)}
    if how in ("between", "put"):
        change["put"] = chance.randbytes(chance.choice((1, 2, 8))).hex()
    return change


def _picture_change(chance: random.Random, files: list[str]) -> Mapping[str, Any]:
    file = chance.choice(files)
    if chance.random() < 0.3:
        names = chance.sample(sorted(chunks.HEADERS), chance.choice((1, 1, 2, 3)))
        values = {name: chance.choice(chunks.HEADERS[name]) for name in names}
        return {"do": "ihdr", "file": file, "values": values}
    how = chance.choice(("put", "put", "put", "gone", "twice", "last", "wrong"))
    change = {"do": "chunk", "file": file, "how": how, "at": round(chance.random(), 3)}
    if how == "put":
        name = chance.choice(sorted(chunks.ODD))
        bomb = name in chunks.BOMBS and chance.random() < 0.2
        change |= {"name": name, "content": "bomb" if bomb else chance.choice(chunks.ODD[name])}
    return change


def _zip_change(chance: random.Random) -> dict[str, Any]:
    entry, kind = chance.randrange(6), chance.random()
    if kind < 0.4:
        record = chance.choice(sorted(zips.FIELDS))
        field = chance.choice(sorted(zips.FIELDS[record]))
        value = chance.choice((*zips.VALUES, chance.randrange(2**32)))
        return {"how": "field", "entry": entry, "record": record, "field": field, "value": value}
    if kind < 0.7:
        return _byte_change(chance)
    if kind < 0.95:
        return {"how": "name", "entry": entry, "name": chance.choice(zips.NAMES)}
    if kind < 0.952:
        return {"how": "bomb", "entry": entry, "method": chance.choice(_METHODS)}
    if kind < 0.955:
        return {"how": "many", "count": chance.choice((1999, 2001, 70_000))}
    how = chance.choice(("twice", "store"))
    return {"how": how, "entry": entry, "method": chance.choice(_METHODS)}
