"""What a user waits for: fresh processes from the command to its end, and where their time goes."""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarking.replay import Figures

WATCH = Path(__file__).with_name("watch.py")
PROMPT = "a red house next to a blue tree"
VERBS = {
    "generate": ["generate", PROMPT, "--seed", "7", "--quiet", "--out", "run"],
    "inspect": ["inspect", "run", "--quiet", "--out", "seen"],
    "words": ["words", PROMPT],
    "help": ["--help"],
}
SAVED = {"generate": "run", "inspect": "seen"}
BARS = {"generate": 6.0, "inspect": 0.7, "help": 0.15}  # seconds, on an idle machine of two cores
ENDS = "Python's start and end"
KINDS = ("wall_s", "cpu_s")
LEAST = 0.01  # of the whole: what takes less is told together


class Place(NamedTuple):
    """A Python, and the checkout of which heedmap is taken; None for what is installed."""

    python: str
    tree: str | None

    def name(self) -> str:
        return self.python if self.tree is None else f"{self.python}, {self.tree}"


class Start(NamedTuple):
    """One process: seconds of wall and CPU, and the same by what was at work."""

    wall: float
    cpu: float
    parts: Mapping[str, Sequence[float]]


def once(place: Place, verb: str, folder: Path) -> Start:
    """Run a verb in a fresh process, in a folder; RuntimeError if it fails."""
    environment = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
    if place.tree is not None:
        environment["PYTHONPATH"] = str(Path(place.tree, "src").resolve())
    notes = folder / "notes.json"
    if verb in SAVED:
        shutil.rmtree(folder / SAVED[verb], ignore_errors=True)
    before, began = os.times(), time.perf_counter()
    done = subprocess.run(
        [place.python, str(WATCH), str(notes), *VERBS[verb]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    wall, after = time.perf_counter() - began, os.times()
    if done.returncode:
        said = f"{place.name()} ended with {done.returncode}: {done.stderr.strip()[-500:]}"
        raise RuntimeError(said)
    cpu = sum(after[2:4]) - sum(before[2:4])
    parts: dict[str, Sequence[float]] = json.loads(notes.read_text(encoding="utf-8"))
    inside = [sum(part[kind] for part in parts.values()) for kind in (0, 1)]
    parts[ENDS] = [max(0.0, wall - inside[0]), max(0.0, cpu - inside[1])]
    return Start(wall, cpu, parts)


def start(options: argparse.Namespace) -> Figures:
    """Run a verb in fresh processes of each place in turn, the first of each uncounted."""
    places = [Place(str(python), tree) for python in options.python for tree in options.tree]
    starts: dict[str, list[Start]] = {place.name(): [] for place in places}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(1 + options.rounds):
            for place in places:
                folder = Path(scratch, str(places.index(place)))
                if number == 0:
                    folder.mkdir()
                    if options.verb == "inspect":
                        once(place, "generate", folder)
                made = once(place, options.verb, folder)
                if number:  # the first may compile bytecode, and reads all files from the disk
                    starts[place.name()].append(made)
    return {
        "verb": options.verb,
        "rounds": options.rounds,
        "bar": BARS.get(options.verb),
        "places": {name: summed_up(of_place) for name, of_place in starts.items()},
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()[0]:.1f}",
    }


def summed_up(starts: Sequence[Start]) -> Figures:
    """Medians, each with the least and the most, of processes and of their parts."""
    names = dict.fromkeys(name for one in starts for name in one.parts)
    parts = {name: [one.parts.get(name, (0.0, 0.0)) for one in starts] for name in names}
    middle = {n: statistics.median(wall for wall, _ in rows) for n, rows in parts.items()}
    least = LEAST * sum(middle.values())
    small = [name for name, wall in middle.items() if wall < least]
    if small:
        rest = zip(*(parts.pop(name) for name in small), strict=True)
        parts["all else"] = [(sum(w for w, _ in rows), sum(c for _, c in rows)) for rows in rest]
    return {
        "wall_s": spread([one.wall for one in starts]),
        "cpu_s": spread([one.cpu for one in starts]),
        "parts": {
            name: {"wall_s": spread([w for w, _ in rows]), "cpu_s": spread([c for _, c in rows])}
            for name, rows in parts.items()
        },
    }


def spread(seconds: Sequence[float]) -> list[float]:
    """The least, the median and the most."""
    return [round(n, 3) for n in (min(seconds), statistics.median(seconds), max(seconds))]


def report(figures: Figures) -> None:
    """Print what `start` measured as a table for each place."""
    console = Console(highlight=False, width=100)
    for name, found in figures["places"].items():
        table = Table(title=f"{figures['verb']}, {figures['rounds']} fresh processes: {name}")
        table.add_column("at work")
        for kind in ("wall", "CPU"):
            table.add_column(f"{kind} s (least to most)", justify="right")
        rows = sorted(found["parts"].items(), key=lambda row: -row[1]["wall_s"][1])
        for part, row in (*rows, ("in all", found)):
            said = [f"{m:.3f} ({low:.3f} to {high:.3f})" for low, m, high in map(row.get, KINDS)]
            table.add_row(part, *said, style="bold" if row is found else None)
        console.print(table)
    bar = "" if figures["bar"] is None else f"; bar: {figures['bar']} s by the clock, median"
    console.print(f"{figures['machine']}{bar}")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the sub-command."""
    parser.add_argument("--verb", choices=tuple(VERBS), default="generate", help="(generate)")
    parser.add_argument("--rounds", type=int, default=10, help="processes of each (10)")
    parser.add_argument(
        "--python", nargs="+", default=[sys.executable], help="of environments (this one)"
    )
    parser.add_argument(
        "--tree", nargs="+", default=[None], help="checkouts; left out: what is installed"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
