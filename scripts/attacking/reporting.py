"""What is printed of an attack: a table, or one JSON object."""

import json
import shlex
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from attacking.crowd import Tally
from attacking.findings import Finding

# What is reproduced by its case; everything else by its seed.
_BY_CASE = ("folders", "texts")


def show(tallies: Sequence[Tally], *, as_json: bool, seed: int) -> None:
    """Print what was tried and what was found.

    Args:
        tallies: one for each part.
        as_json: one JSON object, nothing else.
        seed: of the draw.
    """
    if as_json:
        print(json.dumps({tally.part: tally.to_dict() for tally in tallies}))
        return
    table = Table("part", "tried", "seconds", "found", "besides", box=None)
    for tally in tallies:
        told = ", ".join(f"{name} {_said(value)}" for name, value in tally.told.items())
        found = Text(str(len(tally.found)), style="bold red" if tally.found else "green")
        table.add_row(tally.part, f"{tally.cases:,}", f"{tally.seconds:.0f}", found, told)
    Console().print(table)
    for tally in tallies:
        for key in sorted(tally.found, key=lambda key: -tally.often[key]):
            finding = tally.found[key]
            wrong = finding.trouble
            print(f"\n{wrong.kind} in {tally.part}, {tally.often[key]} times: {wrong.where}")
            print(f"  {_plain(wrong.what)}")
            print(f"  {again(finding, seed)}")


def again(finding: Finding, seed: int) -> str:
    """The command that reproduces a finding."""
    case = json.dumps(finding.case)
    if finding.part in _BY_CASE:
        return f"python scripts/attack.py {finding.part} --case {shlex.quote(case)}"
    return f"python scripts/attack.py {finding.part} --seed {seed}    # {case[:300]}"


def _said(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _plain(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def progress(tally: Tally) -> None:
    """A line on stderr that says how far a part is."""
    if sys.stderr.isatty():
        said = f"{tally.part}: {tally.cases:,} tried, {len(tally.found)} found"
        print(f"\r{said:60}", end="", file=sys.stderr, flush=True)
