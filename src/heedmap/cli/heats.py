"""The figures of a heat map, for `--json` and for a table."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heedmap.maps.heatmaps import HeatMap, HeatMaps

COLUMNS = ("most", "mean", "hottest at")


def heat_summary(heat: "HeatMap") -> dict[str, Any]:
    """Give the extremum, the mean and the place of the extremum, None for a map of zeros."""
    most, mean = (round(float(value), 6) for value in (heat.most, heat.values.mean()))
    return {"most": most, "mean": mean, "peak": list(heat.peak) if heat.values.any() else None}


def heat_cells(summary: Mapping[str, Any]) -> tuple[str, str, str]:
    """Format a summary for the `COLUMNS` of a table."""
    peak = summary["peak"]
    place = "nowhere" if peak is None else "{}, {}".format(*peak)
    return f"{summary['most']:.3f}", f"{summary['mean']:.3f}", place


def stability_of(heat: "HeatMap", maps: "HeatMaps") -> dict[str, float]:
    """Give the stability of a map, of a phrase that of its least stable word, if it is known."""
    from heedmap.maps.stability import least_stability

    at = () if heat.mentioned is None else heat.mentioned.positions
    found = least_stability(maps.stability, maps.words, at)
    return {} if found is None else {"stability": found}


def stability_column(summaries: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Make a column for a table, its heading first; of no width if no stability is known."""
    from heedmap.maps.stability import stability_said

    found = [summary.get("stability") for summary in summaries]
    if all(one is None for one in found):
        return [()] * (len(found) + 1)
    texts = ["-" if one is None else stability_said(one) for one in found]
    return [("stability",), *((text.removeprefix("stability "),) for text in texts)]
