"""Attack heedmap as strangers would: folders and archives, texts, saving, the app.

    python scripts/attack.py folders --n 200000       fuzzed results: opened, shown, saved again
    python scripts/attack.py texts --n 1000000        whatever reads text: prompts, options, fields
    python scripts/attack.py kills                    saving processes, killed at random moments
    python scripts/attack.py load --seconds 120       a server under honest and hostile clients
    python scripts/attack.py probe                    every route, function and field of the app
    python scripts/attack.py round                    all of it, short: two minutes

Everything is on this machine alone (Linux). The same seed gives the same cases, whatever the number
of processes. The exit code is 1 if anything was found, and each finding is printed with the command
that reproduces it; `--keep NAME` puts that case into `tests/corpus`, which a test replays.
`attacking` says what is tried, in a file for each question.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attacking import folders, kills, load, probe, reporting, seeds, texts
from attacking.crowd import Tally, run
from attacking.findings import Finding, remember

# The round: the number of cases of each part, and the seconds of the load.
_ROUND = {"folders": 1000, "texts": 8_000, "kills": 8, "load": 8, "probe": 0}
_ROUND_SECONDS = 8.0


def run_folders(options: argparse.Namespace, root: Path, scratch: Path) -> Tally:
    """The part `folders`."""
    if options.case is not None:
        return _replayed("folders", folders.Attack(root, _room(scratch), 0), options)

    def made() -> Any:
        attack = folders.Attack(root, _room(scratch), options.seed)
        return attack, attack.told

    return _all_of("folders", made, options)


def run_texts(options: argparse.Namespace, root: Path, scratch: Path) -> Tally:
    """The part `texts`."""
    if options.case is not None:
        return _replayed("texts", texts.Attack(0), options)

    def made() -> Any:
        attack = texts.Attack(options.seed)
        return attack, attack.told

    return _all_of("texts", made, options)


def run_kills(options: argparse.Namespace, root: Path, scratch: Path) -> Tally:
    """The part `kills`."""
    return kills.attack(root, _room(scratch), options.n, options.seed)


def run_load(options: argparse.Namespace, root: Path, scratch: Path) -> Tally:
    """The part `load`."""
    return load.attack(
        root, _room(scratch), clients=options.n, seconds=options.seconds, seed=options.seed
    )


def run_probe(options: argparse.Namespace, root: Path, scratch: Path) -> Tally:
    """The part `probe`."""
    return probe.attack(root, _room(scratch), quick=options.n < 1)


def _all_of(part: str, made: Callable[[], Any], options: argparse.Namespace) -> Tally:
    return run(
        part, made, options.n, processes=options.processes, minutes=options.minutes,
        progress=reporting.progress,
    )  # fmt: skip


def _replayed(part: str, attack: Any, options: argparse.Namespace) -> Tally:
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

PARTS: dict[str, tuple[Callable[[argparse.Namespace, Path, Path], Tally], int, str, str]] = {
    "folders": (run_folders, 200_000, "cases", "fuzzed folders and archives"),
    "texts": (run_texts, 1_000_000, "cases", "texts of every kind"),
    "kills": (run_kills, 90, "kills", "saving processes, killed at random moments"),
    "load": (run_load, 50, "honest clients", "a server under load"),
    "probe": (run_probe, 1, "0 for a part of it", "every route, function and field of the app"),
}
"""By name: what runs it, how much of it, of what, and what it is."""


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(required=True, metavar="WHAT", dest="part")
    for name, (_, n, what, about) in PARTS.items():
        verb = verbs.add_parser(name, help=about, description=about)
        verb.add_argument("--n", type=int, default=n, help=f"{what} ({n})")
        if name in ("folders", "texts"):
            verb.add_argument("--minutes", type=float, help="after which no further case is tried")
            verb.add_argument("--case", metavar="JSON", help="this one, and no other")
            verb.add_argument("--keep", metavar="NAME", help="put that case into tests/corpus")
        if name == "load":
            verb.add_argument("--seconds", type=float, default=120, help="of the load (120)")
    verb = verbs.add_parser("round", help="all of it, short", description="all of it, short")
    verb.set_defaults(case=None, minutes=None)
    for verb in verbs.choices.values():
        verb.add_argument("--seed", type=int, default=0, help="of the draw (0)")
        verb.add_argument("--processes", type=int, default=1, help="that try cases at once (1)")
        verb.add_argument("--seeds", type=Path, metavar="FOLDER", help="kept for another time")
        verb.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack; returns the exit code."""
    options = parse(arguments)
    parts = list(PARTS) if options.part == "round" else [options.part]
    tallies = []
    with tempfile.TemporaryDirectory(prefix="heedmap-attack-") as name:
        scratch = Path(name)
        root = Path()
        if options.part != "texts":
            root = seeds.make(options.seeds or scratch / "seeds")
        for part in parts:
            if options.part == "round":
                short = {"n": _ROUND[part], "seconds": _ROUND_SECONDS}
                options = argparse.Namespace(**{**vars(options), **short})
            tallies.append(PARTS[part][0](options, root, scratch))
    reporting.show(tallies, as_json=options.json, seed=options.seed)
    return int(any(tally.found for tally in tallies))


if __name__ == "__main__":
    sys.exit(main())
