"""Run a verb of heedmap in this process, and note where its time goes.

    python scripts/benchmarking/watch.py NOTES.json generate "a red house" --out x

Every moment is credited to what is at work: a package of which a module is being made, or a part of
heedmap, each without what it waits for in others. Nothing but the standard library is imported here
that the verb would not import itself. It costs some 2 hundredths of the time.
"""

import functools
import importlib
import json
import sys
import threading
import time
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from typing import Any

PARTS = {
    "heedmap.backends.loading": {"load": "loading the model"},
    "heedmap.pipelines.generation": {"generate": "drawing"},
    "heedmap.results.runs": {
        "Run.save": "pictures and maps", "Run.explorer": "the page", "read_run": "reading the run"
    },
    "heedmap.cli.inspect": {"draw_sheet": "pictures and maps"},
}  # fmt: skip
"""By module, what is called there and what it does."""
REST = "the command line"


class Clock:
    """Seconds of wall and of processor time, by what was at work.

    Attributes:
        spent: by name, [wall, CPU] so far.
    """

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {}
        self._at_work = [REST]
        self._since = time.perf_counter(), time.process_time()
        self._thread = threading.get_ident()

    def turn(self) -> None:
        """Credit the time since the last turn to what is at work."""
        now = time.perf_counter(), time.process_time()
        spent = self.spent.setdefault(self._at_work[-1], [0.0, 0.0])
        for kind in (0, 1):
            spent[kind] += now[kind] - self._since[kind]
        self._since = now

    def timed(self, name: Callable[..., str], function: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose time is credited to what `name` says of its arguments."""

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread:
                return function(*args, **kwargs)
            self.turn()
            self._at_work.append(name(*args, **kwargs))
            try:
                return function(*args, **kwargs)
            finally:
                self.turn()
                self._at_work.pop()

        return run


def importing(name: str) -> str:
    """What a module's making is credited to."""
    package = name.partition(".")[0]
    return f"importing {'of Python itself' if package in sys.stdlib_module_names else package}"


def watch(clock: Clock) -> None:
    """Credit the making of modules to their packages, and heedmap's parts to their names."""
    for loader in (SourceFileLoader, ExtensionFileLoader):
        original: Any = loader.exec_module

        def made(self: Any, module: Any, execute: Any = original) -> None:
            execute(self, module)
            for path, name in PARTS.get(module.__name__, {}).items():
                *owner, last = path.split(".")
                holder = functools.reduce(getattr, owner, module)
                part = clock.timed(lambda *_, name=name, **__: name, getattr(holder, last))
                setattr(holder, last, part)

        loader.exec_module = clock.timed(lambda _, module: importing(module.__name__), made)
    opened = ExtensionFileLoader.create_module
    ExtensionFileLoader.create_module = clock.timed(lambda _, spec: importing(spec.name), opened)


def main() -> None:
    _, notes, *arguments = sys.argv
    sys.argv = ["heedmap", *arguments]
    sys.path.pop(0)  # this folder's modules are none of the verb's
    clock = Clock()
    watch(clock)
    try:
        importlib.import_module("heedmap.cli").main()
    finally:
        clock.turn()
        with open(notes, "w", encoding="utf-8") as file:
            json.dump(clock.spent, file)


if __name__ == "__main__":
    main()
