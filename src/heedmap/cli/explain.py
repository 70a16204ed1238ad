"""`heedmap explain`: how one attention probability of a saved run is computed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedmap.cli import console
from heedmap.cli import options as opt
from heedmap.options import BranchName, ExplainOptions, LoadOptions
from heedmap.text import option_texts

if TYPE_CHECKING:
    from heedmap.results.explanations import Explanation


def explain(
    run: opt.RunFolder,
    *,
    word: Annotated[str, typer.Option("--word", "-w", help="A word, a phrase, or #N for word N.")],
    at: Annotated[
        Any,
        typer.Option(
            parser=opt.reader(option_texts.pixel_in),
            metavar="X,Y",
            help="A pixel of the image, from its upper left, from 0.",
        ),
    ],
    layer: Annotated[
        str | None,
        typer.Option(
            "--layer",
            "-l",
            help="A layer, as 'up 1.0', or a pattern with * for one layer. Default, also of "
            "--head: where the word's probability is largest, but at most a half.",
        ),
    ] = None,
    head: Annotated[int | None, typer.Option(help="From 0.")] = None,
    step: Annotated[int | None, typer.Option(help="From 0. Default: the middle step.")] = None,
    pass_: Annotated[
        int, typer.Option("--pass", help="The pass of the model, if a step has several.")
    ] = ExplainOptions.pass_,
    branch: Annotated[BranchName, typer.Option(help="negative: a word of the negative prompt.")] = (
        ExplainOptions.branch
    ),
    model: opt.RunModel = None,
    device: opt.Device = LoadOptions.device,
    dtype: opt.Dtype = LoadOptions.dtype,
    out: Annotated[Path | None, opt.out_option("a new one in RUN/explain")] = None,
    open_: opt.Open = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Show how one attention probability of a saved run is computed.

    It is how much a place of the image attends to a word. The run is repeated up to that step.
    Saves a page (index.html) with the query and the keys, their scores, the division by √d, the
    mask, the softmax, what each token contributed, and all heads together; and explain.json, from
    which all of it can be computed again.
    """
    from heedmap.io.writing import slug
    from heedmap.results.grids import load_result

    saved, query = load_result(run), opt.word_or_number(word)
    place = console.destination(out, root=run / "explain")
    pipe = console.load_model(model, device, dtype, quiet or json, saved)
    from heedmap.pipelines import explaining

    with console.sampling("Sampling", quiet or json) as (warnings, advance):
        found = explaining.explain(
            *(pipe, saved, query, at),
            layer=layer,
            head=head,
            step=step,
            branch=branch,
            pass_=pass_,
            progress=advance,
        )
    about = found.about
    name = f"{about.word} at {about.at[0]} {about.at[1]} {about.short} head {about.head} "
    folder = place.put(found.save, slug(f"{name}step {about.step}", 100))
    data = {
        "run": str(run),
        "folder": str(folder),
        "page": str(folder / "index.html"),
        "file": str(folder / "explain.json"),
        **found.summary(),
        "warnings": warnings,
    }
    console.print_result(data, [folder], lambda: print_explanation(folder, found), json, quiet)
    if open_:
        console.open_in_browser(folder / "index.html")


def print_explanation(folder: Path, found: "Explanation") -> None:
    """Print the scores and probabilities of each token."""
    about, shown = found.about, found.shown
    columns = {"Q·K": shown["scores"], "÷√d": shown["masked"], "P": shown["probabilities"]}
    if found.given.edited is not None:
        columns["edited P"] = shown["acted"]
    columns["‖P·V W_O‖"] = shown["brought"]
    rows = [
        (
            one.text,
            *(
                "hidden" if column[one.position] is None else f"{column[one.position]:.6g}"
                for column in columns.values()
            ),
        )
        for one in found.tokens
        if one.kind != "pad" or one.position in about.tokens
    ]
    title = f"{about.word} at pixel {about.at[0]},{about.at[1]}; "
    title += f"{about.short}, head {about.head}, step {about.step}"
    console.print_table(("token", *columns), rows, title, right=columns)
    typer.echo(f"The computation: {folder / 'index.html'}")
