"""Which part of a recording is meant, in every form that a user may write."""

from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedmap.errors import ArgumentError, SelectionError
from heedmap.maps import recordings
from heedmap.maps.recordings import Layer, Recording
from heedmap.options import AXES, Axis
from heedmap.text.words import TokenTable

NAME = "{}.attentions.{}.transformer_blocks.0.attn2"
STAGES = [
    *((f"down_blocks.{n}", 2, 64 >> n) for n in range(3)),
    ("mid_block", 1, 8),
    *((f"up_blocks.{n}", 3, 8 << n) for n in (1, 2, 3)),
]
LAYERS = [
    Layer(NAME.format(stage, k), 8, (side, side))
    for stage, count, side in STAGES
    for k in range(count)
]


def chosen(wanted) -> list[str]:
    return [one.name for one in LAYERS if recordings.layer_fits(one, wanted)]


@pytest.mark.parametrize(("stage", "count"), [("down", 6), ("mid", 1), ("up", 9)])
def test_a_stage_chooses_its_layers(stage, count):
    assert chosen(stage) == [one.name for one in LAYERS if one.name.startswith(stage)]
    assert len(chosen(stage)) == count


@pytest.mark.parametrize("pattern", ["*attentions.0*", "up_blocks.?.*.[02].*", "*", "none*"])
def test_a_pattern_chooses_as_in_a_shell(pattern):
    assert chosen(pattern) == [one.name for one in LAYERS if fnmatchcase(one.name, pattern)]


def test_a_list_chooses_the_layers_of_all_its_entries():
    single = LAYERS[3].name
    assert chosen(["mid", single]) == [single, LAYERS[6].name]
    assert chosen(("up", "up_blocks.1*")) == chosen("up")
    assert chosen([lambda layer: layer.grid == (16, 16), "mid"]) == [
        one.name for one in LAYERS if one.grid == (16, 16) or one.name.startswith("mid")
    ]
    assert chosen([]) == []


def test_a_function_chooses_layers():
    assert chosen(lambda layer: layer.grid[0] == 16) == [
        one.name for one in LAYERS if one.grid == (16, 16)
    ]


@pytest.mark.parametrize("odd", [3, 2.5, [3], [None], {"up": 1}.values()])
def test_choices_of_no_layer_are_refused(odd):
    with pytest.raises(ArgumentError):
        chosen(odd)


@given(
    st.integers(1, 30),
    st.one_of(
        st.none(),
        st.integers(-30, 29),
        st.lists(st.integers(-30, 29), min_size=1, max_size=9),
        st.builds(
            slice,
            st.none() | st.integers(-40, 40),
            st.none() | st.integers(-40, 40),
            st.none() | st.integers(1, 9) | st.integers(-9, -1),
        ),
    ),
)
def test_numbers_and_slices_choose_as_indexing_does(total, wanted):
    """Against numpy's own indexing; ascending, and each once."""
    every = np.arange(total)
    if wanted is None:
        expected = every
    elif isinstance(wanted, slice):
        expected = every[wanted]
    else:
        several = np.atleast_1d(wanted)
        if not ((-total <= several) & (several < total)).all():
            with pytest.raises(SelectionError):
                recordings.numbers_of(wanted, total, "step")
            return
        expected = every[several]
    assert recordings.numbers_of(wanted, total, "step") == sorted(set(expected.tolist()))


@pytest.mark.parametrize("odd", [2.0, "1", [1.5], [], {1.5}, object(), slice(0.5), slice(0, 3, 0)])
def test_numbers_of_no_step_are_refused(odd):
    with pytest.raises(SelectionError):
        recordings.numbers_of(odd, 4, "step")


# --- a part of a recording --------------------------------------------------------------------


def test_a_selection_is_narrowed_and_never_widened():
    layers = tuple(replace(one, heads=4 + 4 * (n > 3)) for n, one in enumerate(LAYERS))
    table = TokenTable("", 0, 0, (), ())
    axes = frozenset(AXES)
    run = Recording(layers, (), axes, (900.0, 600.0, 300.0, 0.0), (), table, (64, 64), (512, 512))
    every = recordings.Selection(run)
    assert every.layer_numbers == tuple(range(len(LAYERS)))
    assert every.step_numbers == (0, 1, 2, 3) and every.head_numbers == tuple(range(8))
    ups = every.with_layers("up", None)
    assert ups.with_layers("*", 16).layers == ups.with_layers(None, (16, 16)).layers
    assert ups.with_layers("*", None).layers == ups.layers
    late = every.with_steps(slice(1, None))
    assert late.with_steps([0, 1]).steps == (1,)
    for odd in (0, -1, 1.5, (8,), (8, 0), (8, 8, 8), "16", {8, 12}):
        with pytest.raises(SelectionError):
            every.with_layers(None, odd)
    with pytest.raises(SelectionError):
        late.with_steps(0)
    assert every.with_heads(3).layers == every.layer_numbers
    assert every.with_heads(4).layers == every.with_heads(6).layers  # four are 0 to 3
    sixth = every.with_heads(6)
    assert sixth.layers == tuple(n for n, layer in enumerate(layers) if layer.heads == 8)
    with pytest.raises(SelectionError):
        sixth.with_heads(5)
    bare = recordings.Selection(replace(run, keep=frozenset[Axis]()))
    with pytest.raises(SelectionError):
        bare.with_layers(None, None)
    with pytest.raises(SelectionError):
        bare.with_steps(0)
