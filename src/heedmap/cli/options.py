"""What the verbs take: the options that several share, and how their texts are read."""

from typing import Annotated, Any, Literal

import typer

AXES = ("layer", "step", "head")


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
