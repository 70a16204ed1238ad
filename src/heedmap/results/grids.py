"""A grid: many edits of one source, on a contact sheet and in a table; and loading by folder."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, structs
from PIL import Image

from heedmap.errors import RunError, format_number, plural, quoted
from heedmap.figures import plots
from heedmap.figures.overlays import png
from heedmap.io import reading
from heedmap.io.schemas import (
    FORMAT,
    EditReport,
    GridReport,
    Name,
    Note,
    Number,
    Text,
    Whole,
    Window,
)
from heedmap.page import pages
from heedmap.results import Files, Result, write_json
from heedmap.results.edits import EditResult, read_mask
from heedmap.results.runs import Run, setting_texts

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Place(Note, frozen=True, kw_only=False):
    """The place of an edit in a grid, which its cell and its row in `grid.json` share."""

    number: Whole
    seed: Whole
    target: Text
    weights: Mapping[Text, Number]
    cross_replace: Window
    self_replace: Window


_PLACE = Place.__struct_fields__


class CellRow(Place, frozen=True, kw_only=True):
    """A cell of a grid in `grid.json`."""

    file: Name
    blended: bool
    report: EditReport


class GridFile(Note, frozen=True, kw_only=True):
    """The content of `grid.json`."""

    format: int = FORMAT
    files: Files
    report: GridReport
    cells: Annotated[tuple[CellRow, ...], Meta(min_length=1)]


class Cell(Place, frozen=True, kw_only=False, eq=False):
    """One edit, and its place in a grid.

    Attributes:
        number: the number of the cell, from 1; the last axis runs fastest.
        seed: the seed of the noise.
        target: the edited prompt, without the weights of the grid.
        weights: the weights of the grid, by word.
        cross_replace: the window of cross-attention, (start, end) as fractions of the run.
        self_replace: the window of self-attention.
        result: the source and the edit.
    """

    result: EditResult

    @property
    def folder(self) -> str:
        """The folder of the edited run within the grid's folder."""
        return f"cells/{self.number:03d}"

    def row(self) -> dict[str, Any]:
        """Return the row of `grid.csv`: the place of the cell, and the effect of its edit."""
        report = self.result.report
        return {
            "cell": self.number,
            "seed": self.seed,
            "source": self.result.source.settings.prompt,
            "target": self.target,
            "prompt": self.result.edited.settings.prompt,
            **{f"weight of {word}": weight for word, weight in self.weights.items()},
            **dict(zip(("cross_from", "cross_to"), self.cross_replace, strict=True)),
            **dict(zip(("self_from", "self_to"), self.self_replace, strict=True)),
            **{
                name: getattr(report, name)
                for name in ("kind", "sites", "self_sites", "moved")
            },
            **{
                f"{name}_{side}": value
                for side, change in structs.asdict(report.change).items()
                for name, value in structs.asdict(change).items()
            },
            "file": f"{self.folder}/image.png",
        }

    def place(self) -> dict[str, Any]:
        """Return the value of the cell on each axis, by the names of `Grid.axes`."""
        return {
            "seed": self.seed,
            "target": self.target,
            **{f"weight of {word}": weight for word, weight in self.weights.items()},
            "self_replace": self.self_replace,
            "cross_replace": self.cross_replace,
        }


def label(name: str, value: Any) -> str:
    """Return the label of a value on an axis."""
    if name == "target":
        return value
    if name == "seed":
        return f"seed {value}"
    if name.startswith("weight of "):
        return f"{name.removeprefix('weight of ')} ×{format_number(value)}"
    start, end = value
    window = f"{end:g}" if start == 0 else f"{start:g}–{end:g}"
    return f"{'cross' if name == 'cross_replace' else 'self'} {window}"


@dataclass(frozen=True, eq=False)
class Grid(Result):
    """Edits of one source over windows, weights, targets and seeds, made by `heedmap.grid`.

    Its folder has `grid.png` (the contact sheet), `index.html` (the page), `grid.csv` (a row for
    each cell), `grid.json` (the rows, and the arguments of the grid), and of each source and each
    edit a run that `heedmap inspect` and `Run.load` read: `sources/<seed>/` and `cells/<number>/`,
    with `blend.png` if it was blended.

    Attributes:
        cells: every combination once, the last axis fastest.
        report: the arguments of `grid` (`grid.report.source`, `.targets`, `.weights`,
            `.cross_replace`, `.self_replace`, `.seeds` and others), `.batch` (images in the largest
            batch) and `.sources_drawn` (the number of times that the source was computed).
    """

    cells: tuple[Cell, ...]
    report: GridReport

    def __repr__(self) -> str:
        over = ", ".join(
            f"{name} ({len(values)})" for name, values in self.axes.items()
        )
        cells = plural(len(self), "cell") + (f" over {over}" if over else "")
        return f"<Grid of {quoted(self.report.source)}: {cells}>"

    def __len__(self) -> int:
        return len(self.cells)

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.cells)

    @property
    def sources(self) -> dict[int, Run]:
        """The run of the source, by seed."""
        return {cell.seed: cell.result.source for cell in self.cells}

    @property
    def axes(self) -> dict[str, list[Any]]:
        """The axes that vary: "seed", "target", "weight of …", "self_replace", "cross_replace"."""
        values: dict[str, list[Any]] = {}
        for cell in self.cells:
            for name, value in cell.place().items():
                several = values.setdefault(name, [])
                if value not in several:
                    several.append(value)
        return {name: several for name, several in values.items() if len(several) > 1}

    def rows(self) -> list[dict[str, Any]]:
        """Return the row of each cell in `grid.csv`; a value is None if it is not defined."""
        return [cell.row() for cell in self.cells]

    def figure(self) -> "Figure":
        """Draw the contact sheet: the source and the longest axis in columns, others in rows."""
        columns, rows = self._layout()
        images = [
            (
                name,
                [
                    line[0].result.source.image,
                    *(cell.result.edited.image for cell in line),
                ],
            )
            for name, line in rows
        ]
        cell = self.cells[0]
        axes = self.axes
        fixed = [
            label(name, value)
            for name, value in cell.place().items()
            if name not in axes
        ]
        fixed = [text for text in fixed if text != cell.target]
        only = self.report.options.only
        texts = setting_texts(cell.result.source)
        fixed += [texts[name] for name in ("steps", "guidance", "size", "model")]
        if only:
            fixed.append(f"only {only}")
        note = " · ".join(filter(None, fixed))
        return plots.draw_table(images, columns, title=self._title(), note=note)

    def _layout(self) -> tuple[list[str], list[tuple[str, list[Cell]]]]:
        """Return the labels of the columns, and the label and the cells of each row.

        The longest axis is in the columns, but never the seeds: a row has one source.
        """
        axes = self.axes
        # Of axes of one length the one that changes an image in steps one can follow.
        across = max(
            (name for name in axes if name != "seed"),
            key=lambda name: (len(axes[name]), name != "target"),
            default="cross_replace",
        )
        down = [name for name in axes if name != across]
        lines: dict[tuple[Any, ...], list[Cell]] = {}
        for cell in self.cells:
            place = cell.place()
            lines.setdefault(tuple(place[name] for name in down), []).append(cell)
        columns = [
            label(across, cell.place()[across]) for cell in next(iter(lines.values()))
        ]
        rows = [
            (" · ".join(map(label, down, values)), line)
            for values, line in lines.items()
        ]
        return ["the source", *columns], rows

    def _title(self) -> str:
        cell = self.cells[0]
        axes = self.axes
        weights = any(name.startswith("weight of ") for name in axes)
        edited = cell.target if weights else cell.result.edited.settings.prompt
        source = cell.result.source.settings.prompt
        return (
            source if "target" in axes or edited == source else f"{source} → {edited}"
        )

    def explorer(self) -> str:
        """Return the page of the grid: the text of an HTML file that needs nothing else."""
        axes = self.axes
        columns, rows = self._layout()
        layout = {
            "columns": columns,
            "rows": [
                (name, [None, *(cell.number - 1 for cell in line)])
                for name, line in rows
            ],
        }
        pairs = [
            (" · ".join(label(name, cell.place()[name]) for name in axes), cell.result)
            for cell in self.cells
        ]
        return pages.pairs_page(pairs, title=self._title(), grid=layout)

    def write_files(self, folder: Path) -> None:
        """Write the files of the result to a folder."""
        (folder / "grid.png").write_bytes(png(self.sheet()))
        (folder / "index.html").write_text(self.explorer(), encoding="utf-8")
        rows = self.rows()
        with (folder / "grid.csv").open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            table.writeheader()
            table.writerows(rows)
        for seed, run in self.sources.items():
            run.write_files(folder / "sources" / str(seed), overlays=False)
        for cell in self.cells:
            cell.result.edited.write_files(folder / cell.folder, overlays=False)
            if cell.result.blend is not None:
                mask = png(Image.fromarray(cell.result.blend))
                (folder / cell.folder / "blend.png").write_bytes(mask)
        cells = tuple(
            CellRow(
                **{name: getattr(cell, name) for name in _PLACE},
                file=f"{cell.folder}/image.png",
                blended=cell.result.blend is not None,
                report=cell.result.report,
            )
            for cell in self.cells
        )
        write_json(folder / "grid.json", GridFile, report=self.report, cells=cells)

    @classmethod
    def read_files(cls, folder: Path) -> "Grid":
        """Read the files that `write_files` wrote to a folder."""
        file = reading.read_json(folder / "grid.json", GridFile)
        seeds = dict.fromkeys(row.seed for row in file.cells)
        sources = {seed: Run.load(folder / "sources" / str(seed)) for seed in seeds}
        cells: list[Cell] = []
        for row in file.cells:
            source = sources[row.seed]
            place = folder / "cells" / f"{row.number:03d}"
            edited = Run.load(place)
            mask = place / "blend.png"
            blend = read_mask(mask, source.image.size) if row.blended else None
            pair = EditResult(source, edited, row.report, blend)
            cells.append(
                Cell(**{name: getattr(row, name) for name in _PLACE}, result=pair)
            )
        return cls(tuple(cells), file.report)


def load_result(folder: str | Path) -> Run | EditResult | Grid:
    """Load the run, edit or grid in a folder; no model and no torch is loaded.

    Raises:
        RunError: if there is none, or something in it is broken.
    """
    folder = reading.path_of(folder)
    kinds = {"grid.json": Grid, "edit.json": EditResult, "run.json": Run}
    for name, kind in kinds.items():
        if (folder / name).is_file():
            return kind.load(folder)
    raise RunError(
        f"{folder} is not a run, edit or grid: expected a folder with run.json, edit.json or "
        "grid.json"
    )
