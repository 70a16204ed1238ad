"""Options that several commands share, each declared once, and how their texts are read."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from heedmap import checks, options
from heedmap.errors import ArgumentError, HeedmapError
from heedmap.text import option_texts

_T = TypeVar("_T")


# --- how texts are read -----------------------------------------------------------------------


def reader(read: Callable[[str], _T]) -> Callable[[str], _T]:
    """Make a parser for Typer of a function: its errors become usage errors."""

    def parse(text: str) -> _T:
        try:
            return read(text)
        except (ValueError, HeedmapError) as error:
            raise typer.BadParameter(str(error)) from error

    return parse


def parse_range(text: str) -> slice:
    """Read `A:B` (from A up to, not including, B), `A:`, `:B`, or one number."""
    first, colon, last = (part.strip() for part in text.partition(":"))
    try:
        start, stop = (int(part) if part else None for part in (first, last))
    except ValueError:
        start = stop = None
    if start is None and stop is None:
        raise ValueError(f"{text!r}: expected a range A:B, as 0:10, or one number")
    return slice(start, stop) if colon or start is None else slice(start, start + 1 or None)


def parse_axes(text: str) -> tuple[str, ...]:
    """Read the axes that a recording keeps."""
    return checks.any_of(
        "keep", text if text == "all" else option_texts.names_in(text), options.AXES
    )


def parse_word_window(text: str) -> tuple[str, tuple[float, float]]:
    """Read `WORD=WINDOW`."""
    word, window = option_texts.assigned(text, "a word and its window", "cat=0.3")
    return word, option_texts.window_in(window)


def by_word(pairs: Sequence[tuple[str, _T]] | None, option: str) -> dict[str, _T]:
    """Make a mapping of the pairs that a repeated option gave."""
    found = dict(pairs or ())
    if len(found) < len(pairs or ()):
        raise ArgumentError(f"{option} names a word twice: expected each word once")
    return found


def word_or_number(text: str) -> str | int:
    """Read `#N` as the number of a word; any other text is a word or phrase."""
    try:
        return option_texts.word_in(text)
    except ValueError as error:
        raise ArgumentError(str(error)) from error


# --- models and sampling ----------------------------------------------------------------------

_MODEL = "A folder, a .safetensors file or a hub id. Default: the"
_SIZE = "In pixels, as 512x768, or 512 for a square. Default: the model's, or that of your image."
_KEEP = "Axes to keep for `inspect`: layer, step, head, with commas between; or all."
_CONCEPT = "Also map a word or phrase that PROMPT need not contain. May be repeated."

Prompt = Annotated[str, typer.Argument(metavar="PROMPT", help="The text of the image.")]
Model = Annotated[
    str | None, typer.Option("--model", "-m", help=f"{_MODEL} embedded model, offline.")
]
RunModel = Annotated[str | None, typer.Option("--model", "-m", help=f"{_MODEL} run's own model.")]
Device = Annotated[options.Device, typer.Option(help="Where to run.")]
Dtype = Annotated[options.Dtype, typer.Option(help="Precision.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Random seed. Default: random (printed).")]
Steps = Annotated[int | None, typer.Option(min=1, help="Denoising steps. Default: the model's.")]
Guidance = Annotated[
    float | None, typer.Option(min=0, help="Classifier-free guidance scale. Default: the model's.")
]
Size = Annotated[Any, typer.Option(parser=reader(option_texts.size_in), metavar="WxH", help=_SIZE)]
Negative = Annotated[str | None, typer.Option(help="Negative prompt.")]
Keep = Annotated[Any, typer.Option(parser=reader(parse_axes), metavar="AXES", help=_KEEP)]
Concepts = Annotated[list[str] | None, typer.Option(metavar="WORD", help=_CONCEPT)]

# --- edits ------------------------------------------------------------------------------------

_CROSS = "Part of the run in which the source's cross-attention is used: A:B, from 0 to 1, or B."
_SEVERAL = "Several, as 0,0.2,…,1, are each drawn."
_BY_KIND = "Default: by the kind of edit."
_WORDS = "Another --cross for a word of the target, as cat=0.3. May be repeated."
_ONLY = "Change only the region of these words, as 'cat->dog', and of their phrases ('red cat'); "
_ONLY += '\'"cat"->"dog"\' means the words alone.'
_PROTECT = "Also protect this word's region. Requires --only. May be repeated."
_IMAGE = "Edit this image (PNG, JPEG, WebP, BMP), which SOURCE describes."
_SELF = "--self-attention", "--self"
_window, _windows = reader(option_texts.window_in), reader(option_texts.windows_in)

Source = Annotated[str, typer.Argument(metavar="SOURCE", help="The prompt to edit.")]
Targets = Annotated[
    list[str] | None,
    typer.Argument(metavar="TARGET", help="What it becomes. Default: SOURCE with its weights."),
]
Cross = Annotated[Any, typer.Option(parser=_window, metavar="A:B", help=f"{_CROSS} {_BY_KIND}")]
SelfAttention = Annotated[
    Any, typer.Option(*_SELF, parser=_window, metavar="A:B", help="The same for self-attention.")
]
CrossWindows = Annotated[
    Any, typer.Option(parser=_windows, metavar="A:B", help=f"{_CROSS} {_SEVERAL} {_BY_KIND}")
]
SelfWindows = Annotated[
    Any, typer.Option(*_SELF, parser=_windows, metavar="A:B", help="The same for self-attention.")
]
WordWindows = Annotated[
    list[Any] | None,
    typer.Option(parser=reader(parse_word_window), metavar="WORD=A:B", help=_WORDS),
]
Renormalize = Annotated[
    bool, typer.Option("--renormalize", help="Normalize weighted attention to sum to 1.")
]
Kind = Annotated[
    Literal["auto", "replace", "refine"],
    typer.Option(help="Word for word, or with added words. auto: by aligning the prompts."),
]
Only = Annotated[str | None, typer.Option(metavar="A->B", help=_ONLY)]
Protect = Annotated[list[str] | None, typer.Option(metavar="WORD", help=_PROTECT)]
Threshold = Annotated[float, typer.Option(min=0, max=1, help="Threshold of the region of --only.")]
BlendFrom = Annotated[float, typer.Option(help="Fraction of the run from which --only acts.")]
SourceImage = Annotated[Path | None, typer.Option(help=_IMAGE)]
Batch = Annotated[
    int | None, typer.Option(min=2, help="Images at once. Default: as many as fit into memory.")
]

# --- saved runs and output --------------------------------------------------------------------

_WORD = "A word, a phrase, or #N for word N. May be repeated. Default: all."
_FORMAT = "Of figures; svg or pdf for papers."
_OF_CONCEPTS = "Use the maps of the run's concepts instead of its prompt's."

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a saved run.")]
Words = Annotated[list[str] | None, typer.Option("--word", "-w", help=_WORD)]
Format = Annotated[Literal["png", "svg", "pdf"], typer.Option("--format", help=_FORMAT)]
OfConcepts = Annotated[bool, typer.Option("--concepts", help=_OF_CONCEPTS)]
Open = Annotated[bool, typer.Option("--open", help="Open the result in the browser.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only what was saved.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def out_option(default: str) -> Any:
    """Declare `--out` with its default."""
    return typer.Option("--out", "-o", help=f"A new or an empty folder. Default: {default}.")


Out = Annotated[Path | None, out_option("a new one in outputs/")]
OutOfSeveral = Annotated[
    Path | None, out_option("a new one in outputs/. Of several results, the folder around them")
]
