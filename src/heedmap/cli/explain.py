"""`heedmap explain`: how one attention probability of a saved run is computed."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

import heedmap as hm
from heedmap.cli.console import Task, print_table
from heedmap.cli.options import SAVED, RunFolder, command, parsed
from heedmap.options import ExplainOptions, parse_pixel, parse_word

if TYPE_CHECKING:
    from heedmap.results.explanations import Explanation


@command(ExplainOptions, model=SAVED, out="a new one in RUN/explain")
def explain(
    task: Task,
    run: RunFolder,
    *,
    word: Annotated[
        Any, parsed(parse_word, "WORD", "A word, a phrase, or #N for word N.", "--word", "-w")
    ],
    at: Annotated[
        Any, parsed(parse_pixel, "X,Y", "A pixel of the image, from its upper left, from 0.")
    ],
    **options: Any,
) -> None:
    """Show how one attention probability of a saved run is computed.

    It is how much a place of the image attends to a word. The run is repeated up to that step.
    Saves a page (index.html) with the query and the keys, their scores, the division by √d, the
    mask, the softmax, what each token contributed, and all heads together; and explain.json, from
    which all of it can be computed again.
    """
    from heedmap.io.writing import slug
    from heedmap.results.grids import load_result

    saved = load_result(run)
    place = task.place(run / "explain")
    with task.sampling(saved) as (pipe, progress):
        found = hm.explain(pipe, saved, word, at, progress=progress, **options)
    about = found.about
    name = f"{about.word} at {about.at[0]} {about.at[1]} {about.short} head {about.head} "
    folder = place.put(found.save, slug(f"{name}step {about.step}", 100))
    page = folder / "index.html"
    if task.verbose:
        _print_explanation(found)
        typer.echo(f"The computation: {page}")
    files = {"folder": str(folder), "page": str(page), "file": str(folder / "explain.json")}
    data = {"run": str(run), **files, **found.summary()}
    task.finish(data, [folder], page)


def _print_explanation(found: "Explanation") -> None:
    about, shown = found.about, found.shown
    columns = {"Q·K": shown["scores"], "÷√d": shown["masked"], "P": shown["probabilities"]}
    if found.given.edited is not None:
        columns["edited P"] = shown["acted"]
    columns["‖P·V W_O‖"] = shown["brought"]
    rows = []
    for token in found.tokens:
        if token.kind != "pad" or token.position in about.tokens:
            numbers = [column[token.position] for column in columns.values()]
            rows.append((token.text, *("−∞" if x is None else f"{x:.6g}" for x in numbers)))
    title = f"{about.word} at pixel {about.at[0]},{about.at[1]}; "
    title += f"{about.short}, head {about.head}, step {about.step}"
    print_table(("token", *columns), rows, title)
