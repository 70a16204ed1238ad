"""Runs below one another: what stands in each place, and what tells the runs apart."""

from dataclasses import replace

import pytest
from making import gradient, letter_tokenizer, noting, recording, run_of, same_pixels
from PIL import Image

from heedmap.errors import ArgumentError, TruncatedWordError, UnknownWordError
from heedmap.figures import overlays, plots
from heedmap.maps.heatmaps import HeatMaps
from heedmap.results import runs as comparisons
from heedmap.text.words import tokenize


def test_a_row_a_run_on_one_scale(tables, framed):
    runs = [run_of("a red house at sea", seed=1), run_of("a house, a blue sea", seed=2)]
    comparisons.compare(runs)
    rows, columns = tables[0]
    assert columns == ["the picture", "house", "sea"]  # what both prompts have, but "a"
    assert [label for label, _ in rows] == [
        "a red house at sea, seed 1", "a house, a blue sea, seed 2",
    ]  # fmt: skip
    heats = [[run.maps[word].values for word in columns[1:]] for run in runs]
    low = min(float(v.min()) for row in heats for v in row)
    high = max(float(v.max()) for row in heats for v in row)
    for run, (_, row), values in zip(runs, rows, heats, strict=True):
        image = run.image.resize((256, 256), Image.Resampling.LANCZOS)
        assert same_pixels(row[0], image)
        for cell, value in zip(row[1:], values, strict=True):
            assert same_pixels(cell, overlays.overlay(image, value, low=low, high=high))
    said = framed[0]
    assert said["bar"].ends == (low, high)
    assert said["bar"].name == "shared by all words and runs shown"
    assert said["title"] == "2 runs compared"
    assert said["note"] == "4 steps · guidance 7.5 · 128×128 · org/model"


def test_articles_are_compared_where_there_is_nothing_else(tables):
    comparisons.compare([run_of("a red house"), run_of("a blue sea")])
    assert tables[0][1] == ["the picture", "a"]


def test_scales_of_a_comparison(tables, framed):
    runs = [run_of(seed=1), run_of(seed=2)]
    comparisons.compare(runs, ["red", "red house"], scale="word")
    assert framed[-1]["bar"].ends == ("least", "most")
    rows, columns = tables[-1]
    assert framed[-1]["title"] == "a red house"
    for place, word in enumerate(columns[1:], 1):
        values = [run.maps[word].values for run in runs]
        low, high = min(v.min() for v in values), max(v.max() for v in values)
        image = rows[0][1][0]
        assert same_pixels(
            rows[0][1][place], overlays.overlay(image, values[0], low=low, high=high)
        )
    comparisons.compare(runs, ["red"], scale="raw")
    assert framed[-1]["bar"].ends == (0, 1)
    with pytest.raises(ArgumentError):
        comparisons.compare(runs, scale="loud")


def test_words_that_one_run_lacks(tables):
    runs = [run_of("a red house"), run_of("a blue house")]
    comparisons.compare(runs, ["red", "blue", "house"])
    rows, _ = tables[0]
    assert isinstance(rows[0][1][2], str) and isinstance(rows[1][1][1], str)
    assert isinstance(rows[0][1][1], Image.Image)
    long = run_of("many " * 80 + "house")
    table = tokenize("many " * 80 + "house", letter_tokenizer())
    cut = replace(long, maps=HeatMaps(replace(recording(), table=table), long.image))
    comparisons.compare([runs[0], cut], ["house"])
    assert isinstance(tables[1][0][1][1][1], str)
    with pytest.raises(TruncatedWordError):
        comparisons.compare([cut, cut], ["house"])


def test_what_cannot_be_compared():
    with pytest.raises(ArgumentError):
        comparisons.compare([run_of()])
    with pytest.raises(ArgumentError):
        comparisons.compare([run_of("red house"), run_of("blue tree")])
    with pytest.raises(ArgumentError):
        comparisons.compare([run_of(), run_of()], [])
    with pytest.raises(UnknownWordError):
        comparisons.compare([run_of(), run_of()], ["house", "dog"])


def test_runs_of_different_shape_keep_theirs(tables):
    wide = run_of()
    image = gradient(192, 96)
    shaped = replace(wide.maps.recording, size=image.size)
    wide = replace(wide, image=image, maps=replace(wide.maps, image=image, recording=shaped))
    sheet = plots.render(comparisons.compare([run_of(seed=1), wide], ["house"]))
    rows, _ = tables[0]
    assert [row[0].size for _, row in rows] == [(256, 256), (362, 181)]
    flat = plots.render(comparisons.compare([wide, noting(wide, seed=9)]))
    assert flat.height < sheet.height


TREE = {"source": "a tree", "cross_replace": [0, 1], "self_replace": [0, 1]}


@pytest.mark.parametrize(
    ("settings", "labels"),
    [
        ([{}, {}], ["run 1", "run 2"]),
        ([{"seed": 1}, {"seed": 0}], ["seed 1", "seed 0"]),
        (
            [{"steps": 1, "guidance": None}, {"steps": 25, "guidance": 4.0}],
            ["1 step", "25 steps, guidance 4"],
        ),
        ([{"negative": "dogs"}, {}], ["negative: dogs", "no negative prompt"]),
        ([{"size": [64, 96]}, {"size": [96, 64]}], ["64×96", "96×64"]),
        (
            [{"edits": [{"kind": "confine", "word": "house", "where": [0, 0, 0.5, 9]}]}, {}],
            ["“house” confined to 0, 0, 0.5, 9, strength 3", "no edits"],
        ),
        (
            [
                {"edits": [{"kind": "reweight", "word": "house", "weight": -2}]},
                {"edits": [{"kind": "reweight", "word": "house", "weight": 0}]},
                {"edits": [{"kind": "reweight", "word": "o-o", "weight": -3, "renormalize": True}]},
                {"edits": [{"kind": "rule", "name": "mine"}, {"kind": "rule"}]},
            ],
            [
                "“house” ×−2",
                "“house” ×0",
                "“o-o” ×−3, renormalized",
                "the rule mine, a rule",
            ],
        ),
        ([{"edit": TREE}, {"seed": 3}], ["edited from “a tree”, seed 7", "seed 3"]),
        (
            [{"arguments": {"eta": 0.5}}, {"scheduler": "Euler"}],
            ["DDIMScheduler, eta 0.5", "Euler"],
        ),
    ],
)  # fmt: skip
def test_labels_say_what_differs(settings, labels):
    assert comparisons.labels([run_of(**given) for given in settings]) == labels
