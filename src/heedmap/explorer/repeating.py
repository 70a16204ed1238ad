"""How a run is repeated: the command and the Python for it, from its settings alone."""

import json
import shlex
from collections.abc import Mapping
from importlib import resources
from typing import Any

__all__ = ["repeat_edit", "repeat_run"]

_EMBEDDED = "heedmap-tiny"
# What `heedmap.edit` takes where nothing is said. Not read from there, since that loads torch.
_NO_EDIT = {
    "cross": [0.0, 0.8],
    "self": [0.0, 0.4],
    "threshold": 0.4,
    "blend_from": 0.2,
    "self_cells": 1024,
}


def repeat_run(settings: Mapping[str, Any], *, negative: bool = False) -> list[list[str]]:
    """The ways to repeat a run, each as [name, text to copy, what it leaves out].

    Args:
        settings: of the run.
        negative: whether the negative prompt's maps were recorded too.
    """
    edit = settings.get("edit")
    if isinstance(edit, Mapping):
        return repeat_edit(settings, None)
    prompt = str(settings.get("prompt", ""))
    options, named = _shared(settings)
    if negative:
        named.append('branches={"negative"}')
    out = _left_out(settings, "the maps of the negative prompt" if negative else "")
    command = " ".join(["heedmap generate", shlex.quote(prompt), *options, *_kept(settings)])
    called = ", ".join(["pipe", _literal(prompt), *named])
    return [
        ["On the command line", command, out and f"{out} only Python can give."],
        ["In Python", _python(settings, f"run = hm.generate({called})"), _unsaid(settings)],
    ]


def repeat_edit(settings: Mapping[str, Any], chosen_kind: str | None) -> list[list[str]]:
    """The ways to repeat an edit, from the settings of its edited run.

    Args:
        settings: of the run.
        chosen_kind: the kind that aligning the words gives, which need not be said, if known.
    """
    edit: Mapping[str, Any] = settings["edit"]
    source, prompt = str(edit.get("source", "")), str(settings.get("prompt", ""))
    options, named = _shared(settings)
    for key, option, name in (("cross", "--cross", "cross"), ("self", "--self", "self_attention")):
        window = edit.get(key)
        if isinstance(window, list) and len(window) == 2 and window != _NO_EDIT[key]:
            low, high = (float(bound) for bound in window)
            options.append(f"{option} {low:g}:{high:g}")
            named.append(f"{name}=({low:g}, {high:g})")
    windows = edit.get("windows")
    if isinstance(windows, Mapping) and windows:
        options += [
            f"--words {shlex.quote(f'{word}={low:g}:{high:g}')}"
            for word, (low, high) in windows.items()
        ]
        pairs = ", ".join(f"{_literal(w)}: ({a:g}, {b:g})" for w, (a, b) in windows.items())
        named.append(f"words={{{pairs}}}")
    kind = edit.get("kind")
    if kind in ("replace", "refine") and kind != chosen_kind:
        options.append(f"--kind {kind}")
        named.append(f"kind={_literal(kind)}")
    if edit.get("renormalize"):
        options.append("--renormalize")
        named.append("renormalize=True")
    if edit.get("only"):
        options.append(f"--only {shlex.quote(str(edit['only']))}")
        named.append(f"only={_literal(str(edit['only']))}")
    for word in edit.get("protect") or ():
        options.append(f"--protect {shlex.quote(str(word))}")
    if edit.get("protect"):
        named.append(f"protect={_literal([str(word) for word in edit['protect']])}")
    for key in ("threshold", "blend_from"):
        if edit.get(key) not in (None, _NO_EDIT[key]):
            options.append(f"--{key.replace('_', '-')} {edit[key]:g}")
            named.append(f"{key}={edit[key]:g}")
    out = _left_out(settings)
    if edit.get("self_cells") not in (None, _NO_EDIT["self_cells"]):
        named.append(f"self_cells={edit['self_cells']}")
        out = out or "The largest grid of self-attention"
    options += _kept(settings)
    texts = [shlex.quote(text) for text in (source, prompt)]
    called = ", ".join(["pipe", _literal(source), _literal(prompt), *named])
    return [
        ["On the command line", " ".join(["heedmap edit", *texts, *options]),
         out and f"{out} only Python can give."],
        ["In Python", _python(settings, f"pair = hm.edit({called})"), _unsaid(settings)],
    ]  # fmt: skip


def _shared(settings: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Options of the command line, and the same as arguments in Python."""
    model = str(settings.get("model", _EMBEDDED))
    own = _own_settings() if model == _EMBEDDED else {}
    options = [] if model == _EMBEDDED else [f"--model {shlex.quote(model)}"]
    named: list[str] = []
    for name in ("seed", "steps", "guidance"):
        value = settings.get(name)
        if isinstance(value, int | float) and value != own.get(name):
            options.append(f"--{name} {_number(value)}")
            named.append(f"{name}={_number(value)}")
    size = settings.get("size")
    if isinstance(size, list) and len(size) == 2 and size != own.get("size"):
        options.append(f"--size {size[0]}x{size[1]}")
        named.append(f"size=({size[0]}, {size[1]})")
    if settings.get("negative"):
        options.append(f"--negative {shlex.quote(str(settings['negative']))}")
        named.append(f"negative={_literal(str(settings['negative']))}")
    keep = settings.get("keep")
    if isinstance(keep, list) and keep and keep != ["layer"]:
        named.append(f"keep={_literal([str(axis) for axis in keep])}")
    dtype = settings.get("dtype")
    if model != _EMBEDDED and dtype in ("float32", "float16", "bfloat16"):
        options.append(f"--dtype {dtype}")
    arguments = settings.get("arguments")
    if isinstance(arguments, Mapping):
        named += [
            f"{name}={value!r}"
            for name, value in arguments.items()
            if str(name).isidentifier() and _sayable(value)
        ]
    return options, named


def _kept(settings: Mapping[str, Any]) -> list[str]:
    """The option for the axes that were kept, where they are not the usual ones."""
    keep = settings.get("keep")
    if not isinstance(keep, list) or keep in ([], ["layer"]):
        return []
    return [f"--keep {shlex.quote(','.join(map(str, keep)))}"]


def _own_settings() -> dict[str, Any]:
    """What the embedded model draws with when nothing is said."""
    card = resources.files("heedmap.tiny").joinpath("model", "card.json")
    about = json.loads(card.read_text(encoding="utf-8"))
    return {**about.get("defaults", {}), "size": [128, 128]}


def _python(settings: Mapping[str, Any], call: str) -> str:
    model = str(settings.get("model", _EMBEDDED))
    load = "hm.load()" if model == _EMBEDDED else f"hm.load({_literal(model)})"
    return f"import heedmap as hm\n\npipe = {load}\n{call}"


def _literal(value: Any) -> str:
    """Text, or a list of texts, as Python writes it, in double quotes."""
    return json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _sayable(value: Any) -> bool:
    """Whether a setting can be written down: an image, for one, is only named by its type."""
    if isinstance(value, list):
        return all(map(_sayable, value))
    if isinstance(value, str):
        return not (value.startswith("<") and value.endswith(">"))
    return value is None or isinstance(value, bool | int | float)


def _left_out(settings: Mapping[str, Any], more: str = "") -> str:
    """What the command line has no option for."""
    said = [more] if more else []
    arguments = settings.get("arguments")
    if isinstance(arguments, Mapping) and arguments:
        said.append("other arguments of the pipeline")
    if settings.get("edits"):
        said.append("edits of the attention")
    return " and ".join(said).capitalize()


def _unsaid(settings: Mapping[str, Any]) -> str:
    """What cannot be written down here."""
    said = []
    arguments = settings.get("arguments")
    if isinstance(arguments, Mapping) and not all(map(_sayable, arguments.values())):
        said.append("what was passed as an object (see the settings)")
    if settings.get("edits"):
        said.append("the edits of the attention (see the settings)")
    return f"Add {' and '.join(said)}." if said else ""
