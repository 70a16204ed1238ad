"""What settings hold, as Python and bash spell it; nothing where they have no way to spell it.

Whoever wrote the settings, what is spelled here is one value and never a piece of a program.
"""

import json
import math
import shlex
from collections.abc import Callable, Mapping
from keyword import iskeyword
from typing import Any, TypeGuard

TAKEN = frozenset(
    {
        "pipe",
        "prompt",
        "source",
        "target",
        "kind",
        "cross",
        "words",
        "self_attention",
        "self_cells",
        "renormalize",
        "only",
        "protect",
        "blend_from",
        "threshold",
        "seed",
        "steps",
        "guidance",
        "size",
        "negative",
        "keep",
        "tokens",
        "branches",
        "limit",
        "edits",
        "batch",
        "progress",
        "preview",
        "generator",
        "num_inference_steps",
        "guidance_scale",
        "width",
        "height",
        "negative_prompt",
        "num_images_per_prompt",
        "prompt_embeds",
        "output_type",
        "return_dict",
        "arguments",
        "__debug__",
    }
)
"""Names that `heedmap.generate` or `heedmap.edit` use themselves, so that no argument of a pipeline
can have them. Not read from there, since that loads torch."""
# The defaults of `heedmap.Confine`.
_NO_CONFINE = {"strength": 3.0, "start": 0.0, "end": 0.6, "along": None, "tail": True}
_UNSAYABLE = object()


def arguments(arguments: Mapping[str, Any]) -> list[str]:
    """Those of a pipeline's arguments that can be written as Python, as written."""
    return [
        f"{name}={said}"
        for name, value in arguments.items()
        # Python reads some letters as others, so that two names may be one; those of pipelines
        # are plain.
        if name.isidentifier() and name.isascii() and not iskeyword(name) and name not in TAKEN
        if (said := _value(value)) is not _UNSAYABLE
    ]


def rule(about: Any) -> str:
    """An edit of the attention as Python writes it, or nothing where it cannot."""
    said = about if isinstance(about, Mapping) else {}
    word, where = said.get("word"), said.get("where")
    if not isinstance(word, str):
        return ""
    if said.get("kind") == "reweight" and _is_number(said.get("weight")):
        more = ", renormalize=True" if said.get("renormalize") else ""
        return f"hm.Reweight({literal(word)}, {number(said['weight'])}{more})"
    if said.get("kind") != "confine" or not _is_box(where):
        return ""
    parts = [literal(word), f"({', '.join(map(number, where))})"]
    for key, usual in _NO_CONFINE.items():
        value = said.get(key, usual)
        if not _FITS[key](value):
            return ""
        if value != usual:
            parts.append(f"{key}={_value(value)}")
    return f"hm.Confine({', '.join(parts)})"


def box(about: Any) -> str:
    """A word and its box as `--confine` reads them, or nothing if that would not say it all."""
    said = about if isinstance(about, Mapping) else {}
    where, word = said.get("where"), said.get("word")
    usual = all(said.get(key, value) == value for key, value in _NO_CONFINE.items())
    if said.get("kind") != "confine" or not (usual and _is_box(where) and isinstance(word, str)):
        return ""
    return f"{word}={','.join(map(number, where))}" if word == word.strip() else ""


def literal(value: Any) -> str:
    """Text, or a list of texts, as Python writes it, in double quotes."""
    said = json.dumps(value, ensure_ascii=False)
    return "".join(sign if sign.isprintable() else _escaped(sign) for sign in said)


def quoted(text: str) -> str:
    """Text as bash reads it; a sign that a terminal would act upon is spelled by its number."""
    if text.isprintable():
        return shlex.quote(text)
    signs = (f"\\{s}" if s in "\\'" else s if s.isprintable() else _escaped(s) for s in text)
    return f"$'{''.join(signs)}'"


def number(value: float) -> str:
    """A number to its last digit, and no longer than that takes."""
    if not math.isfinite(value):
        raise ValueError("a number that cannot be written")
    short = f"{value:g}" if not isinstance(value, int) else str(value)
    return min(short, repr(value), key=len) if float(short) == value else repr(value)


def _value(value: Any) -> Any:
    """An argument as Python writes it; `_UNSAYABLE` where only a description of it was noted."""
    if isinstance(value, list):
        return _joined("[{}]", value)
    if isinstance(value, Mapping):
        if value.get("object") == "tuple" and isinstance(value.get("items"), list):
            return _joined("({},)" if len(value["items"]) == 1 else "({})", value["items"])
        if value.get("object") == "float" and value.get("value") in ("nan", "inf", "-inf"):
            return f'float("{value["value"]}")'
        pairs = {key: _value(inner) for key, inner in value.items()}
        if "object" in value or _UNSAYABLE in pairs.values():
            return _UNSAYABLE
        return f"{{{', '.join(f'{key!r}: {said}' for key, said in pairs.items())}}}"
    if isinstance(value, str) and value.startswith("<") and value.endswith(">"):
        return _UNSAYABLE  # how older versions noted an object
    return repr(value)


def _joined(form: str, values: list[Any]) -> Any:
    said = [_value(value) for value in values]
    return _UNSAYABLE if _UNSAYABLE in said else form.format(", ".join(said))


def _escaped(sign: str) -> str:
    """A sign by its number, as bash and Python both read it."""
    number = ord(sign)
    return f"\\u{number:04x}" if number < 2**16 else f"\\U{number:08x}"


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)


def _is_box(where: Any) -> TypeGuard[list[float]]:
    return isinstance(where, list) and len(where) == 4 and all(map(_is_number, where))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


_FITS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("strength", "start", "end"), _is_number),
    "along": lambda value: value is None or _are_texts(value),
    "tail": lambda value: isinstance(value, bool),
}
