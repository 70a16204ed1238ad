"""Which number is taken apart: what was asked for, and of what was kept the one that teaches."""

from dataclasses import replace

import numpy as np
import pytest
from making import recording

from heedmap.errors import ArgumentError, SelectionError, UnknownWordError
from heedmap.maps.aims import aimed, find_layer, place_of, worth

RUN = recording("a red house", latent=(16, 12))  # a picture of 96×128 pixels
SIZE = (96, 128)
NAMES = [layer.name for layer in RUN.layers]


def aim(word="house", at=(40, 100), run=RUN, **asked):
    return aimed(run.table, run, word, at, size=SIZE, steps=3, **asked)


@pytest.mark.parametrize(
    ("at", "grid", "place"),
    [
        ((0, 0), (16, 12), (0, 0)),
        ((95, 127), (16, 12), (15, 11)),
        ((8, 7), (16, 12), (0, 1)),
        ((7, 8), (16, 12), (1, 0)),
        ((31, 64), (5, 3), (2, 0)),  # 96/3 = 32 across, 128/5 = 25.6 down
        ((32, 76), (5, 3), (2, 1)),
        ((63, 77), (5, 3), (3, 1)),
    ],
)
def test_the_place_that_holds_a_pixel(at, grid, place):
    assert place_of(at, SIZE, grid) == place


def sites(run=RUN, at=(40, 100)):
    """By definition: what the word draws at each site, the one that is taken first."""
    columns = [RUN.columns[token] for token in RUN.table.find("house")]
    found = []
    for layer, array in zip(run.layers, run.arrays, strict=True):
        (h, w), (width, height) = layer.grid, SIZE
        q = int(at[1] / (height / h)) * w + int(at[0] / (width / w))
        found += [
            (float(array[s, n, q][columns].sum()), layer.name, s, n)
            for s in range(array.shape[0])
            for n in range(array.shape[1])
        ]
    most = sorted((one for one in found if one[0] <= 0.5), reverse=True)
    return most + sorted(one for one in found if one[0] > 0.5)


def test_a_negative_weight_draws_by_its_magnitude():
    less = replace(RUN, arrays=tuple(-array for array in RUN.arrays))
    assert aim(run=less) == aim()  # not where it draws next to nothing


def made(*drawn):
    """A record of one layer and one place, in which the word draws these: steps × heads."""
    p = np.zeros((*np.shape(drawn), 1, len(RUN.positions)), np.float32)  # (S, H, Q, K)
    p[..., RUN.columns[RUN.table.find("house")[0]]] = np.array(drawn)[..., None]
    layer = replace(RUN.layers[0], grid=(1, 1), heads=len(drawn[0]))
    return replace(RUN, layers=(layer,), arrays=(p,), timesteps=(3.0, 2.0, 1.0)[: len(drawn)])


@pytest.mark.parametrize(
    ("drawn", "site"),
    [
        ([[0.1, 0.3], [0.2, 0.25]], (0, 1)),
        ([[0.99, 0.3], [0.46, 1.0]], (1, 0)),  # saturated ones show nothing of the others
        ([[0.5, 0.501], [0.499, 0.4]], (0, 0)),  # half is not more than half
        ([[0.99, 0.7], [0.6, 1.0]], (1, 0)),  # more everywhere: least
        ([[0.9, 0.3], [0.3, 0.3]], (0, 1)),  # the first of equal ones
        ([[1.0, 1.0], [1.0, 1.0]], (0, 0)),
        ([[0.0, 1.0], [1.0, 0.9]], (0, 0)),
    ],
)
def test_by_itself_a_number_that_teaches_is_taken(drawn, site):
    found = aim(run=made(*drawn))
    assert (found.step, found.head) == site
    again = aim(run=made(*drawn), head=site[1])
    assert again.step == max(range(2), key=lambda s: worth(np.float32(drawn[s][site[1]])))


def test_where_it_draws_most_and_not_more_than_half():
    found = aim()
    assert (found.layer, found.step, found.head) == sites()[0][1:]
    assert found.chosen == {"layer": "kept", "step": "kept", "head": "kept"}
    assert found.tokens == RUN.table.find("house") and found.label == "house"


@pytest.mark.parametrize(
    "asked", [{"layer": "up 0.0"}, {"step": 2}, {"head": 1}, {"step": -1, "head": 0}]
)
def test_of_what_was_asked_for(asked):
    wanted = {"layer": NAMES[1]} if "layer" in asked else dict(asked)
    wanted |= {"step": 2} if "step" in asked else {}
    axes = {"layer": 1, "step": 2, "head": 3}
    fitting = [one for one in sites() if all(one[axes[a]] == v for a, v in wanted.items())]
    found = aim(**asked)
    assert (found.layer, found.step, found.head) == fitting[0][1:]
    assert {axis for axis, how in found.chosen.items() if how == "asked"} == set(asked)


def test_what_was_not_kept_is_left_to_the_drawing():
    found = aim(run=recording("a red house", keep=("layer",), latent=(16, 12)))
    assert found.layer in NAMES and (found.step, found.head) == (1, None)
    assert found.chosen == {"layer": "kept", "step": "middle", "head": "drawn"}
    none = aimed(RUN.table, None, 2, (0, 0), size=SIZE, steps=7)
    assert (none.layer, none.step, none.head, none.label) == (None, 3, None, "house")
    assert none.chosen == {"layer": "drawn", "step": "middle", "head": "drawn"}


def test_a_layer_by_its_names():
    assert find_layer(NAMES[1], NAMES) == NAMES[1]
    assert find_layer("down 0.0", NAMES) == NAMES[0]
    assert find_layer("down", NAMES) == NAMES[0]
    assert find_layer("*1.attentions.1*", NAMES) == NAMES[2]
    with pytest.raises(
        SelectionError, match=r"layer is 'up', which fits 2 layers \(up 0.0, up 1.1\): name"
    ):
        find_layer("up", NAMES)
    with pytest.raises(
        SelectionError,
        match=r"'up 7': expected the name of one layer; the nearest are down 0.0, up 0",
    ):
        find_layer("up 7", NAMES)
    with pytest.raises(ArgumentError, match="layer is 7: expected a text"):
        find_layer(7, NAMES)
    many = [f"up_blocks.{n}.attentions.0.attn2" for n in range(9)]
    for wanted in ("up", "zzz"):
        with pytest.raises(SelectionError) as error:
            find_layer(wanted, many)
        assert str(error.value).count("up ") <= 6  # five, and what was asked for


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"word": "cat"}, "'cat' is not in the prompt"),
        ({"at": (96, 0)}, "the place 96,0 is outside of the picture: expected x from 0 to 95 and"),
        ({"at": (0, -1)}, "the place 0,-1 is outside"),
        ({"at": (0, 128)}, "y from 0 to 127, from its upper left"),
        ({"at": 7}, r"at is 7: expected a pixel \(x, y\)"),
        ({"at": (1, 2, 3)}, "expected a pixel"),
        ({"at": (1.5, 2)}, "at is 1.5: expected a whole number"),
        ({"at": {40, 7}}, r"at is \{.*\}: expected a pixel"),  # x is neither first nor last
        ({"at": (10**5000, 0)}, "the place .*,0 is outside"),
        ({"step": 10**5000}, "step is .*, and the run has 3 steps: the nearest is 2"),
        (
            {"layer": "up 0.0", "head": -(10**5000)},
            "head is .*, and up 0.0 has 4 heads: the nearest is 0",
        ),
        ({"head": -(10**5000)}, "head is .*, counted from the end, .*: name a layer, too"),
        ({"step": 3}, "step is 3, and the run has 3 steps: the nearest is 2"),
        ({"step": -4}, "step is -4, and the run has 3 steps: the nearest is 0"),
        ({"layer": "up 0.0", "head": 4}, "head is 4, and up 0.0 has 4 heads: the nearest is 3"),
        ({"head": -1}, "head is -1, counted from the end, .*: name a layer, too"),
    ],
)
def test_refused_in_a_sentence(asked, said):
    with pytest.raises((ArgumentError, SelectionError, UnknownWordError), match=said):
        aim(**asked)


def test_a_head_that_some_layers_lack():
    found = aim(head=3)
    assert found.layer == NAMES[1] and found.head == 3  # the one with four heads
    assert np.isclose(sites()[0][0], max(one[0] for one in sites()))


def test_the_nearest_layers_are_five():
    names = [f"up_blocks.{n}.attentions.0.transformer_blocks.0.attn2" for n in range(7)]
    with pytest.raises(SelectionError) as error:
        find_layer("up 9.0", names)
    assert str(error.value).count("up ") == 6  # the one that was asked for, and five
