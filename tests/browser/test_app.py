"""The app in a browser: each tab does its work once, and nothing goes to another host."""

import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser.conftest import MISSING
from heedmap.results.edits import EditResult
from heedmap.results.explanations import Explanation
from heedmap.results.grids import Grid
from heedmap.results.runs import Run

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect
expect.set_options(timeout=30_000)  # a busy machine answers late
EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
# Gradio hides the tabs that do not fit in a menu that has no name.
GRADIO = {"aria-required-children": ".tab-container"}


@pytest.fixture(scope="module")
def out(app_folder: Path, run: Run) -> Path:
    """The folder of the results, with an older one in it."""
    folder = app_folder / "outputs" / "app"
    run.save(folder / "older")
    return folder


@pytest.fixture(scope="module")
def page(browser: Any, app_url: str, out: Path) -> Iterator[Any]:
    """The app, dark; it must have asked no other host and logged no error."""
    requests: list[str] = []
    errors: list[str] = []
    context = browser.new_context(accept_downloads=True, color_scheme="dark")
    context.set_default_timeout(15_000)
    page = context.new_page()
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda one: errors.append(one.text) if one.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(app_url)
    page.get_by_role("button", name="Generate", exact=True).wait_for()
    yield page
    context.close()
    own = (f"{app_url}/", "data:", "blob:")
    assert requests and not [url for url in requests if not url.startswith(own)]
    assert not errors, errors


def open_tab(page: Any, name: str) -> Any:
    page.set_viewport_size({"width": 1400, "height": 1000})
    page.get_by_role("tab", name=name, exact=True).click()
    wait_for_frames(page)
    return page.get_by_role("tabpanel").filter(visible=True)


def unfold(form: Any, name: str) -> None:
    form.get_by_role("button", name=name).click()
    wait_for_frames(form.page)


def wait_for_frames(page: Any) -> None:
    """Wait until Gradio has drawn fields that it just showed: a text that comes earlier is lost."""
    for _ in range(2):
        page.evaluate("() => new Promise(requestAnimationFrame)")


def field(form: Any, label: str) -> Any:
    """A field by the beginning of its label."""
    return form.get_by_label(re.compile(rf"^\s*{label.replace('_', ' ')}\b")).first


def fill(form: Any, **fields: Any) -> None:
    for label, value in fields.items():
        field(form, label).fill(str(value))


def submit(form: Any, button: str, out: Path, **fields: Any) -> Path:
    """Fill in a tab, press its button, and wait for the page of the result."""
    fill(form, **fields)
    before, status = {*out.iterdir()}, form.locator(".prose.status")
    text = status.text_content()
    form.get_by_role("button", name=button, exact=True).click()
    expect(status).not_to_have_text(text)
    expect(status).to_contain_text("Saved as", timeout=60_000)
    (folder,) = {*out.iterdir()} - before
    form.locator(".page iframe").wait_for()
    return folder


def frame(form: Any) -> Any:
    inner = form.frame_locator(".page iframe")
    inner.locator("html[data-ready=yes]").wait_for()
    return inner


def upload(form: Any, run: Run) -> None:
    file = io.BytesIO()
    run.image.save(file, "PNG")
    image = {"name": "image.png", "mimeType": "image/png", "buffer": file.getvalue()}
    form.locator("input[type=file]").first.set_input_files(image)
    form.locator("img").first.wait_for()


def test_an_example_is_generated_with_progress(page: Any, out: Path):
    form, prompt = open_tab(page, "Generate"), "a small orange cat in the snow"
    form.get_by_text(prompt).click()
    expect(field(form, "Prompt")).to_have_value(prompt)
    fill(form, Steps=20)
    before = {*out.iterdir()}
    form.get_by_role("button", name="Generate", exact=True).click()
    form.locator(".prose.status progress[value]").wait_for()
    expect(form.locator(".prose.status")).to_contain_text("Saved as", timeout=60_000)
    (folder,) = {*out.iterdir()} - before
    assert Run.load(folder).settings.prompt == prompt
    words = frame(form).get_by_role("group", name="prompt").inner_text().split()
    assert words == prompt.split()


def test_the_page_is_accessible_fits_a_phone_and_keeps_markup_text(axe: str, page: Any, out: Path):
    form = open_tab(page, "Generate")
    page.set_viewport_size({"width": 390, "height": 900})
    submit(form, "Generate", out, Prompt=f"a cat {EVIL}", Steps=1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    colour = frame(form).locator("body").evaluate("one => getComputedStyle(one).backgroundColor")
    assert sum(map(int, colour.strip("rgba()").split(",")[:3])) < 300
    page.evaluate(axe)
    serious = [
        (one["id"], node["target"])
        for one in page.evaluate("axe.run(document, { iframes: false })")["violations"]
        for node in one["nodes"]
        if one["impact"] in ("serious", "critical")
        and GRADIO.get(one["id"], "\0") not in str(node["target"])
    ]
    assert not serious, serious


def test_a_place_of_a_page_is_explained(page: Any, out: Path):
    form = open_tab(page, "Generate")
    unfold(form, "More")
    fields = {"Confine_words": "house=0,0,64,128", "Negative_prompt": "a dog"}
    folder = submit(form, "Generate", out, Prompt="a red house", Seed=1, Steps=1, **fields)
    settings = Run.load(folder).settings
    assert settings.negative == "a dog" and settings.edits
    fill(form, Confine_words="", Negative_prompt="")
    inner = frame(form)
    inner.locator("#figures canvas").first.click(position={"x": 60, "y": 90})
    inner.locator("#why summary").click()
    inner.get_by_role("button", name="Explain", exact=True).click()
    form = page.locator("#explain")
    expect(field(form, "Result")).to_have_value(folder.name)
    word = field(form, "Word").input_value()
    explanation = Explanation.load(submit(form, "Explain", out))
    assert explanation.report.word == word and word in ("a", "red", "house")


def test_an_edit_is_made_and_downloaded(page: Any, out: Path, tmp_path: Path):
    form = open_tab(page, "Edit")
    texts = {"Prompt": "a red house", "Edited_prompt": "a blue house"}
    folder = submit(form, "Edit", out, Seed=7, Steps=2, **texts)
    pair = EditResult.load(folder)
    assert pair.edited.settings.prompt == "a blue house" and pair.source.settings.steps == 2
    with page.expect_download() as download:
        form.get_by_role("button", name="Download as zip").click()
    download.value.save_as(tmp_path / "edit.zip")
    with zipfile.ZipFile(tmp_path / "edit.zip") as file:
        file.extractall(tmp_path)
    assert EditResult.load(tmp_path / folder.name).edited.settings == pair.edited.settings


def test_an_image_of_ones_own_is_edited(page: Any, out: Path, run: Run):
    form = open_tab(page, "Edit")
    unfold(form, "Your own image")
    upload(form, run)
    folder = submit(form, "Edit", out, Prompt="a red house", Edited_prompt="a blue house", Steps=2)
    assert EditResult.load(folder).source.image.size == run.image.size


def test_a_grid_is_made(page: Any, out: Path):
    form = open_tab(page, "Grid")
    fields = {"Word_weights": "red=0,1,2", "Seeds": "7", "Steps": 1}
    folder = submit(form, "Generate", out, Prompt="a red house", **fields)
    assert len(Grid.load(folder).cells) == 3


def test_a_word_is_located(page: Any, out: Path, run: Run):
    form = open_tab(page, "Locate")
    upload(form, run)
    folder = submit(form, "Locate", out, Prompt="a red house", Seed=1, Noise_levels=1)
    assert [word.text for word in Run.load(folder).maps.words] == ["a", "red", "house"]


def test_the_gallery_opens_a_result(page: Any, out: Path):
    form = open_tab(page, "Results")
    form.get_by_text("older", exact=True).first.click()
    frame(form)


def test_after_a_mistake_and_a_cancelled_job_the_app_goes_on(page: Any, out: Path):
    form = open_tab(page, "Generate")
    fill(form, Prompt="a cat", Steps="many")
    form.get_by_role("button", name="Generate", exact=True).click()
    message = page.locator(".toast-body")
    expect(message).to_be_visible()
    page.locator(".toast-close").click()
    fill(form, Steps=900)
    before = {*out.iterdir()}
    form.get_by_role("button", name="Generate", exact=True).click()
    form.locator(".prose.status progress[value]").wait_for()
    with page.expect_response("**/cancel"):
        form.get_by_role("button", name="Cancel").click()
    expect(form.locator(".prose.status")).to_contain_text("Nothing was saved")
    assert {*out.iterdir()} == before
    submit(form, "Generate", out, Steps=1, Seed=2)
