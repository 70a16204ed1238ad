"""How the texts of options are read."""

import pytest
import typer

from heedmap.cli import options
from heedmap.errors import ArgumentError
from heedmap.text import option_texts


@pytest.mark.parametrize(
    ("text", "size"),
    [("512x768", (512, 768)), ("64X32", (64, 32)), ("8×16", (8, 16)), ("512", (512, 512))],
)
def test_sizes(text: str, size: tuple[int, int]):
    assert option_texts.size_in(text) == size


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("0:3", [0, 1, 2]),
        ("7:", [7, 8, 9]),
        (":2", [0, 1]),
        ("4", [4]),
        ("-1", [9]),
        ("-3:-1", [7, 8]),
    ],
)
def test_ranges(text: str, taken: list[int]):
    assert list(range(10))[options.parse_range(text)] == taken


def test_lists():
    assert options.parse_axes("head, layer,step") == ("head", "layer", "step")
    assert set(options.parse_axes("all")) == {"layer", "step", "head"}
    assert option_texts.numbers_in("0, 2") == [0, 2]
    assert option_texts.names_in("up, mid,") == ["up", "mid"]


def test_pairs():
    assert option_texts.box_in("a=b=0, 0,64,128.5") == ("a=b", (0, 0, 64, 128.5))
    assert options.parse_word_window("cat=0.3") == ("cat", (0, 0.3))
    assert options.by_word([("a", 1), ("b", 2)], "words") == {"a": 1, "b": 2}
    assert options.by_word(None, "words") == {}
    with pytest.raises(ArgumentError):
        options.by_word([("a", 1), ("a", 2)], "words")


def test_words_and_numbers():
    assert options.word_or_number("red house") == "red house"
    assert options.word_or_number("#2") == 2
    with pytest.raises(ArgumentError):
        options.word_or_number("#x")


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((option_texts.size_in, text) for text in ("", "x512", "5.5x4", "8x8x8")),
        *((options.parse_range, text) for text in ("", ":", "a:b", "1:2:3", "1.5")),
        *((option_texts.numbers_in, text) for text in ("", "0;2")),
        *((options.parse_axes, text) for text in ("time", "layer,time")),
        *((option_texts.box_in, text) for text in ("cat", "cat=1,2,3")),
        *((options.parse_word_window, text) for text in ("cat", "cat=2", "=0.5")),
    ],
)
def test_what_cannot_be_read_is_a_usage_error(read, text: str):
    with pytest.raises(typer.BadParameter):
        options.reader(read)(text)
