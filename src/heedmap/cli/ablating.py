"""`heedmap ablate`: a saved run without a word, and whether its heat had said what changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from heedmap.cli.console import (
    loading,
    open_in_browser,
    print_table,
    printable,
    progress_bar,
    say,
    warnings_told,
)
from heedmap.cli.inspecting import folder_beside
from heedmap.cli.interrupts import kept_told
from heedmap.cli.options import OutputFlags, SaveFlags, grouped, out_option
from heedmap.cli.parsing import parse_path
from heedmap.cli.repeating import ReloadFlags


@dataclass(frozen=True)
class WithoutFlags(SaveFlags):
    """Where the pictures without the word go: beside the run, unless something else is said."""

    out: Annotated[
        Path | None,
        out_option("FOLDER", "A new or an empty one. Left out: a new one in RUN/ablate, by word."),
    ] = None
    browser: Annotated[bool, typer.Option("--open", help="Open the sheet in the browser.")] = False


@grouped
def ablate(
    run: Annotated[
        Path, typer.Argument(parser=parse_path, metavar="RUN", help="The folder of a saved run.")
    ],
    word: Annotated[
        str, typer.Argument(metavar="WORD", help="A word or phrase of its prompt, at all places.")
    ],
    *,
    loaded: ReloadFlags,
    saved: WithoutFlags,
    told: OutputFlags,
) -> None:
    """Draw a saved run without a word: did its heat say where it acts?

    From the same noise, in two ways: with nothing attending to the word, and with the prompt read
    without it. Saves the three runs, what changes from one to the other (columns.npy, unread.npy,
    from 0 to 1, and as pictures), a sheet of all beside the heat, and how far heat and change agree
    (ablate.json).
    """
    from heedmap.files.writing import Destination, slug
    from heedmap.results import ablations, folders

    former = ablations.ablated_run(folders.load_result(run), word, str(run))  # before a model is
    root = folder_beside(run, "ablate", saved.out)
    place = Destination(saved.out, root=root)
    with loading(loaded.model, hidden=told.hidden):
        from heedmap.drawing import ablating, repeating

        pipe = repeating.load_for(former, loaded.model, device=loaded.device, dtype=loaded.dtype)
    with (
        kept_told(place.saved),
        warnings_told() as warned,
        progress_bar("Drawing", hidden=told.hidden) as advance,
    ):
        found = ablating.ablate(pipe, former, word, progress=advance)
        folder = place.put(found.save, slug(found.word, 100))
    sheet = folder / "sheet.png"
    about = found.summary()
    data = {"run": str(run), "folder": str(folder), "sheet": str(sheet), **about}
    told.tell({**data, "warnings": warned}, [str(folder)], lambda: print_ablation(folder, about))
    if saved.browser:
        open_in_browser(sheet.resolve().as_uri(), str(sheet))


_WAYS = {"columns": "nothing attends to it", "unread": "it is not read"}
_MAPS = {"heat": "heat", "refined": "refined", "mask": "mask"}


def print_ablation(folder: Path, about: Mapping[str, Any]) -> None:
    """Print what each way changed, and how far the word's maps had foretold it."""
    trust = about["trust"]
    rows = []
    for way, said in _WAYS.items():
        one = trust[way]
        cells = [f"{100 * one['mean']:.1f} %", f"{100 * one['most']:.0f} %"]
        for name in _MAPS:
            held = one[name] or {}
            cells += [_figure(held.get(of)) for of in ("rank", "auc")]
        rows.append((said, *cells))
    agree = [f"{name}: {of}" for name in _MAPS.values() for of in ("rank", "AUC")]
    columns = (f"without {about['word']}", "change", "up to", *agree)
    print_table(columns, rows, title=str(folder), right=columns[1:])
    say("rank: the rank correlation of a map and the change; AUC: of the region that changed.")
    say(printable(f"The pictures beside the heat: {folder / 'sheet.png'}"))


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:z.2f}"
