"""The site's demo: its image, maps, words and noise are Python's, and it can be used."""

import unicodedata
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import heedmap
from browser.conftest import is_close, read_pixels, serve
from heedmap.backends import loading
from heedmap.figures import overlays
from heedmap.text.prompts import untaught
from heedmap.text.tokenization import tokenize

HOUSE = "a red house next to a blue tree"
GENERATE = """async ([prompt, seed]) => {
  const { Model } = await import("/demo/model.js");
  const model = await Model.load();
  const made = await model.generate(prompt, seed);
  const mapOf = (word) => [...model.mapOf(made, word).plane];
  const words = made.words.map((word) => [word.text, word.tokens, mapOf(word)]);
  return { pixels: [...made.image.data], words, unknown: made.unknown };
}"""
READ = """async (prompts) => {
  const { Model } = await import("/demo/model.js");
  const { unknownWords, wordsOf } = await import("/demo/words.js");
  const { tokenizer, settings } = await Model.load();
  return prompts.map((prompt) => {
    const { ids, tokens } = tokenizer.encode(prompt);
    const words = wordsOf(prompt, tokens);
    const unknown = unknownWords(words, settings.vocabulary);
    return { ids, words: words.map(({ text, tokens }) => [text, tokens]), unknown };
  });
}"""
NOISE = """async (seed) => {
  const { normal } = await import("/demo/noise.js");
  return [...normal(seed, 1024)];
}"""
PROMPTS = (
    HOUSE,
    "",
    "A Red HOUSE",
    "a robot's castle, in the snow!",
    "three balloons at night... and 12.5 snails",
    "snow-covered long_hair don't",
    "naïve café, cafe\u0301 über straße",
    "İstanbul ΣΑΣ ½ ² हिन्दी",
    "a 😀 cat 👩\u200d🚀 dog",
    "  two   cats\tare\nhere  ",
    "won't we'll they've I'm he'd it's (red:1.5) !!'s 'S",
    "cat " * 70 + "supercalifragilistic tree dog",
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site with its demo, built from nothing but the package of npm."""
    for package in ("zensical", "onnxscript"):
        pytest.importorskip(package, reason="pip install -c constraints.txt -e '.[dev]'")
    import build
    import demo

    try:
        demo.fetch(build.PACKAGES)
    except SystemExit as error:
        pytest.skip(str(error))
    folder = build.build(tmp_path_factory.mktemp("site") / "site", quick=True)
    sizes = [path.stat().st_size for path in (folder / "demo").iterdir()]
    assert sum(sizes) <= 30e6
    with serve(folder) as address:
        yield address


@pytest.fixture
def page(address: str, browser: Any) -> Iterator[Any]:
    """The demo's page, which writes nothing to the console."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.set_default_timeout(120_000)  # a busy machine draws slowly
    messages: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"{address}/try.html")
    yield page
    page.close()
    assert messages == []
    assert all(url.startswith((address, "data:", "blob:")) for url in requests)


def test_image_and_maps_are_those_of_python(page: Any, embedded: Any):
    """Words of several tokens, and one that the model was not taught."""
    prompt = "a purple Butterfly's robot, at night"
    found = page.evaluate(GENERATE, [prompt, 42])
    with pytest.warns(heedmap.HeedmapWarning):
        run = heedmap.generate(embedded, prompt, seed=42)
    pixels = np.reshape(found["pixels"], (128, 128, 4))[..., :3]
    assert np.abs(pixels - np.asarray(run.image).astype(int)).max() <= 2
    words = run.maps.words
    assert max(len(word.tokens) for word in words) > 2
    assert [(word.text, [*word.tokens]) for word in words] == [
        (text, tokens) for text, tokens, _ in found["words"]
    ]
    for word, (_, _, plane) in zip(words, found["words"], strict=True):
        expected = run.maps.at(word.number).values
        np.testing.assert_allclose(np.reshape(plane, (64, 64)), expected, atol=1e-5)
    assert "robot" in found["unknown"]


def test_a_reader_makes_an_image_by_keyboard(page: Any, embedded: Any, axe: str):
    prompt = page.get_by_role("textbox", name="Prompt")
    prompt.fill(HOUSE)
    prompt.press("Enter")
    words = page.get_by_role("group", name="words")
    words.get_by_role("button").first.wait_for()
    run = heedmap.generate(embedded, HOUSE, seed=7)
    image = overlays.enlarge(run.image, short_side=512)
    canvas = page.locator("#demo-image")
    assert np.abs(read_pixels(canvas) - np.asarray(image).astype(int)).max() <= 2
    while page.evaluate("document.activeElement.textContent") != "house":
        page.keyboard.press("Tab")
    heat = run.maps["house"].overlay(short_side=512)
    assert is_close(read_pixels(canvas), heat)
    page.keyboard.press("Enter")  # it stays
    page.keyboard.press("Tab")
    page.mouse.move(0, 0)
    page.locator("body").click(position={"x": 5, "y": 5})
    assert is_close(read_pixels(canvas), heat)
    assert words.get_by_role("button", pressed=True).inner_text() == "house"
    assert f'"{HOUSE}", seed=7' in page.locator("#demo-python").inner_text()
    for width, colours in ((1400, "light"), (390, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=colours)
        page.evaluate(axe)
        found = page.evaluate("async () => (await axe.run()).violations")
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_words_and_tokens_are_those_of_python(page: Any, embedded: Any):
    prompts = [unicodedata.normalize("NFC", prompt) for prompt in PROMPTS]
    vocabulary = loading.model_card().vocabulary
    for prompt, found in zip(prompts, page.evaluate(READ, prompts), strict=True):
        table = tokenize(prompt, embedded.tokenizer)
        assert found["ids"] == [token.id for token in table.tokens]
        assert found["words"] == [[word.text, [*word.tokens]] for word in table.words]
        assert found["unknown"] == [word.lower() for word in untaught([prompt], vocabulary) or ()]


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1])
def test_noise_is_that_of_torch(page: Any, seed: int):
    """All but the last bits: torch computes logarithms with vector instructions."""
    generator = torch.Generator().manual_seed(seed)
    expected = torch.randn(1024, generator=generator).numpy()
    np.testing.assert_allclose(page.evaluate(NOISE, seed), expected, rtol=5e-7, atol=5e-7)


def test_a_browser_without_webassembly_says_so(address: str, browser: Any):
    page = browser.new_page()
    page.add_init_script("delete globalThis.WebAssembly")
    page.goto(f"{address}/try.html")
    page.get_by_role("status").filter(has_text="WebAssembly").wait_for()
    assert page.get_by_role("button", name="Make the image").is_disabled()
    page.close()
