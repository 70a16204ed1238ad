"""Break heedmap in many small ways, and see whether its tests notice: a mutation run.

    python scripts/mutate.py --n 400 --seed 0                  four hundred faults, drawn at random
    python scripts/mutate.py --modules mathematics/rules.py      every fault of this file
    python scripts/mutate.py --n 12 --modules text/sequences.py   a quick look

Each fault is tried on the quick tests of its own module that execute the line, then, where these
see nothing, on the quick ones under tests/families. The exit code is 1 if a fault survives that is
not in `mutation/equivalent.toml`, the list of those that change nothing anybody could see, with the
reason for each; or if that list names a fault that does not exist (`--listed` also tries the listed
ones).

Maintained libraries were looked at: mutmut 3 skips what is decorated and draws no samples,
cosmic-ray starts a process for each fault, which imports torch and diffusers each time, and writes
into the source tree.
"""

import argparse
import hashlib
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

from mutation.mutants import Mutant, mutants_of
from mutation.trials import House, results

ROOT = Path(__file__).resolve().parents[1]
LISTED = Path(__file__).parent / "mutation" / "equivalent.toml"

# The tests of the picture against the definition of what was asked for.
_DEFINED = tuple(
    f"recording/test_{name}" for name in ("definitions", "blending", "masked_attention")
)
_TRACED = ("recording/test_recorder", "recording/test_tracing", "recording/test_steering")
# Of a file the tests that know it besides those of its own name, the best first.
BESIDES: dict[str, tuple[str, ...]] = {
    "app/connections.py": ("app/test_crowds",),
    "app/gradio_filter.py": ("app/test_routes", "app/test_middleware"),
    "app/messages.py": ("app/test_gradio_filter", "app/test_routes"),
    "app/middleware.py": ("app/test_routes",),
    "app/quotas.py": ("app/test_crowds", "app/test_middleware"),
    "app/routes.py": ("app/test_middleware", "app/test_connections"),
    "app/upload_reader.py": ("app/test_archives",),
    "app/uploads.py": ("app/test_routes", "app/test_worker"),
    "mathematics/probabilities.py": ("mathematics/test_rules", "recording/test_tracing"),
    "mathematics/rules.py": ("recording/test_steering", "recording/test_edits", *_DEFINED),
    "mathematics/windows.py": ("mathematics/test_rules",),
    "cli/__init__.py": ("cli/test_main",),
    "drawing/batch.py": ("drawing/test_generation", "drawing/test_repeating"),
    "drawing/edit_batches.py": ("drawing/test_editing", "drawing/test_picture_source", *_DEFINED),
    "drawing/given_pictures.py": ("drawing/test_locating", "drawing/test_picture_source"),
    "drawing/picture_source.py": ("drawing/test_repeating",),
    "results/run_files.py": ("results/test_runs", "drawing/test_locating"),
    "drawing/edit_plans.py": ("drawing/test_editing", *_DEFINED),
    "drawing/redrawing.py": ("drawing/test_repeating", "drawing/test_ablating"),
    "drawing/redrawn.py": ("drawing/test_repeating",),
    "drawing/saved_options.py": ("drawing/test_repeating",),
    "drawing/schedulers.py": ("drawing/test_repeating",),
    "app/requests.py": ("app/test_fields",),
    "drawing/explaining.py": ("cli/test_explaining", "results/test_explanations"),
    "errors.py": ("test_checks", "cli/test_tongue"),
    "explorer/__init__.py": ("explorer/test_explorer",),
    "explorer/bars.py": ("explorer/test_lessons",),
    "explorer/boards.py": ("drawing/test_explaining",),
    "explorer/lessons.py": ("drawing/test_explaining",),
    "explorer/told.py": ("explorer/test_explorer",),
    "figures/animations.py": ("maps/test_timelines",),
    "figures/blocks.py": ("figures/test_layout",),
    "figures/lettering.py": ("figures/test_layout",),
    "figures/sheet.py": ("figures/test_layout", "figures/test_blocks"),
    "files/kinds.py": ("files/test_writing",),
    "files/arrays.py": ("maps/test_recordings",),
    "files/marks.py": ("files/test_destinations", "files/test_writing"),
    "files/notes.py": ("files/test_schemas", "results/test_runs"),
    "files/reading.py": ("files/test_schemas",),
    "files/schemas.py": ("results/test_runs", "results/test_pairs", "results/test_grids"),
    "files/scratch.py": ("files/test_writing",),
    "files/exchange.py": ("files/test_writing",),
    "files/destinations.py": ("files/test_writing",),
    "files/writing.py": ("files/test_exchange", "files/test_destinations"),
    "files/placing.py": ("cli/test_interrupts", "files/test_writing"),
    "maps/aims.py": ("drawing/test_explaining",),
    "maps/layer_names.py": ("maps/test_selections",),
    "maps/regions.py": ("drawing/test_repeating",),
    "maps/recordings.py": ("files/test_schemas", "maps/test_heatmaps"),
    "options.py": ("scripts/test_evaluation",),
    "recording/calls.py": (*_TRACED, *_DEFINED),
    "recording/edits.py": _DEFINED,
    "recording/hearing.py": ("recording/test_refining", *_TRACED, *_DEFINED),
    "recording/installation.py": ("recording/test_tracing", "wiring/test_unet"),
    "recording/steering.py": ("mathematics/test_rules", "recording/test_edits", *_DEFINED),
    "recording/tallies.py": ("recording/test_tracing", *_DEFINED),
    "recording/probing.py": ("drawing/test_explaining",),
    "recording/recorder.py": (*_TRACED, "wiring/test_unet", "recording/test_edits", *_DEFINED),
    "recording/tracing.py": (*_TRACED, "wiring/test_unet", "recording/test_edits", *_DEFINED),
    "results/cells.py": ("results/test_grids",),
    "results/explanations.py": ("drawing/test_explaining",),
    "results/folders.py": ("cli/test_repeating",),
    "text/alignment.py": ("text/test_token_mapping",),
    "text/option_texts.py": ("cli/test_parsing", "app/test_fields"),
    "text/sequences.py": ("text/test_token_mapping", "text/test_alignment"),
    "wiring/arguments.py": ("drawing/test_batch", "models/test_dimensions"),
    "wiring/decoding.py": ("app/test_previews", "models/test_batches"),
    "wiring/parts.py": ("drawing/test_settings",),
    "wiring/encodings.py": ("recording/test_calls", "recording/test_tracing"),
    "wiring/registry.py": ("wiring/test_unet", *_TRACED),
    "wiring/family.py": ("wiring/test_registry", *_TRACED),
    "wiring/processors.py": (*_TRACED, *_DEFINED),
    "wiring/prompt_tables.py": ("wiring/test_encodings", "recording/test_tracing"),
    "wiring/schedules.py": ("recording/test_tracing",),
    "wiring/unet.py": _TRACED,
}


def modules() -> list[str]:
    """What is broken: every file but doors and ways in, which hold next to no code."""
    source = ROOT / "src" / "heedmap"
    names = sorted(path.relative_to(source).as_posix() for path in source.rglob("*.py"))
    return [name for name in names if name in BESIDES or not Path(name).stem.startswith("__")]


def own_tests(module: str, root: Path = ROOT) -> list[str]:
    """The files of a module's own tests: that of its name, and those that `BESIDES` names."""
    folder, _, name = module.rpartition("/")
    mirrored = f"{folder}/test_{name}".removesuffix(".py").lstrip("/")
    names = dict.fromkeys([mirrored, *BESIDES.get(module, ())])
    return [file for name in names if (root / (file := f"tests/{name}.py")).exists()]


def families(root: Path = ROOT) -> list[str]:
    """The files of the tests of whole pipelines."""
    return sorted(
        path.relative_to(root).as_posix() for path in root.glob("tests/families/test_*.py")
    )


def all_mutants(of: Sequence[str]) -> list[Mutant]:
    """Every fault of these modules."""
    source = ROOT / "src" / "heedmap"
    return [mutant for module in of for mutant in mutants_of(source / module, module)]


def equivalent() -> dict[tuple[str, str, str, str, int], str]:
    """The listed faults that change nothing anybody could see, with the reason of each."""
    entries = tomllib.loads(LISTED.read_text(encoding="utf-8")).get("mutant", [])
    return {
        (entry["module"], entry["function"], entry["before"], entry["after"], entry.get("nth", 1)):
        entry["why"]
        for entry in entries
    }  # fmt: skip


def drawn(mutants: Sequence[Mutant], count: int | None, seed: int) -> list[Mutant]:
    """So many of them, or all, in an order that a change elsewhere leaves as it is."""

    def place(mutant: Mutant) -> bytes:
        return hashlib.sha256(repr((seed, mutant.key)).encode()).digest()

    return sorted(mutants, key=place)[:count]


def tried(chosen: Sequence[Mutant], processes: int, own_only: bool) -> dict[Mutant, str]:
    """Try mutants on their own tests, and what survives there on those of the families."""
    verdicts: dict[Mutant, str] = {}
    with House(ROOT) as house:
        left = list(chosen)
        for name in ("its own tests", "the families' tests"):
            own = name == "its own tests"
            if not left or (own_only and not own):
                break
            files = {
                mutant.module: own_tests(mutant.module) if own else families() for mutant in left
            }
            every = sorted({file for some in files.values() for file in some})
            since = time.monotonic()
            clean = house.clean(every)
            print(f"{len(clean.seconds)} tests pass in {time.monotonic() - since:.0f} s; {name}:")
            trials = [(mutant, clean.of(mutant, files[mutant.module])) for mutant in left]
            found = results(house, clean, trials, processes)
            for number, (mutant, verdict, seconds) in enumerate(found, 1):
                verdicts[mutant] = verdict
                print(
                    f"[{number}/{len(left)}] {verdict:8} {seconds:5.1f} s  {_told(mutant)}",
                    flush=True,
                )
            left = [mutant for mutant in left if verdicts[mutant] == "survived"]
    return verdicts


def _told(mutant: Mutant) -> str:
    where = f"src/heedmap/{mutant.module}:{mutant.line} {mutant.function}"
    return f"{where}: {_short(mutant.before)}  ->  {_short(mutant.after)}"


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}…"


def _shown(mutant: Mutant) -> str:
    source = (ROOT / "src" / "heedmap" / mutant.module).read_text(encoding="utf-8")
    line = source.splitlines()[mutant.line - 1].strip()
    lines = [f"src/heedmap/{mutant.module}:{mutant.line} {mutant.function}, no. {mutant.nth}"]
    lines.append(f"      {line}")
    lines += [f"    - {line}" for line in mutant.before.splitlines()]
    lines += [f"    + {line}" for line in mutant.after.splitlines()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, help="how many faults; all unless given")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument(
        "--modules", nargs="+", default=modules(), choices=modules(), metavar="FILE"
    )
    parser.add_argument("--processes", type=int, default=1, help="how many trials at once")
    parser.add_argument("--own", action="store_true", help="leave out the families' tests")
    parser.add_argument("--listed", action="store_true", help="also try the listed ones")
    options = parser.parse_args(arguments)

    since = time.monotonic()
    every, listed = all_mutants(options.modules), equivalent()
    known = {mutant.key for mutant in every}
    gone = [key for key in listed if key[0] in options.modules and key not in known]
    chosen = drawn(every, options.n, options.seed)
    passed = [mutant for mutant in chosen if mutant.key in listed]
    verdicts = tried(
        [m for m in chosen if options.listed or m not in passed],
        options.processes, options.own,
    )  # fmt: skip

    survived = [mutant for mutant, verdict in verdicts.items() if verdict == "survived"]
    unlisted = [mutant for mutant in survived if mutant not in passed]
    seen = [mutant for mutant in passed if verdicts.get(mutant, "survived") != "survived"]
    for title, some in (("survived", unlisted), ("listed, but killed", seen)):
        for mutant in some:
            print(f"{title}: {_shown(mutant)}")
    for key in gone:
        print(f"listed, but there is no such fault: {key}")
    killed = sum(verdict != "survived" for verdict in verdicts.values())
    by_time = sum(verdict == "time" for verdict in verdicts.values())
    print(
        f"{len(chosen)} faults of {len(every)} (seed {options.seed}): {killed} killed, of these "
        f"{by_time} by time, {len(passed)} listed as equivalent, {len(unlisted)} survived "
        f"({len(unlisted) / max(1, len(chosen)):.2%}); {time.monotonic() - since:.0f} s"
    )
    return int(bool(unlisted or gone or seen))


if __name__ == "__main__":
    sys.exit(main())
