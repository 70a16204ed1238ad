"""`heedmap explain`: how one number of a saved run comes about, step by step."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedmap.cli.console import loading, print_table, printable, progress_bar, say, warnings_told
from heedmap.cli.inspecting import BesideFlags
from heedmap.cli.options import OutputFlags, PageFlags, grouped, out_option
from heedmap.cli.parsing import numbered, parse_path, parse_pixel
from heedmap.cli.repeating import ReloadFlags
from heedmap.errors import RunError
from heedmap.options import BranchName, ExplainOptions

if TYPE_CHECKING:
    from heedmap.results.explanations import Explanation


@dataclass(frozen=True)
class AimFlags:
    """Which number it is."""

    word: Annotated[
        str,
        typer.Option("--word", "-w", metavar="WORD", help="A word, a phrase, or #N for word N."),
    ]
    at: Annotated[
        Any,
        typer.Option(
            parser=parse_pixel,
            metavar="X,Y",
            help="A pixel of the picture, from its upper left, from 0.",
        ),
    ]
    layer: Annotated[
        str | None,
        typer.Option(
            "--layer",
            "-l",
            metavar="NAME",
            help="A layer, as 'up 1.0', or a pattern with * that fits no other. Left out, as "
            "--head and --step: where the word draws most at this place, but no more than half.",
        ),
    ] = None
    head: Annotated[int | None, typer.Option(metavar="N", help="From 0.")] = None
    step: Annotated[int | None, typer.Option(metavar="N", help="From 0.")] = None
    pass_: Annotated[
        int,
        typer.Option(
            "--pass",
            metavar="N",
            help="Which pass of the model, where the scheduler asks more than once for a step.",
        ),
    ] = ExplainOptions.pass_
    branch: Annotated[BranchName, typer.Option(help="negative: a word of the negative prompt.")] = (
        ExplainOptions.branch
    )

    def asked(self) -> dict[str, Any]:
        """By their names in Python, but for word, place and pass."""
        return {name: getattr(self, name) for name in ("layer", "head", "step", "branch")}


@dataclass(frozen=True)
class NearFlags(BesideFlags):
    """Where the page goes: beside the run, unless something else is said."""

    out: Annotated[
        Path | None,
        out_option("FOLDER", "A new or an empty one. Left out: a new one in RUN/explain."),
    ] = None


@grouped
def explain(
    run: Annotated[
        Path,
        typer.Argument(
            parser=parse_path, metavar="RUN", help="The folder of a saved run, or of an edit."
        ),
    ],
    *,
    aim: AimFlags,
    loaded: ReloadFlags,
    saved: NearFlags,
    shown: PageFlags,
    told: OutputFlags,
) -> None:
    """Take one number of a saved run apart, step by step.

    It is how much a place of the picture attends to a word. The run is drawn again up to that step.
    Saves a page (index.html) with the query and the keys, their scores, the division by √d, the
    mask, the softmax, what each token brought, and the heads put together; and explain.json, from
    which all of it can be computed again.
    """
    from heedmap.files.writing import Destination, slug
    from heedmap.results import aiming, folders

    former = aiming.explained_run(folders.load_result(run), str(run))
    word = numbered(aim.word)
    aiming.aim_at(former, word, aim.at, **aim.asked())  # before a model is loaded
    root = run / "explain"
    # Otherwise whoever sent the run could say where to write.
    if saved.out is None and root.is_symlink():
        raise RunError(
            f"{root} leads elsewhere, being a link: name a folder with --out, or take it off"
        )
    place = Destination(saved.out, root=root)
    with loading(loaded.model, hidden=told.hidden):
        from heedmap.drawing import explaining, repeating

        pipe = repeating.load_for(former, loaded.model, device=loaded.device, dtype=loaded.dtype)
    with warnings_told() as warned, progress_bar("Drawing", hidden=told.hidden) as advance:
        found = explaining.explain(
            pipe, former, word, aim.at, pass_=aim.pass_, progress=advance, **aim.asked()
        )
    about = found.about
    name = f"{about.word} at {about.at[0]} {about.at[1]} {about.short} head {about.head} "
    folder = place.put(found.save, slug(f"{name}step {about.step}", 100))
    files = {"page": str(folder / "index.html"), "file": str(folder / "explain.json")}
    data = {"run": str(run), "folder": str(folder), **files, **found.summary(), "warnings": warned}
    told.tell(data, [str(folder)], lambda: print_explanation(folder, found))
    shown.open([str(folder)])


def print_explanation(folder: Path, found: "Explanation") -> None:
    """Print the row of P, and where the page is."""
    about, shown = found.about, found.shown
    padding = {one.position for one in found.tokens if one.kind == "pad"} - {*about.tokens}
    shares = {"P": shown.probabilities, **({"as edited": shown.acted} if about.rule else {})}
    scores = {"Q·K": shown.scores, "÷√d": shown.masked}
    columns = {**scores, **shares, "‖P·V W_O‖": shown.brought}
    rows = [
        (
            one.text,
            *(
                "hidden" if column[one.position] is None else f"{column[one.position]:.6g}"
                for column in columns.values()
            ),
        )
        for one in found.tokens
        if one.position not in padding
    ]
    every = {one.position for one in found.tokens}
    for name, some in ((f"{len(padding)} of padding", padding), ("sum", every)):
        sums = (f"{sum(share[position] for position in some):.6g}" for share in shares.values())
        rows += [(name, "", "", *sums, "")] if some else []
    where = (
        f"pixel {about.at[0]},{about.at[1]}; {about.short}, head {about.head}, step {about.step}"
    )
    names = ("token", *columns)
    print_table(names, rows, f"{about.word} at {where}", right=names[1:])
    say(printable(f"How it comes about: {folder / 'index.html'}"))
