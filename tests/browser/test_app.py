"""The app in a browser: what is clicked is drawn and saved, and nothing goes elsewhere."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from app.serving import zipped
from cli.calling import files

from browser.conftest import MISSING
from heedmap.results.explanations import Explanation
from heedmap.results.grids import Grid
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run

expect = pytest.importorskip("playwright.sync_api", reason=MISSING).expect
pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")

EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script> ${1+1} {{value}}"
# Of Gradio's own markup; each rule only where it is theirs.
THEIRS = {
    # Gradio hides the tabs that do not fit in a menu, and keeps it in the page with no name.
    "aria-required-children": ".tab-container"
}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory, run: Run) -> Path:
    """The folder of the results, with one of before the app was begun."""
    folder = tmp_path_factory.mktemp("app") / "results"
    run.save(folder / "of-yesterday")
    return folder


@pytest.fixture(scope="module")
def url(out: Path) -> Iterator[str]:
    """The app of the embedded model, in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "heedmap.cli", "app", "--port", "0", "--out", str(out),
         "--max-steps", "900"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={name: value for name, value in os.environ.items() if name != "HEEDMAP_AUTH"},
    )  # fmt: skip
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found is not None
    yield found[0]
    process.terminate()
    _, errors = process.communicate(timeout=30)
    assert "Traceback" not in errors, errors


@pytest.fixture
def visit(browser: Any, url: str) -> Iterator[Callable[..., Any]]:
    """Open the app; afterwards it must have asked no other host and complained of nothing."""
    asked: list[str] = []
    complaints: list[str] = []
    contexts: list[Any] = []

    def open_page(query: str = "", **options: Any) -> Any:
        options = {"viewport": {"width": 1400, "height": 1000}, **options}
        context = browser.new_context(accept_downloads=True, **options)
        context.set_default_timeout(60_000)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda said: complaints.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.goto(f"{url}/{query}")
        page.get_by_role("button", name="Generate", exact=True).wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    away = [one for one in asked if not one.startswith((f"{url}/", "data:", "blob:"))]
    assert asked and not away, away
    bad = [said for said in complaints if said.startswith(("error", "dialog", "Error", "warning"))]
    assert not bad, bad


def tab(page: Any, name: str) -> Any:
    page.get_by_role("tab", name=name).click()
    return page.locator(f"#{name.lower()}")


def compared(panel: Any, *names: str, words: str = "") -> Any:
    """The sheet of these results."""
    for name in names:
        panel.get_by_label(f"Choose {name}", exact=True).check()
    panel.get_by_role("textbox", name="Words").fill(words)
    panel.get_by_role("button", name="Compare").click()
    sheet = panel.get_by_alt_text("The results, a row each")
    sheet.wait_for()
    return sheet


def more(panel: Any, **fields: Any) -> None:
    """Fill in fields of the accordion."""
    if not panel.get_by_label("Guidance").is_visible():
        panel.get_by_role("button", name="More").click()
    for label, value in fields.items():
        panel.get_by_label(label.replace("_", " ")).first.fill(str(value))


def result(page: Any, name: str) -> Any:
    """The card of a result in the gallery."""
    panel = tab(page, "Results")
    return panel.get_by_role("listitem").filter(has=page.get_by_text(name, exact=True))


def finished(panel: Any) -> Any:
    """The card of a job that is done; its text must be of success."""
    card = panel.locator(".card.done, .card.trouble")
    card.wait_for()
    assert "done" in card.get_attribute("class"), card.inner_text()
    return card


def saved(card: Any, out: Path) -> Path:
    return out / card.locator(".name").inner_text()


def in_the_frame(panel: Any) -> Any:
    inner = panel.frame_locator(".page iframe")
    inner.locator("html[data-ready=yes]").wait_for()
    return inner


def shown(panel: Any) -> str:
    """The page in the frame, as the server gives it, shut off from the app's."""
    frame = panel.locator(".page iframe")
    assert frame.get_attribute("sandbox") == "allow-scripts allow-downloads"
    given = panel.page.request.get(frame.evaluate("frame => frame.src"))
    assert "sandbox allow-scripts allow-downloads;" in given.headers["content-security-policy"]
    return given.text()


WATCH = """() => {
  Object.assign(window, { steps: [], previews: [] });
  const note = () => {
    const bar = document.querySelector("#generate progress[value]");
    if (!bar) return;
    const { textContent } = bar.closest(".card").querySelector("p");
    window.steps.push([textContent, bar.value, bar.max]);
  };
  new MutationObserver(note).observe(document.body, { childList: true, subtree: true });
  const loaded = ({ target }) => {
    if (target.alt === "What is drawn so far") window.previews.push(target.naturalWidth);
  };
  document.addEventListener("load", loaded, true);
}"""
"""Has the page note every step that it tells, and every preview that it shows."""


def test_an_example_runs_at_once_with_progress_and_preview(visit: Any, out: Path):
    page = visit()
    panel = tab(page, "Generate")
    page.evaluate(WATCH)
    panel.get_by_role("button", name="a red house next to a blue tree").click()
    expect(panel.get_by_label("Prompt", exact=True)).to_have_value(
        "a red house next to a blue tree"
    )
    card = finished(panel)
    folder = saved(card, out)
    run = Run.load(folder)
    assert run.settings.prompt == "a red house next to a blue tree" and run.settings.seed == 7
    assert folder.name == "a-red-house-next-to-a-blue-tree-7"
    assert set(run.settings.keep) == {"layer", "step", "head"}  # the embedded model's are small
    expect(panel.get_by_label("Seed", exact=True)).to_have_value("7")
    # A picture of a few seconds may be done before a test could look at it: the page noted it.
    steps, previews = page.evaluate("[window.steps, window.previews]")
    assert steps and all(said == f"Drawing: {step} of 25 steps" for said, step, _ in steps)
    numbers = [step for _, step, of in steps if of == 25]
    assert numbers == sorted(numbers) and len(numbers) == len(steps) and numbers[-1] <= 25
    assert previews and set(previews) == {256}
    assert shown(panel) == (folder / "index.html").read_text(encoding="utf-8")
    expect(panel.locator(".page iframe")).to_be_in_viewport()  # where one looks
    inner = in_the_frame(panel)
    inner.get_by_role("button", name="house", exact=True).hover()
    assert "house" in inner.locator("#legend").inner_text()
    with page.expect_download() as waiting:
        card.get_by_role("link", name="Download as zip").click()
    with zipfile.ZipFile(waiting.value.path()) as archive:
        held = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    assert held == {name: (folder / name).read_bytes() for name in files(folder)}


def test_edit_and_look_again_and_open_the_zip(visit: Any, out: Path, tmp_path: Path):
    page = visit()
    panel = tab(page, "Edit")
    panel.get_by_label("Prompt", exact=True).fill("a cat in the snow")
    panel.get_by_label("What it shall become").fill("a dog in the snow")
    more(panel, Seed=3, Steps=4, Only_where="cat->dog")
    panel.get_by_role("button", name="Edit", exact=True).click()
    card = finished(panel)
    folder = saved(card, out)
    pair = Pair.load(folder)
    assert pair.about.only == "cat->dog" and pair.source.settings.seed == 3
    text = (folder / "index.html").read_text(encoding="utf-8")
    assert shown(panel) == text
    with page.expect_download() as waiting:
        card.get_by_role("link", name="Download as zip").click()
    kept = tmp_path / "kept.zip"
    waiting.value.save_as(kept)

    page.reload()
    result(page, folder.name).get_by_role("button", name="Open", exact=True).click()
    panel = page.locator("#results")
    assert shown(panel) == text

    page = visit()  # another session
    panel = tab(page, "Results")
    panel.locator("input[type=file]").set_input_files(kept)
    card = finished(panel)
    assert "nothing of it is kept" in card.inner_text()
    assert shown(panel) == text
    there = files(out)
    evil = zipped({"../evil.txt": b"x", "run.json": b"{}"}).getvalue()
    panel.locator("input[type=file]").set_input_files(
        {"name": "evil.zip", "mimeType": "application/zip", "buffer": evil}
    )
    expect(panel.get_by_role("alert")).to_contain_text("names files outside of its folder")
    big = tmp_path / "big.zip"
    with big.open("wb") as file:
        file.truncate(65 * 2**20)
    panel.locator("input[type=file]").set_input_files(big)
    expect(panel.locator("output")).to_contain_text("file is too large: expected at most 64 MiB")
    assert files(out) == there


def test_cancel_ends_a_job_and_the_next_one_works(visit: Any, out: Path):
    page = visit()
    panel = tab(page, "Generate")
    before = files(out) if out.exists() else set()
    panel.get_by_label("Prompt", exact=True).fill("a red house")
    more(panel, Steps=900, Seed=5)  # not done before it is cancelled
    panel.get_by_role("button", name="Generate", exact=True).click()
    panel.get_by_text(re.compile(r"\d+ of 900 steps")).wait_for()
    expect(panel.get_by_role("button", name="Generate", exact=True)).to_be_disabled()
    panel.get_by_role("button", name="Cancel").click()
    panel.get_by_text("Cancelled: nothing was saved.").wait_for()
    assert (files(out) if out.exists() else set()) == before
    expect(panel.get_by_role("button", name="Cancel")).to_be_disabled()
    more(panel, Steps=2)
    panel.get_by_role("button", name="Generate", exact=True).click()
    assert Run.load(saved(finished(panel), out)).settings.steps == 2


def test_a_second_visitor_is_told_the_place_and_can_leave_the_line(visit: Any):
    first, second = visit(), visit()
    panels = [tab(page, "Generate") for page in (first, second)]
    for panel in panels:
        panel.get_by_label("Prompt", exact=True).fill("a red house")
        more(panel, Steps=900)  # not done before the other comes
        panel.get_by_role("button", name="Generate", exact=True).click()
        if panel is panels[0]:
            panel.get_by_text(re.compile(r"\d+ of 900 steps")).wait_for()
    panels[1].get_by_text("Waiting: 1 job is before yours.").wait_for()
    panels[1].get_by_role("button", name="Cancel").click()
    panels[1].get_by_text("Cancelled: nothing was saved.").wait_for()
    assert panels[0].get_by_role("progressbar").is_visible()
    panels[0].get_by_role("button", name="Cancel").click()
    panels[0].get_by_text("Cancelled: nothing was saved.").wait_for()


def test_mistakes_are_one_sentence(visit: Any):
    page = visit()
    panel = tab(page, "Generate")
    for fields, sentence in (
        ({"Steps": 999}, "“Steps” is 999, more than this server draws: expected 1 to 900"),
        ({"Steps": 2, "Width": 64}, "One of “Width” and “Height” is empty: expected both"),
        ({"Width": 4096, "Height": 64}, "“Width” × “Height” is 4096×64, more pixels than"),
    ):
        panel.get_by_label("Prompt", exact=True).fill("a red house")
        more(panel, **fields)
        panel.get_by_role("button", name="Generate", exact=True).click()
        expect(panel.get_by_role("alert")).to_contain_text(sentence)
    more(panel, Width="", Height="")
    page.get_by_label(re.compile("^Model")).fill("no/such/model/anywhere")
    page.keyboard.press("Tab")
    panel.get_by_role("button", name="Generate", exact=True).click()
    expect(panel.get_by_role("alert")).to_contain_text("There is no model no/such/model")
    page.get_by_label(re.compile("^Model")).fill("heedmap-tiny")
    page.keyboard.press("Tab")
    panel.get_by_role("button", name="Generate", exact=True).click()
    panel.locator(".card.done").wait_for()


def test_what_is_typed_stays_text(visit: Any, out: Path):
    page = visit()
    panel = tab(page, "Generate")
    panel.get_by_label("Prompt", exact=True).fill(f"a red house {EVIL}")
    more(panel, Steps=1, Negative_prompt=EVIL)
    panel.get_by_role("button", name="Generate", exact=True).click()
    folder = saved(finished(panel), out)
    assert Run.load(folder).settings.negative == EVIL
    inner = in_the_frame(panel)
    assert EVIL in inner.locator(".prompt").first.inner_text()
    assert inner.locator("img").count() == 0
    one = result(page, folder.name)
    assert EVIL[:60] in one.locator(".title").inner_text()
    one.get_by_role("button", name="Open", exact=True).click()
    expect(page.locator("#gallery .top strong")).to_contain_text(EVIL[:60])
    assert page.locator("img[src=x]").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("scheme, width", [("light", 1400), ("dark", 390)])
def test_axe_finds_nothing_serious(axe: str, visit: Any, scheme: str, width: int):
    page = visit(
        f"?__theme={scheme}", color_scheme=scheme, viewport={"width": width, "height": 900}
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate(axe)
    bad: list[Any] = []
    for name in ("Generate", "Edit", "Grid", "Results"):
        panel = tab(page, name)
        if name == "Results":
            panel.get_by_label("Choose of-yesterday").check()
        else:
            more(panel)
        if name == "Generate":
            panel.get_by_label("Prompt", exact=True).fill("a red house")
            more(panel, Steps=1)
            panel.get_by_role("button", name="Generate", exact=True).click()
            finished(panel)
        page.wait_for_timeout(400)  # colours change over a moment
        found = page.evaluate(
            "axe.run({exclude: [['.page iframe']]}, {resultTypes: ['violations'], iframes: false})"
        )
        bad += [
            (name, one["id"], [(node["target"], node["html"][:160]) for node in one["nodes"][:4]])
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
            and not all(THEIRS.get(one["id"], "\0") in str(node["target"]) for node in one["nodes"])
        ]  # fmt: skip
    assert not bad, json.dumps(bad, indent=1)


def test_the_copy_button_in_the_frame_fills_the_clipboard(visit: Any):
    page = visit()
    panel = tab(page, "Generate")
    panel.get_by_label("Prompt", exact=True).fill("a yellow boat")
    more(panel, Seed=11, Steps=1)
    panel.get_by_role("button", name="Generate", exact=True).click()
    finished(panel)
    inner = in_the_frame(panel)
    # Nothing moves in a frame that is out of sight.
    panel.locator(".page iframe").evaluate("frame => frame.scrollIntoView({ block: 'end' })")
    copy = inner.get_by_role("button", name=re.compile("^Copy: ")).first
    copy.scroll_into_view_if_needed()
    copy.click()
    expect(copy).to_have_text("Copied")
    field = panel.get_by_label("Prompt", exact=True)
    field.fill("")
    field.press("Control+V")
    expect(field).to_have_value(re.compile(r"heedmap generate 'a yellow boat' --seed 11"))


def heights(panel: Any) -> tuple[float, float, float]:
    """Of the frame, of what is in it, and of the part of that which is seen."""
    frame = panel.locator(".page iframe")
    inner = frame.element_handle().content_frame()
    told = "[document.body.getBoundingClientRect().height, document.documentElement.scrollHeight]"
    body, whole = inner.evaluate(told)
    return frame.evaluate("frame => frame.clientHeight"), body, whole


def fits(panel: Any) -> None:
    """The frame is as tall as its page: nothing is cut, nothing is blank."""
    for _ in range(40):
        frame, body, whole = heights(panel)
        if abs(frame - body) <= 1 and whole <= frame:
            return
        panel.page.wait_for_timeout(100)
    raise AssertionError(f"the frame has {frame} px, its page {body}, to be scrolled {whole}")


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_frame_is_as_tall_and_as_dark_as_its_page_and_the_app(
    visit: Any, width: int, theme: str
):
    other = {"light": "dark", "dark": "light"}[theme]  # the visitor's machine says otherwise
    viewport = {"width": width, "height": 900}
    page = visit(f"?__theme={theme}", color_scheme=other, viewport=viewport)
    result(page, "of-yesterday").get_by_role("button", name="Open", exact=True).click()
    panel = page.locator("#results")
    inner = in_the_frame(panel)
    fits(panel)
    first = heights(panel)[0]
    paper = "rgb(20, 20, 22)" if theme == "dark" else "rgb(251, 250, 248)"
    for body in (page.locator("body"), inner.locator("body")):
        expect(body).to_have_css("background-color", paper)
    inner.locator("summary", has_text="Settings").click()
    expect(inner.locator("details[open]")).to_have_count(1)
    fits(panel)
    assert heights(panel)[0] > first + 100
    inner.locator("summary", has_text="Settings").click()
    fits(panel)
    assert heights(panel)[0] == first
    page.set_viewport_size({"width": 390 if width == 1400 else 1400, "height": 700})
    fits(panel)
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


HOSTILE = """<!doctype html><body>Hello<script>
const say = (said) => parent.postMessage(said, "*");
for (const height of ["1px;background:red", null, NaN, Infinity, {}, [900]]) {
  say({ heedmap: "height", height });
}
say("height"); say(null); say({ heedmap: "look", dark: true, room: 1 });
let seen = "nothing";
try { seen = parent.document.title } catch (error) { seen = error.name }
document.body.textContent = seen;
addEventListener("message", () => setTimeout(() => say({ heedmap: "height", height: 1e9 }), 300));
say({ heedmap: "height", height: 444 });
</script>"""


def test_a_page_in_the_frame_moves_nothing_but_its_height(visit: Any, out: Path, run: Run):
    folder = out / "hostile"
    run.save(folder)
    (folder / "index.html").write_text(HOSTILE)
    page = visit()
    result(page, "hostile").get_by_role("button", name="Open", exact=True).click()
    frame = page.locator("#results .page iframe")
    inner = page.frame_locator("#results .page iframe")
    expect(inner.locator("body")).to_have_text("SecurityError")
    expect(frame).to_have_css("height", "444px")
    expect(frame).to_have_css("height", "30000px")  # a bound
    assert set(frame.evaluate("frame => [...frame.style]")) == {"height"}
    # Whoever is no frame of a result is not listened to.
    page.evaluate("window.postMessage({ heedmap: 'height', height: 111 }, '*')")
    page.evaluate("""async () => {
      const other = document.createElement("iframe");
      other.sandbox = "allow-scripts";
      other.srcdoc = "<script>parent.postMessage({heedmap: 'height', height: 222}, '*')</script>";
      document.body.append(other);
      await new Promise((done) => setTimeout(done, 500));
      other.remove();
    }""")
    expect(frame).to_have_css("height", "30000px")
    page.get_by_role("button", name="All results").click()
    one = result(page, "hostile")
    one.get_by_role("button", name="Delete", exact=True).click()
    one.get_by_role("button", name="Delete for good").click()
    expect(one).to_have_count(0)


def seen_again(page: Any) -> None:
    """The gallery's head goes out of sight and comes back: the list is read."""
    head = page.locator("#gallery .head")
    head.evaluate("e => { e.style.display = 'none' }")
    page.wait_for_timeout(200)
    with page.expect_response("**/results"):
        head.evaluate("e => { e.style.display = '' }")
    page.wait_for_timeout(200)


def test_the_gallery_stays_and_is_put_in_order(visit: Any, out: Path, run: Run):
    run.save(out / "to-be-renamed")
    page = visit()
    one = result(page, "to-be-renamed")
    expect(one.locator("img")).to_have_js_property("naturalWidth", run.image.width)
    for verb in ("Rename", "Delete"):
        asks = one.get_by_role("button", name=verb, exact=True)
        for way in ("Escape", "Keep"):
            asks.click()
            keeps = one.get_by_role("button", name="Keep", exact=True)
            expect(keeps).to_be_visible()
            if way == "Keep":
                keeps.click()
            else:
                page.keyboard.press("Escape")
            expect(asks).to_be_focused()
            expect(keeps).to_have_count(0)
    renames = one.get_by_role("button", name="Rename", exact=True)
    renames.focus()
    page.keyboard.press("Escape")  # nothing is asked any more
    seen_again(page)  # and nothing has changed: the button is the same
    expect(renames).to_be_focused()
    run.save(out / "since")
    seen_again(page)  # nor is anything asked any more: what is new is shown
    expect(result(page, "since")).to_have_count(1)
    one.get_by_role("button", name="Rename", exact=True).click()
    run.save(out / "meanwhile")  # seen again, the list is read: what is asked stays
    seen_again(page)
    complain = page.locator("#gallery").get_by_role("alert")
    one.get_by_label("New name").fill("The best one!")
    one.get_by_role("button", name="Save").click()
    page.get_by_text("It is called the-best-one now.").wait_for()
    assert complain.count() == 0
    assert (out / "the-best-one").is_dir() and not (out / "to-be-renamed").exists()
    page.reload()
    one = result(page, "the-best-one")
    with page.expect_download() as waiting:
        one.get_by_role("link", name="Download the-best-one as zip").click()
    assert zipfile.is_zipfile(waiting.value.path())
    one.get_by_role("button", name="Delete", exact=True).click()
    one.get_by_role("button", name="Keep").click()
    assert (out / "the-best-one").is_dir()
    one.get_by_role("button", name="Delete", exact=True).click()
    one.get_by_role("button", name="Delete for good").click()
    page.get_by_text("the-best-one was deleted.").wait_for()
    expect(result(page, "the-best-one")).to_have_count(0)
    assert not (out / "the-best-one").exists() and (out / "of-yesterday").is_dir()


def test_results_are_compared(visit: Any, out: Path, run: Run):
    run.save(out / "other")
    page = visit()
    panel = tab(page, "Results")
    sheet = compared(panel, "of-yesterday", "other", words="house, tree")
    assert sheet.evaluate("img => img.decode().then(() => img.naturalWidth)") > 400
    with page.expect_download() as waiting:
        panel.get_by_role("link", name="SVG").click()
    assert waiting.value.suggested_filename == "heedmap-comparison.svg"
    assert "<svg" in Path(waiting.value.path()).read_text(encoding="utf-8")
    panel.get_by_role("button", name="All results").click()
    expect(panel.get_by_label("Choose other", exact=True)).to_be_checked()


def chosen(panel: Any) -> list[str]:
    """The names of the results that are chosen."""
    boxes = panel.locator("li input[type=checkbox]:checked")
    labels = boxes.evaluate_all("all => all.map((one) => one.getAttribute('aria-label'))")
    return sorted(label.removeprefix("Choose ") for label in labels)


def test_what_is_chosen_stays_chosen_and_what_is_gone_is_not(visit: Any, out: Path, run: Run):
    for name in ("chosen-1", "chosen-2", "an odd name ü & %2f?#"):
        run.save(out / name)
    page = visit()
    panel = tab(page, "Results")
    bar = panel.locator(".bar")
    expect(bar).to_be_hidden()
    for name in ("chosen-1", "chosen-2"):
        panel.get_by_label(f"Choose {name}", exact=True).check()
    expect(bar).to_contain_text("2 chosen")
    one = result(page, "chosen-1")  # renamed, it is chosen still
    one.get_by_role("button", name="Rename", exact=True).click()
    one.get_by_label("New name").fill("chosen 3")
    one.get_by_role("button", name="Save").click()
    page.get_by_text("It is called chosen-3 now.").wait_for()
    expect(panel.get_by_label("Choose chosen-3", exact=True)).to_be_checked()
    assert chosen(panel) == ["chosen-2", "chosen-3"]
    shutil.rmtree(out / "chosen-2")  # gone, it is not
    seen_again(page)
    expect(bar).to_contain_text("1 chosen")
    odd = result(page, "an odd name ü & %2f?#")
    expect(odd.locator("img")).to_have_js_property("naturalWidth", run.image.width)
    odd.get_by_role("button", name="Open", exact=True).click()
    in_the_frame(panel)
    expect(bar).to_be_hidden()  # while something is open
    panel.get_by_role("button", name="All results").click()
    expect(bar).to_contain_text("1 chosen")
    panel.get_by_role("button", name="Choose none").click()
    expect(bar).to_be_hidden()
    assert chosen(panel) == []


def test_a_comparison_is_of_what_was_asked_for(visit: Any, out: Path, run: Run):
    run.save(out / "beside")
    page = visit()
    panel = tab(page, "Results")
    for name in ("beside", "of-yesterday"):
        panel.get_by_label(f"Choose {name}", exact=True).check()
    words = panel.get_by_role("textbox", name="Words")
    words.fill(" house ,, tree, ")
    panel.get_by_label("Colours").select_option("word")
    with page.expect_request("**/comparison?**") as asked:
        panel.get_by_role("button", name="Compare").click()
    asks = parse_qsl(urlsplit(asked.value.url).query)
    assert asks == [
        ("scale", "word"), ("run", "beside"), ("run", "of-yesterday"),
        ("word", "house"), ("word", "tree"),
    ]  # fmt: skip
    panel.get_by_alt_text("The results, a row each").wait_for()
    for name in ("PNG", "SVG", "PDF"):
        (href,) = [panel.get_by_role("link", name=name, exact=True).get_attribute("href")]
        more = [("format", name.lower()), ("take", "1")]
        assert parse_qsl(urlsplit(href).query) == [*asks, *more]
    # Nothing more is asked for where the app turns no darker, or when it is closed.
    seen: list[str] = []
    page.on("request", lambda request: seen.append(request.url))
    page.evaluate("document.body.classList.toggle('other')")
    page.wait_for_timeout(200)
    panel.get_by_role("button", name="All results").click()
    page.evaluate("document.body.classList.toggle('dark')")
    page.wait_for_timeout(400)
    assert not [one for one in seen if "comparison" in one]


def test_an_answer_that_comes_too_late_changes_nothing(visit: Any, out: Path, run: Run):
    for name in ("late", "in-time"):
        run.save(out / name)
    page = visit()
    panel = tab(page, "Results")
    one = result(page, "late")
    one.wait_for()
    held: list[Any] = []

    def hold_the_first(route: Any) -> None:
        if held:
            route.continue_()
        else:
            held.append((route, route.fetch()))

    def let_go() -> None:
        ((route, answer),) = held
        with page.expect_response(route.request.url):
            route.fulfill(response=answer)
        page.wait_for_timeout(300)

    page.route("**/results", hold_the_first)
    head = panel.locator(".head")
    head.evaluate("e => { e.style.display = 'none' }")
    page.wait_for_timeout(200)
    head.evaluate("e => { e.style.display = '' }")  # the list is asked for, with "late" in it
    one.get_by_role("button", name="Delete", exact=True).click()
    one.get_by_role("button", name="Delete for good").click()
    expect(one).to_have_count(0)
    let_go()
    expect(one).to_have_count(0)
    page.unroute("**/results")
    # Nor does a dark comparison come into an app that is bright again.
    held.clear()
    sheet = compared(panel, "of-yesterday", "in-time")
    before = sheet.get_attribute("src")
    page.route("**/comparison?*dark=1*", hold_the_first)
    page.evaluate("document.body.classList.add('dark')")
    page.wait_for_timeout(300)
    page.evaluate("document.body.classList.remove('dark')")
    expect(sheet).not_to_have_attribute("src", before)
    bright = sheet.get_attribute("src")
    let_go()
    assert sheet.get_attribute("src") == bright


def test_in_a_dark_app_a_comparison_is_dark(visit: Any, out: Path, run: Run):
    run.save(out / "at-night")
    page = visit(color_scheme="dark")
    panel = tab(page, "Results")
    sheet = compared(panel, "of-yesterday", "at-night")
    corner = """async (img) => {
      await img.decode();
      const pen = document.createElement("canvas").getContext("2d");
      pen.drawImage(img, 0, 0);
      return Math.max(...pen.getImageData(0, 0, 1, 1).data.slice(0, 3));
    }"""
    assert sheet.evaluate(corner) < 60
    before = sheet.get_attribute("src")
    page.evaluate("document.body.classList.remove('dark')")  # so the app turns with the system
    expect(sheet).not_to_have_attribute("src", before)
    assert sheet.evaluate(corner) > 230


def test_the_way_back_leads_from_a_result_to_the_list(visit: Any, out: Path, run: Run):
    run.save(out / "opened")
    page = visit()
    panel, card = tab(page, "Results"), result(page, "opened")
    frame = panel.locator(".page iframe")
    for leave in (page.go_back, panel.get_by_role("button", name="All results").click):
        card.get_by_role("button", name="Open", exact=True).click()
        frame.wait_for()
        leave()
        expect(card).to_be_visible()
        expect(frame).to_have_count(0)
        page.wait_for_function("!history.state?.opened")  # nothing is left to go back from


def test_what_was_deleted_in_another_window_is_told_of(browser: Any, url: str, out: Path, run: Run):
    for name in ("elsewhere", "stays"):
        run.save(out / name)
    page = browser.new_context().new_page()
    page.goto(url)
    panel = tab(page, "Results")
    card = result(page, "elsewhere")
    card.wait_for()
    shutil.rmtree(out / "elsewhere")
    card.get_by_role("button", name="Open", exact=True).click()
    expect(panel.get_by_role("alert")).to_have_text(
        "This result is not there any more: make it again."
    )
    expect(card).to_have_count(0)
    expect(panel.locator("iframe")).to_have_count(0)
    # Nor does a comparison open that is refused.
    for name in ("of-yesterday", "stays"):
        panel.get_by_label(f"Choose {name}", exact=True).check()
    panel.get_by_role("textbox", name="Words").fill("nosuchword")
    panel.get_by_role("button", name="Compare").click()
    expect(panel.get_by_role("alert")).to_contain_text("nosuchword")
    expect(panel.get_by_alt_text("The results, a row each")).to_have_count(0)
    expect(panel.get_by_text("2 chosen")).to_be_visible()
    page.context.close()


def test_nothing_is_too_small_to_read_on_a_narrow_screen(visit: Any, out: Path, run: Run):
    run.save(out / "narrow")
    page = visit(viewport={"width": 390, "height": 844})
    # What stands in them while nothing is chosen has as many pixels.
    for name, labels in {
        "Generate": ("Where", "Width", "Height"),
        "Edit": ("Strength: cross-attention", "Self-attention"),
    }.items():
        panel = tab(page, name)
        more(panel)
        for label in labels:
            assert panel.get_by_label(label).first.bounding_box()["width"] > 160, label
    panel = tab(page, "Results")
    sheet = compared(panel, "of-yesterday", "narrow")
    assert sheet.bounding_box()["width"] == 900  # its letters, of which it has a screen of 1400
    frame = panel.get_by_role("group", name="The comparison")
    assert frame.bounding_box()["width"] < 390
    frame.focus()
    page.keyboard.press("End")  # by keyboard, too, one gets to its end
    page.keyboard.press("ArrowRight")
    expect(frame).to_be_focused()
    page.wait_for_function("document.activeElement.scrollLeft > 0")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_grid_of_weights_is_drawn(visit: Any, out: Path):
    page = visit()
    panel = tab(page, "Grid")
    panel.get_by_label("Prompt", exact=True).fill("a red house")
    panel.get_by_label("Weights of a word").fill("red=0,2")
    panel.get_by_label("Steps", exact=True).fill("2")
    panel.get_by_label("Seed", exact=True).fill("4")
    panel.get_by_role("button", name="Draw the grid").click()
    folder = saved(finished(panel), out)
    assert [cell.weights for cell in Grid.load(folder)] == [{"red": 0}, {"red": 2}]
    assert shown(panel) == (folder / "index.html").read_text(encoding="utf-8")
    expect(result(page, folder.name)).to_contain_text("2 edits · Seed 4")


def test_an_error_leaves_no_frame_and_no_blank(visit: Any):
    page = visit()
    panel = tab(page, "Generate")
    seed, steps = (panel.get_by_label(name, exact=True) for name in ("Seed", "Steps"))
    assert seed.is_visible() and steps.is_visible()  # with nothing opened
    panel.get_by_label("Prompt", exact=True).fill("a red house")
    steps.fill("1")
    panel.get_by_role("button", name="Generate", exact=True).click()
    finished(panel)
    in_the_frame(panel)
    tall = page.evaluate("document.documentElement.scrollHeight")
    panel.get_by_label("Prompt", exact=True).fill("  ")
    panel.get_by_role("button", name="Generate", exact=True).click()
    said = "“Prompt” is empty: write what is to be drawn."
    expect(panel.get_by_role("alert")).to_have_text(said)
    expect(panel.locator("iframe")).to_have_count(0)
    assert (
        panel.locator(".page").evaluate_all(
            "all => all.reduce((sum, one) => sum + one.getBoundingClientRect().height, 0)"
        )
        <= 20
    )
    assert page.evaluate("document.documentElement.scrollHeight") < tall - 400


def test_a_word_is_kept_in_its_place(visit: Any, out: Path):
    page = visit()
    panel = tab(page, "Generate")
    panel.get_by_label("Prompt", exact=True).fill("a red house")
    more(panel, Steps=1, Keep_a_word_in_its_place="house")
    panel.get_by_label("Where").first.click()
    page.get_by_role("option", name="the right half").click()
    panel.get_by_role("button", name="Generate", exact=True).click()
    (edit,) = Run.load(saved(finished(panel), out)).settings.edits
    assert (edit.word, edit.where) == ("house", (64, 0, 128, 128))


def filled(panel: Any) -> list[str]:
    return [one.input_value() for one in panel.locator("textarea, input[type=text]").all()]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 390)])
def test_a_number_of_a_result_is_taken_apart(visit: Any, out: Path, run: Run, scheme, width):
    """From the place that is pointed at to the explanation, in the layer that is chosen."""
    page = visit(f"?__theme={scheme}", viewport={"width": width, "height": 900})
    result(page, "of-yesterday").get_by_role("button", name="Open", exact=True).click()
    frame = page.frame_locator("#results .page iframe")
    frame.locator("#layers").select_option(label="up 1.0 · 8×8")
    canvas = frame.locator("#figures canvas").first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] * 0.3, "y": box["height"] * 0.6})
    frame.locator("#why summary").click()
    told = frame.locator("#why pre").first.inner_text()
    frame.get_by_role("button", name="Take it apart").click()
    panel = page.locator("#explain")
    panel.get_by_label("Result", exact=True).wait_for()
    expect(panel.get_by_label("Result", exact=True)).to_have_value("of-yesterday")
    _, word, at, layer, head, step, cell = filled(panel)
    assert f"--at {at} " in f"{told} " and f"--word {word}" in told and (head, cell) == ("", "")
    assert layer == "up 1.0" and "--layer 'up 1.0'" in told and step == ""
    start = panel.get_by_role("button", name="Take it apart", exact=True)
    expect(start).to_be_focused()
    assert not panel.locator(".card").count()  # it starts when it is asked to, and not before
    start.press("Enter")
    folder = saved(finished(panel), out)
    found = Explanation.load(folder)
    x, y = map(int, at.split(","))
    assert (found.about.at, found.about.word, found.about.short) == ((x, y), word, "up 1.0")
    fits(panel)
    inner = page.frame_locator("#explain .page iframe")
    expect(inner.get_by_role("heading", name="heedmap · how a number comes about")).to_be_visible()
    colour = inner.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
    assert (max(map(int, re.findall(r"\d+", colour)[:3])) < 60) == (scheme == "dark")
    tab(page, "Results")
    page.get_by_role("button", name="All results").click()  # the run is open there still
    one = result(page, folder.name)
    expect(one).to_be_visible()
    expect(one.get_by_role("checkbox")).to_have_count(0)  # it is not compared
    with page.expect_download() as begun:
        one.get_by_role("link", name="zip").click()
    zip_file = out.parent / f"explained-{width}.zip"
    begun.value.save_as(zip_file)
    page.locator("#results input[type=file]").set_input_files(zip_file)
    opened = page.frame_locator("#opened .page iframe")
    expect(opened.get_by_text("how a number comes about")).to_be_visible()
    one.get_by_role("button", name="Delete", exact=True).click()
    one.get_by_role("button", name="Delete for good").click()
    expect(one).to_have_count(0)


SAYS_EXPLAIN = """<body><button>press</button><script>
const said = { heedmap: "explain", cell: "", word: "house", at: "1,2", layer: "", head: "",
  step: "" };
const say = (more) => parent.postMessage({ ...said, ...more }, "*");
say({});
setTimeout(say, 300, {});
document.querySelector("button").onclick = () => say({ word: 7 });
</script>"""


def test_a_page_by_itself_fills_in_nothing(visit: Any, out: Path, run: Run):
    run.save(out / "eager")
    (out / "eager" / "index.html").write_text(SAYS_EXPLAIN)
    page = visit()
    result(page, "eager").get_by_role("button", name="Open", exact=True).click()
    page.mouse.move(5, 5)
    inner = page.frame_locator("#results .page iframe")
    inner.get_by_role("button").wait_for()
    page.wait_for_timeout(800)
    expect(page.locator("#results")).to_be_visible()
    inner.get_by_role("button").click()  # what it says is not as the app expects
    page.wait_for_timeout(500)
    expect(page.locator("#results")).to_be_visible()
    page.get_by_role("button", name="All results").click()
    one = result(page, "eager")
    one.get_by_role("button", name="Delete", exact=True).click()
    one.get_by_role("button", name="Delete for good").click()
    expect(one).to_have_count(0)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 390)])
def test_a_prompt_is_clicked_together_of_the_words_that_were_taught(
    visit: Any, scheme: str, width: int
):
    page = visit(f"?__theme={scheme}", viewport={"width": width, "height": 844})
    panel = page.locator("#generate")
    chip = lambda word: panel.get_by_role("button", name=word, exact=True)  # noqa: E731
    for word in ("small", "orange", "cat"):
        chip(word).click()
    prompt = panel.get_by_label("Prompt", exact=True)
    expect(prompt).to_have_value("small orange cat")
    chip("in the snow").focus()
    page.keyboard.press("Enter")
    expect(prompt).to_have_value("small orange cat in the snow")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(prompt).to_have_value("small orange cat in the snow at sunset")
    assert chip("cat").evaluate("one => getComputedStyle(one).color") != chip("cat").evaluate(
        "one => getComputedStyle(one).backgroundColor"
    )
    shelf = panel.locator(".shelf details")
    box = shelf.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= width
    for word in shelf.get_by_role("button").all():
        one = word.bounding_box()
        assert one["x"] + one["width"] <= width and one["height"] >= 20
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # The words go into the field that was written in last; Gradio knows of them, too.
    page.get_by_role("tab", name="Edit").click()
    panel = page.locator("#edit")
    target = panel.get_by_label("What it shall become")
    target.fill("a")
    chip("dog").click()
    expect(target).to_have_value("a dog")
    expect(panel.get_by_label("Prompt", exact=True)).to_have_value("")
    panel.get_by_role("button", name="Edit", exact=True).click()
    expect(panel.locator(".card.trouble")).to_contain_text("“Prompt” is empty")


def test_results_are_there_after_a_reload_in_the_dark_on_a_phone(visit: Any, out: Path):
    page = visit("?__theme=dark", viewport={"width": 390, "height": 844})
    expect(result(page, "of-yesterday")).to_be_visible()
    page.reload()
    one = result(page, "of-yesterday")
    expect(one).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    one.get_by_role("button", name="Open of-yesterday").press("Enter")
    expect(page.frame_locator("#results .page iframe").locator("#prompts")).to_be_visible()
    page.get_by_role("button", name="All results").click()
    expect(one).to_be_visible()
