"""What can be taken from the page: pictures, numbers, code, and the page itself in a notebook."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import small
from PIL import Image

from browser.conftest import canvas, same
from heedmap import explorer


def test_downloads_are_the_overlay_and_the_map(show: Any, run: Any, run_page: str, tmp_path: Path):
    opened = show(run_page)
    opened.choose("Scale", "word")
    opened.choose("Layers", "group down")
    opened.word("house").click()
    heat = run.maps.select(layers="down")["house"]
    for name, suffix in (("Overlay of house, PNG", "png"), ("Map of house, NPY", "npy")):
        with opened.page.expect_download() as waiting:
            opened.page.get_by_role("button", name=name).click()
        kept = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(kept)
        assert kept.suffix == f".{suffix}" and "house" in kept.stem and "down" in kept.stem
        if suffix == "png":
            same(np.asarray(Image.open(kept).convert("RGB")).astype(int), heat.overlay())
        else:
            values = np.load(kept, allow_pickle=False)
            assert values.dtype == np.float32 and values.shape == heat.values.shape
            np.testing.assert_allclose(values, heat.values, atol=np.ptp(heat.values) / 1000)


def test_the_command_can_be_copied(show: Any, run_page: str):
    opened = show(run_page)
    command = opened.page.get_by_role("region", name="On the command line").inner_text()
    assert command.replace("\n", "").startswith("heedmap generate 'a red house next to a blue tree")
    text = opened.page.get_by_role("region", name="In Python").evaluate("e => e.textContent")
    assert "hm.generate(" in text and "seed=7" in text and "\n" in text


@pytest.mark.parametrize("address", ["http://localhost:9/", "http://lan.example/"])
@pytest.mark.parametrize("kind", ["page", "frame", "closed"])
def test_the_button_copies_without_tls_and_in_frames(
    browser: Any, run_page: str, address: str, kind: str
):
    """Browsers have their clipboard for pages of this machine and those that TLS protects."""
    framed = explorer.frame(run_page)
    texts = {"page": run_page, "frame": framed, "closed": framed.replace('allow="', 'data-x="')}
    field = "<!doctype html><textarea></textarea>"
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(15_000)
    context.route(
        "**/*",
        lambda route: route.fulfill(
            body=texts[kind] if route.request.url == address else field,
            content_type="text/html; charset=utf-8",
        ),
    )
    page = context.new_page()
    page.goto(address)
    assert page.evaluate("isSecureContext") == ("localhost" in address)
    inner = page if kind == "page" else page.frame_locator("iframe")
    inner.locator("html[data-ready=yes]").wait_for()
    copy = inner.get_by_role("button", name="Copy: In Python")
    page.evaluate("navigator.clipboard?.writeText('before')")
    copy.click()
    wanted = inner.get_by_role("region", name="In Python").evaluate("e => e.textContent")
    said = copy.inner_text()
    page.goto(f"{address}paste")
    page.locator("textarea").click()
    page.keyboard.press("Control+V")
    page.wait_for_function("document.querySelector('textarea').value !== ''")
    pasted = page.locator("textarea").input_value()
    context.close()
    assert said == "Copied" and pasted == wanted


@pytest.mark.parametrize(
    "layers, steps, head, scale, python, command",
    [
        ("all", (0, 6), "-1", "shared", 'run.maps["house"].overlay(scale="shared")', ""),
        (
            "group up", (2, 5), "1", "word",
            'run.maps.select(layers="up", steps=slice(2, 5), heads=1)["house"]'
            '.overlay(scale="word")',
            "--layers up --steps 2:5 --heads 1 --scale word",
        ),
        (
            "grid 8×8", (3, 4), "-1", "raw",
            'run.maps.select(resolution=(8, 8), steps=3)["house"].overlay(scale="raw")', None,
        ),
        ("layer 2", (0, 1), "-1", "shared", None, "--layers {name} --steps 0:1"),
        (
            "all", (0, 2), "-1", "content",
            'run.maps.select(steps=slice(0, 2)).share("house").overlay(scale="raw")', None,
        ),
    ],
)  # fmt: skip
def test_the_code_of_what_is_shown_gives_it(
    show: Any, run: Any, run_page: str, layers: str, steps: tuple[int, int], head: str,
    scale: str, python: str | None, command: str | None,
):  # fmt: skip
    opened = show(run_page)
    opened.bare()
    assert not opened.page.locator("#now").is_visible()  # nothing is shown
    opened.apart()
    opened.choose("Scale", scale)
    opened.choose("Layers", layers)
    opened.steps(*steps)
    opened.choose("Head", head)
    opened.word("house").hover()
    code = opened.page.get_by_role("region", name="This map as Python").inner_text()
    assert python is None or code == python
    same(canvas(opened), eval(code, {"run": run}))
    said = opened.page.locator("#now-command pre")
    if command is None:
        assert not said.is_visible()
    else:
        name = shlex.quote(run.maps.recording.layers[2].short)
        whole = f"heedmap inspect RUN --word house {command.format(name=name)}"
        assert shlex.split(said.inner_text()) == shlex.split(whole)


def test_the_code_names_words_that_stand_twice_by_their_number(show: Any):
    run = small("a cat and a red-nosed cat's dog", keep=frozenset({"layer", "step"}))
    opened = show(explorer.page(run))
    opened.apart()
    opened.steps(1, 3)
    for nth, number in ((0, 0), (1, 3)):
        opened.page.get_by_role("button", name="a", exact=True).nth(nth).click()
        code = opened.page.get_by_role("region", name="This map as Python").inner_text()
        assert code.startswith(f"run.maps.select(steps=slice(1, 3)).at({number})")
        same(canvas(opened), eval(code, {"run": run}))
        opened.page.keyboard.press("Escape")
    opened.page.get_by_label("Native grid").check()
    opened.word("dog").click()
    assert "native cells" in opened.page.locator("#now").inner_text()
    assert not opened.page.locator("#now-command").is_visible()


def test_the_code_of_an_edit_is_of_both_sides(show: Any, pair: Any, pair_page: str):
    opened = show(pair_page)
    opened.word("dog", "edit").click()
    code = opened.page.get_by_role("region", name="This map as Python").inner_text()
    sides = [eval(line, {"pair": pair}) for line in code.splitlines()]
    wanted = [pair.source.maps["cat"].values, pair.edited.maps["dog"].values]
    assert len(sides) == 2
    for side, values in zip(sides, wanted, strict=True):
        np.testing.assert_array_equal(side, values)


def test_in_a_notebook_the_page_stands_in_a_frame(browser: Any, run_page: str, tmp_path: Path):
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html>{explorer.frame(run_page)}", encoding="utf-8")
    page = browser.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text))
    page.goto(path.as_uri())
    inner = page.frame_locator("iframe")
    inner.locator("html[data-ready=yes]").wait_for()
    inner.get_by_role("button", name="house", exact=True).hover()
    assert "house" in inner.locator("#legend").inner_text()
    page.close()
    assert not complaints
