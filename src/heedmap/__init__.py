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
| guide an image | `generate`, `Excite`, `Inside`, `Bind`, `Separate` | `Run`, `GuideReport` |
| test a map | `ablate`, `repeat` | `Ablation`, `RepeatResult` |
| find the layers that draw a word | `rank` | `Ranking` |
| make a data set of masks | `dataset` | a folder |
| see the computation | `explain`, `attention` | `Explanation`, `Attention` |

Axes of arrays, in this order: `S` step · `B` image · `L` layer · `H` head · `Q` position
(`Q = h·w`, row-major) · `K` token. (h, w) are the rows and columns of a grid or a map, (H, W) those
of an image. A `size` is (width, height) in pixels. All errors are kinds of `HeedmapError`; they are
in `heedmap.errors`, too.

The names below are imported on first use, so that ``import heedmap`` costs next to nothing.
"""

_HOME: dict[str, str] = {}
"""The module of each public name: those that the stub tells type checkers."""
with open(f"{__file__}i", encoding="utf-8") as _stub:
    for _line in _stub:
        if _line.startswith("from heedmap."):
            _, _module, _, _name, *_ = _line.split()
            _HOME[_name] = _module
__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use."""
    value: object
    if name in _HOME or name == "errors":
        from importlib import import_module

        module = import_module(_HOME.get(name, "heedmap.errors"))
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
