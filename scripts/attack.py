"""Attack the house as strangers would: folders and archives, texts, saving, the app.

    python scripts/attack.py folders --n 200000       fuzzed results: opened, shown, saved again
    python scripts/attack.py texts --n 1000000        whatever reads text: prompts, options, fields
    python scripts/attack.py kills                    saving processes, killed at random moments
    python scripts/attack.py load --seconds 120       a server under honest, slow and hostile clients
    python scripts/attack.py probe                    every route, function and field of the app
    python scripts/attack.py round                    all of it, short: two minutes

Everything is on this machine alone. The same seed gives the same cases, whatever the number of
processes. The exit code is 1 if anything was found; what was found is told with a command that does
it again. What was found once stands in `tests/corpus`, and a test replays it.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from attacking import folders, kills, load, probe, reporting, seeds, texts
from attacking.crowd import Tally, run
from attacking.findings import Finding, remember

_COMMAND = "python scripts/attack.py {part} --case {case}"


def run_folders(options: argparse.Namespace, scratch: Path) -> Tally:
    """The part `folders`."""
    root = seeds.make(options.seeds or scratch / "seeds")
    if options.case is not None:
        return _replayed("folders", folders.Attack(root, _room(scratch), 0), options)

    def made() -> tuple[Callable[..., object], dict[str, int]]:
        attack = folders.Attack(root, _room(scratch), options.seed)
        folders.bound_memory()
        return attack, attack.told

    return _all_of("folders", made, options)


def run_texts(options: argparse.Namespace, scratch: Path) -> Tally:
    """The part `texts`."""
    if options.case is not None:
        return _replayed("texts", texts.Attack(0), options)

    def made() -> tuple[Callable[..., object], dict[str, int]]:
        attack = texts.Attack(options.seed)
        return attack, attack.told

    return _all_of("texts", made, options)


def run_kills(options: argparse.Namespace, scratch: Path) -> Tally:
    """The part `kills`."""
    root = seeds.make(options.seeds or scratch / "seeds")
    return kills.attack(root, _room(scratch), options.n, options.seed)


def run_load(options: argparse.Namespace, scratch: Path) -> Tally:
    """The part `load`."""
    root = seeds.make(options.seeds or scratch / "seeds")
    return load.attack(
        root, _room(scratch), clients=options.n, seconds=options.seconds, seed=options.seed
    )


def run_probe(options: argparse.Namespace, scratch: Path) -> Tally:
    """The part `probe`."""
    root = seeds.make(options.seeds or scratch / "seeds")
    return probe.attack(root, _room(scratch), quick=options.n < 1)


def _all_of(part: str, made: Callable[..., object], options: argparse.Namespace) -> Tally:
    return run(
        part, made, options.n, processes=options.processes, minutes=options.minutes,
        progress=reporting.progress,
    )  # fmt: skip


def _replayed(part: str, attack: object, options: argparse.Namespace) -> Tally:
    """One case again."""
    case = json.loads(options.case)
    tally = Tally(part, cases=1)
    for wrong in attack.attempt(case):
        tally.add(Finding(part, wrong, case))
        if options.keep:
            less = folders.smaller(attack, case, wrong.key) if part == "folders" else case
            remember(Finding(part, wrong, less), options.keep)
    return tally


def _room(scratch: Path) -> Path:
    """An empty folder, for one process."""
    return Path(tempfile.mkdtemp(prefix="room-", dir=scratch))


# --- the command line -------------------------------------------------------------------------


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(required=True, metavar="WHAT")
    for name, function, n, about in (
        ("folders", run_folders, 200_000, "fuzzed folders and archives"),
        ("texts", run_texts, 1_000_000, "texts of every kind"),
    ):
        verb = verbs.add_parser(name, help=about, description=about)
        verb.add_argument("--n", type=int, default=n, help=f"cases ({n})")
        verb.add_argument("--seed", type=int, default=0, help="of the draw (0)")
        verb.add_argument("--processes", type=int, default=1, help="that try at once (1)")
        verb.add_argument("--minutes", type=float, help="after which no further case is tried")
        verb.add_argument("--case", metavar="JSON", help="this one, and no other")
        verb.add_argument("--keep", metavar="NAME", help="with --case: put it into tests/corpus")
        verb.set_defaults(function=function)
        if name == "folders":
            verb.add_argument("--seeds", type=Path, metavar="FOLDER", help="kept for another time")
        verb.add_argument("--json", action="store_true", help="print one JSON object")
    for name, function, n, what, about in (
        ("kills", run_kills, 90, "kills", "saving processes, killed at random moments"),
        ("load", run_load, 50, "honest clients", "a server under load"),
        ("probe", run_probe, 1, "0 for a third of it", "every route, function and field of the app"),
    ):
        verb = verbs.add_parser(name, help=about, description=about)
        verb.add_argument("--n", type=int, default=n, help=f"{what} ({n})")
        verb.add_argument("--seed", type=int, default=0, help="of the draw (0)")
        verb.add_argument("--seeds", type=Path, metavar="FOLDER", help="kept for another time")
        verb.add_argument("--json", action="store_true", help="print one JSON object")
        verb.set_defaults(function=function)
        if name == "load":
            verb.add_argument("--seconds", type=float, default=120, help="of the load (120)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack; the exit code."""
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="heedmap-attack-") as scratch:
        tally = options.function(options, Path(scratch))
    reporting.show([tally], as_json=options.json, replay=_COMMAND)
    return int(bool(tally.found))


if __name__ == "__main__":
    sys.exit(main())
