"""See where each word of a prompt acts in a Stable Diffusion picture, and steer it.

    import heedmap as hm

    pipe = hm.load()
    run = hm.generate(pipe, "a red house next to a blue tree", seed=7)
    run.maps["house"].overlay()

The names below are imported on first use, so that ``import heedmap`` costs next to nothing.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedmap.comparisons import compare
    from heedmap.dimensions import layer_shapes
    from heedmap.editing import edit, grid
    from heedmap.errors import HeedmapError, HeedmapWarning
    from heedmap.grids import Grid
    from heedmap.heatmaps import HeatMap
    from heedmap.models import load
    from heedmap.pairs import Pair
    from heedmap.repeats import repeat
    from heedmap.runs import Run
    from heedmap.studio import generate
    from heedmap.tracing import trace
    from heedmap.word_edits import Confine, Reweight

    __version__: str

__all__ = [
    "Confine",
    "Grid",
    "HeatMap",
    "HeedmapError",
    "HeedmapWarning",
    "Pair",
    "Reweight",
    "Run",
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
    "Confine": "word_edits",
    "Grid": "grids",
    "HeatMap": "heatmaps",
    "HeedmapError": "errors",
    "HeedmapWarning": "errors",
    "Pair": "pairs",
    "Reweight": "word_edits",
    "Run": "runs",
    "compare": "comparisons",
    "edit": "editing",
    "generate": "studio",
    "grid": "editing",
    "layer_shapes": "dimensions",
    "load": "models",
    "repeat": "repeats",
    "trace": "tracing",
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
