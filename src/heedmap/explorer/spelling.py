"""What settings hold, as Python and bash spell it; nothing where they have no way to spell it.

Whoever wrote the settings, what is spelled here is one value and never a piece of a program.
"""

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import asdict, fields
from keyword import iskeyword
from typing import Any

from heedmap.files.notes import to_json
from heedmap.files.settings import Confined, Mask, Reweighted, WordEditNoted
from heedmap.options import OWN_NAMES, ConfineOptions, EditOptions, GenerateOptions

_OPTIONS = (*fields(GenerateOptions), *fields(EditOptions))
TAKEN = {
    *("pipe", "prompt", "source", "target", "seed", "edits", "progress", "preview", "__debug__"),
    *(option.name for option in _OPTIONS),
    *OWN_NAMES,
}
"""Names that `heedmap.generate` or `heedmap.edit` use themselves, so that no argument of a pipeline
can have them."""
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


def rule(edit: WordEditNoted) -> str:
    """An edit of the attention as Python writes it, or nothing where it cannot."""
    if isinstance(edit, Reweighted):
        more = ", renormalize=True" if edit.renormalize else ""
        return f"hm.Reweight({literal(edit.word)}, {number(edit.weight)}{more})"
    if not isinstance(edit, Confined) or isinstance(edit.where, Mask):
        return ""
    parts = [literal(edit.word), f"({', '.join(map(number, edit.where))})"]
    parts += [f"{name}={_value(to_json(value))}" for name, value in _unusual(edit)]
    return f"hm.Confine({', '.join(parts)})"


def confine_flag(edit: WordEditNoted) -> str:
    """A word and its box as `--confine` reads them, or nothing if that would not say it all."""
    if not isinstance(edit, Confined) or isinstance(edit.where, Mask) or _unusual(edit):
        return ""
    said = f"{edit.word}={','.join(map(number, edit.where))}"
    return said if edit.word == edit.word.strip() else ""


def _unusual(edit: Confined) -> list[tuple[str, Any]]:
    """What of a `Confine` is not as it is where nothing is said."""
    usual = asdict(ConfineOptions())
    return [(name, said) for name in usual if (said := getattr(edit, name)) != usual[name]]


def literal(value: Any) -> str:
    """Text, or a list of texts, as Python writes it, in double quotes."""
    said = json.dumps(value, ensure_ascii=False)
    return "".join(sign if sign.isprintable() else _escaped(sign) for sign in said)


def shell_quoted(text: str) -> str:
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
