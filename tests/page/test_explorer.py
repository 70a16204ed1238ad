"""The page as Python writes it: what it holds, how exact, how large, and that it holds no code."""

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest
from making import (
    BLOCKS,
    PROMPT,
    Edited,
    data_of,
    noting,
    report_of,
    small,
    stable_diffusion,
    with_refined,
)

from heedmap.checks import ROUNDING
from heedmap.page import pages

HOSTILE = 'a <img src=x onerror="alert(1)"> </script><script>alert(2)</script> & cat\u2028'


# --- how large --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prompt", "axes"),
    [
        (PROMPT, {"layer", "step", "head"}),
        (" ".join(f"word{n}" for n in range(75)), {"layer", "head"}),
    ],
    ids=["11", "75"],
)
def test_fifty_steps_of_stable_diffusion_fit_in_eight_megabytes(prompt: str, axes: set):
    run = stable_diffusion(prompt, keep=frozenset(axes), heads=2)
    page = pages.run_page(run)
    assert len(page.encode()) <= 8_000_000
    maps = data_of(page)["maps"]
    assert maps["tables"][0]["windows"] == [[0, 50]] and len(maps["layers"]) == len(BLOCKS)


def test_a_page_with_many_kept_axes_stays_within_its_limit():
    run = small("a red house next to a blue tree", frozenset({"layer", "step", "head"}))
    whole, tight = pages.run_page(run), pages.run_page(run, limit=320_000)
    assert len(tight) <= 320_000 < len(whole)
    assert all(table["data"][0] for table in data_of(tight)["maps"]["tables"])


@pytest.mark.parametrize("limit", [262_000, 400_000])
def test_a_page_with_refined_maps_and_masks_stays_within_its_limit(limit: int):
    page = pages.run_page(with_refined(small("a red house next to a blue tree")), limit=limit)
    data = data_of(page)
    assert len(page) <= limit and data["maps"]["refined"] and data["runs"][0]["masks"]


def test_a_negative_prompt_of_fewer_steps_is_left_out():
    run = small(keep=frozenset({"layer", "step"}))
    shorter = run.maps.recording
    shorter = replace(
        shorter, timesteps=shorter.timesteps[:2], arrays=tuple(one[:2] for one in shorter.arrays)
    )
    for negative, names in ((run.maps.recording, ["prompt", "negative"]), (shorter, ["prompt"])):
        run.negative_maps = replace(run.maps, recording=negative)
        prompts = data_of(pages.run_page(run))["maps"]["runs"][0]["prompts"]
        assert [one["name"] for one in prompts] == names


# --- what is typed stays text -----------------------------------------------------------------


def test_typed_text_never_becomes_html():
    run = noting(
        small(HOSTILE),
        negative=HOSTILE,
        arguments={HOSTILE: HOSTILE},
        model=HOSTILE,
        more=[HOSTILE],
    )
    page = pages.run_page(run)
    assert page.count("<script") == 2 and page.count("</script>") == 2
    assert "<img" not in page
    data = data_of(page)
    assert "".join(text for text, *_ in data["maps"]["runs"][0]["prompts"][0]["pieces"]) == HOSTILE
    assert f"<title>{html.escape(HOSTILE)} " in page


def test_the_content_policy_allows_only_the_pages_style_and_script():
    page = pages.run_page(small())
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none'; img-src data: blob:;")
    assert "unsafe" not in policy and "http" not in policy
    assert not re.findall(r"""(?:src|href)=["']?(?!data:)[^"'> ]""", page.partition("<script")[0])
    assert not re.search(r"\son\w+=", re.sub(r"<script.*?</script>", "", page, flags=re.S))
    assert "style=" not in re.sub(r"<script.*?</script>", "", page, flags=re.S)


def test_the_page_and_python_have_one_rounding_constant():
    folder = Path(pages.__file__).parent / "assets"
    (found,) = re.findall(r"const ROUNDING = (\S+);", (folder / "drawing.js").read_text())
    assert float(found) == ROUNDING


def test_a_frame_is_sandboxed():
    framed = pages.frame(pages.run_page(small(HOSTILE)))
    assert framed.count("<") == 2 and 'sandbox="allow-scripts allow-downloads"' in framed


# --- edits ------------------------------------------------------------------------------------

ABOUT = report_of(why="'red' became 'blue'")


def test_edits_of_one_source_hold_its_run_once():
    source, about = small(), ABOUT
    pairs = [Edited(source, small(text), about) for text in ("a blue house", "a red cat")]
    data = data_of(pages.pairs_page([("one", pairs[0]), ("two", pairs[1])]))
    assert len(data["runs"]) == 3
    assert [(p["source"], p["edited"], p["label"]) for p in data["pairs"]] == [
        (0, 1, "one"), (0, 2, "two"),
    ]  # fmt: skip
    assert data["pairs"][0]["words"] == [[0, 0], [1, 1], [2, 2]]
    assert data["pairs"][0]["changed"] == {"source": [1], "edited": [1]}


# --- settings and warnings --------------------------------------------------------------------


def test_a_page_names_the_model_option_if_the_model_has_no_name():
    run = small()
    assert data_of(pages.run_page(run))["runs"][0]["model"] == ""
    nameless = noting(run, model="StableDiffusionPipeline", pipeline="StableDiffusionPipeline")
    assert data_of(pages.run_page(nameless))["runs"][0]["model"] == "--model MODEL"


def test_unknown_words_are_named_on_the_page():
    run = small("a horse", frozenset({"layer"}))
    assert data_of(pages.run_page(run))["runs"][0]["untaught"] == ""
    told = data_of(pages.run_page(noting(run, untaught=["horse"])))["runs"][0]
    said = "The model was not trained on 'horse': the image may not show it."
    assert told["untaught"] == said and ["words not in training", "horse"] in told["settings"]
    black = noting(run, untaught=["horse"], nsfw_content_detected=True)
    assert data_of(pages.run_page(black))["runs"][0]["untaught"].startswith(f"{said} ")
