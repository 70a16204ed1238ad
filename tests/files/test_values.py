"""The bounds of the values that files hold."""

import msgspec
import pytest

from heedmap.io import values


@pytest.mark.parametrize(
    ("kind", "fine", "odd"),
    [
        (values.Text, ["", "x" * 100_000], ["x" * 100_001]),
        (values.Name, ["", "x" * 4096], ["x" * 4097]),
        (values.Whole, [0, 2**63 - 1], [-1, 2**63]),
        (values.Small, [0, 2**31 - 1], [-1, 2**31]),
        (values.SideLength, [1, 2**20], [0, 2**20 + 1]),
        (values.Number, [-1e30, 0, 1e30], [-1.01e30, 1.01e30]),
        (values.Fraction, [0, 0.5, 1], [-1e-9, 1 + 1e-9]),
        (values.Window, [[0, 1], [1, 0]], [[0, 1.1], [-0.1, 1], [0], [0, 1, 1]]),
    ],
    ids=lambda _: "",
)
def test_the_bounds_of_each_value(kind, fine, odd):
    for value in fine:
        msgspec.convert(value, kind)
    for value in odd:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(value, kind)
