"""The embedded models: their names, folders and default settings, without torch."""

from functools import cache
from pathlib import Path

from msgspec import Struct, json

EMBEDDED, JOINT = "heedmap-tiny", "joint"
"""The names of the embedded models, a UNet and a transformer, in settings and in `--model`."""
FOLDER = Path(__file__).with_name("model")
"""The folder of the UNet's model, as `save_pretrained` writes it, with the model's card."""
FOLDERS = {EMBEDDED: FOLDER, JOINT: Path(__file__).with_name(JOINT)}
"""The folders of the models by name. The transformer's has no weights of the autoencoder, which is
that of the UNet's model."""


class Defaults(Struct, frozen=True):
    """The default settings of an embedded model; the size in pixels.

    `arguments` are other arguments of the pipeline.
    """

    steps: int
    guidance: float
    size: tuple[int, int]
    arguments: dict[str, int] = {}


class _Card(Struct):
    defaults: Defaults


@cache
def defaults(name: str = EMBEDDED) -> Defaults:
    """Return the default settings on a model's card."""
    return json.decode((FOLDERS[name] / "card.json").read_bytes(), type=_Card).defaults
