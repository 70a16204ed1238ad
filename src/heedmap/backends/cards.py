"""What a model's folder says of it in `card.json`: the words that it was taught.

The embedded model has such a card, and every folder that `train_tiny.py export` writes. Any other
model may have a file of that name which means something else, or none: then nothing is known.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import DecodeError, Meta, Struct, json

from heedmap.backends.loading import name_of
from heedmap.errors import RunError
from heedmap.io import reading
from heedmap.tiny.card import EMBEDDED, FOLDER

MAX_CARD = 4 * 2**20  # bytes
_Word = Annotated[str, Meta(min_length=1, max_length=100)]
_Phrases = Annotated[tuple[_Word, ...], Meta(max_length=1000)]


class _Card(Struct):
    vocabulary: Annotated[frozenset[_Word], Meta(min_length=1, max_length=100_000)]
    phrases: Annotated[dict[_Word, _Phrases], Meta(max_length=100)] = {}
    limits: Annotated[str, Meta(max_length=1000)] = ""


def taught_words(model: str | Path | None = None) -> frozenset[str] | None:
    """The words that a model was taught, as its card lists them; None where it does not.

    Args:
        model: as in `load`: None or its name for the embedded model, a folder, or an id of the hub,
            whose models have no card of ours.
    """
    card = _card(model)
    return None if card is None else card.vocabulary


def words_of(pipe: Any) -> frozenset[str] | None:
    """The same of the model that a pipeline was loaded from."""
    return taught_words(name_of(pipe))


def phrases(model: str | Path | None = None) -> Mapping[str, tuple[str, ...]]:
    """What a prompt can be put together of, by what it says ("colours"), as the card has it."""
    card = _card(model)
    return {} if card is None else card.phrases


def limits(model: str | Path | None = None) -> str:
    """What a model can draw and what is beyond it, in the words of its card; empty without."""
    card = _card(model)
    return "" if card is None else card.limits


def _card(model: str | Path | None) -> _Card | None:
    folder = FOLDER if model is None or str(model) == EMBEDDED else Path(model)
    path = folder / "card.json"
    try:
        data = reading.read_bytes(path, most=MAX_CARD)
        return json.decode(data, type=_Card)
    except (RunError, DecodeError, RecursionError, UnicodeDecodeError):
        return None  # none, or not one of ours: whatever it is, nothing is lost
