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
of an image. A `size` is (width, height) in pixels. All errors are kinds of `HeedmapError`; they are
in `heedmap.errors`, too.

The names below are imported on first use, so that ``import heedmap`` costs next to nothing.
"""

TYPE_CHECKING = False  # as `typing` has it, which takes longer to import than this
if TYPE_CHECKING:
    from heedmap import errors as errors
    from heedmap.backends.layer_shapes import (
        LayerShapes as LayerShapes,
        layer_shapes as layer_shapes,
    )
    from heedmap.backends.loading import load as load
    from heedmap.errors import (
        ArgumentError as ArgumentError,
        HeedmapError as HeedmapError,
        HeedmapWarning as HeedmapWarning,
        ModelError as ModelError,
        NothingRecordedError as NothingRecordedError,
        RunError as RunError,
        SelectionError as SelectionError,
        TraceError as TraceError,
        TruncatedWordError as TruncatedWordError,
        UnknownWordError as UnknownWordError,
        WordError as WordError,
    )
    from heedmap.figures.overlays import Animation as Animation
    from heedmap.io.schemas import (
        Change as Change,
        EditReport as EditReport,
        GridReport as GridReport,
        Settings as Settings,
    )
    from heedmap.io.word_edits import Confine as Confine, Reweight as Reweight
    from heedmap.maps.heatmaps import HeatMap as HeatMap, HeatMaps as HeatMaps
    from heedmap.mathematics.by_hand import (
        Attention as Attention,
        attention as attention,
    )
    from heedmap.mathematics.events import AttentionEvent as AttentionEvent
    from heedmap.mathematics.rules import Site as Site
    from heedmap.pipelines.ablating import ablate as ablate
    from heedmap.pipelines.editing import edit as edit, grid as grid
    from heedmap.pipelines.explaining import explain as explain
    from heedmap.pipelines.generation import generate as generate
    from heedmap.pipelines.input_images import locate as locate
    from heedmap.pipelines.repeating import (
        RepeatResult as RepeatResult,
        repeat as repeat,
    )
    from heedmap.recording.tracing import (
        Trace as Trace,
        observe as observe,
        trace as trace,
    )
    from heedmap.results.ablations import (
        Ablation as Ablation,
        Agreement as Agreement,
        CausalAgreement as CausalAgreement,
    )
    from heedmap.results.edits import EditResult as EditResult
    from heedmap.results.explanations import Explanation as Explanation
    from heedmap.results.grids import Cell as Cell, Grid as Grid
    from heedmap.results.runs import Run as Run, compare as compare
    from heedmap.sweeps.processes import SweepResult as SweepResult, sweep as sweep
    from heedmap.text.words import TokenTable as TokenTable

    __version__: str

_NAMES = {
    "backends.loading": ["load"],
    "backends.layer_shapes": ["LayerShapes", "layer_shapes"],
    "errors": [
        "ArgumentError",
        "HeedmapError",
        "HeedmapWarning",
        "ModelError",
        "NothingRecordedError",
        "RunError",
        "SelectionError",
        "TraceError",
        "TruncatedWordError",
        "UnknownWordError",
        "WordError",
    ],
    "figures.overlays": ["Animation"],
    "io.schemas": ["Change", "EditReport", "GridReport", "Settings"],
    "io.word_edits": ["Confine", "Reweight"],
    "maps.heatmaps": ["HeatMap", "HeatMaps"],
    "mathematics.by_hand": ["Attention", "attention"],
    "mathematics.events": ["AttentionEvent"],
    "mathematics.rules": ["Site"],
    "pipelines.ablating": ["ablate"],
    "pipelines.editing": ["edit", "grid"],
    "pipelines.explaining": ["explain"],
    "pipelines.generation": ["generate"],
    "pipelines.input_images": ["locate"],
    "pipelines.repeating": ["RepeatResult", "repeat"],
    "recording.tracing": ["Trace", "observe", "trace"],
    "results.ablations": ["Ablation", "Agreement", "CausalAgreement"],
    "results.edits": ["EditResult"],
    "results.explanations": ["Explanation"],
    "results.grids": ["Cell", "Grid"],
    "results.runs": ["Run", "compare"],
    "sweeps.processes": ["SweepResult", "sweep"],
    "text.words": ["TokenTable"],
}
"""The public names of each module."""
_HOME = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use."""
    value: object
    if name in _HOME or name == "errors":
        from importlib import import_module

        module = import_module(f"{__name__}.{_HOME.get(name, name)}")
        value = getattr(module, name, module)
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
