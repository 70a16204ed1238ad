"""What the command line says of a heat map."""

from dataclasses import replace

import numpy as np

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
