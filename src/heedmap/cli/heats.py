"""What the command line says of a heat map: how much a word drew, and where most."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heedmap.maps.heatmaps import HeatMap

HEAT_COLUMNS = ("most", "mean", "hottest at")


def about_heat(heat: "HeatMap") -> dict[str, Any]:
    """What `--json` says of a heat map: how much a word drew, and where most.

    Under a negative weight it draws less than nothing: most where it is farthest below 0. Under a
    weight of 0 it draws nothing, and there is no such place.
    """
    most, mean = (round(float(value), 6) for value in (heat.most, heat.values.mean()))
    return {"most": most, "mean": mean, "peak": list(heat.peak) if heat.values.any() else None}


def heat_cells(about: Mapping[str, Any]) -> tuple[str, str, str]:
    """The same for a table, below `HEAT_COLUMNS`."""
    peak = about["peak"]
    where = "nowhere" if peak is None else "{}, {}".format(*peak)
    return f"{about['most']:.3f}", f"{about['mean']:.3f}", where
