"""JSON as nobody writes it: values that Python's writer would not write, at any place of a file.

A value is plain JSON itself, so that a case can be kept: a list of its kind and what it needs.
"""

import json
import random
from typing import Any

from attacking.findings import EVIL

Path = list[str | int]

NUMBERS = (
    "0", "-0", "1", "-1", "2", "3", "7", "1.0", "0.5", "-0.5", "1.5", "1e39", "-1e39", "1e308",
    "1e-320", "1e999", "-1e999", "NaN", "Infinity", "-Infinity", "255", "65536", "1048576",
    "2147483647", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808",
    "1" + "0" * 300, "1" + "0" * 400, "-1" + "0" * 300, "0." + "1" * 300,
)  # fmt: skip
TEXTS = (
    "", " ", "0", "1e999", "\ud800", "a\ud800b", "a\x00b", "\x1b[31m", "a\nb", "\u202ea", EVIL,
    "../../../etc/passwd", "/etc/passwd", "(cat:2)", "(cat:1e39)", "((((a", "a)))", "`id`; $(id)",
    "'; id; '", "--out", "-x", "{x}", "%s", "layer", "step", "head", "cat", "a red house",
    "mean", "replace", "refine", "RGB", "\ufeffa", "ﷺ" * 20, "e\u0301" * 40, "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "=1+1",
)  # fmt: skip
OTHERS = ("null", "true", "false", "[]", "{}", "[[]]", "[null]", '""', "[0]", '{"a": 1}')
NESTED = (20, 200, 991, 5000, 100_000)


def any_value(chance: random.Random, now: Any) -> list[Any]:
    """A value for a place that holds `now`, mostly of nearly the right kind."""
    kind = chance.random()
    if kind < 0.12:
        return ["json", chance.choice(OTHERS)]
    if kind < 0.15:
        return ["nested", chance.choice(NESTED), chance.choice("[{")]
    if isinstance(now, bool) or now is None:
        return ["json", chance.choice((*OTHERS, *NUMBERS, '"yes"'))]
    if isinstance(now, int | float):
        if kind < 0.4:
            near = chance.choice((now + 1, now - 1, -now, now * 2, now + 0.5, now * 1000))
            return ["json", json.dumps(near)]
        return ["json", chance.choice(NUMBERS)]
    if isinstance(now, str):
        if kind < 0.22:
            length = chance.choice((100, 2001, 20_001, 100_001, 1_000_000))
            return ["times", chance.choice((*'aé\x00(:\\"', "cat ", "<", "🏳", "(a:2) ")), length]
        if kind < 0.32:
            return ["json", chance.choice(NUMBERS)]
        if kind < 0.6:
            return ["json", json.dumps(now + chance.choice(TEXTS))]
        return ["json", json.dumps(chance.choice(TEXTS))]
    if isinstance(now, list):
        return ["list", chance.choice(("empty", "twice", "reversed", "first", "rest", "many"))]
    return ["object", chance.choice(("empty", "odd", "many", "evil", "wrapped"))]


def raw(value: list[Any], now: Any) -> str:
    """The JSON text of a value."""
    kind, *rest = value
    if kind == "json":
        return rest[0]
    if kind == "nested":
        depth, sign = rest
        opening, closing = ("[", "]") if sign == "[" else ('{"a":', "}")
        return opening * depth + "1" + closing * depth
    if kind == "times":
        text, length = rest
        return json.dumps((text * length)[:length])
    if kind == "list":
        return json.dumps(_listed(rest[0], now if isinstance(now, list) else [now]))
    return json.dumps(_keyed(rest[0], now if isinstance(now, dict) else {"a": now}))


def _listed(how: str, now: list[Any]) -> list[Any]:
    # Placeholders for the text of another change are left out: thousands of megabytes are too much.
    now = [one for one in now if not str(one).startswith("@@")] if how == "many" else now
    return {
        "empty": [], "twice": now + now, "reversed": now[::-1], "first": now[:1], "rest": now[1:],
        "many": (now or [0]) * (20_000 // max(1, len(now))),
    }[how]  # fmt: skip


def _keyed(how: str, now: dict[str, Any]) -> dict[str, Any]:
    if how == "odd":
        return {**now, "": None, "__class__": "x", "extra": [1, {"b": 2}], "\ud800": "\x00"}
    if how == "many":
        return {**now, **{f"key {n}": n for n in range(5000)}}
    if how == "evil":
        return {**now, EVIL: EVIL}
    return {} if how == "empty" else {"a": now}


# --- places -----------------------------------------------------------------------------------


def any_place(chance: random.Random, tree: Any) -> Path:
    """A place in a tree: as likely high as low, however many leaves a branch has."""
    place: Path = []
    while isinstance(tree, dict | list) and tree and (not place or chance.random() < 0.8):
        step = chance.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
        place.append(step)
        tree = tree[step]
    return place


def at(tree: Any, place: Path) -> Any:
    """What stands at a place; None if there is none."""
    for step in place:
        try:
            tree = tree[step]
        except (LookupError, TypeError):
            return None
    return tree


class Sheet:
    """A JSON file to write into: values at places, keys that go or come twice."""

    def __init__(self, text: str) -> None:
        self.tree: Any = json.loads(text)
        self._texts: list[str] = []

    def change(self, place: Path, how: str, value: list[Any] | None) -> None:
        """Put a value at a place, delete what is there, or let its key come twice."""
        now = at(self.tree, place)
        mark = f"@@{len(self._texts)}@@"
        if how == "put" and value is not None:
            self._texts.append(raw(value, now))
        if not place:
            self.tree = {} if how == "gone" else mark if how == "put" else self.tree
            return
        parent, last = at(self.tree, place[:-1]), place[-1]
        if isinstance(parent, list) and isinstance(last, int) and last < len(parent):
            if how == "gone":
                del parent[last]
            else:
                parent[last] = mark if how == "put" else [now, now]
        elif isinstance(parent, dict):
            if how == "gone":
                parent.pop(last, None)
            elif how == "put":
                parent[last] = mark
            else:
                # Written a second time, under a name that becomes the same.
                parent[f"@@{last}"] = value if value is not None else 0

    def text(self) -> str:
        """What stands in the file; ASCII, so that it holds lone surrogates as escapes."""
        said = json.dumps(self.tree)
        for number, text in enumerate(self._texts):
            said = said.replace(f'"@@{number}@@"', text)
        return said.replace('"@@', '"')
