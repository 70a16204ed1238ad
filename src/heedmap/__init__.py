"""See where a text-to-image model reads each word of a prompt, and edit the image word by word.

    import heedmap as hm

    pipe = hm.load()
    run = hm.generate(pipe, "a red house next to a blue tree", seed=7)
    run.maps["house"].overlay()

| to | call | result |
| --- | --- | --- |
| load a model | `load`, `layer_shapes` | a pipeline, `LayerShapes` |
| record attention | `generate`, `locate`, `trace` | `Run`, `HeatMaps`, `HeatMap`, `Trace` |
| edit an image | `edit`, `grid`, `Reweight`, `Confine` | `EditResult`, `Grid` |
| test a map | `ablate`, `compare`, `repeat` | `Ablation`, a figure, `RepeatResult` |
| see the computation | `explain`, `attention` | `Explanation`, `Attention` |

Axes of arrays, in this order: `S` step · `B` image · `L` layer · `H` head · `Q` position
(`Q = h·w`, row-major) · `K` token. (h, w) are the rows and columns of a grid or a map, (H, W) those
of an image. A `size` is (width, height) in pixels. All errors are kinds of `HeedmapError`.

The names below are imported on first use, so that ``import heedmap`` costs next to nothing.
"""

TYPE_CHECKING = False  # as `typing` has it, which takes longer to import than this
if TYPE_CHECKING:
    from heedmap.backends.layer_shapes import LayerShapes, layer_shapes
    from heedmap.backends.loading import load
    from heedmap.errors import HeedmapError, HeedmapWarning
    from heedmap.figures.overlays import Animation
    from heedmap.io.schemas import Change, EditReport, GridReport, Settings
    from heedmap.maps.heatmaps import HeatMap, HeatMaps
    from heedmap.mathematics.by_hand import Attention, attention
    from heedmap.mathematics.events import AttentionEvent
    from heedmap.mathematics.rules import Site
    from heedmap.pipelines.ablating import ablate
    from heedmap.pipelines.editing import edit, grid
    from heedmap.pipelines.explaining import explain
    from heedmap.pipelines.generation import generate
    from heedmap.pipelines.input_images import locate
    from heedmap.pipelines.repeating import RepeatResult, repeat
    from heedmap.recording.edits import Confine, Reweight
    from heedmap.recording.tracing import Trace, observe, trace
    from heedmap.results.ablations import Ablation, Agreement, CausalAgreement
    from heedmap.results.edits import EditResult
    from heedmap.results.explanations import Explanation
    from heedmap.results.grids import Cell, Grid
    from heedmap.results.runs import Run, compare
    from heedmap.sweeps.gallery import gallery
    from heedmap.sweeps.processes import SweepResult, sweep
    from heedmap.text.words import TokenTable

    __version__: str

__all__ = [
    "Ablation",
    "Agreement",
    "Animation",
    "Attention",
    "AttentionEvent",
    "CausalAgreement",
    "Cell",
    "Change",
    "Confine",
    "EditReport",
    "EditResult",
    "Explanation",
    "Grid",
    "GridReport",
    "HeatMap",
    "HeatMaps",
    "HeedmapError",
    "HeedmapWarning",
    "LayerShapes",
    "RepeatResult",
    "Reweight",
    "Run",
    "Settings",
    "Site",
    "SweepResult",
    "TokenTable",
    "Trace",
    "ablate",
    "attention",
    "compare",
    "edit",
    "explain",
    "gallery",
    "generate",
    "grid",
    "layer_shapes",
    "load",
    "locate",
    "observe",
    "repeat",
    "sweep",
    "trace",
]

_HOME = {
    "Ablation": "results.ablations",
    "Agreement": "results.ablations",
    "Animation": "figures.overlays",
    "Attention": "mathematics.by_hand",
    "AttentionEvent": "mathematics.events",
    "CausalAgreement": "results.ablations",
    "Cell": "results.grids",
    "Change": "io.schemas",
    "Confine": "recording.edits",
    "EditReport": "io.schemas",
    "Explanation": "results.explanations",
    "Grid": "results.grids",
    "GridReport": "io.schemas",
    "HeatMap": "maps.heatmaps",
    "HeatMaps": "maps.heatmaps",
    "HeedmapError": "errors",
    "HeedmapWarning": "errors",
    "LayerShapes": "backends.layer_shapes",
    "EditResult": "results.edits",
    "RepeatResult": "pipelines.repeating",
    "Reweight": "recording.edits",
    "Run": "results.runs",
    "Settings": "io.schemas",
    "Site": "mathematics.rules",
    "SweepResult": "sweeps.processes",
    "TokenTable": "text.words",
    "Trace": "recording.tracing",
    "ablate": "pipelines.ablating",
    "attention": "mathematics.by_hand",
    "compare": "results.runs",
    "edit": "pipelines.editing",
    "explain": "pipelines.explaining",
    "gallery": "sweeps.gallery",
    "generate": "pipelines.generation",
    "grid": "pipelines.editing",
    "layer_shapes": "backends.layer_shapes",
    "load": "backends.loading",
    "locate": "pipelines.input_images",
    "observe": "recording.tracing",
    "repeat": "pipelines.repeating",
    "sweep": "sweeps.processes",
    "trace": "recording.tracing",
}

_RENAMED = {
    "Pair": "EditResult",
    "Repetition": "RepeatResult",
    "Trust": "CausalAgreement",
}
"""Names of version 0.2, which the next version drops."""


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use."""
    value: object
    if name in _RENAMED:
        import warnings

        warnings.warn(
            f"{name} is now {_RENAMED[name]}", DeprecationWarning, stacklevel=2
        )
        return __getattr__(_RENAMED[name])
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
