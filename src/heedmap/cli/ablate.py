"""`heedmap ablate`: a saved run without a word, and whether its map predicted the change."""

from typing import Annotated

import typer

import heedmap as hm
from heedmap.cli.console import Task, print_table
from heedmap.cli.options import SAVED, RunFolder, command


@command(model=SAVED, out="a new one in RUN/ablate")
def ablate(
    task: Task,
    run: RunFolder,
    word: Annotated[
        str, typer.Argument(metavar="WORD", help="A word or phrase of its prompt, at all places.")
    ],
) -> None:
    """Generate a saved run without a word: does its map predict the change?

    From the same noise, in two ways: with nothing attending to the word, and with the prompt read
    without it. Saves the three runs, the changes between them (columns.npy, unread.npy, from 0 to
    1, and as images), a sheet of all beside the map, and how far map and change agree
    (ablate.json).
    """
    from heedmap.io.writing import slug
    from heedmap.results.ablations import check_ablatable
    from heedmap.results.grids import load_result

    saved = check_ablatable(load_result(run), word, str(run))
    place = task.place(run / "ablate")
    with task.sampling(saved) as (pipe, progress):
        found = hm.ablate(pipe, saved, word, progress=progress)
    folder = place.put(found.save, slug(found.word, 100))
    sheet = folder / "sheet.png"
    if task.verbose:
        rows = []
        for way, change in found.trust.ways().items():
            text = "nothing attends to it" if way == "columns" else "it is not read"
            agreements = [str(one or "-") for one in (change.heat, change.refined, change.mask)]
            rows.append((text, f"{change.mean:.1%}", f"{change.most:.0%}", *agreements))
        columns = (f"without {found.word}", "change", "up to", "heat", "refined", "mask")
        print_table(columns, rows, folder)
        typer.echo("rank: rank correlation of map and change; AUC: of the region that changed.")
    files = {"folder": str(folder), "sheet": str(sheet)}
    data = {"run": str(run), **files, **found.summary()}
    task.finish(data, [folder], sheet)
