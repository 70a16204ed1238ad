"""What the app calls what Python calls otherwise: arguments by the labels of their fields.

One list, from which the fields have their labels and the sentences the names of these.
"""

from typing import Any

from heedmap.errors import Is, Tongue, Value, Written, quoted, sentence_of

FIELD_LABELS = {
    "at": "Pixel",
    "box": "Or a box, in pixels",
    "cell": "Cell of a grid",
    "confine": "Keep a word in its place",
    "confine_another": "Another word",
    "cross": "Strength: cross-attention",
    "explained": "Word",
    "guidance": "Guidance",
    "head": "Head",
    "height": "Height",
    "keep": "Tell apart on the page",
    "layer": "Layer",
    "model": "Model",
    "negative": "Negative prompt",
    "only": "Only where",
    "prompt": "Prompt",
    "protect": "Protect",
    "renormalize": "Renormalize",
    "result": "Result",
    "scale": "Colours",
    "seed": "Seed",
    "seeds": "Seeds",
    "self_attention": "Self-attention",
    "step": "Step",
    "steps": "Steps",
    "target": "What it shall become",
    "threshold": "Threshold",
    "weights": "Weights of a word",
    "where": "Where",
    "width": "Width",
    "word": "Words",
}
"""The labels of the fields, by what they hold."""
_NAMES = {name: f"“{label}”" for name, label in FIELD_LABELS.items()}
_NAMES |= {"swap": _NAMES["only"], "size": f"{_NAMES['width']} × {_NAMES['height']}"}
_SIZE, _WINDOWS = _NAMES["size"], {_NAMES["cross"], _NAMES["self_attention"]}
_LONGEST = 80  # characters of a value


def sentence_for(error: BaseException) -> str:
    """What an error or a warning of heedmap says, for who fills in fields."""
    return sentence_of(getattr(error, "said", (str(error),)), LABELLED)


def _spelled(label: str, part: Written) -> str:
    if part.value is True and not isinstance(part, Is | Value):
        return ""  # a field that is ticked
    if isinstance(part.value, str) and isinstance(part, Is | Value):
        return quoted(part.value)
    said = _shown(label, part.value) or "empty"
    return said if len(said) <= _LONGEST else f"{said[: _LONGEST - 1]}…"


def _shown(label: str, value: Any) -> str:
    """A value as it is written into its field."""
    if label in _WINDOWS and isinstance(value, tuple) and len(value) == 2:
        low, high = value
        return _shown("", high) if low == 0 else f"{_shown('', low)}:{_shown('', high)}"
    if isinstance(value, list | tuple | set | frozenset):
        return ("×" if label == _SIZE else ", ").join(_shown(label, one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


LABELLED = Tongue(_NAMES, _spelled, ": ")
"""For who fills in fields."""
