"""The app in a browser: each tab does its work once, and nothing goes to another host."""

import io
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from app.serving import serve

from browser.conftest import MISSING
from heedmap.results.edits import EditResult
from heedmap.results.explanations import Explanation
from heedmap.results.grids import Grid
from heedmap.results.runs import Run

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect
EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
# Gradio hides the tabs that do not fit in a menu that has no name.
THEIRS = {"aria-required-children": ".tab-container"}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory, run: Run) -> Path:
    """The folder of the results, with an older one in it."""
    folder = tmp_path_factory.mktemp("app") / "outputs" / "app"
    folder.mkdir(parents=True)
    run.save(folder / "older")
    return folder


@pytest.fixture(scope="module")
def url(out: Path) -> Iterator[str]:
    with serve(out.parents[1]) as url:
        yield url


@pytest.fixture(scope="module")
def opening(browser: Any, url: str) -> Iterator[tuple[Callable[..., Any], list[str], list[str]]]:
    """Opens the app; what it has asked for; what it has complained of."""
    asked: list[str] = []
    errors: list[str] = []
    contexts: list[Any] = []

    def open_page(**options: Any) -> Any:
        options = {"viewport": {"width": 1400, "height": 1000}, **options}
        context = browser.new_context(accept_downloads=True, **options)
        context.set_default_timeout(15_000)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda one: errors.append(one.text) if one.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url)
        page.get_by_role("button", name="Generate", exact=True).wait_for()
        return page

    yield open_page, asked, errors
    for context in contexts:
        context.close()


@pytest.fixture
def visit(opening: Any, url: str) -> Iterator[Callable[..., Any]]:
    """Open the app; afterwards it must have asked no other host and logged no error."""
    open_page, asked, errors = opening
    yield open_page
    every, complaints = [*asked], [*errors]
    asked.clear()
    errors.clear()
    away = [one for one in every if not one.startswith((f"{url}/", "data:", "blob:"))]
    assert every and not away, away
    assert not complaints, complaints


@pytest.fixture(scope="module")
def opened(opening: Any) -> Any:
    return opening[0]()


@pytest.fixture
def page(visit: Callable[..., Any], opened: Any) -> Any:
    """The app as the tests before have left it."""
    return opened


def tab(page: Any, name: str) -> Any:
    page.get_by_role("tab", name=name, exact=True).click()
    return panel(page)


def panel(page: Any) -> Any:
    return page.get_by_role("tabpanel").filter(visible=True)


def field(form: Any, label: str) -> Any:
    """A field by the beginning of its label."""
    return form.get_by_label(re.compile(rf"^\s*{label.replace('_', ' ')}\b")).first


def fill(form: Any, **fields: Any) -> None:
    for label, value in fields.items():
        field(form, label).fill(str(value))


def draw(form: Any, button: str, out: Path, **fields: Any) -> Path:
    """Fill in a tab, press its button, and wait for the page of the result."""
    fill(form, **fields)
    before, status = {*out.iterdir()}, form.locator(".prose.status")
    said = status.text_content()
    form.get_by_role("button", name=button, exact=True).click()
    expect(status).not_to_have_text(said)
    expect(status).to_contain_text("Saved as", timeout=60_000)
    (new,) = {*out.iterdir()} - before
    form.locator(".page iframe").wait_for()
    return new


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


def test_an_example_is_drawn_with_progress_and_preview(visit: Any, out: Path):
    page = visit()
    form = panel(page)
    form.get_by_text("a small orange cat in the snow").click()
    expect(field(form, "Prompt")).to_have_value("a small orange cat in the snow")
    assert not form.locator(".prose.status p").count()  # an example fills in, and starts nothing
    fill(form, Steps=10)
    before = {*out.iterdir()}
    form.get_by_role("button", name="Generate", exact=True).click()
    form.locator(".prose.status progress[value]").wait_for()
    form.locator(".prose.status img").wait_for()
    expect(form.locator(".prose.status")).to_contain_text("Saved as", timeout=60_000)
    (new,) = {*out.iterdir()} - before
    run = Run.load(new)
    assert (run.settings.prompt, run.settings.seed) == ("a small orange cat in the snow", 7)
    assert (
        frame(form).get_by_role("group", name="prompt").inner_text().split()
        == run.settings.prompt.split()
    )


def test_an_edit_is_drawn_and_downloaded(page: Any, out: Path, tmp_path: Path):
    form = tab(page, "Edit")
    texts = {"Prompt": "a red house", "Edited_prompt": "a blue house"}
    new = draw(form, "Edit", out, Seed=7, Steps=2, **texts)
    pair = EditResult.load(new)
    assert pair.edited.settings.prompt == "a blue house" and pair.source.settings.steps == 2
    with page.expect_download() as download:
        form.get_by_role("button", name="Download as zip").click()
    download.value.save_as(tmp_path / "edit.zip")
    with zipfile.ZipFile(tmp_path / "edit.zip") as file:
        file.extractall(tmp_path)
    assert EditResult.load(tmp_path / new.name).edited.settings == pair.edited.settings


def test_an_image_of_ones_own_is_edited(page: Any, out: Path, run: Run):
    form = tab(page, "Edit")
    form.get_by_role("button", name="Your own image").click()
    upload(form, run)
    new = draw(form, "Edit", out, Prompt="a red house", Edited_prompt="a blue house", Steps=2)
    assert EditResult.load(new).source.image.size == run.image.size


def test_a_word_is_confined_to_a_box(page: Any, out: Path):
    form = tab(page, "Generate")
    form.get_by_role("button", name="More").click()
    fields = {"Confine_words": "cat=0,0,64,128", "Guidance": 3, "Negative_prompt": "a dog"}
    settings = Run.load(draw(form, "Generate", out, Prompt="a cat", Steps=1, **fields)).settings
    assert settings.guidance == 3 and settings.negative == "a dog" and settings.edits
    fill(form, Confine_words="")


def test_a_grid_is_drawn(page: Any, out: Path):
    form = tab(page, "Grid")
    fields = {"Word_weights": "red=0:2:3", "Seeds": "7", "Steps": 1}
    grid = Grid.load(draw(form, "Generate", out, Prompt="a red house", **fields))
    assert len(grid.cells) == 3


def test_a_word_is_located(page: Any, out: Path, run: Run):
    form = tab(page, "Locate")
    upload(form, run)
    new = draw(form, "Locate", out, Prompt="a red house", Seed=1, Noise_levels=1)
    assert [word.text for word in Run.load(new).maps.words] == ["a", "red", "house"]


def test_a_place_of_a_page_is_explained(visit: Any, out: Path):
    page = visit()
    form = panel(page)
    name = draw(form, "Generate", out, Prompt="a red house", Seed=1, Steps=1).name
    inner = frame(form)
    inner.locator("#figures canvas").first.click(position={"x": 60, "y": 90})
    inner.locator("#why summary").click()
    inner.get_by_role("button", name="Explain", exact=True).click()
    form = page.locator("#explain")
    expect(field(form, "Result")).to_have_value(name)
    word = field(form, "Word").input_value()
    explanation = Explanation.load(draw(form, "Explain", out))
    assert explanation.report.word == word and word in ("a", "red", "house")


def test_results_are_compared(page: Any, out: Path, run: Run):
    run.save(out / "first")
    run.save(out / "second")
    form = tab(page, "Compare")
    for name in ("first", "second"):
        field(form, "Results").fill(name)
        form.get_by_role("option", name=name, exact=True).click()
    field(form, "Results").press("Escape")
    form.get_by_role("button", name="Compare").click()
    form.locator("img").first.wait_for()
    assert form.locator("img").first.evaluate("image => image.naturalWidth") > 100


def test_the_gallery_opens_and_deletes(visit: Any, out: Path, run: Run):
    run.save(out / "to-delete")
    page = visit()
    form = tab(page, "Results")
    form.get_by_text("older", exact=True).first.click()
    assert frame(form).get_by_role("group", name="prompt", exact=True).count() == 1
    answers = iter([False, True])
    page.on("dialog", lambda one: one.accept() if next(answers) else one.dismiss())
    form.get_by_text("to-delete", exact=True).first.click()
    for there in (True, False):
        form.get_by_role("button", name="Delete").click()
        expect(form.get_by_text("to-delete", exact=True)).to_have_count(1 if there else 0)
        assert (out / "to-delete").exists() == there
    assert (out / "older").exists()


def test_cancel_ends_a_job_and_the_next_one_works(page: Any, out: Path):
    form = tab(page, "Generate")
    fill(form, Prompt="a cat", Steps=900)
    before = {*out.iterdir()}
    form.get_by_role("button", name="Generate", exact=True).click()
    form.locator(".prose.status progress[value]").wait_for()
    with form.page.expect_response("**/cancel"):
        form.get_by_role("button", name="Cancel").click()
    expect(form.locator(".prose.status")).to_contain_text("Nothing was saved")
    assert {*out.iterdir()} == before
    draw(form, "Generate", out, Steps=1)


def test_a_mistake_shows_one_sentence_and_the_app_goes_on(page: Any, out: Path):
    form = tab(page, "Generate")
    fill(form, Prompt="a cat", Steps="many")
    form.get_by_role("button", name="Generate", exact=True).click()
    message = page.locator(".toast-body")
    expect(message).to_be_visible()
    assert "Traceback" not in message.inner_text() and len(message.inner_text()) > 20
    page.locator(".toast-close").click()
    draw(form, "Generate", out, Prompt="a cat", Steps=1, Seed=1)


def test_markup_in_a_prompt_stays_text(visit: Any, out: Path):
    page = visit()
    dialogs: list[str] = []
    page.on("dialog", lambda one: (dialogs.append(one.message), one.dismiss()))
    form = panel(page)
    draw(form, "Generate", out, Prompt=f"a cat {EVIL}", Steps=1)
    tab(page, "Results").locator("img").first.wait_for()
    assert not dialogs


def test_the_page_is_accessible_and_fits(axe: str, visit: Any, out: Path):
    page = visit(viewport={"width": 390, "height": 900}, color_scheme="dark")
    form = panel(page)
    draw(form, "Generate", out, Prompt="a cat", Steps=1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    dark = frame(form).locator("body").evaluate("one => getComputedStyle(one).backgroundColor")
    assert sum(map(int, dark.strip("rgba()").split(",")[:3])) < 300
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, { iframes: false })")["violations"]
    serious = [
        (one["id"], node["target"])
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
        if THEIRS.get(one["id"], "\0") not in str(node["target"])
    ]
    assert not serious, serious
