"""The names of layers, dotted paths in a model, as a user says and reads them.

A recording has the paths themselves, of whatever family; what is known of them here is how those of
a UNet are put together, since a user says "down", "mid" and "up" of it.
"""

import fnmatch
from collections import Counter
from collections.abc import Sequence

from heedmap.errors import nearest

MOST_NEAR = 5
"""Layers that a sentence names."""
_STAGES = ("down", "mid", "up")


def stage_of(name: str) -> str:
    """Where in a UNet a layer is: "down", "mid" or "up"; empty if it is in none."""
    return next((stage for stage in _STAGES if name.startswith(f"{stage}_block")), "")


def name_fits(name: str, wanted: str) -> bool:
    """Whether a layer is wanted by "down", "mid" or "up", a short name, a path, a pattern."""
    if wanted in _STAGES:
        return stage_of(name) == wanted
    return wanted in (name, short_name(name)) or fnmatch.fnmatchcase(name, wanted)


def layers_there(names: Sequence[str], like: str) -> str:
    """Which layers could be named, by their short names: of many those most like a name."""
    stages = [stage for stage in _STAGES if any(stage_of(name) == stage for name in names)]
    near = nearest_layers(like, names)
    of = f"one of {len(names)} layers such as " if len(near) < len(names) else "a layer, "
    return f"{', '.join(stages)}{' or ' if stages else ''}{of}{', '.join(near)}"


def nearest_layers(like: str, names: Sequence[str]) -> list[str]:
    """The short names of the layers that are most like one, by either name, the nearest first.

    Where there are few layers they are all named, in the model's order.
    """
    called = dict(zip(names, short_names(names), strict=True))
    called = {short: short for short in called.values()} | called
    found = nearest(like, called, 2 * MOST_NEAR)  # each layer is there by two names at most
    return list(dict.fromkeys(called[one] for one in found))[:MOST_NEAR]


def short_name(name: str) -> str:
    """The name that figures and tables have: "up 1.0", "mid 0", "down 2.1.7"."""
    short = name.removesuffix(".attn2").removesuffix(".transformer_blocks.0")
    for part in ("_blocks", "_block", ".attentions", ".transformer"):
        short = short.replace(part, "")
    return short.replace(".", " ", 1)


def short_names(names: Sequence[str]) -> list[str]:
    """Of each layer the shortest name that is no other's: its short one, or else its path."""
    shorts = [short_name(name) for name in names]
    taken = Counter(shorts) + Counter(set(names))
    return [
        short if taken[short] == 1 or short == name else name
        for name, short in zip(names, shorts, strict=True)
    ]
