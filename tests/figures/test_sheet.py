"""Figures as files: PNG pixel by pixel, SVG and PDF read by other readers, whatever the style."""

import base64
import hashlib
import io
import re
import threading
import xml.etree.ElementTree as ET
import zlib

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from heedmap.errors import ArgumentError
from heedmap.figures import layout
from heedmap.figures.blocks import Block, PictureAt, TextAt
from heedmap.figures.layout import Panel, ScaleBar
from heedmap.figures.sheet import Sheet

SVG = "{http://www.w3.org/2000/svg}"
HREF = "{http://www.w3.org/1999/xlink}href"


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    random = np.random.default_rng(seed)
    return Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))


def example(title: str = "a $5 house & <tree>", size=(96, 64)) -> Sheet:
    panels = [Panel(word, noise(*size, n), f"up to {n}") for n, word in enumerate(title.split())]
    body = layout.in_rows([Panel("", noise(*size, 9), "the picture"), *panels])
    return layout.framed(body, title=title, bar=ScaleBar("raw", 0, 1))


# --- pictures ---------------------------------------------------------------------------------


def test_pixels_stay_where_they_are():
    one, other = noise(40, 30), noise(20, 10, 1)
    things = (
        PictureAt(7, 5, one, one.size, outlined=False),
        PictureAt(60, 50, other, (40, 20)),
        TextAt(10, 90, "house", 20, "#000000", "left", "baseline"),
    )
    got = np.asarray(Sheet.of(Block(120, 100, things)).image())
    assert got.shape == (100, 120, 3)
    np.testing.assert_array_equal(got[5:35, 7:47], np.asarray(one))
    large = np.asarray(other.resize((40, 20), Image.Resampling.LANCZOS))
    np.testing.assert_array_equal(got[51:69, 61:99], large[1:-1, 1:-1])
    dark = np.argwhere((got[71:] < 100).all(axis=-1))
    assert dark.min(0)[1] in range(10, 14) and dark.max(0)[0] + 71 in (89, 90)  # on its line
    got = got.copy()
    got[5:35, 7:47] = got[49:71, 59:101] = got[71:95] = 255
    assert (got == 255).all()


def test_it_is_a_figure_of_matplotlib():
    sheet = example()
    assert isinstance(sheet, Figure)
    assert next(text.get_text() for text in sheet.findobj(Text)) == sheet.title
    file = io.BytesIO()
    sheet.savefig(file)
    with Image.open(file) as drawn:
        assert np.array_equal(np.asarray(drawn.convert("RGB")), np.asarray(sheet.image()))
    ax = sheet.add_axes((0.1, 0.1, 0.2, 0.2))
    ax.plot([0, 1])
    assert np.asarray(sheet.image()).shape == np.asarray(example().image()).shape


def test_its_paper_holds_the_pictures_and_the_lines():
    sheet = example("a house")
    (paper,) = sheet.axes
    assert [one.get_text() for one in paper.texts] == [
        *("a house", "the picture", "a", "up to 0", "house", "up to 1", "0", "1", "scale: raw")
    ]
    width, height = sheet.image().size
    assert (paper.get_xlim(), paper.get_ylim()) == ((0, width), (height, 0))  # pixels
    drawn = np.asarray(sheet.image())
    *pictures, bar = paper.images
    assert bar.get_size()[1] == (width - 64) // 5
    for n, picture in zip((9, 0, 1), pictures, strict=True):
        left, right, low, top = (round(end) for end in picture.get_extent())
        own = noise(96, 64, n).resize((right - left, low - top), Image.Resampling.LANCZOS)
        inner = drawn[top + 1 : low - 1, left + 1 : right - 1]
        np.testing.assert_array_equal(inner, np.asarray(own)[1:-1, 1:-1])


def test_what_is_on_the_paper_can_be_changed():
    sheet = example("a house")
    (paper,) = sheet.axes
    _, second, *_ = paper.images
    before = np.asarray(sheet.image())
    left, right, low, top = (round(end) for end in second.get_extent())
    second.set_data(np.full((5, 5, 3), (0, 255, 0), np.uint8))
    paper.texts[0].set_text("another title")
    paper.texts[1].remove()
    after = np.asarray(sheet.image())
    assert (after[top + 1 : low - 1, left + 1 : right - 1] == (0, 255, 0)).all()
    assert (after[:top] != before[:top]).any()
    assert b"another title" in sheet.data("svg")
    second.set_data(np.linspace(0, 1, 64).reshape(8, 8))  # colours of a map
    second.set_cmap("inferno")
    shown = np.asarray(sheet.image())[top + 1 : low - 1, left + 1 : right - 1]
    assert shown[0, 0].sum() < 60 and shown[-1, -1].sum() > 500


def test_the_same_png_every_time_and_nothing_else_in_it():
    one = example().data()
    assert one == example().data()
    with Image.open(io.BytesIO(one)) as picture:
        assert picture.info == {} and picture.mode == "RGB"


def test_notebooks_show_it():
    sheet = example()
    assert sheet._repr_mimebundle_(include=None, exclude=None) == {"image/png": sheet.data()}


# --- SVG and PDF ------------------------------------------------------------------------------


def read_svg(data: bytes) -> tuple[ET.Element, list[Image.Image]]:
    root = ET.fromstring(data)
    pictures = []
    for image in root.iter(f"{SVG}image"):
        kind, _, text = image.attrib[HREF].partition(",")
        assert kind == "data:image/png;base64"
        with Image.open(io.BytesIO(base64.b64decode(text))) as picture:
            pictures.append(picture.convert("RGB"))
    return root, pictures


def test_svg_has_the_words_and_the_pictures():
    sheet = example()
    data = sheet.data("svg")
    root, pictures = read_svg(data)
    assert root.find(f"{SVG}title").text == "a $5 house & <tree>"
    width, height = (float(root.attrib[side].removesuffix("pt")) for side in ("width", "height"))
    drawn = sheet.image()
    assert (width, height) == drawn.size
    assert len(pictures) == 7  # the picture, five words, the bar
    for image, picture in zip(root.iter(f"{SVG}image"), pictures, strict=True):
        x, y, wide, high = (float(image.attrib[name]) for name in ("x", "y", "width", "height"))
        assert image.attrib["transform"] == f"scale(1 -1) translate(0 -{high:g})"  # upside down
        box = (round(x) + 1, round(-y) + 1, round(x + wide) - 1, round(-y + high) - 1)
        upright = picture.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
        inner = upright.resize((round(wide), round(high))).crop((1, 1, wide - 1, high - 1))
        np.testing.assert_allclose(inner, drawn.crop(box), atol=8)
    ids = [one.attrib["id"] for one in root.iter() if "id" in one.attrib]
    assert len(ids) == len({*ids})


def test_svg_and_pdf_lead_nowhere_and_tell_no_date():
    for kind in ("svg", "pdf"):
        data = example().data(kind)
        assert data == example().data(kind)
        assert not re.search(rb"\b20\d\d-\d\d-\d\d\b|CreationDate|/URI ?\(", data)
        said = [found for found in re.findall(rb'href="([^"]{1,12})', data)]
        assert all(one.startswith((b"data:image/", b"#")) for one in said)


def streams(data: bytes) -> list[bytes]:
    """What a PDF's objects hold, unpacked."""
    found = []
    for packed in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", data, re.DOTALL):
        try:
            found.append(zlib.decompress(packed))
        except zlib.error:
            found.append(packed)
    return found


def test_pdf_has_the_words_and_the_pictures():
    sheet = example("a house")
    data = sheet.data("pdf")
    assert data.startswith(b"%PDF-1.") and data.rstrip().endswith(b"%%EOF")
    assert b"/Title (a house)" in data
    assert data.count(b"/Subtype /Image") == 4
    width, height = sheet.image().size
    assert re.search(rb"/MediaBox \[ 0 0 %d %d \]" % (width, height), data)
    page = b" ".join(streams(data))
    assert all(b"<%04x>" % ord(sign) in page for sign in "house")  # letters that can be searched


def test_saving_leaves_the_figure_as_it_was():
    sheet = Sheet.of(Block(120, 100, (PictureAt(10, 10, noise(160, 160), (80, 80)),)))
    sheet.dpi = 100
    canvas, before = sheet.canvas, sheet.data()
    for kind in ("svg", "pdf"):
        sheet.data(kind)
        assert sheet.canvas is canvas and sheet.dpi == 100
    assert sheet.data() == before


# --- on disk ----------------------------------------------------------------------------------


def test_saved_by_the_suffix_whole_or_not_at_all(tmp_path):
    sheet = example()
    for name, kind in (("a.png", "png"), ("deep/b.SVG", "svg"), ("c.pdf", "pdf")):
        path = sheet.save(tmp_path / name)
        assert path.read_bytes() == sheet.data(kind)
        assert sheet.save(str(path)) == path
    for name in ("a.jpg", "a", "png"):
        with pytest.raises(ArgumentError, match="is not a name for a figure: expected a file that"):
            sheet.save(tmp_path / name)
    with pytest.raises(ArgumentError, match="3 is not a path"):
        sheet.save(3)
    with pytest.raises(ArgumentError, match="kind is 'jpg': expected 'png', 'svg' or"):
        sheet.data("jpg")


# --- texts of any kind ------------------------------------------------------------------------


def test_figures_are_drawn_in_threads_as_they_are_alone():
    expected = [hashlib.sha256(example(f"a house {n}").data()).digest() for n in range(6)]
    found: dict[int, bytes] = {}
    failed: list[BaseException] = []

    def draw(n: int) -> None:
        try:
            found[n] = hashlib.sha256(example(f"a house {n}").data()).digest()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=draw, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and [found[n] for n in range(6)] == expected
