"""Arguments as JSON: what comes back, and what is told apart by its bytes."""

import json

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from making import SETTINGS, settings_of
from PIL import Image

from heedmap.drawing.pipeline_arguments import (
    in_words,
    is_argument,
    noted_argument,
    restorable,
    restored,
    without_numpy,
)
from heedmap.files.settings import Settings

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


def nested(depth, value=1):
    """Tuples within tuples."""
    for _ in range(depth):
        value = (value,)
    return value


@pytest.mark.parametrize(
    "value",
    ["\ud800", 10**30, -(2**64) - 1, nested(50), nested(15), {"\ud800": 1}, {"x" * 5000: 1}],
)
def test_what_no_file_can_hold_is_known_by_its_type(value):
    noted = noted_argument({"given": [value]})
    assert not restorable(noted)
    about = {**SETTINGS, "arguments": noted}
    msgspec.json.decode(json.dumps(about), type=Settings)


def test_how_deep_what_is_noted_may_be():
    assert restored(noted_argument(nested(14))) == nested(14)
    about = {**SETTINGS, "arguments": noted_argument({"a": nested(13)})}
    msgspec.json.decode(json.dumps(about), type=Settings)


@given(plain)
def test_what_is_plain_comes_back_as_it_was(value):
    noted = json.loads(json.dumps(noted_argument(value), allow_nan=False))
    assert restorable(noted)
    assert repr(restored(noted)) == repr(value)  # tells 1 from True, lists from tuples
    assert is_argument(value, noted)


@pytest.mark.parametrize(
    ("value", "back"), [(np.float64(0.5), 0.5), (np.int32(3), 3), (np.bool_(True), True)]
)
def test_numbers_of_numpy_are_numbers(value, back):
    assert restored(noted_argument(value)) == back
    assert type(noted_argument(value)) is type(back)


def test_no_number_comes_back():
    assert np.isnan(restored(noted_argument(float("nan"))))


picture = Image.new("RGB", (4, 6), (1, 2, 3))
other = Image.new("RGB", (4, 6), (1, 2, 4))
palette, tinted = picture.convert("P"), picture.convert("P")
tinted.putpalette([9, *(tinted.getpalette() or [])[1:]])
OBJECTS = [
    (picture, other),
    (palette, tinted),
    (torch.arange(6.0), torch.arange(6.0) + 1),
    (torch.arange(6.0), torch.arange(6.0).reshape(2, 3)),
    (torch.tensor(1.0, dtype=torch.bfloat16), torch.tensor(1.0, dtype=torch.float16)),
    (torch.tensor([True]), torch.tensor([False])),
    (np.arange(6), np.arange(6).astype(np.int16)),
    ([picture, picture], [picture, other]),
    ({"mask": torch.ones(2)}, {"mask": torch.zeros(2)}),
    ((0.5, picture), (0.6, picture)),
]


@pytest.mark.parametrize(("value", "another"), OBJECTS)
def test_objects_are_known_by_their_bytes(value, another):
    noted = json.loads(json.dumps(noted_argument(value)))
    assert not restorable(noted)
    assert is_argument(value, noted)
    assert not is_argument(another, noted)
    assert in_words(noted)


def test_a_slice_and_its_copy_are_one():
    whole = torch.arange(12.0).reshape(3, 4)
    assert is_argument(whole[:, 1].clone(), noted_argument(whole[:, 1]))


META, SPARSE = torch.empty(2, device="meta"), torch.eye(2).to_sparse()
UNTOLD = [META, SPARSE, print, lambda: 0, object(), {1: 2}, {"object": 3}, {3}]


@pytest.mark.parametrize("value", UNTOLD)
def test_what_cannot_be_told_apart_must_be_given(value):
    noted = json.loads(json.dumps(noted_argument(value)))
    assert not restorable(noted)
    assert is_argument(value, noted)


@pytest.mark.parametrize(
    "noted",
    [{"object": "tuple"}, {"object": "tuple", "items": 3}, {"object": "float", "value": "1"},
     {"object": None}, {"object": []}],
)  # fmt: skip
def test_notes_that_heedmap_did_not_write(noted):
    assert not restorable(noted)
    assert in_words(noted)


def test_what_settings_hold_is_given_as_what_a_pipeline_may_write_into():
    asked = {"scale": 0.5, "boxes": [[0, 1], (2, {"a": [3]})]}
    held = settings_of(arguments={"kwargs": asked}).arguments["kwargs"]
    made = without_numpy(held)
    assert made == asked and type(made) is dict and type(made["boxes"]) is list
    made["gligen"] = 1
    made["boxes"][0].append(2)
    assert held == asked
