"""The texts, images and scales that a matplotlib figure shows."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image, ImageOps


@dataclass(frozen=True)
class Panel:
    caption: str
    note: str
    picture: Image.Image


@dataclass(frozen=True)
class FigureContent:
    """A figure's title, note and scales; its panels, or the columns and rows of its table."""

    title: str
    note: str
    scales: list[tuple[str, list[str]]]  # names and the texts of both ends
    panels: list[Panel]
    columns: list[str]
    rows: list[tuple[str, list[Image.Image | str]]]


def read_figure(figure: Figure) -> FigureContent:
    title, note = (text.get_text() for text in figure.texts[:2])
    scales = [ax for ax in figure.axes if ax.get_title(loc="left")]
    others = [ax for ax in figure.axes if ax not in scales]
    columns, rows = _table(others[0]) if len(others[0].get_xticks()) else ([], [])
    return FigureContent(
        _line(title),
        _line(note),
        [(_line(ax.get_title(loc="left"))[7:], _labels(ax.get_xticklabels())) for ax in scales],
        [] if rows else [_panel(ax) for ax in others],
        columns,
        rows,
    )


def ends(low: float, high: float) -> list[str]:
    """The texts of a scale's ends."""
    return [f"{value:.3g}".replace("-", "−") for value in (low, high)]


def shows(picture: Image.Image, expected: Image.Image) -> bool:
    """Whether a picture in a figure is the expected one, resized to fit and but for its outline."""
    expected = expected.convert("RGB")
    fitted = ImageOps.contain(expected, picture.size, Image.Resampling.LANCZOS)
    x, y = ((a - b) // 2 for a, b in zip(picture.size, fitted.size, strict=True))
    if max(x, y) == 0:  # at most one pixel off
        fitted = expected.resize(picture.size, Image.Resampling.LANCZOS)
    inner = (x + 1, y + 1, x + fitted.width - 1, y + fitted.height - 1)
    wanted = np.asarray(fitted)[1:-1, 1:-1]
    return np.array_equal(np.asarray(picture.crop(inner)), wanted)


def _line(text: str) -> str:
    """A wrapped text as one line."""
    return " ".join(text.replace("-\n", "-").split())


def _labels(ticks) -> list[str]:
    return [_line(tick.get_text()) for tick in ticks]


def _image(ax: Axes) -> Image.Image:
    return Image.fromarray(np.asarray(ax.images[0].get_array())).convert("RGB")


def _panel(ax: Axes) -> Panel:
    return Panel(_line(ax.get_xlabel()), _line(ax.texts[0].get_text()), _image(ax))


def _table(ax: Axes) -> tuple[list[str], list[tuple[str, list[Image.Image | str]]]]:
    xs, ys, whole = ax.get_xticks(), ax.get_yticks(), _image(ax)
    rows = [
        [_cell(whole.crop((x - xs[0], y - ys[0], x + xs[0], y + ys[0]))) for x in xs.tolist()]
        for y in ys.tolist()
    ]
    return _labels(ax.get_xticklabels()), list(
        zip(_labels(ax.get_yticklabels()), rows, strict=True)
    )


def _cell(image: Image.Image) -> Image.Image | str:
    """The image of a cell; an empty text where the table is blank."""
    return "" if {low for low, _ in image.getextrema()} == {255} else image  # pyright: ignore
