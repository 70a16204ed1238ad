"""Draw the picture of the architecture page: the folders of heedmap, floor by floor.

    python scripts/architecture.py

Only the column in which a folder stands is written down here. The floors, and what a folder may
know, are those that `tests/test_house.py` enforces; the words are the first line of each folder's
docstring; the arrows are what is imported, without those to the ground, which serves all, and those
that a way over other arrows tells already. `tests/scripts/test_architecture.py` sees that the
picture is up to date.
"""

import ast
import importlib.util
import re
import textwrap
from collections.abc import Mapping
from html import escape
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "heedmap"
PICTURE = SOURCE / "floors.svg"
COLUMN = {
    **dict.fromkeys(("recording", "wiring", "mathematics", "checks"), 0),
    **dict.fromkeys(("results", "explorer", "maps", "figures", "files", "options"), 2),
}
"""Where a folder stands on its floor, so that arrows pass beside the boxes; 1 if not listed."""

ACROSS, DOWN, WIDE, HIGH, EDGE = 262, 96, 218, 66, 20  # pixels
FILLS = {
    "diffusers": ("#fde3cf", "knows torch and diffusers"),
    "torch": ("#fdf3cf", "knows torch"),
    "neither": ("#e4ecf7", "knows neither"),
}


def house() -> ModuleType:
    """The test that says the floors, as a module."""
    spec = importlib.util.spec_from_file_location("house", ROOT / "tests" / "test_house.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def purpose(name: str) -> str:
    """The first line of what a folder, or a file, says of itself."""
    path = SOURCE / f"{name}.py"
    path = path if path.exists() else SOURCE / name / "__init__.py"
    told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return told.partition("\n")[0]


def imported(folders: set[str]) -> dict[str, set[str]]:
    """Which folders each folder imports from."""
    found: dict[str, set[str]] = {name: set() for name in folders}
    for path in SOURCE.rglob("*.py"):
        here = path.relative_to(SOURCE).with_suffix("").parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if here in found and isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}".split(".") for alias in node.names]
                found[here] |= {parts[1] for parts in names if parts[0] == "heedmap"} & folders
    return {name: others - {name} for name, others in found.items()}


def needed(arrows: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """The arrows that are not told by a way over others."""

    def reached(start: str) -> set[str]:
        return {start}.union(*(reached(name) for name in arrows[start]))

    return sorted(
        (start, end)
        for start, ends in arrows.items()
        for end in ends
        if not any(end in reached(other) for other in ends - {end})
    )


def drawn() -> str:
    """The picture as SVG."""
    told = house()
    floors: list[set[str]] = told.FLOORS
    places = {
        name: (COLUMN.get(name, 1), len(floors) - 1 - floor)
        for floor, names in enumerate(floors)
        for name in names
    }
    if len(set(places.values())) < len(places):
        raise SystemExit("Two folders stand in one place: give one of them another COLUMN.")
    corners = {n: (EDGE + x * ACROSS, EDGE + y * DOWN) for n, (x, y) in places.items()}
    width = 2 * EDGE + 2 * ACROSS + WIDE
    height = EDGE + len(floors) * DOWN + 24
    ground = height - 24 - DOWN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="system-ui, sans-serif">',
        "<title>The folders of heedmap; an arrow says that one imports from another</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#7a8699"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    arrows = needed(imported(set(places) - floors[0]))  # the ground serves all
    parts += [_arrow(corners[start], corners[end]) for start, end in arrows]
    parts.append(
        f'<line x1="{EDGE}" y1="{ground - 15}" x2="{width - EDGE}" y2="{ground - 15}" '
        'stroke="#999" stroke-dasharray="4 4"/>'
    )
    for name, (x, y) in sorted(corners.items()):
        knows = (
            "diffusers" if name in told.KNOW_DIFFUSERS
            else "torch" if name in told.KNOW_TORCH else "neither"
        )  # fmt: skip
        parts += _box(name, x, y, FILLS[knows][0])
    parts.append(
        f'<text x="{EDGE + ACROSS}" y="{ground - 21}" font-size="12">the ground: all may use '
        "it</text>"
    )
    for number, (fill, words) in enumerate(FILLS.values()):
        x, y = EDGE + number * ACROSS, height - 22
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{fill}" stroke="#999"/>')
        parts.append(f'<text x="{x + 18}" y="{y + 10}" font-size="12">{words}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _box(name: str, x: int, y: int, fill: str) -> list[str]:
    lines = textwrap.wrap(re.sub("`", "", purpose(name)), 36)
    return [
        f'<rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="6" fill="{fill}" '
        'stroke="#667"/>',
        f'<text x="{x + 10}" y="{y + 18}" font-size="14" font-weight="600">{name}</text>',
        *(
            f'<text x="{x + 10}" y="{y + 33 + 12 * k}" font-size="10.5">{escape(line)}</text>'
            for k, line in enumerate(lines)
        ),
    ]


def _arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    """From the foot of one box to the head of another, leaving it to the side it goes to."""
    lean = (end[0] > start[0]) - (end[0] < start[0])
    x1, y1 = start[0] + WIDE // 2 + lean * WIDE // 4, start[1] + HIGH
    x2, y2 = end[0] + WIDE // 2 - lean * (WIDE // 2 - EDGE), end[1]
    return (
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#7a8699" stroke-width="1.4" '
        'marker-end="url(#tip)"/>'
    )


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8")
    print(PICTURE)
