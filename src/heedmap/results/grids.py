"""A grid: many edits of one source, on a contact sheet."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, structs

from heedmap.errors import format_number, plural, quoted
from heedmap.figures import plots
from heedmap.io import reading
from heedmap.io.schemas import (
    EditReport,
    GridReport,
    Note,
    Number,
    ResultFile,
    Text,
    Window,
)
from heedmap.io.writing import slug
from heedmap.page import pages
from heedmap.results import Result, json_part, within
from heedmap.results.edits import EditResult, read_blend
from heedmap.results.runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class CellRow(Note, frozen=True):
    """A cell of a grid in `grid.json`: all but what the edited run and the report have."""

    target: Text
    weights: Mapping[Text, Number]
    blended: bool
    report: EditReport


class GridFile(ResultFile, frozen=True):
    """The content of `grid.json`."""

    report: GridReport
    cells: Annotated[tuple[CellRow, ...], Meta(min_length=1)]


@dataclass(frozen=True, eq=False)
class Cell:
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

    number: int
    seed: int
    target: str
    weights: Mapping[str, float]
    cross_replace: Window
    self_replace: Window
    result: EditResult

    @property
    def folder(self) -> str:
        """The folder of the edited run within the grid's folder."""
        return f"cells/{self.number:03d}"

    def row(self) -> dict[str, Any]:
        """Return the place of the cell, and the effect of its edit, by names."""
        report = self.result.report
        row = {
            "cell": self.number,
            "seed": self.seed,
            "source": self.result.source.settings.prompt,
            "target": self.target,
            "prompt": self.result.edited.settings.prompt,
            **self._weights(),
            "cross_from": self.cross_replace[0],
            "cross_to": self.cross_replace[1],
            "self_from": self.self_replace[0],
            "self_to": self.self_replace[1],
            "kind": report.kind,
            "sites": report.sites,
            "self_sites": report.self_sites,
            "moved": report.moved,
        }
        for side, measures in structs.asdict(report.change).items():
            for name, value in structs.asdict(measures).items():
                row[f"{name}_{side}"] = value
        return {**row, "file": f"{self.folder}/image.png"}

    def _weights(self) -> dict[str, float]:
        return {f"weight of {word}": weight for word, weight in self.weights.items()}

    def place(self) -> dict[str, Any]:
        """Return the value of the cell on each axis, by the names of `Grid.axes`."""
        return {
            "seed": self.seed,
            "target": self.target,
            **self._weights(),
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

    Its folder has `grid.png` (the contact sheet), `index.html` (the page), `grid.json` (the
    arguments of the grid, and the report of each cell), and of each source and each edit a run that
    `heedmap inspect` and `Run.load` read: `sources/<seed>/` and `cells/<number>/`, with `blend.png`
    if it was blended.

    Attributes:
        cells: every combination once, the last axis fastest.
        report: the arguments of `grid` (`grid.report.source`, `.targets`, `.weights`,
            `.cross_replace`, `.self_replace`, `.seeds` and others).
    """

    cells: tuple[Cell, ...]
    report: GridReport

    def __repr__(self) -> str:
        return f"<Grid of {quoted(self.report.source)}: {len(self)} cells>"

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
        places = [cell.place() for cell in self.cells]
        axes: dict[str, list[Any]] = {}
        for name in places[0]:
            values = dict.fromkeys(place[name] for place in places)
            if len(values) > 1:
                axes[name] = list(values)
        return axes

    def rows(self) -> list[dict[str, Any]]:
        """Return the `row` of each cell, as for a table; a value is None if it is not defined.

        pandas.DataFrame(grid.rows()).to_csv("grid.csv")
        """
        return [cell.row() for cell in self.cells]

    def figure(self) -> "Figure":
        """Draw the contact sheet: the source and the longest axis in columns, others in rows."""
        columns, rows = self._layout()
        images: list[Any] = []
        for name, cells in rows:
            edited = [cell.result.edited.image for cell in cells]
            images.append((name, [cells[0].result.source.image, *edited]))
        cell = self.cells[0]
        varied = ("target", *self.axes)
        note = [
            label(name, value)
            for name, value in cell.place().items()
            if name not in varied
        ]
        settings = cell.result.source.settings
        if settings.steps is not None:
            note.append(plural(settings.steps, "step"))
        if settings.guidance is not None:
            note.append(f"guidance {settings.guidance:g}")
        note += ["{}×{}".format(*settings.size), settings.model]
        only = self.report.options.only
        if only:
            note.append(f"only {only}")
        return plots.draw_table(
            images,
            columns,
            title=self._title(),
            note=" · ".join(note),
        )

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
        rows: dict[str, list[Cell]] = {}
        columns: dict[str, None] = {}
        for cell in self.cells:
            place = cell.place()
            names = [label(name, place[name]) for name in axes if name != across]
            rows.setdefault(" · ".join(names), []).append(cell)
            columns[label(across, place[across])] = None
        return ["the source", *columns], list(rows.items())

    def _title(self) -> str:
        source = self.report.source
        targets = self.report.targets
        if len(targets) == 1 and targets[0] != source:
            return f"{source} → {targets[0]}"
        return source

    def explorer(self) -> str:
        """Return the page of the grid: the text of an HTML file that needs nothing else."""
        axes = self.axes
        columns, rows = self._layout()
        numbers = [
            (name, [None, *(cell.number - 1 for cell in cells)]) for name, cells in rows
        ]
        layout = {"columns": columns, "rows": numbers}
        pairs = [
            (" · ".join(label(name, cell.place()[name]) for name in axes), cell.result)
            for cell in self.cells
        ]
        return pages.pairs_page(
            pairs,
            title=self._title(),
            grid=layout,
        )

    def parts(self, overlays: bool) -> dict[str, Any]:
        """Return the content of each file by its path in the folder; None is left out."""
        parts: dict[str, Any] = {}
        if overlays:
            parts["grid.png"] = self.sheet()
            parts["index.html"] = self.explorer().encode()
        for seed, run in self.sources.items():
            parts |= within(f"sources/{seed}", run, overlays=False)
        cells: list[CellRow] = []
        for cell in self.cells:
            pair = cell.result
            parts |= within(cell.folder, pair.edited, overlays=False)
            parts[f"{cell.folder}/blend.png"] = pair.blend_image
            row = CellRow(
                cell.target,
                cell.weights,
                pair.blend is not None,
                pair.report,
            )
            cells.append(row)
        return parts | json_part(
            "grid.json",
            GridFile,
            parts,
            report=self.report,
            cells=cells,
        )

    @classmethod
    def read_files(cls, folder: Path) -> "Grid":
        """Read the files of a folder that `save` wrote."""
        file = reading.read_json(folder / "grid.json", GridFile)
        sources: dict[int, Run] = {}
        cells: list[Cell] = []
        for number, row in enumerate(file.cells, 1):
            place = folder / f"cells/{number:03d}"
            edited = Run.load(place)
            seed = edited.settings.seed
            if seed not in sources:
                sources[seed] = Run.load(folder / f"sources/{seed}")
            source = sources[seed]
            blend = read_blend(place, source) if row.blended else None
            pair = EditResult(
                source,
                edited,
                row.report,
                blend,
            )
            options = row.report.options
            cells.append(
                Cell(
                    number,
                    seed,
                    row.target,
                    row.weights,
                    options.cross_replace,
                    options.self_replace,
                    pair,
                )
            )
        return cls(tuple(cells), file.report)


def result_name(result: Run | EditResult | Grid) -> str:
    """Return the name of a new folder for a result: of its prompt and seed."""
    if isinstance(result, Grid):
        first, *_ = result.report.targets
        return f"{slug(f'grid {first}', 48)}-{result.cells[0].seed}"
    run = result.edited if isinstance(result, EditResult) else result
    return f"{slug(run.settings.prompt, 48)}-{run.settings.seed}"
