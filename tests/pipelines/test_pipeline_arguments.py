"""Arguments as JSON: restored, or recognised by their bytes."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from heedmap.pipelines.arguments import argument, argument_note, description

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text().filter(lambda key: key != "object"), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(plain)
def test_plain_values_are_read_back(value):
    note = json.loads(json.dumps(argument_note(value), allow_nan=False))
    assert repr(argument(note)) == repr(value)  # tells 1 from True, lists from tuples
    assert argument_note(value) == note


@pytest.mark.parametrize(("value", "back"), [(np.float64(0.5), 0.5), (np.bool_(True), True)])
def test_numbers_of_numpy_become_those_of_python(value, back):
    assert argument(argument_note(value)) == back
    assert type(argument_note(value)) is type(back)


def test_nan_is_read_back():
    assert np.isnan(argument(argument_note(float("nan"))))


picture = Image.new("RGB", (4, 6), (1, 2, 3))
other = Image.new("RGB", (4, 6), (1, 2, 4))
palette = picture.convert("P")
tinted = picture.convert("P")
tinted.putpalette([9, *(tinted.getpalette() or [])[1:]])


@pytest.mark.parametrize(
    ("value", "another"),
    [
        (palette, tinted),
        (torch.arange(6.0), torch.arange(6.0).reshape(2, 3)),
        (torch.tensor(1.0, dtype=torch.bfloat16), torch.tensor(1.0, dtype=torch.float16)),
        ([picture, picture], [picture, other]),
    ],
)
def test_objects_are_recognised_by_their_digest(value, another):
    note = json.loads(json.dumps(argument_note(value)))
    with pytest.raises(ValueError):
        argument(note)
    assert argument_note(value) == note != argument_note(another)
    assert description(note)
