"""Pictures: numbers worked by hand, nothing cut, no empty boxes, the same bytes every time."""

import io
import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from fontTools.ttLib import TTFont
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from making import darkness
from PIL import Image, ImageDraw

from heedmap.errors import ArgumentError
from heedmap.figures import layout, lettering
from heedmap.figures.layout import (
    COLORMAPS,
    Panel,
    colour,
    enlarge,
    grid,
    overlay,
    overlay_several,
    resize_map,
    sheet,
)

INFERNO_TOP, INFERNO_FOOT = (252, 255, 164), (0, 0, 3)  # as published
LONG = "extraordinarily-" * 18 + "long"


def scene(width: int = 64, height: int = 48, mode: str = "RGB") -> Image.Image:
    picture = Image.new("RGB", (width, height), (150, 205, 245))
    ImageDraw.Draw(picture).rectangle(
        (width // 4, height // 3, width // 2, height - 1), (205, 50, 45)
    )
    return picture.convert(mode)


def ramp(h: int = 8, w: int = 8) -> np.ndarray:
    return np.linspace(0, 1, h * w, dtype=np.float32).reshape(h, w)


def png(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def example(words: str = "a red house", **more) -> Image.Image:
    image = scene()
    panels = [
        Panel(word, overlay(image, ramp(), low=0, high=1), f"{n}")
        for n, word in enumerate(words.split())
    ]
    given = {"title": words, "scale": "shared by the words", "low": 0.0, "high": 0.25} | more
    return sheet(image, panels, **given)


def characters(path: str) -> dict[int, str]:
    """What a font can draw, by another reader than ours."""
    with TTFont(path, fontNumber=0) as font:
        return font.getBestCmap()


@pytest.fixture
def only_dejavu(monkeypatch):
    """A machine without any other font."""

    def forget():
        for cached in (lettering._font_file, lettering._length, lettering.drawable):
            cached.cache_clear()

    own = lettering._fonts(False)
    monkeypatch.setattr(lettering, "_fonts", lambda others: () if others else own)
    forget()
    yield
    monkeypatch.undo()
    forget()


# --- resizing ---------------------------------------------------------------------------------


def test_bilinear_by_hand():
    # Cell centres at half pixels, border held: the four pixels of a side lie at 0, ¼, ¾, 1.
    at = np.array([0, 0.25, 0.75, 1])
    got = resize_map(np.array([[0, 1], [2, 3]]), (4, 4))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, 2 * at[:, None] + at[None, :], atol=1e-6)


@pytest.mark.parametrize("size", [(1, 1), (7, 3), (48, 72), (301, 64)])
@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, -2.7e8, 1e-30])
def test_a_constant_stays_constant_to_the_bit(value, size):
    got = resize_map(np.full((5, 9), value, np.float32), size)
    assert got.shape == size[::-1]
    assert np.all(got == np.float32(value))


@settings(max_examples=50)
@given(
    arrays.arrays(
        np.float32,
        arrays.array_shapes(min_dims=2, max_dims=2, max_side=9),
        elements=st.floats(-1e6, 1e6, width=32),
    ),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
)
def test_nothing_rings(values, size):
    before = values.copy()
    got = resize_map(values, size)
    assert got.shape == size[::-1]
    assert values.min() <= got.min() and got.max() <= values.max()
    np.testing.assert_array_equal(values, before)


def test_rows_stay_rows_on_a_picture_that_is_not_square():
    got = resize_map(np.array([[0.0], [1.0]]), (3, 8))  # two rows, one column
    assert np.all(got == got[:, :1]) and np.all(np.diff(got[:, 0]) >= 0)
    assert got[0, 0] == 0 and got[-1, 0] == 1


@pytest.mark.parametrize(
    ("size", "factor", "short", "wanted"),
    [
        ((128, 128), None, 256, (256, 256)),
        ((130, 200), None, 256, (260, 400)),
        ((64, 96), None, 512, (512, 768)),
        ((256, 900), None, 256, (256, 900)),
        ((832, 1216), None, 256, (832, 1216)),
        ((40, 30), 3, 256, (120, 90)),
    ],
)
def test_enlarge_by_whole_numbers(size, factor, short, wanted):
    image = scene(*size)
    got = enlarge(image, factor=factor, short_side=short)
    assert got.size == wanted and got.mode == "RGB" and got is not image


# --- colour -----------------------------------------------------------------------------------


def test_colours_of_both_ends():
    got = colour([[0, 1]])
    assert got.dtype == np.uint8 and got.shape == (1, 2, 3)
    np.testing.assert_allclose(got[0], [INFERNO_FOOT, INFERNO_TOP], atol=1)


@pytest.mark.parametrize("name", COLORMAPS)
def test_lightness_rises_evenly(name):
    rgb = colour(np.linspace(0, 1, 33)[None], name)[0] / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    y = linear @ [0.2126, 0.7152, 0.0722]
    lightness = np.where(y > 0.008856, 116 * np.cbrt(y) - 16, 903.3 * y)
    steps = np.diff(lightness)
    assert steps.min() > 0 and steps.max() < 2.5 * steps.mean()


# --- overlay ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "CMYK", "1"])
@pytest.mark.parametrize("size", [(83, 121), (64, 48), (1, 1), (3, 200)])
def test_overlay_keeps_the_size_and_the_picture(mode, size):
    image = scene(*size, mode=mode)
    before = image.tobytes()
    got = overlay(image, ramp(4, 6), low=0, high=1)
    assert got.size == size and got.mode == "RGB"
    assert image.tobytes() == before and image.mode == mode


def test_heat_zero_shows_the_picture_and_heat_one_the_colour():
    image = Image.new("RGB", (40, 20), (200, 200, 200))
    got = np.asarray(overlay(image, [[0.1, 0.5]], low=0.1, high=0.5))
    assert np.all(got[:, 0] == 120)  # grey stays grey, at 0.6 of its light
    np.testing.assert_allclose(got[0, -1], 0.15 * 120 + 0.85 * np.array(INFERNO_TOP), atol=1)
    whole = np.asarray(overlay(image, [[0.1, 0.5]], low=0.1, high=0.5, opacity=1))
    np.testing.assert_allclose(whole[0, -1], INFERNO_TOP, atol=1)


def test_cold_places_keep_their_hues():
    got = np.asarray(overlay(scene(), np.zeros((2, 2)), low=0, high=1)).astype(int)
    sky, wall = got[0, 0], got[-1, 20]
    assert sky[2] > sky[1] > sky[0] and wall[0] > 2 * wall[1]


def test_opacity_zero_is_the_picture_itself():
    image = scene()
    assert overlay(image, ramp(), low=0, high=1, opacity=0).tobytes() == image.tobytes()


def test_the_scale_is_the_callers_and_clips():
    image = scene()
    shifted = overlay(image, ramp() * 0.02 + 5, low=5, high=5.02)
    np.testing.assert_allclose(
        np.asarray(shifted, int), np.asarray(overlay(image, ramp(), low=0, high=1), int), atol=2
    )
    hot = overlay(image, np.full((2, 2), 9.0), low=0, high=1)
    assert hot.tobytes() == overlay(image, np.ones((3, 3)), low=0, high=1).tobytes()
    cold = overlay(image, np.full((2, 2), -9.0), low=0, high=1)
    assert cold.tobytes() == overlay(image, np.zeros((3, 3)), low=0, high=1).tobytes()


@pytest.mark.parametrize("value", [0.0, 0.3, -1e30])
def test_a_constant_map_on_its_own_scale_is_all_cold(value):
    image = scene()
    got = overlay(image, np.full((4, 4), value), low=value, high=value)
    assert got.tobytes() == overlay(image, np.zeros((4, 4)), low=0, high=1).tobytes()


@pytest.mark.parametrize("paper", [0, 60, 128, 200, 255])
def test_heat_is_legible_on_dark_and_on_bright(paper):
    def luminance(rgb):
        c = np.asarray(rgb) / 255
        return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ [
            0.2126, 0.7152, 0.0722,
        ]  # fmt: skip

    got = np.asarray(overlay(Image.new("L", (9, 1), paper), [[0, 0.5, 1]], low=0, high=1))[0]
    cold, hot = luminance(got[0]) + 0.05, luminance(got[-1]) + 0.05
    assert hot / cold > 2  # the contrast ratio of WCAG
    assert np.abs(got[4].astype(int) - got[0]).max() > 25  # half heat is seen too


def test_what_is_transparent_is_white():
    clear = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([255, 0, 0])
    palette.info["transparency"] = 0
    for image in (clear, palette):
        assert np.all(np.asarray(overlay(image, [[0]], low=0, high=1, opacity=0)) == 255)


def test_several_maps_by_hand():
    """One grey pixel: half covered by orange, a quarter by blue, 0.375 of the picture left."""
    image = Image.new("RGB", (1, 1), (100, 100, 100))
    spans = [(0.0, 1.0), (0.0, 2.0)]
    got = overlay_several(image, [[[0.5]], [[0.5]]], spans, opacity=1, hues=("#ff8000", "#0000ff"))
    ends = [60 * 0.375 + 0.625 * (2 * a + b) / 3 for a, b in ((255, 0), (128, 0), (0, 255))]
    assert got.getpixel((0, 0)) == tuple(round(end) for end in ends)
    again = overlay_several(
        image, [[[0.5]], [[0.5]]], spans[::-1], opacity=1, hues=("#0000ff", "#ff8000")
    )
    assert again.tobytes() == got.tobytes()
    bare = overlay_several(scene(), [np.zeros((2, 2))], [(0, 1)], opacity=0)
    assert bare.tobytes() == scene().tobytes()
    with pytest.raises(ArgumentError, match="a span and a hue each; got 1 maps, 2 spans, 7 hues"):
        overlay_several(image, [[[0.5]]], spans)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: resize_map([[math.nan, 1]], (2, 2)), "1 of 2 values"),
        (lambda: resize_map([[math.inf, 1e300]], (2, 2)), "2 of 2 values"),
        (lambda: resize_map([1, 2], (2, 2)), r"\(h, w\).*shape \(2,\)"),
        (lambda: resize_map(np.zeros((0, 3)), (2, 2)), r"shape \(0, 3\)"),
        (lambda: resize_map([[1], [1, 2]], (2, 2)), "unequal length"),
        (lambda: resize_map([["a"]], (2, 2)), "real numbers"),
        (lambda: resize_map([[1j]], (2, 2)), "complex"),
        (lambda: resize_map([[1]], (2, 0)), "the height is 0: expected a whole number from 1"),
        (lambda: resize_map([[1]], (2, 3, 4)), r"\(width, height\)"),
        (lambda: colour([[1.01]]), "scale them first"),
        (lambda: colour([[-0.01]]), r"\[0, 1\]"),
        (lambda: colour([[0]], "jet"), "one of inferno, .*got 'jet'"),
        (lambda: overlay(scene(), [[0]], low=1, high=0), "low must not be above high"),
        (
            lambda: overlay(scene(), [[0]], low=math.nan, high=0),
            "low is nan: expected a finite number",
        ),
        (
            lambda: overlay(scene(), [[0]], low=0, high=math.inf),
            "high is inf: expected a finite number",
        ),
        (
            lambda: overlay(scene(), [[0]], low=0, high=1, opacity=1.1),
            "opacity is 1.1: expected a finite number from 0 to 1",
        ),
        (
            lambda: overlay(scene(), [[0]], low=0, high=1, opacity=None),
            "opacity is None: expected a finite number",
        ),
        (lambda: overlay(np.zeros((4, 4, 3)), [[0]], low=0, high=1), "Pillow image; got ndarray"),
        (lambda: overlay(Image.new("F", (4, 4)), [[0]], low=0, high=1), "mode 'F'"),
        (lambda: enlarge(Image.new("RGB", (0, 4))), "0×4"),
        (lambda: enlarge(scene(), factor=0), "factor is 0: expected a whole number from 1 to 256"),
        (lambda: enlarge(scene(), factor=1.5), "factor is 1.5: expected a whole"),
        (lambda: grid([]), "at least one panel"),
        (
            lambda: grid([Panel("a", scene())], columns=99),
            "columns is 99: expected a whole number from 1 to 17",
        ),
        (lambda: example(low=math.nan), "finite number"),
    ],
)
def test_errors_say_what_is_wrong(call, says):
    with pytest.raises(ArgumentError, match=says):
        call()


def test_heat_alone_is_the_colour_map():
    got = np.asarray(layout.heat([[0.1, 0.5]], (40, 20), low=0.1, high=0.5))
    assert got.shape == (20, 40, 3)
    np.testing.assert_allclose(got[0, [0, -1]], [INFERNO_FOOT, INFERNO_TOP], atol=1)
    spread = resize_map([[0, 1]], (40, 20))
    assert np.array_equal(got, colour(spread))
    assert len(np.unique(np.asarray(layout.heat([[3, 3]], (4, 4), low=3, high=3)))) <= 3


# --- text -------------------------------------------------------------------------------------


def test_spelled_where_there_is_no_glyph(only_dejavu):
    assert lettering.drawable("한국 house 🏠!") == "U+D55C·AD6D house U+1F3E0·!"
    assert lettering.drawable("a한") == "a·U+D55C"
    assert lettering.drawable("\u1112\u1161\u11ab") == "U+D55C"  # jamo, composed
    assert lettering.drawable("👩\u200d💻 ❤\ufe0f") == "U+1F469·1F4BB ❤"
    assert lettering.drawable(" a\n\tb\u00a0 c\u200b ") == "a b c"
    assert lettering.drawable("\x00\ud800\ue000\u3164") == "U+0000·D800·E000·3164"
    assert png(grid([Panel("한", scene())])) == png(grid([Panel("U+D55C", scene())]))


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "한국어 집",
        "日本の家",
        "בית אדום",
        "بيت أحمر",
        "हिन्दी",
        "🏠👩\u200d💻",
        "e\u0301\u0327 ﷽",
        "\U0010fffd",
    ],
)
def test_every_character_has_its_font(text):
    runs = lettering._runs(lettering.drawable(text))
    assert "".join(run for _, run in runs) == lettering.drawable(text)
    for path, run in runs:
        known = characters(path)
        assert [sign for sign in run if ord(sign) not in known] == []
    assert darkness(grid([Panel(text, scene())])) > darkness(grid([Panel("", scene())]))


def test_another_font_helps_out():
    stix, dejavu = characters(lettering._fonts(True)[-1]), characters(lettering._fonts(False)[0])
    sign = next(chr(code) for code in sorted(stix) if code not in dejavu and chr(code).isalpha())
    assert lettering.drawable(f"a{sign}b") == f"a{sign}b"
    assert len(lettering._runs(f"a{sign}b")) == 3


@settings(max_examples=60)
@given(
    st.lists(st.text("abWi-é漢שב\u0301", min_size=1, max_size=40), max_size=30).map(" ".join),
    st.integers(96, 500),
)
def test_text_is_set_whole_and_within_its_column(text, width):
    block = lettering.fit_text(text, width, size=24)
    assert "".join(block.lines).replace(" ", "") == lettering.drawable(text).replace(" ", "")
    assert 11 <= block.size <= 24
    assert block.width <= width
    if block.size > 11:  # only the smallest size may break words or run past two lines
        assert len(block.lines) <= 2
        assert " ".join(block.lines) == lettering.drawable(text)


@pytest.mark.parametrize("middle", [True, False])
@pytest.mark.parametrize(
    "text", ["house", LONG, "a " * 200, "gjpqÅÉ", "בית אדום ליד עץ", "한국어 집"]
)
def test_ink_stays_in_the_box(text, middle):
    block = lettering.fit_text(text, 160, size=24)
    paper = Image.new("RGB", (400, block.height + 200), "white")
    block.draw(paper, 100, 100, 160, (0, 0, 0), middle)
    rows, columns = np.nonzero(np.asarray(paper.convert("L")) < 255)
    assert columns.min() >= 98 and columns.max() <= 261
    assert rows.min() >= 98 and rows.max() <= 100 + block.height + 1


def test_marks_stay_with_their_letters_and_too_many_do_no_harm():
    text = "e\u0327\u0323" * 200  # nothing composes the two marks
    lines = lettering.fit_text(text, 112, size=16).lines
    assert len(lines) > 5 and all(line.startswith(("e", "\u0229")) for line in lines)
    assert len(lettering.fit_text("a" + "\u0327" * 3000, 112, size=16).lines) < 100


def test_hebrew_begins_at_the_right():
    block = lettering.fit_text("בית", 300, size=24)
    paper = Image.new("RGB", (300, 60), "white")
    block.draw(paper, 0, 0, 300, (0, 0, 0), False)
    assert np.nonzero(np.asarray(paper.convert("L")) < 255)[1].min() > (
        200 if lettering._RAQM else -1
    )


def test_without_raqm_all_is_still_drawn(only_dejavu, monkeypatch):
    monkeypatch.setattr(lettering, "_RAQM", False)
    lettering._font.cache_clear()
    try:
        assert (
            lettering.drawable("می\u200c\u062e\u0648\u0627\u0647\u0645")
            == "می\u062e\u0648\u0627\u0647\u0645"
        )
        assert example("בית بيت 한 e\u0301").width > 0
    finally:
        lettering._font.cache_clear()


# --- sheets -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "caption", ["house", LONG, "w" * 300, "one two " * 40, "한국어" * 20, "בית"]
)
@pytest.mark.parametrize("size", [(64, 64), (83, 121), (200, 20)])
def test_captions_are_never_cut(caption, size):
    """All the ink of the texts, drawn with room to spare, is found again in the grid."""
    white = Image.new("RGB", size, "white")
    bare = grid([Panel("", white), Panel("", white)], columns=2)
    full = grid([Panel(caption, white, "note"), Panel("", white)], columns=2)
    assert full.width == bare.width
    room = (full.width - layout._GAP) // 2
    ink, found = darkness(full) - darkness(bare), False
    for points in range(16, 27):  # the size that the grid chose
        paper = Image.new("RGB", (room + 200, 3000), "white")
        lettering.fit_text(caption, room, size=points).draw(
            paper, 100, 100, room, layout._INK, True
        )
        note = lettering.fit_text("note", room, size=max(11, round(points * 0.8)))
        note.draw(paper, 100, 2800, room, layout._SOFT, True)
        found |= darkness(paper) == ink
    assert found
    between = np.asarray(full.convert("L"))[:, room + 2 : room + layout._GAP - 2]
    assert np.all(between == 255)


def test_a_title_of_any_length_is_whole():
    one, many = example(title="a"), example(title="a wonderful house " * 200)
    assert many.width == one.width and many.height > one.height
    edge = np.asarray(many.convert("L"))
    assert np.all(edge[:, :28] == 255) and np.all(edge[:, -28:] == 255)
    assert np.all(edge[:28] == 255) and np.all(edge[-24:] == 255)


@pytest.mark.parametrize("shape", [1, 832 / 1216, 4 / 3, 0.2, 5, 1000])
def test_the_plan_of_every_sheet(shape):
    sides = []
    for count in range(2, 79):
        columns, wide, high = layout._plan(count, shape, None)
        width = columns * (max(wide, 112) + 20) + 44
        rows = math.ceil(count / columns)
        assert width <= 2400 and (rows - 1) * columns < count
        if 0.5 < shape < 2:
            assert 96 <= math.sqrt(wide * high) <= 390
            assert abs(wide / high / shape - 1) < 0.02
            if count >= 20:
                assert 1.2 < width / (rows * (high + 50)) < 2.6
        sides.append(wide * high)
    assert sides[0] == max(sides) and sides[-1] == min(sides)


@pytest.mark.parametrize("count", [1, 2, 8, 20, 77])
@pytest.mark.parametrize("size", [(32, 32), (52, 76)])
def test_sheets_of_many_words(count, size):
    panels = [Panel(f"word{n},", scene(*size)) for n in range(count)]
    got = sheet(scene(*size), panels, title="word " * count, scale="raw", low=0, high=1)
    assert got.mode == "RGB" and 500 <= got.width <= 2400 and 250 <= got.height <= 1800
    assert count < 8 or 1.1 < got.width / got.height < 2.4


def test_the_picture_comes_first_and_rows_follow_in_order():
    colours = [(200, 0, 0), (0, 160, 0), (0, 0, 220), (150, 150, 0), (0, 150, 150)]
    panels = [Panel("", Image.new("RGB", (64, 64), c)) for c in colours]
    got = np.asarray(
        sheet(panels[0].picture, panels[1:], title="", scale="", low=0, high=1, columns=3)
    )
    first = [np.argwhere((got == c).all(-1)).min(0) for c in colours]
    assert first == sorted(first, key=lambda at: (at[0], at[1]))
    assert first[0][0] == first[2][0] < first[3][0] and first[0][1] == first[3][1]


def test_pictures_of_another_shape_are_fitted_in():
    red = Image.new("RGB", (300, 100), (255, 0, 0))
    got = np.asarray(grid([Panel("", scene(64, 64)), Panel("", red)], columns=2))
    at = np.argwhere((got == (255, 0, 0)).all(-1))
    high, wide = at.max(0) - at.min(0) + 3  # with its outline
    assert abs(wide / high - 3) < 0.05


def test_the_footer_names_the_scale():
    # The same sheet but for the footer: only its rows differ.
    one, other = (np.asarray(example(scale=s)) for s in ("raw", "each word its own"))
    changed = np.nonzero((one != other).any((1, 2)))[0]
    assert changed.min() > one.shape[0] - 70
    assert png(example(low=0.1)) != png(example(low=0.2))
    assert example(low="least", high="most").size[0] == one.shape[1]
    assert png(example(opacity=0.5)) != png(example(opacity=0.9))


def test_the_ends_of_a_bar():
    ends = [
        layout.ScaleBar("x", *given).ends()
        for given in ((0.0012345, 0.2), (1e-9, 0.2), ("least", "most"), (0, 1), (-0.5, 1e-9))
    ]
    assert ends == [
        ("0.00123", "0.2"),
        ("0", "0.2"),
        ("least", "most"),
        ("0", "1"),
        ("-0.5", "1e-09"),
    ]
    with pytest.raises(ArgumentError, match="finite number"):
        layout.ScaleBar("x", math.nan, 1).ends()


def test_a_bar_has_the_colours_of_its_pictures():
    alone = np.asarray(layout.ScaleBar("x", 0, 1, alone=True).draw((256, 4)))
    np.testing.assert_allclose(alone[0], colour(np.linspace(0, 1, 256)[None])[0], atol=1)
    over = np.asarray(layout.ScaleBar("x", 0, 1).draw((256, 4)))
    grey = overlay(Image.new("RGB", (256, 4), (176,) * 3), ramp(1, 256), low=0, high=1)
    np.testing.assert_allclose(over, grey, atol=1)


def test_rows_of_a_table_are_as_high_as_their_pictures():
    square, flat = Image.new("RGB", (90, 90), "red"), Image.new("RGB", (90, 30), "red")
    got = np.asarray(layout.table([("a", [square]), ("b", [flat])], ["x"], side=180))
    red = (got == (255, 0, 0)).all(axis=-1)
    high = red.any(axis=1).sum()
    assert abs(high - (180 + 60 - 4)) <= 1
    assert got.shape[0] < 180 + 60 + 60


def test_bodies_stand_side_by_side_or_below():
    one, other = Image.new("RGB", (30, 20), "red"), Image.new("RGB", (10, 40), "blue")
    beside, below = (layout.joined([one, other], across=a) for a in (True, False))
    assert beside.size == (30 + 32 + 10, 40)
    assert below.size == (30, 20 + 32 + 40)
    assert beside.getpixel((62, 39)) == below.getpixel((9, 91)) == (0, 0, 255)
    assert beside.getpixel((0, 30)) == below.getpixel((20, 60)) == (255, 255, 255)


SCRIPT = """
import hashlib, sys
from PIL import Image
from heedmap.figures.layout import Panel, overlay, sheet
light = not {"matplotlib", "torch"} & set(sys.modules)
import matplotlib
before = matplotlib.rcParams.copy()
image = Image.radial_gradient("L").resize((60, 40))
heat = overlay(image, [[0, 1], [2, 3]], low=0, high=3)
panels = [Panel(word, heat, "note") for word in "a \\ud55c \\u05d1\\u05d9\\u05ea".split()]
drawn = sheet(image, panels, title="a title", scale="raw", low=0, high=3)
digest = hashlib.sha256(drawn.tobytes()).hexdigest()
untouched = before == matplotlib.rcParams.copy()
"""


def test_the_same_bytes_every_time_and_no_pyplot():
    more = """
import json
names = [n for n in sys.modules if n.partition(".")[0] in ("heedmap", "torch", "diffusers")]
print(json.dumps([light, untouched, "matplotlib.pyplot" in sys.modules, sorted(names), digest]))
"""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + more],
        env=os.environ | {"PYTHONHASHSEED": "5", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    light, untouched, pyplot, names, digest = json.loads(done.stdout)
    assert light and untouched and not pyplot
    known = (
        *("checks", "errors", "figures", "figures.layout", "figures.lettering"),
        *("figures.overlays", "files", "files.reading"),
    )
    assert names == ["heedmap", *(f"heedmap.{name}" for name in known)]
    here: dict = {}
    exec(SCRIPT, here)
    assert here["digest"] == digest
