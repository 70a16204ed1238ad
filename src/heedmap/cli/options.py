"""What the verbs take: options that several share, and those that go together."""

import gc
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from heedmap import options
from heedmap.cli.console import loading, open_in_browser, print_json, print_lines
from heedmap.cli.interrupts import Interrupted
from heedmap.cli.parsing import (
    parse_axes,
    parse_model,
    parse_path,
    parse_single,
    parse_size,
    parse_word_window,
)
from heedmap.errors import ArgumentError, RunError, quoted
from heedmap.options import DrawOptions, EditOptions, LoadOptions

if TYPE_CHECKING:
    from heedmap.maps.heatmaps import HeatMaps
    from heedmap.results.runs import Run

Format = Annotated[
    Literal["png", "svg", "pdf"] | None,
    typer.Option("--format", help="Of figures: png, or svg or pdf for papers. Left out: png."),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        parser=parse_model,
        metavar="MODEL",
        help="A folder, a .safetensors file or a hub id. Left out: the embedded model, offline.",
    ),
]
Size = Annotated[
    Any,
    typer.Option(
        parser=parse_size,
        metavar="WxH",
        help="In pixels: 512x768, or 512 for a square. Left out: the model's, or for a picture of "
        "yours one with its proportions.",
    ),
]
Seed = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Left out: one by chance, and told.")
]
Keep = Annotated[
    Any,
    typer.Option(
        parser=parse_axes,
        metavar="AXES",
        help="What `inspect` can tell apart later: layer, step, head, with commas; or all.",
    ),
]
DeviceFlag = Annotated[options.Device, typer.Option(help="Where to run.")]
DtypeFlag = Annotated[options.Dtype, typer.Option(help="Precision.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, nothing else.")]
Concepts = Annotated[
    list[str] | None,
    typer.Option(
        metavar="WORD",
        help="Look for a word or phrase in the picture that PROMPT need not have; it changes "
        "nothing else; may be repeated.",
    ),
]
OfConcepts = Annotated[
    bool, typer.Option("--concepts", help="Of what was looked for beside the prompt.")
]


def maps_of(run: "Run", *, concepts: bool) -> "HeatMaps":
    """The maps of a run's prompt, or of what was looked for beside it.

    Raises:
        RunError: if nothing was looked for.
    """
    found = run.concepts if concepts else run.maps
    if found is None:
        raise RunError(
            "--concepts is given, and this run looked for none: expected one that was made with "
            "--concept WORD"
        )
    return found


def out_option(metavar: str, told: str) -> Any:
    """The option `--out`, as a verb explains it."""
    return typer.Option("--out", "-o", parser=parse_path, metavar=metavar, help=told)


# --- options that go together -----------------------------------------------------------------

_KEEP = ",".join(DrawOptions.keep)  # as a user writes it


@dataclass(frozen=True)
class LoadFlags:
    """Which model draws, and where."""

    model: Model = None
    device: DeviceFlag = LoadOptions.device
    dtype: DtypeFlag = LoadOptions.dtype

    def pipeline(self, *, hidden: bool) -> Any:
        """Load it, with a bar unless that is hidden."""
        with loading(self.model, hidden=hidden):
            from heedmap.models import pipelines

            pipe = pipelines.load(self.model, device=self.device, dtype=self.dtype)
        gc.freeze()  # modules and model stay to the end: to search them takes half a second
        return pipe


@dataclass(frozen=True)
class DrawFlags:
    """How it draws."""

    seed: Seed = None
    steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Denoising steps. Left out: the model's.")
    ] = DrawOptions.steps
    guidance: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="X", help="How strictly to follow the prompt. Left out: the model's."
        ),
    ] = DrawOptions.guidance
    size: Size = DrawOptions.size
    negative: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the pictures should not show.")
    ] = DrawOptions.negative
    keep: Keep = _KEEP

    def first_seed(self) -> int:
        """The seed, or one by chance."""
        import secrets

        return secrets.randbelow(2**31) if self.seed is None else self.seed

    def options(self) -> dict[str, Any]:
        """By their names in Python, but for the seed."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "seed"}


@dataclass(frozen=True)
class EditFlags:
    """What an edit takes from its source, and where it acts."""

    cross: Annotated[
        Any,
        typer.Option(
            parser=parse_single,
            metavar="A:B",
            help="While the source's cross-attention is taken, as parts of the run; B alone: from "
            "its start. Left out: by the kind of edit.",
        ),
    ] = EditOptions.cross
    own: Annotated[
        Any,
        typer.Option(
            "--self", parser=parse_single, metavar="A:B", help="The same of self-attention."
        ),
    ] = EditOptions.self_attention
    words: Annotated[
        list[Any] | None,
        typer.Option(
            parser=parse_word_window,
            metavar="WORD=A:B",
            help="Another --cross for a word of the target, as cat=0.3; may be repeated.",
        ),
    ] = None
    renormalize: Annotated[
        bool, typer.Option("--renormalize", help="Let weighted attention sum to 1 again.")
    ] = EditOptions.renormalize
    kind: Annotated[
        Literal["auto", "replace", "refine"],
        typer.Option(help="Word for word, or with words that are new. auto: by aligning them."),
    ] = "auto"
    only: Annotated[
        str | None,
        typer.Option(
            metavar="A->B",
            help="Change the picture only where these words act, as 'cat->dog', with those of "
            "their phrase ('red cat'); '\"cat\"->\"dog\"' means the words alone.",
        ),
    ] = EditOptions.only
    protect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORD", help="With --only: nor where this word acts; may be repeated."
        ),
    ] = None
    threshold: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="X",
            help="With --only: how much a word must act at a place, from 0 to 1.",
        ),
    ] = EditOptions.threshold
    blend_from: Annotated[
        float, typer.Option(metavar="X", help="With --only: from which part of the run on.")
    ] = EditOptions.blend_from
    image: Annotated[
        Path | None,
        typer.Option(
            parser=parse_path,
            metavar="IMAGE",
            help="Edit a picture of yours (PNG, JPEG, WebP, BMP), which SOURCE describes.",
        ),
    ] = EditOptions.image
    batch: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="N",
            help="So many pictures at once. Left out: as many as the memory holds.",
        ),
    ] = EditOptions.batch

    def options(self) -> dict[str, Any]:
        """By their names in Python, but for the windows `cross` and `self_attention`."""
        from heedmap.files import reading

        same = ("renormalize", "only", "threshold", "blend_from", "batch")
        return {
            "image": None if self.image is None else reading.read_photograph(self.image),
            "kind": None if self.kind == "auto" else self.kind,
            "words": by_word(self.words, "--words"),
            "protect": tuple(self.protect or ()),
            **{name: getattr(self, name) for name in same},
        }


@dataclass(frozen=True)
class SaveFlags:
    """Where the result goes."""

    out: Annotated[
        Path | None,
        out_option(
            "FOLDER",
            "A new or an empty one. Left out: a new one in outputs/. Of several results it is the "
            "one that holds them.",
        ),
    ] = None
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Replace what heedmap saved under that name before; what else lies there stays.",
        ),
    ] = False


@dataclass(frozen=True)
class PageFlags:
    """What is done with the page."""

    browser: Annotated[
        bool,
        typer.Option("--open", help="Open the page in the browser; of several results the first."),
    ] = False

    def open(self, folders: Sequence[str]) -> None:
        """Open the page of what was saved, if that was asked for."""
        if self.browser and folders:
            page = Path(folders[0]) / "index.html"
            open_in_browser(page.resolve().as_uri(), str(page))


@dataclass(frozen=True)
class OutputFlags:
    """What is printed."""

    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the folders, nothing else.")
    ] = False
    json: Json = False

    @property
    def hidden(self) -> bool:
        """Whether no bar is shown."""
        return self.quiet or self.json or not sys.stderr.isatty()

    def tell(
        self, data: Mapping[str, object], names: Iterable[str], show: Callable[[], None]
    ) -> None:
        """Print one JSON object, the names of what was saved, or what a person reads."""
        named = [*names]
        try:
            if self.json:
                print_json(data)
            elif self.quiet:
                print_lines(named)
            else:
                show()
        except KeyboardInterrupt as stop:
            raise Interrupted([Path(name) for name in named]) from stop


def grouped(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb as Typer reads it: each parameter that is a class of options is spelled out."""
    hints = get_type_hints(verb, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(verb).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name]))
            continue
        of_field = get_type_hints(groups[name], include_extras=True)
        parameters += [
            inspect.Parameter(
                one.name,
                parameter.KEYWORD_ONLY,
                default=parameter.empty if one.default is MISSING else one.default,
                annotation=of_field[one.name],
            )
            for one in fields(groups[name])
        ]

    @wraps(verb)
    def run(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{one.name: given.pop(one.name) for one in fields(kind)})
        verb(**given)

    run.__dict__["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def by_word(given: Sequence[tuple[str, Any]] | None, option: str) -> dict[str, Any]:
    """What was given for each word."""
    found: dict[str, Any] = {}
    for word, value in given or ():
        if word in found:
            raise ArgumentError(f"{option} has {quoted(word)} twice: give all of a word at once")
        found[word] = value
    return found
