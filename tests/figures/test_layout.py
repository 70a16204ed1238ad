"""Sheets and tables: everything at the place that is worked out by hand, nothing cut."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from making import darkness
from PIL import Image, ImageDraw

from heedmap.errors import ArgumentError, HeedmapWarning
from heedmap.figures import layout, overlays
from heedmap.figures.blocks import Block, PictureAt, TextAt, text_width, wrap
from heedmap.figures.layout import Panel, ScaleBar
from heedmap.figures.sheet import Sheet


def scene(width: int = 64, height: int = 48) -> Image.Image:
    picture = Image.new("RGB", (width, height), (150, 205, 245))
    box = (width // 4, height // 3, width // 2, height - 1)
    ImageDraw.Draw(picture).rectangle(box, (205, 50, 45))
    return picture


def ramp(h: int = 8, w: int = 8) -> np.ndarray:
    return np.linspace(0, 1, h * w, dtype=np.float32).reshape(h, w)


def pixels(figure: Sheet | Block) -> np.ndarray:
    sheet = figure if isinstance(figure, Sheet) else Sheet.of(figure)
    return np.asarray(sheet.image())


def example(words: str = "a red house", **more) -> Sheet:
    image = scene()
    panels = [
        Panel(word, overlays.overlay(image, ramp(), low=0, high=1), f"{n}")
        for n, word in enumerate(words.split())
    ]
    given = {"title": words, "bar": ScaleBar("shared by the words", 0.0, 0.25)} | more
    return layout.framed(layout.in_rows([Panel("", image, "the picture"), *panels]), **given)


def texts(block: Block) -> list[str]:
    return [item.text for item in block.items if isinstance(item, TextAt)]


# --- grids ------------------------------------------------------------------------------------


@pytest.mark.parametrize("caption", ["house", "w" * 300, "one two " * 40, "בית"])
@pytest.mark.parametrize("size", [(64, 64), (200, 20)])
def test_captions_stay_in_their_column(caption, size):
    white = Image.new("RGB", size, "white")
    bare, full = (layout.in_rows([panel]) for panel in (Panel("", white), Panel(caption, white)))
    assert full.width == bare.width
    sheet = pixels(layout.framed(full, title=""))
    rows, columns = np.nonzero((sheet < 100).any(axis=-1))
    centre = sheet.shape[1] / 2
    assert columns.min() >= centre - full.width / 2 and columns.max() < centre + full.width / 2
    assert abs((columns.min() + columns.max()) / 2 - centre) <= 3
    assert rows.max() <= 32 + full.height


@settings(deadline=None, max_examples=60)
@given(st.text(st.sampled_from("abcWil.-'é "), max_size=200), st.integers(60, 600))
def test_wrapped_lines_keep_every_word_within_the_width(text, width):
    lines = wrap(text, width, 16).splitlines()
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(text_width(line) * 16 <= width for line in lines if len(line) > 1)


@pytest.mark.parametrize("shape", [1, 832 / 1216, 4 / 3, 0.2, 5, 1000])
def test_the_plan_of_every_sheet(shape):
    sides = []
    for count in range(2, 79):
        columns, wide, high = layout._plan(count, shape)
        width = columns * (max(wide, 112) + 20) + 44
        rows = math.ceil(count / columns)
        assert width <= 2400 and (rows - 1) * columns < count
        if 0.5 < shape < 2:
            assert 96 <= math.sqrt(wide * high) <= 390
            assert abs(wide / high / shape - 1) < 0.02
            if count >= 20:
                assert 1.2 < width / (rows * (high + 50)) < 2.8
        sides.append(wide * high)
    assert sides[0] == max(sides) and sides[-1] == min(sides)


@pytest.mark.parametrize("count", [1, 2, 8, 20, 77])
@pytest.mark.parametrize("size", [(32, 32), (52, 76)])
def test_sheets_of_many_words(count, size):
    panels = [Panel(f"word{n},", scene(*size)) for n in range(count + 1)]
    bar = ScaleBar("raw", 0, 1)
    got = layout.framed(layout.in_rows(panels), title="word " * count, bar=bar).image()
    assert got.mode == "RGB" and 500 <= got.width <= 2400 and 250 <= got.height <= 1800
    assert count < 8 or 1.1 < got.width / got.height < 2.4


def test_the_picture_comes_first_and_rows_follow_in_order():
    colours = [(200, 0, 0), (0, 160, 0), (0, 0, 220), (150, 150, 0), (0, 150, 150)]
    panels = [Panel("", Image.new("RGB", (64, 64), c)) for c in colours]
    got = pixels(layout.framed(layout.in_rows(panels), title="", bar=ScaleBar("", 0, 1)))
    first = [np.argwhere((got == c).all(-1)).min(0) for c in colours]
    assert first == sorted(first, key=lambda at: (at[0], at[1]))
    assert first[0][0] == first[2][0] < first[3][0] and first[0][1] == first[3][1]


def test_pictures_stand_at_their_places_pixel_by_pixel():
    """Two columns of 384 pixels, margins of 32, gaps of 20: no title, no captions, no bar."""
    noise = np.random.default_rng(0).integers(0, 256, (2, 96, 96, 3), dtype=np.uint8)
    panels = [Panel("", Image.fromarray(one)) for one in noise]
    got = pixels(layout.framed(layout.in_rows(panels), title=""))
    assert got.shape == (32 + 384 + 6 + 32, 2 * 32 + 2 * 384 + 20, 3)
    for panel, left in zip(panels, (32, 32 + 384 + 20), strict=True):
        large = np.asarray(panel.picture.resize((384, 384), Image.Resampling.LANCZOS))
        inner = got[33 : 32 + 383, left + 1 : left + 383]
        np.testing.assert_array_equal(inner, large[1:-1, 1:-1])
    assert (got[:31] == 255).all() and (got[417:] == 255).all()
    assert (got[:, :31] == 255).all() and (got[:, 417:435] == 255).all()


def test_pictures_of_another_shape_are_fitted_in():
    red = Image.new("RGB", (300, 100), (255, 0, 0))
    got = pixels(layout.in_rows([Panel("", scene(64, 64)), Panel("", red)]))
    at = np.argwhere((got == (255, 0, 0)).all(-1))
    high, wide = at.max(0) - at.min(0) + 3  # with its outline
    assert abs(wide / high - 3) < 0.05


@pytest.mark.parametrize(
    "call",
    [
        lambda: layout.in_rows([]),
        lambda: example(bar=ScaleBar("x", math.nan, 1)),
        lambda: layout.table([], ["a"]),
        lambda: layout.table([("", [scene()])], ["a", "b"]),
    ],
)
def test_what_cannot_be_laid_out_is_refused(call):
    with pytest.raises(ArgumentError):
        call()


# --- what stands around them ------------------------------------------------------------------


def test_the_footer_names_the_scale():
    # The same sheet but for the footer: only its rows differ.
    names = ("raw", "each word its own")
    one, other = (pixels(example(bar=ScaleBar(name, 0, 0.25))) for name in names)
    changed = np.nonzero((one != other).any((1, 2)))[0]
    assert changed.min() > one.shape[0] - 70
    for more in ({"low": 0.1}, {"alone": True}, {"low": "least", "high": "most"}):
        again = pixels(example(bar=ScaleBar("raw", **{"low": 0, "high": 0.25} | more)))
        assert again.shape == one.shape and (again != one).any()


def test_the_ends_of_a_bar():
    ends = [
        ScaleBar("x", *given).ends()
        for given in ((0.0012345, 0.2), (1e-9, 0.2), ("least", "most"), (0, 1), (-0.5, 1e-9))
    ]
    assert ends == [
        ("0.00123", "0.2"),
        ("0", "0.2"),
        ("least", "most"),
        ("0", "1"),
        ("−0.5", "0.5"),
    ]
    with pytest.raises(ArgumentError, match="finite number"):
        ScaleBar("x", math.nan, 1).ends()


def test_a_bar_has_the_colours_of_its_pictures():
    alone = np.asarray(ScaleBar("x", 0, 1, alone=True).drawn((256, 4)))
    expected = overlays.colour(np.linspace(0, 1, 256)[None])[0]
    np.testing.assert_allclose(alone[0], expected, atol=1)
    over = np.asarray(ScaleBar("x", 0, 1).drawn((256, 4)))
    grey = Image.new("RGB", (256, 4), (176,) * 3)
    np.testing.assert_allclose(over, overlays.overlay(grey, ramp(1, 256), low=0, high=1), atol=1)


def test_a_bar_is_a_fifth_of_its_room_between_its_ends():
    block = ScaleBar("raw", 0, 1, alone=True).block(500)
    (bar,) = (item for item in block.items if isinstance(item, PictureAt))
    assert bar.size == (100, 16)
    cold, hot, name = (item for item in block.items if isinstance(item, TextAt))
    assert (cold.text, hot.text, name.text) == ("0", "1", "scale: raw")
    assert cold.x < bar.x < bar.x + 100 < hot.x < name.x
    got = pixels(block)[2:18, int(bar.x) : int(bar.x) + 100]
    np.testing.assert_array_equal(got, np.asarray(bar.picture))


# --- tables -----------------------------------------------------------------------------------


def test_rows_of_a_table_are_as_high_as_their_pictures():
    square, flat = Image.new("RGB", (90, 90), "red"), Image.new("RGB", (90, 30), "red")
    got = pixels(layout.table([("a", [square]), ("b", [flat])], ["x"], side=180))
    red = (got == (255, 0, 0)).all(axis=-1)
    high = red.any(axis=1).sum()
    assert abs(high - (180 + 60 - 4)) <= 2
    assert got.shape[0] < 180 + 60 + 60


def test_labels_stand_beside_and_above():
    picture = Image.new("RGB", (90, 90), "red")
    block = layout.table([("row", [picture, picture])], ["one", "two"], side=180)
    first, second = (item for item in block.items if isinstance(item, PictureAt))
    one, two, row = (item for item in block.items if isinstance(item, TextAt))
    assert (one.text, two.text, row.text) == ("one", "two", "row")
    assert first.size == second.size == (180, 180)
    assert first.y == second.y and second.x == first.x + 180 + 12
    assert one.y == two.y < first.y and row.x == 0 < first.x
    assert first.x < one.x < first.x + 180 and second.x < two.x < second.x + 180
    assert first.y < row.y < first.y + 180
    assert block.width == second.x + 180 and block.height == first.y + 180


def test_a_table_says_why_a_picture_is_not_there():
    red = Image.new("RGB", (64, 64), "red")
    bare, told = (
        Sheet.of(layout.table([("", [red, why])], ["a", "b"], side=128, least=128)).image()
        for why in ("", "not in this prompt")
    )
    assert bare.size == told.size
    assert darkness(told) > darkness(bare)
    assert (np.asarray(bare)[40:, 150:] == 255).all()


@pytest.mark.parametrize(
    ("shape", "size", "least"),
    [
        ((1, 7), (128, 128), 256),
        ((5, 12), (128, 128), 150),
        ((2, 3), (512, 768), 200),
        ((1, 40), (64, 64), 96),
    ],
)
def test_contact_sheets_are_legible(shape, size, least):
    picture = Image.new("RGB", size, "red")
    rows = [(f"row {n}", [picture] * shape[1]) for n in range(shape[0])]
    columns = ["column"] * shape[1]
    sheet = pixels(layout.framed(layout.table(rows, columns), title="a prompt", note="note"))
    red = (sheet == (255, 0, 0)).all(axis=-1)
    wide = red.any(axis=0).sum() / shape[1]
    high = red.any(axis=1).sum() / shape[0]
    assert min(wide, high) >= least - 3  # but for the frame
    assert wide / high == pytest.approx(size[0] / size[1], abs=0.02)
    assert sheet.shape[1] <= layout.MAX_WIDTH or least == 96


def test_a_title_that_no_font_can_draw_warns(monkeypatch):
    monkeypatch.setattr("heedmap.figures.sheet.fonts", lambda: ("DejaVu Sans",))
    body = layout.in_rows([Panel("", scene())])
    with pytest.warns(HeedmapWarning, match="집"):
        layout.framed(body, title="빨간 집")
