"""What an interpreter shows of anything public, and of what it holds: one or two lines."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from making import (
    made_ablation,
    made_explanation,
    made_pair,
    random_pipeline,
    report_of,
    settings_of,
    small,
    table_of,
)
from msgspec import structs
from PIL import Image

import heedmap as hm
from heedmap.errors import fields_shown, within_lines
from heedmap.figures.step_pictures import StepPictures
from heedmap.maps.selections import Selection
from heedmap.options import DrawOptions, EditOptions, GenerateOptions
from heedmap.recording.calls import Wanted
from heedmap.recording.interventions import Intervention
from heedmap.results.runs import Run

MOST = 160  # characters: two lines of a terminal
WORDS = 75
NUMBERS = (True, 1.5, -7, 2**40, 0.1 + 0.2, None)


def of_an_interpreter(thing: object, depth: int = 6) -> Iterator[tuple[str, str]]:
    """What is shown of a thing of heedmap's and of all that its public attributes hold."""
    if type(thing).__module__.startswith("heedmap") and not isinstance(thing, hm.Sheet):
        yield type(thing).__name__, repr(thing)
        if depth:
            for name in dir(type(thing)) + list(getattr(thing, "__dict__", ())):
                if not name.startswith("_") and not callable(getattr(type(thing), name, None)):
                    with suppress(hm.HeedmapError):  # a trace that has recorded nothing
                        yield from of_an_interpreter(getattr(thing, name), depth - 1)
    if depth and isinstance(thing, Mapping):
        for one in list(thing.values())[:20]:
            yield from of_an_interpreter(one, depth - 1)
    elif depth and isinstance(thing, list | tuple):
        for one in thing[:: max(1, len(thing) // 5)]:
            yield from of_an_interpreter(one, depth - 1)


def much(text: str) -> dict[str, Any]:
    """Settings that say much: schedulers, LoRAs, arguments, edits."""
    config = {f"setting_{n} {text}": [text] * 9 for n in range(40)}
    mask = {"mask": [128, 128], "share": 0.5, "sha256": "ab" * 32, "packed": "x" * 9999}
    return {
        "prompt": text, "text": text, "negative": text, "seed": 2**32 - 1, "model": text[:200],
        "schedulers": {"scheduler": {"class": "S" * 90, "config": config}},
        "loras": [{"path": text, "scales": list(range(99))}] * 3, "arguments": config,
        "untaught": [text] * 50,
        "edits": [
            {"kind": "confine", "word": text, "where": mask, "along": [text] * 9},
            {"kind": "reweight", "word": text, "weight": 2.5},
        ],
        "edit": {"source": text, "cross": [0, 0.8], "self": [0, 0.4], "only": text,
                 "windows": {f"{n} {text}": [0.1, 0.2] for n in range(30)}},
    }  # fmt: skip


def a_run(text: str) -> Run:
    held = small(text, keep=frozenset({"layer", "step", "head"}))
    frames = (Image.new("RGB", (64, 64)),) * 50
    pictures = StepPictures(frames, "prediction")
    return Run(held.image, held.maps, settings_of(**much(text)), step_pictures=pictures)


def a_pair(text: str) -> hm.Pair:
    pair = made_pair(blended=True)
    asked = {"source": text, "targets": [text] * 16}
    about = report_of(why=text, masked_by=text, weights={str(n): 1.5 for n in range(70)},
                      words={"source": [*range(70)], "edited": [*range(70)]}, only=text,
                      asked=asked)  # fmt: skip
    return replace(pair, source=a_run(text), edited=a_run(text), about=about)


def a_grid(text: str) -> hm.Grid:
    pair = a_pair(text)
    cells = tuple(
        hm.Cell(n, n, f"{n} {text}", {f"{k} {text}": n / 7 for k in range(9)},
                (0.0, n / 16), (0.0, n / 16), pair)
        for n in range(1, 17)
    )  # fmt: skip
    about = msgspec.convert(
        {"source": text, "targets": [text] * 16, "seeds": [2**31] * 16, "batch": 3,
         "weights": {f"{n} {text}": [0.1] * 16 for n in range(16)}, "cross": [[0, 0.8]] * 16},
        hm.GridReport,
    )  # fmt: skip
    return hm.Grid(cells, about)


def a_trace(text: str) -> hm.Trace:
    wanted = Wanted(frozenset({"layer"}), "prompt", ("conditional",), 2**30, ())
    return hm.Trace(random_pipeline(), wanted, Intervention())


def shapes(text: str) -> hm.LayerShapes:
    return hm.LayerShapes(text, (128, 128), 20, 1 / 7, *[(16384, 2048)] * 12, masked=(999,) * 64)


def an_ablation(text: str) -> hm.Ablation:
    found, run = made_ablation(), a_run(text)
    return replace(found, run=run, columns=run, unread=run)


MAKERS: dict[str, Any] = {
    "Ablation": an_ablation,
    "Agreement": lambda text: made_ablation().trust.columns.heat,
    "Animation": lambda text: hm.Animation(text, (Image.new("RGB", (8, 8)),) * 50, (40,) * 50),
    "Attention": lambda text: hm.attention(*np.random.default_rng(0).normal(size=(3, 8, 77, 64))),
    "Cell": lambda text: a_grid(text).cells[15],
    "Change": lambda text: a_pair(text).about.change,
    "Confine": lambda text: hm.Confine(text, np.eye(128) > 0, along=[text] * 9),
    "EditReport": lambda text: a_pair(text).about,
    "Explanation": lambda text: made_explanation(edited=True, word=text, prompt=text),
    "Grid": a_grid,
    "GridReport": lambda text: a_grid(text).about,
    "HeatMap": lambda text: a_run(text).maps.at(0),
    "HeatMaps": lambda text: a_run(text).maps,
    "LayerShapes": shapes,
    "Pair": a_pair,
    "Repetition": lambda text: hm.Repetition(
        a_grid(text), False, 255, 10**7, 10**7, {f"{n} {text}": NUMBERS for n in range(99)}
    ),
    "Reweight": lambda text: hm.Reweight(text, 1 / 3),
    "Run": a_run,
    "Settings": lambda text: settings_of(**much(text)),
    "Sheet": lambda text: a_run(text).sheet(),
    "Site": lambda text: hm.Site(text, 3, 50, (64, 64), torch.rand(8, 4096, 77)),
    "TokenTable": table_of,
    "Trace": a_trace,
    "Trust": lambda text: made_ablation().trust,
}
"""Of each public class one that holds much."""
LONG = " ".join(["house"] * WORDS)
TEXTS = [LONG, "h" * 900, "a\x1b[31m\n house " * 30]


def test_each_public_class_is_here():
    public = {name for name in hm.__all__ if inspect.isclass(getattr(hm, name))}
    errors = {name for name in public if issubclass(getattr(hm, name), Exception)}
    assert {*MAKERS} == public - errors


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("text", TEXTS, ids=["words", "a word", "signs"])
def test_an_interpreter_shows_two_lines_at_most(name, text):
    made = MAKERS[name](text)
    for kind, said in [(name, repr(made)), *of_an_interpreter(made)]:
        assert len(said) <= MOST and said.isprintable(), (kind, said)


@given(st.recursive(st.sampled_from(NUMBERS) | st.text(max_size=300), lambda held: (
    st.lists(held) | st.dictionaries(st.text(max_size=90), held)), max_leaves=60))  # fmt: skip
def test_whatever_a_file_holds_is_shown_in_two_lines(held):
    about = settings_of(arguments={"one": held}, options={"two": held, "three": [held]})
    for _, said in of_an_interpreter(about):
        assert len(said) <= MOST and said.isprintable()


def test_what_was_asked_for_is_shown_in_two_lines():
    arguments = {"image": torch.rand(1, 3, 512, 512), "latents": np.zeros((4, 64, 64)), "x": LONG}
    for one in (
        DrawOptions(negative=LONG, arguments=arguments),
        GenerateOptions(negative=LONG, arguments=arguments),
        EditOptions(words={LONG: (0.0, 0.5)}, only=LONG, protect=[LONG] * 9),
        Selection((*range(70),), (*range(50),), (*range(20),)),
    ):
        assert len(repr(one)) <= MOST and repr(one).isprintable()


def test_what_has_room_is_shown_whole_and_what_has_none_is_counted():
    word = hm.Reweight("red", 2.0)
    assert repr(word) == "Reweight(word='red', weight=2.0, renormalize=False)"
    confined = hm.Confine("cat", np.ones((4, 8), dtype=bool))
    assert repr(confined).startswith("Confine(word='cat', where=<bool (4, 8)>, strength=3.0, ")
    about = settings_of(seed=5)
    assert repr(about).startswith("Settings(prompt=") and "seed=5" in repr(about)
    assert int(repr(about).rpartition("… ")[2].removesuffix(" more)")) >= 1
    assert structs.asdict(about)["seed"] == 5  # nothing is lost
    assert fields_shown(about.versions, ["heedmap"]) == "Versions(heedmap='0.1.0')"
    assert within_lines(["abc", "de", "f"], 9) == "abc, de, … 1 more"
    assert within_lines(["abc", "de", "f"], 12) == "abc, de, f"
