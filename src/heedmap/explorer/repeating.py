"""How a run is repeated: the command and the Python for it, from its settings alone.

A command holds every option that decides the picture, each number to its last digit, so that it
reads back as the settings of the run. What has no option (a scheduler, LoRAs, rules) is named
beside it, and `heedmap repeat` draws with that too.
"""

import json
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

from heedmap.explorer import spelling
from heedmap.options import DrawOptions, EditOptions

__all__ = ["repeat_edit", "repeat_run"]

_EMBEDDED = "heedmap-tiny"
# What `heedmap.edit` takes where nothing is said, as settings note it.
_NO_EDIT: dict[str, Any] = {
    "cross": [0.0, EditOptions.cross],
    "self": [0.0, EditOptions.self_attention],
    "threshold": EditOptions.threshold,
    "blend_from": EditOptions.blend_from,
    "self_cells": EditOptions.self_cells,
}
_USUAL_KEEP = list(DrawOptions.keep)


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
    placed = [spelling.box(about) for about in settings.get("edits") or ()]
    options += [f"--confine {spelling.quoted(said)}" for said in placed if said]
    if settings.get("edits"):
        rules = [spelling.rule(about) for about in settings["edits"]]
        if all(rules):
            named.append(f"edits=[{', '.join(map(str, rules))}]")
    if settings.get("tokens") == "all":
        named.append('tokens="all"')
    if negative:
        named.append('branches={"negative"}')
    more = ["the maps of the negative prompt"] if negative else []
    if not all(placed):
        more.append("edits of the attention")
    place = settings.get("batch_place")
    if isinstance(place, list) and len(place) == 2:
        more.append(f"the batch of {place[1]} pictures that it was drawn in")
    return _ways(
        settings,
        _command("generate", [prompt], [*options, *_kept(settings)]),
        f"run = hm.generate({', '.join(['pipe', spelling.literal(prompt), *named])})",
        more,
    )


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
            low, high = (spelling.number(float(bound)) for bound in window)
            options.append(f"{option} {low}:{high}")
            named.append(f"{name}=({low}, {high})")
    windows = edit.get("windows")
    if isinstance(windows, Mapping) and windows:
        spans = {
            w: (spelling.number(float(a)), spelling.number(float(b)))
            for w, (a, b) in windows.items()
        }
        options += [f"--words {spelling.quoted(f'{w}={a}:{b}')}" for w, (a, b) in spans.items()]
        pairs = ", ".join(f"{spelling.literal(w)}: ({a}, {b})" for w, (a, b) in spans.items())
        named.append(f"words={{{pairs}}}")
    kind = edit.get("kind_asked", None if edit.get("kind") == chosen_kind else edit.get("kind"))
    if kind in ("replace", "refine"):
        options.append(f"--kind {kind}")
        named.append(f"kind={spelling.literal(kind)}")
    if edit.get("renormalize"):
        options.append("--renormalize")
        named.append("renormalize=True")
    if edit.get("only"):
        options.append(f"--only {spelling.quoted(str(edit['only']))}")
        named.append(f"only={spelling.literal(str(edit['only']))}")
    for word in edit.get("protect") or ():
        options.append(f"--protect {spelling.quoted(str(word))}")
    if edit.get("protect"):
        named.append(f"protect={spelling.literal([str(word) for word in edit['protect']])}")
    for key in ("threshold", "blend_from"):
        if edit.get(key) not in (None, _NO_EDIT[key]):
            options.append(f"--{key.replace('_', '-')} {spelling.number(edit[key])}")
            named.append(f"{key}={spelling.number(edit[key])}")
    more = []
    if edit.get("self_cells") not in (None, _NO_EDIT["self_cells"]):
        named.append(f"self_cells={edit['self_cells']}")
        more.append("the largest grid of self-attention")
    place = settings.get("batch_place")
    if isinstance(place, list) and len(place) == 2 and place[1] > 2:
        more.append(f"the batch of {place[1]} pictures that it was drawn in")
    texts = [spelling.literal(source), spelling.literal(prompt)]
    return _ways(
        settings,
        _command("edit", [source, prompt], [*options, *_kept(settings)]),
        f"pair = hm.edit({', '.join(['pipe', *texts, *named])})",
        more,
    )


def _ways(
    settings: Mapping[str, Any], command: str, call: str, more: Iterable[str]
) -> list[list[str]]:
    """The command, the Python, and what repeats a run with all that its settings note."""
    given = _arguments(settings)
    loaded = _loaded(settings)
    left = [*(["other arguments of the pipeline"] if given else []), *more, *loaded]
    python = []
    if len(spelling.arguments(given)) < len(given):
        python.append("what was passed as an object (see the settings)")
    if not all(map(spelling.rule, settings.get("edits") or ())):
        python.append("the edits of the attention (see the settings)")
    python += [part for part in more if part.startswith("the batch")] + loaded
    return [
        ["On the command line", command, f"Not in it: {_listed(left)}." if left else ""],
        ["In Python", _python(settings, call), f"Add {_listed(python)}." if python else ""],
        [
            "With all that was noted, and compared to the byte",
            "heedmap repeat FOLDER",
            "FOLDER is the one that this page is in.",
        ],
    ]


def _command(verb: str, texts: Iterable[str], options: Iterable[str]) -> str:
    """A command line; a text that begins as an option does stands behind two dashes."""
    quoted = [spelling.quoted(text) for text in texts]
    if any(text.startswith(("-", "'-", "$'-")) for text in quoted):
        return " ".join([f"heedmap {verb}", *options, "--", *quoted])
    return " ".join([f"heedmap {verb}", *quoted, *options])


def _shared(settings: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Options of the command line, and the same as arguments in Python."""
    model = _model(settings)
    own = _own_settings() if model == _EMBEDDED else {}
    options = [] if model == _EMBEDDED else [f"--model {spelling.quoted(model)}"]
    named: list[str] = []
    for name in ("seed", "steps", "guidance"):
        value = settings.get(name)
        if isinstance(value, int | float) and value != own.get(name):
            options.append(f"--{name} {spelling.number(value)}")
            named.append(f"{name}={spelling.number(value)}")
    size, unsaid = settings.get("size"), settings.get("defaults")
    chosen = not (isinstance(unsaid, Mapping) and "size" in unsaid)
    if chosen and isinstance(size, list) and len(size) == 2 and size != own.get("size"):
        options.append(f"--size {size[0]}x{size[1]}")
        named.append(f"size=({size[0]}, {size[1]})")
    negative = settings.get("negative")
    if negative is not None:  # an empty one is not none: SDXL then encodes it
        options.append(f"--negative {spelling.quoted(str(negative))}")
        named.append(f"negative={spelling.literal(str(negative))}")
    keep = settings.get("keep")
    if isinstance(keep, list) and keep != _USUAL_KEEP:
        named.append(f"keep={spelling.literal([str(axis) for axis in keep])}")
    device, dtype = _placed(settings)
    options += [f"--device {device}"] if device else []
    options += [f"--dtype {dtype}"] if dtype else []
    named += spelling.arguments(_arguments(settings))
    return options, named


def _model(settings: Mapping[str, Any]) -> str:
    return str(settings.get("model", _EMBEDDED))


def _placed(settings: Mapping[str, Any]) -> tuple[str, str]:
    """The device, and the precision where it is not the one taken there; empty if not noted."""
    device, dtype = settings.get("device"), settings.get("dtype")
    device = device if device in ("cpu", "cuda", "mps") else ""
    usual = "float32" if device in ("", "cpu") else "float16"
    known = dtype in ("float32", "float16", "bfloat16") and dtype != usual
    return device, str(dtype) if known else ""


def _kept(settings: Mapping[str, Any]) -> list[str]:
    """The option for the axes that were kept, where they are not the usual ones."""
    keep = settings.get("keep")
    if not isinstance(keep, list) or keep == _USUAL_KEEP:
        return []
    return [f"--keep {spelling.quoted(','.join(map(str, keep)))}"]


def _loaded(settings: Mapping[str, Any]) -> list[str]:
    """What was done to the model after it was loaded."""
    said = []
    if isinstance(settings.get("schedulers"), Mapping) and _model(settings) == _EMBEDDED:
        noted, own = settings["schedulers"].get("scheduler"), _own_scheduler()
        config = noted.get("config") if isinstance(noted, Mapping) else None
        if noted and (noted.get("class") != own.pop("_class_name") or not _holds(config, own)):
            said.append(f"the scheduler ({settings.get('scheduler')})")
    said += ["the LoRAs"] if settings.get("loras") else []
    said += ["the adapters"] if settings.get("adapters") else []
    said += ["the attention processors"] if settings.get("attention") else []
    return said


def _holds(config: Any, own: Mapping[str, Any]) -> bool:
    """Whether a scheduler's settings are those of the model's own; what is not there is usual."""
    return isinstance(config, Mapping) and all(
        config.get(key) == value for key, value in own.items() if not key.startswith("_")
    )


def _own_settings() -> dict[str, Any]:
    """What the embedded model draws with when nothing is said."""
    return {**_read("card.json").get("defaults", {}), "size": [128, 128]}


def _own_scheduler() -> dict[str, Any]:
    """The settings of the embedded model's own scheduler."""
    return _read("scheduler/scheduler_config.json")


def _read(name: str) -> dict[str, Any]:
    file = resources.files("heedmap.tiny").joinpath("model", *name.split("/"))
    return json.loads(file.read_text(encoding="utf-8"))


def _python(settings: Mapping[str, Any], call: str) -> str:
    model = _model(settings)
    device, dtype = _placed(settings)
    given = [] if model == _EMBEDDED else [spelling.literal(model)]
    given += [f"device={spelling.literal(device)}"] if device else []
    given += [f"dtype={spelling.literal(dtype)}"] if dtype else []
    return f"import heedmap as hm\n\npipe = hm.load({', '.join(given)})\n{call}"


def _arguments(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    arguments = settings.get("arguments")
    return arguments if isinstance(arguments, Mapping) else {}


def _listed(parts: list[str]) -> str:
    """Parts of a sentence: "a, b and c"."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
