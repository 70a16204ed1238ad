"""What the command line says of a heat map: how much a word drew, and where most."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heedmap.maps.heatmaps import HeatMap, HeatMaps

HEAT_COLUMNS = ("most", "mean", "hottest at")


def about_heat(heat: "HeatMap") -> dict[str, Any]:
    """What `--json` says of a heat map: how much a word drew, and where most.

    Under a negative weight it draws less than nothing: most where it is farthest below 0. Under a
    weight of 0 it draws nothing, and there is no such place.
    """
    most, mean = (round(float(value), 6) for value in (heat.most, heat.values.mean()))
    return {"most": most, "mean": mean, "peak": list(heat.peak) if heat.values.any() else None}


def about_stability(heat: "HeatMap", maps: "HeatMaps") -> dict[str, float]:
    """How stable one of some maps is over the looks; of a phrase, its least stable word.

    Nothing where that is not known.
    """
    from heedmap.maps.stability import least_stability

    at = () if heat.mentioned is None else heat.mentioned.positions
    held = least_stability(maps.stability, maps.words, at)
    return {} if held is None else {"stability": held}


def stability_cells(abouts: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """How stable maps are, for a table: the column's heading, then a cell each.

    All are empty where nobody knows of any.
    """
    from heedmap.maps.stability import stability_said

    held = [about.get("stability") for about in abouts]
    if all(one is None for one in held):
        return [()] * (len(held) + 1)
    said = ["-" if one is None else stability_said(one) for one in held]
    return [("stability",), *((one.removeprefix("stability "),) for one in said)]


def heat_cells(about: Mapping[str, Any]) -> tuple[str, str, str]:
    """The same for a table, below `HEAT_COLUMNS`."""
    peak = about["peak"]
    where = "nowhere" if peak is None else "{}, {}".format(*peak)
    return f"{about['most']:.3f}", f"{about['mean']:.3f}", where
