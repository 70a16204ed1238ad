"""The command line: thin, one function a verb.

Only Typer is imported here; a verb imports what it uses when it runs, so that `--help` is instant,
`words` loads no torch and `inspect` no diffusers. Results go to stdout, progress and errors to
stderr. A `HeedmapError` ends in its sentence and exit code 2, an interrupt in 130.
"""

import os
import secrets
import sys
import warnings
from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from typer.core import TyperGroup

from heedmap.errors import ArgumentError, HeedmapError, RunError

if TYPE_CHECKING:
    from heedmap.dimensions import LayerShapes
    from heedmap.maps import HeatMap, HeatMaps
    from heedmap.pairs import Pair
    from heedmap.runs import Run
    from heedmap.words import TokenTable

__all__ = ["app", "main"]

AXES = ("layer", "step", "head")
SELECTABLE = ("layers", "steps", "heads")


class Verbs(TyperGroup):
    """The verbs; whatever a user can cause ends in one sentence on stderr and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except HeedmapError as error:
            fail(str(error))
        except OSError as error:
            if isinstance(error, BrokenPipeError):  # `| head`: Typer ends it quietly
                raise
            reason = error.strerror or str(error) or type(error).__name__
            fail(f"{reason}: {os.fspath(error.filename)}" if error.filename else reason)
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and "out of memory" not in str(error).lower():
                raise
            fail("Out of memory; try a smaller --size or --count, or --dtype float16.")


app = typer.Typer(
    cls=Verbs,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # frames leave the options' texts a third of the line
    context_settings={"help_option_names": ["-h", "--help"]},
)


# --- options ----------------------------------------------------------------------------------


def parse_size(text: str) -> tuple[int, int]:
    """Read `WxH`, in pixels."""
    width, cross, height = text.lower().replace("×", "x").partition("x")
    if not (cross and width.strip().isdecimal() and height.strip().isdecimal()):
        raise typer.BadParameter(f"{text!r} is not WxH in pixels, such as 512x768.")
    return int(width), int(height)


def parse_range(text: str) -> slice:
    """Read `a:b` (from a up to, not including, b), `a:`, `:b`, or one number."""
    first, colon, last = (part.strip() for part in text.partition(":"))
    try:
        start, stop = (int(part) if part else None for part in (first, last))
    except ValueError:
        start = stop = None
    if start is None and stop is None:
        raise typer.BadParameter(
            f"{text!r} is not a range of steps; write a:b (0:10 are the first ten) or one number."
        )
    if not colon and start is not None:
        return slice(start, start + 1 or None)
    return slice(start, stop)


def show_range(steps: slice) -> str:
    """Write a range as `parse_range` reads it."""
    return ":".join("" if bound is None else str(bound) for bound in (steps.start, steps.stop))


def parse_window(text: str) -> tuple[float, float]:
    """Read `a:b`, fractions of a run, or one: up to which."""
    first, colon, last = text.partition(":")
    try:
        low, high = (float(first), float(last)) if colon else (0.0, float(first))
    except ValueError:
        low = high = float("nan")
    if not 0 <= low <= high <= 1:
        raise typer.BadParameter(
            f"{text!r} is no part of a run; write its end, such as 0.8, or A:B with both from 0 "
            "to 1."
        )
    return low, high


def parse_numbers(text: str) -> list[int]:
    """Read whole numbers with commas between them."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a list of whole numbers; write them with commas, such as 0,2."
        ) from None


def parse_names(text: str) -> list[str]:
    """Read names with commas between them."""
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_axes(text: str) -> frozenset[str]:
    """Read the axes that a recording keeps."""
    axes = frozenset(part.strip() for part in text.split(",") if part.strip())
    if strange := axes - set(AXES):
        raise typer.BadParameter(f"{min(strange)!r} is no axis; there are {', '.join(AXES)}.")
    return axes


Prompt = Annotated[str, typer.Argument(metavar="PROMPT", help="What to draw.")]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="A folder or a hub id. Left out: the embedded model, offline.",
    ),
]
Size = Annotated[
    Any,
    typer.Option(
        parser=parse_size, metavar="WxH", help="In pixels, as 512x768. Left out: the model's."
    ),
]
Device = Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to run.")]
Dtype = Annotated[
    Literal["auto", "float32", "float16", "bfloat16"], typer.Option(help="Precision.")
]
Seed = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Left out: one by chance, and told.")
]
Steps = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Denoising steps. Left out: the model's.")
]
Guidance = Annotated[
    float | None,
    typer.Option(
        min=0, metavar="X", help="How strictly to follow the prompt. Left out: the model's."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the folders, nothing else.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, nothing else.")]


def print_version(wanted: bool) -> None:
    """Print the version and leave."""
    if wanted:
        import heedmap

        typer.echo(f"heedmap {heedmap.__version__}")
        raise typer.Exit


@app.callback()
def heedmap_(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """See where each word of a prompt acts in a Stable Diffusion picture."""


# --- verbs ------------------------------------------------------------------------------------


@app.command()
def generate(
    prompt: Prompt,
    model: Model = None,
    seed: Seed = None,
    steps: Steps = None,
    guidance: Guidance = None,
    size: Size = None,
    negative: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the picture should not show.")
    ] = None,
    count: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="So many pictures, of the seeds from --seed on."),
    ] = 1,
    keep: Annotated[
        Any,
        typer.Option(
            parser=parse_axes,
            metavar="AXES",
            help="What `inspect` can tell apart later: layer, step, head, with commas.",
        ),
    ] = "layer",
    device: Device = "auto",
    dtype: Dtype = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            help="Left out: a new one in outputs/. With --count: the one that holds the runs.",
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Draw PROMPT and show where each word acted.

    Saves the picture, an overlay for each word, a sheet of them all, the maps and the settings.
    """
    fixed = out if count == 1 else None  # the run's own folder, where one was named
    root = out if out is not None and fixed is None else Path("outputs")
    check_writable(fixed or root, holds_runs=fixed is None)
    saved: list[tuple[dict[str, Any], TokenTable]] = []
    hidden = quiet or json or not sys.stderr.isatty()
    with loading(model, hidden=hidden):
        from heedmap import models, runs, studio

        pipe = models.load(model, device=device, dtype=dtype)
    with progress_bar("Drawing", hidden=hidden) as advance:
        first = secrets.randbelow(2**31) if seed is None else seed
        for number in range(count):  # one by one: the pictures are those of the seeds alone

            def report(step: int, total: int, before: int = number) -> None:
                advance(before * total + step, count * total)

            run = studio.generate(
                pipe,
                prompt,
                seed=first + number,
                steps=steps,
                guidance=guidance,
                size=size,
                negative=negative,
                keep=keep,
                progress=report,
            )
            folder = fixed or runs.default_folder(prompt, first + number, root)
            saved.append((about_run(run.save(folder), run), run.maps.tokens))
    if json:
        print_json({"runs": [about for about, _ in saved]})
    elif quiet:
        print_lines(about["folder"] for about, _ in saved)
    else:
        for about, tokens in saved:
            print_run(about)
            print_unread(tokens)


@app.command()
def edit(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The prompt that is edited.")],
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET]...",
            help="What it shall become. Left out: SOURCE with its weights, as (word:1.5).",
        ),
    ] = None,
    model: Model = None,
    seed: Seed = None,
    steps: Steps = None,
    guidance: Guidance = None,
    size: Size = None,
    negative: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the pictures should not show.")
    ] = None,
    cross: Annotated[
        Any,
        typer.Option(
            parser=parse_window,
            metavar="A:B",
            help="While the source's cross-attention is taken, as parts of the run; B alone: from "
            "its start.",
        ),
    ] = "0.8",
    own: Annotated[
        Any,
        typer.Option(
            "--self", parser=parse_window, metavar="A:B", help="The same of self-attention."
        ),
    ] = "0.4",
    kind: Annotated[
        Literal["auto", "replace", "refine"],
        typer.Option(help="Word for word, or with words that are new. auto: by aligning them."),
    ] = "auto",
    only: Annotated[
        str | None,
        typer.Option(
            metavar="A->B", help="Change the picture only where these words act, as 'cat->dog'."
        ),
    ] = None,
    protect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORD", help="With --only: nor where this word acts; may be repeated."
        ),
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            help="Left out: a new one in outputs/. With several targets: the one that holds them.",
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Draw SOURCE and what it becomes when words are changed.

    Both from one noise, and with the source's attention for the words that stay. Saves both
    pictures with their maps, their difference, a sheet of all and the figures.
    """
    asked = targets or [source]
    fixed = out if len(asked) == 1 else None  # the pair's own folder, where one was named
    root = out if out is not None and fixed is None else Path("outputs")
    check_writable(fixed or root, holds_runs=fixed is None, mark="pair.json", what="an edit")
    hidden = quiet or json or not sys.stderr.isatty()
    with loading(model, hidden=hidden):
        from heedmap import editing, models, runs

        pipe = models.load(model, device=device, dtype=dtype)
    first = secrets.randbelow(2**31) if seed is None else seed
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("always", message="the edit ", category=UserWarning)
        with progress_bar("Drawing", hidden=hidden) as advance:
            pairs = editing.edit(
                pipe,
                source,
                asked if targets else None,
                kind=None if kind == "auto" else kind,
                cross=cross,
                self_attention=own,
                only=only,
                protect=protect or (),
                seed=first,
                steps=steps,
                guidance=guidance,
                size=size,
                negative=negative,
                progress=advance,
            )
    saved: list[dict[str, Any]] = []
    for text, pair in zip(asked, pairs if isinstance(pairs, list) else [pairs], strict=True):
        folder = fixed or runs.default_folder(text, first, root)
        saved.append(about_pair(pair.save(folder), pair))
    for warning in told:
        typer.echo(f"Warning: {printable(str(warning.message))}", err=True)
    if json:
        print_json({"edits": saved})
    elif quiet:
        print_lines(about["folder"] for about in saved)
    else:
        for about in saved:
            print_pair(about)


@app.command()
def inspect(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a saved run.")],
    word: Annotated[
        list[str] | None,
        typer.Option(
            "--word",
            "-w",
            metavar="WORD",
            help="A word, a phrase, or #N for word N; may be repeated. Left out: every word.",
        ),
    ] = None,
    layers: Annotated[
        Any,
        typer.Option(
            parser=parse_names,
            metavar="NAMES",
            help="down, mid, up, a layer, or a pattern with *; commas between.",
        ),
    ] = None,
    steps: Annotated[
        Any, typer.Option(parser=parse_range, metavar="A:B", help="Steps A up to B, as 0:10.")
    ] = None,
    heads: Annotated[
        Any, typer.Option(parser=parse_numbers, metavar="N,N", help="Attention heads, as 0,2.")
    ] = None,
    scale: Annotated[
        Literal["shared", "word", "raw"],
        typer.Option(
            help="Colours by one scale for all words, by each word's own, or from 0 to 1."
        ),
    ] = "shared",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FOLDER", help="Left out: one in RUN/inspect, by selection."
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Look at other words, layers, steps or heads of a saved run.

    No model is loaded. Saves overlays and a sheet of what was selected.
    """
    from heedmap import runs

    whole = runs.Run.load(run)
    maps = whole.maps
    if not (layers is steps is heads is None):
        maps = maps.select(layers=layers, steps=steps, heads=heads)
    chosen = look_up(maps, word)
    selection = {
        "words": word,
        "layers": layers,
        "steps": None if steps is None else show_range(steps),
        "heads": heads,
        "scale": scale,
    }
    folder = out or run / "inspect" / selection_name(selection)
    about = {
        "run": str(run),
        "folder": str(folder),
        "prompt": maps.tokens.prompt,
        "selection": {name: value for name, value in selection.items() if value is not None},
        "layers": [layer.name for layer in maps.layers],
        "sheet": str(folder / "sheet.png"),
        "words": [
            {
                "word": heat.label,
                "most": round(float(heat.values.max()), 6),
                "mean": round(float(heat.values.mean()), 6),
                "peak": list(heat.peak),
                "file": str(folder / file),
            }
            for file, heat in chosen.items()
        ],
    }
    with runs.whole_folder(folder, mark="inspect.json", what="a selection of a run") as partial:
        sheet = runs.sheet_of(maps, list(chosen.values()), maps.tokens.prompt, scale=scale)
        sheet.save(partial / "sheet.png")
        (partial / "words").mkdir()
        for file, heat in chosen.items():
            heat.overlay(scale=scale).save(partial / file)
        (partial / "inspect.json").write_text(dumps(about) + "\n", encoding="utf-8")
    if json:
        print_json(about)
    elif quiet:
        print_lines([str(folder)])
    else:
        print_inspection(folder, about)


@app.command()
def words(
    prompt: Prompt,
    model: Model = None,
    json: Json = False,
) -> None:
    """Print the tokens that each word of PROMPT becomes.

    And which words are past what the model reads.
    """
    from heedmap import models
    from heedmap.tokens import tokenize

    table = tokenize(prompt, models.tokenizer(model))
    if json:
        print_json(table.to_dict())
    else:
        print_tokens(table)


@app.command()
def layers(
    model: Model = None,
    size: Size = None,
    layer: Annotated[
        str | None,
        typer.Option(
            "--layer",
            "-l",
            metavar="NAME",
            help="Which to follow from X to Y: down, mid, up, a layer, or a pattern with *. "
            "Left out: the first.",
        ),
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    json: Json = False,
) -> None:
    """Print the shapes in every cross-attention layer of a model.

    Of Q, K, V, the scores and the output: measured while the model takes one step.
    """
    hidden = json or not sys.stderr.isatty()
    with loading(model, hidden=hidden):
        from heedmap import dimensions, models

        pipe = models.load(model, device=device, dtype=dtype)
    pipe.set_progress_bar_config(disable=True)
    with progress_bar("Taking one step", hidden=hidden):
        found = dimensions.layer_shapes(pipe, size=size)
    chosen = found[:1] if layer is None else dimensions.pick(found, layer)
    drawn = size or models.own_size(pipe)
    if json:
        listed = found if layer is None else chosen
        about = {"model": models.name_of(pipe), "size": drawn}
        print_json({**about, "layers": [one.to_dict() for one in listed]})
    else:
        print_layers(
            f"{models.name_of(pipe)}, {'{}×{}'.format(*drawn)} pixels: "
            f"{plural(len(found), 'layer')} of cross-attention",
            found,
            chosen,
        )


# --- what is selected, and where it is saved --------------------------------------------------


def look_up(maps: "HeatMaps", queries: Sequence[str] | None) -> "dict[str, HeatMap]":
    """The maps asked for, by the name of their file; of every word if nothing is."""
    from heedmap.runs import slug, word_file

    if not queries:
        return {word_file(word): maps.at(word.number) for word in maps.words}
    chosen: dict[str, HeatMap] = {}
    for query in dict.fromkeys(queries):
        if query.startswith("#"):
            number = query[1:].strip()
            if not number.isdecimal():
                raise ArgumentError(f"'#' is followed by the number of a word; got {query!r}.")
            word = maps.tokens.at(int(number))
            chosen[word_file(word)] = maps.at(word.number)
        else:
            name = f"words/{slug(query, 40)}"
            while f"{name}.png" in chosen:  # what has no letters has no name of its own
                name += "-"
            chosen[f"{name}.png"] = maps[query]
    return chosen


def selection_name(selection: Mapping[str, Any]) -> str:
    """The name of the folder for a selection: what is not as usual."""
    from heedmap.runs import slug

    parts = [*(selection["words"] or ["all"])]
    for axis in SELECTABLE:
        value = selection[axis]
        if value is not None:
            parts.append(f"{axis} {value if isinstance(value, str) else ' '.join(map(str, value))}")
    if selection["scale"] != "shared":
        parts.append(f"{selection['scale']} scale")
    return slug(" ".join(parts), 100)


def check_writable(
    folder: Path, *, holds_runs: bool, mark: str = "run.json", what: str = "a run"
) -> None:
    """Raise before anything is computed if a run could not be saved in the end."""
    if folder.exists() and not (holds_runs or (folder / mark).is_file()):
        raise RunError(f"{folder} exists and is not {what} of heedmap; choose another --out.")
    there = folder if holds_runs else folder.absolute().parent
    while not there.exists():
        there = there.absolute().parent
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise RunError(f"Nothing can be written to {there}; choose another --out.")


# --- what is printed --------------------------------------------------------------------------


def fail(sentence: str) -> NoReturn:
    """Say what went wrong, in one line on stderr, and leave with exit code 2."""
    error = typer.style("Error:", fg="red", bold=True) if sys.stderr.isatty() else "Error:"
    typer.echo(f"{error} {printable(' '.join(sentence.split()))}", err=True)
    raise typer.Exit(2)


def printable(text: str) -> str:
    """Text with its control characters spelled out: a prompt must not steer the terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def dumps(data: Mapping[str, object]) -> str:
    """JSON on one line."""
    import json  # not at the top: there `json` is the name of an option

    return json.dumps(data)


def print_json(data: Mapping[str, object]) -> None:
    """Print one JSON object."""
    typer.echo(dumps(data))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines, such as the names of folders."""
    for line in lines:
        typer.echo(printable(line))


def about_run(folder: Path, run: "Run") -> dict[str, Any]:
    """What `generate --json` says of a run."""
    from heedmap.runs import word_file

    told = ("prompt", "seed", "steps", "guidance", "size", "model")
    files = {
        "image": "image.png",
        "sheet": "sheet.png",
        "maps": "maps.safetensors",
        "settings": "run.json",
    }
    return {
        "folder": str(folder),
        **{name: run.settings[name] for name in told},
        **{name: str(folder / file) for name, file in files.items()},
        "words": [
            {"number": word.number, "word": word.text, "file": str(folder / word_file(word))}
            for word in run.maps.words
        ],
    }


def print_run(about: Mapping[str, Any]) -> None:
    """Print what was saved: each file and what it is."""
    size = "×".join(map(str, about["size"]))
    files = {
        about["image"]: f"the picture: {size}, seed {about['seed']}, {about['steps']} steps",
        about["sheet"]: "the picture and where each word acted, on one scale",
        **{word["file"]: f"where “{word['word']}” acted" for word in about["words"]},
        about["maps"]: "the maps, for `heedmap inspect`",
        about["settings"]: "all that is needed to draw it again",
    }
    rows = [(Path(file).relative_to(about["folder"]).as_posix(), files[file]) for file in files]
    print_table(("file", "what it is"), rows, title=about["folder"])


def about_pair(folder: Path, pair: "Pair") -> dict[str, Any]:
    """What `edit --json` says of a pair."""
    settings, names = pair.edited.settings, ("seed", "steps", "guidance", "size", "model")
    files = {
        "source_image": "source/image.png",
        "edited_image": "edited/image.png",
        "sheet": "sheet.png",
        "difference": "difference.png",
        **({} if pair.blend is None else {"blend": "blend.png"}),
        "figures": "pair.json",
    }
    return {
        "folder": str(folder),
        "source": pair.source.settings["prompt"],
        "edited": settings["prompt"],
        **{name: settings[name] for name in names},
        "files": {name: str(folder / file) for name, file in files.items()},
        "about": pair.about,
    }


def print_pair(about: Mapping[str, Any]) -> None:
    """Print what was saved of an edit, what it was, and how much it changed."""
    size = "×".join(map(str, about["size"]))
    drawn = f"{size}, seed {about['seed']}, {about['steps']} steps"
    what = {
        "source_image": f"“{about['source']}”: {drawn}",
        "edited_image": f"“{about['edited']}”, from the same noise",
        "sheet": "both, their difference, and where the changed words acted",
        "difference": "how much each pixel changed",
        "blend": "where the edit was let in",
        "figures": "the figures, and how it was edited",
    }
    rows = [
        (Path(file).relative_to(about["folder"]).as_posix(), what[name])
        for name, file in about["files"].items()
    ]
    print_table(("file", "what it is"), rows, title=about["folder"])
    found, where = about["about"], "the mask" if about["about"]["only"] else "the changed words"
    figures = [
        (
            f"{side} of {where}",
            f"{change['share']:.0%}",
            *(
                "-" if change[name] is None else f"{change[name]:{form}}"
                for name, form in (("mse", ".2g"), ("psnr_db", ".1f"), ("ssim", ".2f"))
            ),
        )
        for side, change in found["change"].items()
    ]
    columns = ("change", "of the picture", "MSE", "PSNR (dB)", "SSIM")
    print_table(columns, figures, right=columns[1:])
    kind, sites = found["kind"].capitalize(), plural(found["sites"], "site")
    typer.echo(f"{kind}: {printable(found['why'])}.")
    typer.echo(
        f"The rules acted at {sites} and moved {found['moved']:.1%} of the attention; "
        f"self-attention was the source's at {found['self_sites']}."
    )


def print_inspection(folder: Path, about: Mapping[str, Any]) -> None:
    """Print what `inspect` found: how much each word drew, and where most."""
    rows = [
        (
            word["word"],
            f"{word['most']:.3f}",
            f"{word['mean']:.3f}",
            "{}, {}".format(*word["peak"]),
            Path(word["file"]).relative_to(folder).as_posix(),
        )
        for word in about["words"]
    ]
    print_table(("word", "most", "mean", "hottest at", "file"), rows, title=str(folder))
    chosen = [
        f"{axis} {value if isinstance(value, str) else ', '.join(map(str, value))}"
        for axis, value in about["selection"].items()
        if axis in SELECTABLE
    ]
    typer.echo(
        f"Shares of attention, averaged over {plural(len(about['layers']), 'layer')}"
        f"{printable('; '.join(['', *chosen]))}. The words together: sheet.png"
    )


def print_layers(
    title: str, layers: "Sequence[LayerShapes]", followed: "Sequence[LayerShapes]"
) -> None:
    """Print the shapes of all layers, and some of them line by line."""
    from heedmap.dimensions import short_names

    columns = {
        "grid": [layer.grid for layer in layers],
        "heads": [(layer.heads, layer.head_query[1]) for layer in layers],
        "Q": [layer.query for layer in layers],
        "K, V": [layer.key for layer in layers],
        "scores": [layer.scores for layer in layers],
        "output": [layer.output for layer in layers],
    }
    if columns["Q"] == columns["output"]:  # as in all that are known: then the table is narrower
        columns = {"Q, output" if name == "Q" else name: columns[name] for name in columns}
        del columns["output"]
    names = [layer.name for layer in layers]
    shapes = [
        ["{}×{}".format(*pair) for pair in row] for row in zip(*columns.values(), strict=True)
    ]
    rows, shorter = (
        [(name, *row) for name, row in zip(column, shapes, strict=True)]
        for column in (names, short_names(names))
    )
    print_table(("layer", *columns), rows, title, right=columns, shorter=shorter)
    typer.echo("Heads: number × channels. Scores: of one head. Q, K, V and output: of all.")
    for layer in followed:
        chain = layer.chain()
        left, right = (max(len(str(shape[side])) for *_, shape in chain) for side in (0, 1))
        lines = [(what, how, f"{n:{left}} × {m:<{right}}") for what, how, (n, m) in chain]
        typer.echo()
        print_table(("", "made of", "shape"), lines, layer.name)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    title: str = "",
    *,
    right: Container[str] = ("#",),
    shorter: Iterable[Sequence[str]] | None = None,
) -> None:
    """Print a table: framed to fit at a terminal, plain and whole in a pipe.

    Args:
        columns: their headings.
        rows: a cell for each column.
        title: a line above.
        right: which columns stand at the right.
        shorter: what to print instead of `rows` where the terminal is too narrow for these.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    framed = console.is_terminal
    if not framed:
        console.width = 1_000_000  # nothing is folded: a program may read it

    def made(rows: Iterable[Sequence[str]]) -> Table:
        table = Table(
            box=box.SIMPLE_HEAD if framed else None,
            pad_edge=framed,
            collapse_padding=framed,
        )
        for column in columns:
            justify = "right" if column in right else "left"
            table.add_column(column, justify=justify, overflow="fold")
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        return table

    table = made(rows)
    if shorter is not None:
        room = console.options.update(max_width=1_000_000)
        if console.measure(table, options=room).maximum > console.width:
            table = made(shorter)
    if title:
        console.print(Text(printable(title), style="bold"), soft_wrap=True)
    console.print(table)


def print_tokens(table: "TokenTable") -> None:
    """Print the words of a prompt and the tokens the model reads of them."""
    texts = {token.position: token.text for token in table.tokens}
    rows = [
        (
            str(word.number),
            word.text,
            " ".join(texts[position] for position in word.tokens) or "-",
            ", ".join(map(str, word.tokens)) or "-",
            "yes" if not word.missing else "in part" if word.tokens else "no",
        )
        for word in table.words
    ]
    print_table(("#", "word", "tokens", "positions", "read"), rows)
    count, room = len(table.positions("text")), len(table.positions("text", "pad"))
    typer.echo(f"{plural(count, 'token')} of the {room} that the model can read.")
    print_unread(table)


def print_unread(table: "TokenTable") -> None:
    """Print what of a prompt the model did not read, if there is such."""
    if table.missing:
        since = f": all from {table.cut.text!r} (word {table.cut.number}) on" if table.cut else ""
        more = plural(table.missing, "more token")
        typer.echo(f"{more} {'are' if table.missing > 1 else 'is'} not read{printable(since)}.")


def plural(count: int, thing: str) -> str:
    """A count and its noun."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


@contextmanager
def loading(model: str | None, *, hidden: bool) -> Generator[None]:
    """Show that a model is being loaded: by a bar, or by the hub's own while it downloads."""
    local = model is None or Path(model).exists()
    if hidden or local:
        os.environ.setdefault("TQDM_DISABLE", "1")
    with progress_bar("Loading the model", hidden=hidden or not local):
        yield


@contextmanager
def progress_bar(label: str, *, hidden: bool) -> Generator[Callable[[int, int], None]]:
    """Show a bar on stderr while the block runs, gone when it is done.

    Yields:
        A function to be called with how much is done, and how much there is in all.
    """
    if hidden:
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


# --- running ----------------------------------------------------------------------------------


def main() -> None:
    """Run the command line."""
    # What the libraries below have to say is for programmers; errors come through as exceptions.
    for library in ("DIFFUSERS", "TRANSFORMERS"):
        os.environ.setdefault(f"{library}_VERBOSITY", "error")
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a prompt may hold what the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="heedmap")


if __name__ == "__main__":
    main()
