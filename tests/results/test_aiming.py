"""Which run is meant, and what in it: without a model."""

import pytest
from making import made_pair, made_run

from heedmap.errors import ArgumentError
from heedmap.results import explanations


def test_of_an_edit_the_edited_picture_is_meant():
    pair, run = made_pair(), made_run()
    assert explanations.explained_run(pair) is pair.edited
    assert explanations.explained_run(run) is run


def test_a_grid_is_none():
    with pytest.raises(ArgumentError, match=r"is 'outputs/grid': expected a run or an edit.*cells"):
        explanations.explained_run(object(), "outputs/grid")


def test_what_is_meant():
    run = made_run()
    found = explanations.aim_at(run, "house", (9, 9), branch="conditional", step=1)
    assert found is not None and found.step == 1 and found.size == (128, 128)
    assert found.tokens == run.maps.tokens.find("house")
    assert (
        explanations.aim_at(run, "dogs", (9, 9), branch="negative") is None
    )  # a model has to read it
    assert explanations.steps_of(run) == 3
