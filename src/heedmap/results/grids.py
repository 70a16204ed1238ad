"""Many edits of one source: a contact sheet, the figures of each, on disk too."""

import csv
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from heedmap.errors import RunError, plural, quoted, signed
from heedmap.figures import plots
from heedmap.figures.overlays import png
from heedmap.io import reading, schemas
from heedmap.io.reports import GridReport, returned
from heedmap.io.writing import files_in, whole_folder
from heedmap.page import pages
from heedmap.results.pairs import Pair, read_mask
from heedmap.results.runs import Run, read_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Cell:
    """One edit of a grid, and where in the grid it stands.

    Attributes:
        number: counts the cells from 1, in the order in which the last axis runs fastest.
        seed: of its noise.
        target: the prompt that was asked for, without the weights that the grid tries out.
        weights: these, by word.
        cross: while the source's cross-attention was taken (from, up to), of the run.
        self_attention: while its self-attention was.
        pair: the source and the edit, with the evidence.
    """

    number: int
    seed: int
    target: str
    weights: Mapping[str, float]
    cross: tuple[float, float]
    self_attention: tuple[float, float]
    pair: Pair

    def __repr__(self) -> str:
        place = [quoted(label(*one))[1:-1] for one in self.place().items() if one[0] != "target"]
        return f"<Cell {self.number} {quoted(self.target)}: {', '.join(place)}>"

    @property
    def folder(self) -> str:
        """Where its run is within the grid's folder."""
        return f"cells/{self.number:03d}"

    def row(self) -> dict[str, Any]:
        """Its line in grid.csv: where it stands, what it did, how much it changed."""
        about = self.pair.about
        figures = {
            f"{name}_{side}": getattr(change, name)
            for side, change in about.change.sides().items()
            for name in ("share", "mse", "psnr_db", "ssim")
        }
        return {
            "cell": self.number,
            "seed": self.seed,
            "source": self.pair.source.settings.prompt,
            "target": self.target,
            "prompt": self.pair.edited.settings.prompt,
            **{f"weight of {word}": weight for word, weight in self.weights.items()},
            **dict(zip(("cross_from", "cross_to"), self.cross, strict=True)),
            **dict(zip(("self_from", "self_to"), self.self_attention, strict=True)),
            **{name: getattr(about, name) for name in ("kind", "sites", "self_sites", "moved")},
            **figures,
            "file": f"{self.folder}/image.png",
        }

    def place(self) -> dict[str, Any]:
        """What may vary, by axis."""
        weights = {f"weight of {word}": weight for word, weight in self.weights.items()}
        return {
            "seed": self.seed,
            "target": self.target,
            **weights,
            "self_attention": self.self_attention,
            "cross": self.cross,
        }


def label(name: str, value: Any) -> str:
    """What a row or a column of a contact sheet is."""
    if name == "target":
        return value
    if name == "seed":
        return f"seed {value}"
    if name.startswith("weight of "):
        return f"{name.removeprefix('weight of ')} ×{signed(value)}"
    low, high = value
    span = f"{high:g}" if low == 0 else f"{low:g}–{high:g}"
    return f"{'cross' if name == 'cross' else 'self'} {span}"


def weights_said(axes: Mapping[str, Sequence[Any]]) -> list[str]:
    """Which weights of which words vary: "red ×−1, 0, 2"."""
    found = ((name.partition("weight of ")[2], values) for name, values in axes.items())
    return [f"{word} ×{', '.join(map(signed, values))}" for word, values in found if word]


MAX_GRID_FILE = 16 * 2**20  # bytes of grid.json
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, eq=False)
class Grid:
    """Edits of one source over strengths, weights, targets and seeds; made by `heedmap.grid`.

    Attributes:
        cells: every combination once, the last axis fastest.
        about: what all have in common: what was asked for (`grid.about.source`, `.targets`,
            `.weights`, `.cross`, `.self_attention`, `.seeds` and the other arguments of `grid`),
            `.batch` (pictures in the largest batch), `.sources_drawn` (how often the source was
            computed).
    """

    cells: tuple[Cell, ...]
    about: GridReport

    def __repr__(self) -> str:
        over = ", ".join(f"{name} ({len(values)})" for name, values in self.axes.items())
        cells = plural(len(self), "cell") + (f" over {over}" if over else "")
        return f"<Grid of {quoted(self.about.source)}: {cells}>"

    def __len__(self) -> int:
        return len(self.cells)

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.cells)

    @property
    def sources(self) -> dict[int, Run]:
        """The source's run of each seed."""
        found: dict[int, Run] = {}
        for cell in self.cells:
            found.setdefault(cell.seed, cell.pair.source)
        return found

    @property
    def axes(self) -> dict[str, list[Any]]:
        """What varies: values by "seed", "target", "weight of …", "self_attention", "cross"."""
        values: dict[str, list[Any]] = {}
        for cell in self.cells:
            for name, value in cell.place().items():
                there = values.setdefault(name, [])
                if value not in there:
                    there.append(value)
        return {name: several for name, several in values.items() if len(several) > 1}

    def rows(self) -> list[dict[str, Any]]:
        """The figures, one flat row a cell; None where there is nothing to measure."""
        return [cell.row() for cell in self.cells]

    def sheet(self) -> Image.Image:
        """What `figure` shows, as a picture."""
        return plots.render(self.figure())

    def figure(self) -> "Figure":
        """The contact sheet: the longest axis in the columns, all others in the rows.

        Beside the edits stands the source of each seed: in the first column, or, where the seeds
        are the columns, in the first row.
        """
        columns, rows = self._laid_out()
        pictures = [(name, [run.image for _, run in runs]) for name, runs in rows]
        return plots.draw_table(pictures, columns, title=self._title(), note=self._note())

    def _laid_out(self) -> tuple[list[str], list[tuple[str, list[tuple[int | None, Run]]]]]:
        """What each column is; of each row what it is, and its runs with their places in `cells`.

        None for the source of a seed, which has none.
        """
        axes = self.axes
        # Of axes of one length the one that changes a picture in steps one can follow.
        order = sorted(axes, key=lambda name: (name == "seed", name == "target"))
        across = max(order, key=lambda name: len(axes[name]), default="cross")
        down = [name for name in axes if name != across]
        lines: dict[tuple[Any, ...], list[Cell]] = {}
        for cell in self.cells:
            lines.setdefault(tuple(cell.place()[name] for name in down), []).append(cell)
        rows: list[tuple[str, list[tuple[int | None, Run]]]] = [
            (
                " · ".join(itertools.starmap(label, zip(down, at, strict=True))),
                [(cell.number - 1, cell.pair.edited) for cell in line],
            )
            for at, line in lines.items()
        ]
        first = next(iter(lines.values()))
        columns = [label(across, cell.place()[across]) for cell in first]
        if across == "seed":
            rows.insert(0, ("the source", [(None, cell.pair.source) for cell in first]))
        else:
            columns.insert(0, "the source")
            for (_, row), line in zip(rows, lines.values(), strict=True):
                row.insert(0, (None, line[0].pair.source))
        return columns, rows

    def explorer(self) -> str:
        """The page of this grid: one HTML file that needs nothing else (`heedmap.page`)."""
        axes = self.axes
        columns, rows = self._laid_out()
        layout = {
            "columns": columns,
            "rows": [(name, [place for place, _ in runs]) for name, runs in rows],
            "note": "".join(self._returned()),
        }
        said = (" · ".join(label(name, cell.place()[name]) for name in axes) for cell in self)
        pairs = zip(said, (cell.pair for cell in self), strict=True)
        title = " · ".join([self._title(), *weights_said(axes)])
        return pages.pairs_page(pairs, title=title, grid=layout)

    def _repr_html_(self) -> str:
        return pages.preview(self, self.sheet())

    def save(self, folder: str | Path) -> Path:
        """Write the grid's folder, whole or not at all.

        `grid.png` (the contact sheet), `index.html` (the page), `grid.csv` (a line a cell),
        `grid.json` (the same, and all that is needed to repeat it), and of each source and each
        edit a run that `heedmap inspect` and `Run.load` read: `sources/<seed>/` and
        `cells/<number>/`, with `blend.png` where it was blended.

        Args:
            folder: new or empty.

        Returns:
            The folder.

        Raises:
            ArgumentError: if `folder` is not a path.
            RunError: if something is there already, or nothing can be written there.
        """
        with whole_folder(folder) as partial:
            (partial / "grid.png").write_bytes(png(self.sheet()))
            (partial / "index.html").write_text(self.explorer(), encoding="utf-8")
            self._write_table(partial / "grid.csv")
            for seed, run in self.sources.items():
                run.write(partial / "sources" / str(seed), overlays=False)
            for cell in self.cells:
                cell.pair.edited.write(partial / cell.folder, overlays=False)
                if cell.pair.blend is not None:
                    mask = png(Image.fromarray(cell.pair.blend))
                    (partial / cell.folder / "blend.png").write_bytes(mask)
            content = schemas.GridFile(
                files=(*files_in(partial), "grid.json"),
                about=self.about,
                cells=tuple(map(_row, self.cells)),
            )
            schemas.write_file(partial / "grid.json", content)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> "Grid":
        """Read a saved grid, with its maps; no model and no torch is loaded.

        Raises:
            RunError: if the folder is not a grid, or something in it is broken.
        """
        folder = reading.path_of(folder)
        path = folder / "grid.json"
        held = reading.read_json(path, schemas.GridFile, most=MAX_GRID_FILE)
        sources: dict[int, Run] = {}
        cells: list[Cell] = []
        for row in held.cells:
            if row.seed not in sources:
                size = next(iter(sources.values())).image.size if sources else None
                sources[row.seed] = read_run(folder / "sources" / str(row.seed), size)
            cells.append(_read_cell(folder, row, sources[row.seed]))
        return cls(tuple(cells), held.about)

    def _write_table(self, path: Path) -> None:
        rows = self.rows()
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            table.writeheader()
            table.writerows({name: _csv(value) for name, value in row.items()} for row in rows)

    def _title(self) -> str:
        cell, axes = self.cells[0], self.axes
        weights = any(name.startswith("weight of ") for name in axes)
        said = cell.target if weights else cell.pair.edited.settings.prompt
        source = cell.pair.source.settings.prompt
        if "target" in axes:
            return source
        return source if said == source else f"{source} → {said}"

    def _note(self) -> str:
        """What does not vary."""
        cell, axes, settings = self.cells[0], self.axes, self.cells[0].pair.source.settings
        fixed = [label(name, value) for name, value in cell.place().items() if name not in axes]
        fixed = [text for text in fixed if text != cell.target]
        if settings.steps is not None:
            fixed.append(plural(settings.steps, "step"))
        if settings.guidance is not None:
            fixed.append(f"guidance {settings.guidance:g}")
        fixed.append("{}×{} px".format(*cell.pair.source.image.size))
        if self.about.only:
            fixed.append(f"only {self.about.only}")
        return " · ".join([*fixed, settings.model, *self._returned()])

    def _returned(self) -> list[str]:
        """How near to itself a picture of your own came back: once, for every cell has it alike."""
        back = self.cells[0].pair.about.reconstruction
        return [] if back is None else [f"your picture {returned(back.psnr_db)}"]


def _csv(value: Any) -> Any:
    """A value for a table: text that a spreadsheet would run as a formula stays text."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value


def _row(cell: Cell) -> schemas.CellRow:
    return schemas.CellRow(
        number=cell.number,
        seed=cell.seed,
        target=cell.target,
        weights=cell.weights,
        cross=cell.cross,
        self_attention=cell.self_attention,
        file=f"{cell.folder}/image.png",
        blended=cell.pair.blend is not None,
        about=cell.pair.about,
    )


def _read_cell(folder: Path, row: schemas.CellRow, source: Run) -> Cell:
    within = folder / "cells" / f"{row.number:03d}"
    edited = read_run(within, source.image.size)
    blend = read_mask(within / "blend.png", source.image.size) if row.blended else None
    return Cell(
        row.number,
        row.seed,
        row.target,
        row.weights,
        row.cross,
        row.self_attention,
        Pair(source, edited, row.about, blend),
    )


MARKS = {"grid.json": "a grid", "pair.json": "an edit", "run.json": "a run"}
"""The file that tells a folder of each kind, and what it is called."""


def kind_of(folder: str | Path) -> str:
    """Find the file that tells what a folder is, one of `MARKS`.

    Raises:
        RunError: if there is none.
    """
    folder = reading.path_of(folder)
    for mark in MARKS:
        if os.path.isfile(folder / mark):
            return mark
    raise RunError(
        f"{folder} is not a run, edit or grid: expected a folder with run.json, pair.json or "
        "grid.json"
    )


def load_result(folder: str | Path) -> Run | Pair | Grid:
    """Load the result in a folder; no model and no torch is loaded.

    Raises:
        RunError: if there is none, or something in it is broken.
    """
    read = {"grid.json": Grid.load, "pair.json": Pair.load, "run.json": Run.load}
    return read[kind_of(folder)](folder)
