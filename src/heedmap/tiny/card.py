"""What is known of the embedded model before it is loaded: its name, its folder, its settings."""

from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, json

EMBEDDED = "heedmap-tiny"
"""The name of the embedded model, in settings and in `--model`."""
FOLDER = Path(__file__).with_name("model")
"""A folder as `save_pretrained` writes it, with the model's card."""


class Defaults(Struct, frozen=True):
    """What the embedded model draws with when nothing is said; the size in pixels."""

    steps: int
    guidance: float
    size: tuple[int, int]


@cache
def defaults() -> Defaults:
    """The settings on the embedded model's card."""
    return convert(_read("card.json")["defaults"], Defaults)


def _read(name: str) -> dict[str, Any]:
    return json.decode((FOLDER / name).read_bytes())
