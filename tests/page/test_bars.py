"""Numbers as text and as bars."""

import re

import numpy as np
import pytest

from heedmap.page.bars import Column, bar, brief, digits, html_table, strip


def width(svg: str) -> float:
    return float(re.findall(r'width="([\d.]+)"', svg)[0])


@pytest.mark.parametrize(
    ("value", "long", "short"),
    [
        (0.669761549, "0.66976155", "0.6698"),
        (-135.43500304, "−135.43500304", "−135.4"),
        (0.0, "0.00000000", "0"),
        (2.5e-9, "2.500e−09", "2.5e−09"),
        (1.5e-6, "0.00000150", "1.5e−06"),
        (-9e-7, "−9.000e−07", "−9.0e−07"),
        (1e-4, "0.00010000", "0.0001"),
        (None, "hidden", "hidden"),
    ],
)
def test_digits(value, long, short):
    assert digits(value) == long and brief(value) == short


def test_a_bar_ends_at_its_value():
    assert width(bar(0.25, 0, 1)) == 25
    below = bar(-1, -1, 3)  # zero lies at a quarter
    assert 'x="0.00"' in below and width(below) == 25 and 'x1="25.00"' in below
    assert width(bar(0, 0, 0)) == 0
    assert width(bar(1, -1, 3)) == 25  # from zero, at a quarter, to the half
    assert width(bar(5, 0, 1)) == 100 and width(bar(-5, -1, 1)) == 50  # nothing leaves its cell
    assert width(bar(-5, 0, 1)) == 0


def test_the_padding_is_summed_or_a_range():
    shares = Column([0.5, 0.25, 0.25], "digits")
    assert shares.one(0) == "<td>0.50000000</td>" and shares.several([1, 2]) == shares.one(0)
    scores = Column([-2.0, 1.0, None], "brief", sums=False)
    assert scores.several([0, 1]) == "<td>−2 … 1</td>"
    assert scores.one(2) == "<td>hidden</td>" == scores.several([2])
    assert scores.several([0, 2]) == "<td>−2 … −2</td>"
    assert width(Column([-2.0, 1.0, None], "bar", sums=False).one(1)) == pytest.approx(33.33)
    assert width(Column([0.5, 0.25, 0.25], "bar", 1).several([1, 2])) == 50
    lengths = Column([2.0, 3.0, 4.0], "bar", rest=5.0)  # of two at a right angle
    assert width(lengths.several([1, 2])) == 100 and width(lengths.one(0)) == 40
    assert Column([2.0, 3.0, 4.0], "digits", rest=5.0).several([1, 2]) == "<td>5.00000000</td>"


def test_a_strip_has_a_bar_for_each_number():
    shown = strip(np.array([1.0, -2.0, 0.0]))
    assert shown.count("<rect") == 3
    assert 'y="6.00" width="0.8" height="6.00"' in shown  # up from the middle
    assert 'y="12.00" width="0.8" height="12.00"' in shown  # down from it
    assert strip(np.zeros(4)).count('height="0.00"') == 4


def test_a_table_escapes_its_head():
    assert "<th>a&lt;b</th>" in html_table(["a<b"], ["<tr></tr>"])
