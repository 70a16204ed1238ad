"""See where each word of a prompt acts in a Stable Diffusion picture, and steer it.

    import heedmap as hm

    pipe = hm.load()
    run = hm.generate(pipe, "a red house next to a blue tree", seed=7)
    run.maps["house"].overlay()

The names below are imported on first use, so that ``import heedmap`` costs next to nothing.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedmap.drawing.editing import edit, grid
    from heedmap.drawing.generation import generate
    from heedmap.drawing.repeating import repeat
    from heedmap.errors import HeedmapError, HeedmapWarning
    from heedmap.files.reports import Change, EditReport
    from heedmap.files.settings import Settings
    from heedmap.maps.word_map import HeatMap
    from heedmap.models.dimensions import layer_shapes
    from heedmap.models.pipelines import load
    from heedmap.recording.edits import Confine, Reweight
    from heedmap.recording.tracing import trace
    from heedmap.results.comparisons import compare
    from heedmap.results.grids import Grid
    from heedmap.results.pairs import Pair
    from heedmap.results.runs import Run

    __version__: str

__all__ = [
    "Change",
    "Confine",
    "EditReport",
    "Grid",
    "HeatMap",
    "HeedmapError",
    "HeedmapWarning",
    "Pair",
    "Reweight",
    "Run",
    "Settings",
    "compare",
    "edit",
    "generate",
    "grid",
    "layer_shapes",
    "load",
    "repeat",
    "trace",
]

_HOME = {
    "Change": "files.reports",
    "Confine": "recording.edits",
    "EditReport": "files.reports",
    "Grid": "results.grids",
    "HeatMap": "maps.word_map",
    "HeedmapError": "errors",
    "HeedmapWarning": "errors",
    "Pair": "results.pairs",
    "Reweight": "recording.edits",
    "Run": "results.runs",
    "Settings": "files.settings",
    "compare": "results.comparisons",
    "edit": "drawing.editing",
    "generate": "drawing.generation",
    "grid": "drawing.editing",
    "layer_shapes": "models.dimensions",
    "load": "models.pipelines",
    "repeat": "drawing.repeating",
    "trace": "recording.tracing",
}


def __getattr__(name: str) -> object:
    """Import a public name from the module it lives in, the first time it is asked for."""
    value: object
    if name in _HOME:
        from importlib import import_module

        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    elif name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            value = version(__name__)
        except PackageNotFoundError:  # a checkout that was never installed
            value = "unknown"
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names too, imported or not."""
    return sorted({*globals(), *__all__, "__version__"})
