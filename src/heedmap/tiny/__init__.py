"""The embedded model in `model/`: its name, folder and default settings, without torch."""

from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, json

EMBEDDED = "heedmap-tiny"
"""The name of the embedded model, in settings and in `--model`."""
FOLDER = Path(__file__).with_name("model")
"""The folder of the model, as `save_pretrained` writes it, with the model's card."""


class Defaults(Struct, frozen=True):
    """The default settings of the embedded model; the size in pixels."""

    steps: int
    guidance: float
    size: tuple[int, int]


@cache
def defaults() -> Defaults:
    """Return the default settings on the model's card."""
    return convert(_read("card.json")["defaults"], Defaults)


def _read(name: str) -> dict[str, Any]:
    return json.decode((FOLDER / name).read_bytes())
