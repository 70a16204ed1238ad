"""What the command line says of a heat map."""

from dataclasses import replace

import numpy as np
import pytest

from heedmap.cli import heats
from heedmap.results.runs import Run


def test_a_word_that_acts_in_one_cell_is_hottest_there(run: Run):
    heat = run.maps["house"]
    values = np.zeros_like(heat.values)
    values[3, 5] = -0.25  # below 0 it acts as much as above
    about = heats.about_heat(replace(heat, values=values))
    rows, columns = values.shape
    width, height = run.image.size
    assert about["most"] == -0.25 and about["mean"] == round(-0.25 / values.size, 6)
    assert about["peak"] == [int(5.5 * width / columns), int(3.5 * height / rows)]
    assert heats.heat_cells(about)[0] == "-0.250"


def test_how_stable_a_map_is_is_told_where_it_is_known(run: Run):
    held = replace(run.maps, stability={1: 0.9, 2: 0.5})
    assert heats.about_stability(held["red house"], held) == {"stability": 0.5}
    assert heats.about_stability(held["red"], held) == {"stability": 0.9}
    for maps, word in ((held, "a"), (run.maps, "house"), (held.refined, "house")):
        assert heats.about_stability(maps[word], maps) == {}


@pytest.mark.parametrize(
    ("held", "cells"),
    [
        ([0.91, 0.5, None], [("stability",), ("0.91",), ("0.50, unsteady",), ("-",)]),
        ([None, None], [(), (), ()]),
        ([], [()]),
    ],
)
def test_a_table_has_a_column_of_it_where_any_is_known(held: list[float | None], cells):
    abouts = [{} if one is None else {"stability": one} for one in held]
    assert heats.stability_cells(abouts) == cells
