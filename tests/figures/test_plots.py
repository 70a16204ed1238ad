"""Figures: images and texts at their places, nothing cut, files that other readers read."""

import base64
import io
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from making import gradient
from matplotlib.figure import Figure
from PIL import Image

from heedmap.figures import overlays, plots
from heedmap.figures.plots import Panel, ScaleBar

COLOURS = [(200, 0, 0), (0, 160, 0), (0, 0, 220), (150, 150, 0), (0, 150, 150)]
BAR = ScaleBar("shared by all words", (0.0, 0.25))


def plain(colour: object = "red", size: tuple[int, int] = (64, 48)) -> Image.Image:
    return Image.new("RGB", size, colour)


def pixels(figure: Figure) -> np.ndarray:
    return np.asarray(plots.render(figure))


def extents(figure: Figure) -> dict[str, tuple[float, float, float, float]]:
    """Left, top, right and bottom of each text that is drawn, in pixels."""
    plots.render(figure)
    height = figure.bbox.height
    boxes = {}
    for text in figure.findobj(lambda one: hasattr(one, "get_text")):
        if text.get_text() and text.get_visible():
            box = text.get_window_extent()
            boxes[text.get_text()] = (box.x0, height - box.y1, box.x1, height - box.y0)
    return boxes


def places(image: np.ndarray, colour: tuple[int, int, int]) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of the pixels of a colour."""
    rows, columns = np.nonzero((np.abs(image.astype(int) - colour) <= 2).all(-1))
    return int(columns.min()), int(rows.min()), int(columns.max()), int(rows.max())


# --- panels -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "size"), [(1, (20, 200)), (8, (64, 64)), (20, (200, 20))])
def test_texts_of_many_words_are_whole_and_do_not_touch(count, size):
    """No text leaves the paper, and none lies on another."""
    words = [f"word{n} {'extraordinarily ' * (n % 3)}{'w' * (n % 40)}" for n in range(count)]
    panels = [Panel(word, plain(size=size), f"up to {n}") for n, word in enumerate(words)]
    figure = plots.draw_panels(panels, title="title " * 60, note="note " * 90, bars=[BAR])
    found = extents(figure)
    width, height = figure.bbox.size
    assert width <= 2 * plots.MAX_WIDTH + 4
    assert len(found) >= 2 * count + 4
    boxes = np.array([*found.values()])
    assert boxes.min() >= 0 and (boxes[:, 2] <= width).all() and (boxes[:, 3] <= height).all()
    left, top, right, bottom = boxes.T
    over = (left[:, None] < right - 1) & (left < right[:, None] - 1)
    over &= (top[:, None] + 2 < bottom) & (top + 2 < bottom[:, None])
    assert not (over & ~np.eye(len(boxes), dtype=bool)).any()


def test_images_are_in_reading_order_with_captions_below():
    panels = [Panel(f"caption {n}", plain(c), f"note {n}") for n, c in enumerate(COLOURS)]
    figure = plots.draw_panels(panels, title="a title", columns=3)
    image = pixels(figure)
    texts = extents(figure)
    found = [places(image, c) for c in COLOURS]
    assert [one[1] for one in found[:3]] == [found[0][1]] * 3 and found[3][1] > found[0][3]
    assert found[0][0] < found[1][0] < found[2][0] and found[3][0] == found[0][0]
    assert figure.get_suptitle() == "a title" and texts["a title"][3] < found[0][1]
    for n, (left, _, right, bottom) in enumerate(found):
        caption = texts[f"caption {n}"]
        note = texts[f"note {n}"]
        assert bottom < caption[1] < caption[3] <= note[1] + 2
        assert abs((caption[0] + caption[2]) / 2 - (left + right) / 2) < 3
        assert figure.axes[n].get_xlabel() == f"caption {n}"


# --- tables -----------------------------------------------------------------------------------


def test_labels_are_left_of_rows_and_above_columns():
    rows = [("a row", [plain(c) for c in COLOURS[:2]]), ("b", [plain(c) for c in COLOURS[2:4]])]
    figure = plots.draw_table(rows, ["one", "two"], title="title", bars=[BAR])
    image = pixels(figure)
    texts = extents(figure)
    first, second, third, fourth = (places(image, c) for c in COLOURS[:4])
    assert first[1] == second[1] < third[1] == fourth[1]
    assert first[0] == third[0] < second[0] == fourth[0]
    for name, box in (("one", first), ("two", second)):
        assert texts[name][3] <= box[1] and box[0] < sum(texts[name][::2]) / 2 < box[2]
    for name, box in (("a row", first), ("b", third)):
        assert texts[name][2] <= box[0] and box[1] < sum(texts[name][1::2]) / 2 < box[3]
    assert min(box[0] for box in texts.values()) >= 0


@pytest.mark.parametrize(
    ("shape", "size", "least"),
    [((1, 7), (128, 128), 256), ((2, 3), (512, 768), 200)],
)
def test_contact_sheets_are_legible(shape, size, least):
    rows = [(f"row {n}", [plain("red", size)] * shape[1]) for n in range(shape[0])]
    image = pixels(plots.draw_table(rows, ["column"] * shape[1], title="a prompt", note="note"))
    red = np.abs(image.astype(int) - (255, 0, 0)).max(axis=-1) <= 2
    wide = red.any(axis=0).sum() / shape[1]
    high = red.any(axis=1).sum() / shape[0]
    assert min(wide, high) >= least - 4 and image.shape[1] <= 2 * plots.MAX_WIDTH
    assert wide / high == pytest.approx(size[0] / size[1], abs=0.02)


# --- bars -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "ends"),
    [
        (0.0012345, 0.2, ("0.00123", "0.2")),
        ("least", "most", ("least", "most")),
        (-0.5, 0.5, ("−0.5", "0.5")),
    ],
)
def test_a_scale_bar_has_its_ends_and_its_name(low, high, ends):
    bars = [BAR, ScaleBar("x", (low, high))]
    figure = plots.draw_panels([Panel("", plain())], bars=bars)
    texts = extents(figure)
    assert set(ends) <= set(texts)
    assert any(text.startswith("scale: x") for text in texts)
    assert ("scale: x · signed weight" in texts) == (ends[0] == "−0.5")


def test_a_bar_has_the_colours_of_its_images():
    ramp = np.linspace(0, 1, 256)[None]
    for bar, expected in (
        (ScaleBar("x", (0.0, 1.0), alone=True), overlays.heat(ramp, (256, 1), low=0, high=1)),
        (BAR, overlays.overlay(plain((176,) * 3, (256, 1)), ramp, low=0, high=1)),
    ):
        figure = plots.draw_panels([Panel("", plain())], bars=[bar])
        np.testing.assert_array_equal(figure.axes[-1].images[0].get_array(), expected)


# --- texts ------------------------------------------------------------------------------------


def test_prompts_are_cut_and_not_read_as_mathematics():
    figure = plots.draw_panels([Panel("$x^2$ \x07", plain())], title="a_b^2 $\\frac" * 200)
    assert "$x^2$" in extents(figure)
    assert len(figure.get_suptitle()) <= 1000


# --- files ------------------------------------------------------------------------------------


def example() -> Figure:
    panels = [Panel(word, gradient(96, 64), "a note") for word in ("house", "<tree>")]
    return plots.draw_panels(panels, title="a $5 house & <tree>", bars=[BAR])


def test_the_png_is_the_rendered_figure():
    data = plots.encode(example())
    with Image.open(io.BytesIO(data)) as image:
        assert image.mode == "RGB"
        np.testing.assert_array_equal(np.asarray(image), pixels(example()))


def test_svg_and_pdf_hold_the_images():
    root = ET.fromstring(plots.encode(example(), "svg"))
    images = [*root.iter("{http://www.w3.org/2000/svg}image")]
    assert len(images) == 3  # two words, and the bar
    for image in images:
        _, _, text = image.attrib["{http://www.w3.org/1999/xlink}href"].partition(",")
        with Image.open(io.BytesIO(base64.b64decode(text))) as picture:
            assert min(picture.size) > 4
    pdf = plots.encode(example(), "pdf")
    assert pdf.startswith(b"%PDF-1.") and pdf.count(b"/Subtype /Image") == 3
