"""The page as Python writes it: what it holds, and how large it is."""

import pytest
from making import (
    BLOCKS,
    PROMPT,
    data_of,
    report_of,
    small,
    stable_diffusion,
    with_refined,
    with_settings,
)

from heedmap.page import pages
from heedmap.results.edits import EditResult


@pytest.mark.slow
def test_fifty_steps_of_stable_diffusion_fit_in_eight_megabytes():
    axes = frozenset({"layer", "step", "head"})
    page = pages.run_page(stable_diffusion(PROMPT, keep=axes, heads=2))
    assert len(page.encode()) <= 8_000_000
    maps = data_of(page)["maps"]
    assert maps["tables"][0]["windows"] == [[0, 50]] and len(maps["layers"]) == len(BLOCKS)


def test_a_page_stays_within_its_limit():
    prompt = "a red house next to a blue tree"
    run = small(prompt, frozenset({"layer", "step", "head"}))
    whole, tight = pages.run_page(run), pages.run_page(run, limit=320_000)
    assert len(tight) <= 320_000 < len(whole)
    for limit in (262_000, 400_000):
        page = pages.run_page(with_refined(small(prompt)), limit=limit)
        data = data_of(page)
        assert len(page) <= limit and data["maps"]["refined"] and data["runs"][0]["masks"]


def test_edits_of_one_source_hold_its_run_once():
    source, report = small(), report_of(why="'red' became 'blue'")
    one, two = (EditResult(source, small(text), report) for text in ("a blue house", "a red cat"))
    data = data_of(pages.pairs_page([("one", one), ("two", two)]))
    assert len(data["runs"]) == 3
    assert [(p["source"], p["edited"], p["label"]) for p in data["pairs"]] == [
        (0, 1, "one"),
        (0, 2, "two"),
    ]
    assert data["pairs"][0]["words"] == [[0, 0], [1, 1], [2, 2]]
    assert data["pairs"][0]["changed"] == {"source": [1], "edited": [1]}


def test_a_page_names_unknown_words_and_a_model_without_name():
    run = small("a horse")
    pipeline = "StableDiffusionPipeline"
    nameless = with_settings(run, untaught=["horse"], model=pipeline, pipeline=pipeline)
    (plain,), (noted,) = (data_of(pages.run_page(one))["runs"] for one in (run, nameless))
    assert plain["untaught"] == plain["model"] == ""
    assert "'horse'" in noted["untaught"] and noted["model"] == "--model MODEL"
