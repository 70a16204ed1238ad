"""What is printed of an attack: a table, or one JSON object."""

import json
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from attacking.crowd import Tally


def show(tallies: Sequence[Tally], *, as_json: bool, replay: str) -> None:
    """Print what was tried and what was found.

    Args:
        tallies: a part each.
        as_json: one JSON object, nothing else.
        replay: the command that brings a finding about again, with `{part}` and `{case}` in it.
    """
    if as_json:
        print(json.dumps({tally.part: tally.to_dict() for tally in tallies}))
        return
    console = Console(soft_wrap=True)
    table = Table("part", "tried", "seconds", "found", "besides", box=None)
    for tally in tallies:
        told = ", ".join(f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}"
                         for name, value in tally.told.items())  # fmt: skip
        found = Text(str(len(tally.found)), style="bold red" if tally.found else "green")
        table.add_row(tally.part, f"{tally.cases:,}", f"{tally.seconds:.0f}", found, told)
    console.print(table)
    for tally in tallies:
        for key in sorted(tally.found, key=lambda key: -tally.often[key]):
            finding = tally.found[key]
            wrong = finding.trouble
            print(f"\n{wrong.kind} in {tally.part}, {tally.often[key]} times: {wrong.where}")
            print(f"  {_plain(wrong.what)}")
            case = json.dumps(finding.case)
            if len(case) < 4000:
                print(f"  {replay.format(part=tally.part, case=quoted(case))}")


def quoted(text: str) -> str:
    """A text in a shell's single quotes."""
    return "'" + text.replace("'", "'\\''") + "'"


def _plain(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def progress(tally: Tally) -> None:
    """A line on stderr that says how far a part is."""
    if sys.stderr.isatty():
        said = f"{tally.part}: {tally.cases:,} tried, {len(tally.found)} found"
        print(f"\r{said:60}", end="", file=sys.stderr, flush=True)
