"""Runs below one another: what stands in each place, and what tells the runs apart."""

from dataclasses import replace

import numpy as np
import pytest
from figure_reading import ends, read_figure, shows
from making import noisy_run, run_of, with_settings
from PIL import Image

from heedmap.errors import ArgumentError, UnknownWordError
from heedmap.figures import overlays, plots
from heedmap.maps.heatmaps import HeatMaps
from heedmap.results import runs as comparisons


def test_each_run_has_a_row_on_one_scale():
    runs = [run_of("a red house at sea", seed=1), run_of("a house, a blue sea", seed=2)]
    sheet = read_figure(comparisons.compare(runs))
    rows = sheet.rows
    columns = sheet.columns
    assert columns == ["the image", "house", "sea"]  # what both prompts have, but "a"
    assert [label for label, _ in rows] == [
        "a red house at sea, seed 1",
        "a house, a blue sea, seed 2",
    ]
    heats = [[run.maps[word].values for word in columns[1:]] for run in runs]
    low = min(float(v.min()) for row in heats for v in row)
    high = max(float(v.max()) for row in heats for v in row)
    for run, (_, row), values in zip(runs, rows, heats, strict=True):
        image = run.image.resize((256, 256), Image.Resampling.LANCZOS)
        assert shows(row[0], image)
        for cell, value in zip(row[1:], values, strict=True):
            assert shows(cell, overlays.overlay(image, value, low=low, high=high))
    assert sheet.scales == [("shared by all words and runs", ends(low, high))]
    assert sheet.title == "2 runs compared"
    assert sheet.note == "4 steps · guidance 7.5 · 128×128 · org/model"


def test_runs_are_named_by_their_folders(tmp_path):
    runs = [noisy_run("at house", 1), noisy_run("at sea", 2)]
    folders = [str(run.save(tmp_path / str(n), overlays=False)) for n, run in enumerate(runs)]
    expected = plots.render(comparisons.compare(runs, ["at"])).tobytes()
    for several in (folders, [runs[0], folders[1]]):
        assert plots.render(comparisons.compare(several, ["at"])).tobytes() == expected


def test_a_comparison_has_the_chosen_scale():
    runs = [run_of(seed=1), run_of(seed=2)]
    sheet = read_figure(comparisons.compare(runs, ["red", "red house"], scale="word"))
    assert [texts for _, texts in sheet.scales] == [["least", "most"]]
    assert sheet.title == "a red house"
    image = runs[0].image.resize((256, 256), Image.Resampling.LANCZOS)
    for place, word in enumerate(sheet.columns[1:], 1):
        values = [run.maps[word].values for run in runs]
        low = min(v.min() for v in values)
        high = max(v.max() for v in values)
        expected = overlays.overlay(image, values[0], low=low, high=high)
        assert shows(sheet.rows[0][1][place], expected)
    with pytest.raises(ArgumentError):
        comparisons.compare(runs, scale="loud")


def test_values_of_different_kinds_have_a_scale_each():
    of_unet = with_settings(run_of("a red house", seed=1), model="unet")
    arrays = tuple(array / 2 for array in of_unet.maps.recording.arrays)
    shares = replace(of_unet.maps.recording, arrays=arrays, share_of="all")
    joint = replace(of_unet, maps=HeatMaps(shares, of_unet.image))
    joint = with_settings(joint, model="joint", scheduler="Flow", share_of="all")
    sheet = read_figure(comparisons.compare([of_unet, joint], ["red", "house"]))
    assert [label for label, _ in sheet.rows] == [
        "unet, DDIMScheduler",
        "joint, share of all attention, Flow",
    ]
    image = of_unet.image.resize((256, 256), Image.Resampling.LANCZOS)
    scales = sheet.scales[::-1]  # drawn from below
    for run, (_, row), (_, texts) in zip([of_unet, joint], sheet.rows, scales, strict=True):
        values = [run.maps[word].values for word in ("red", "house")]
        low = float(np.min(values))
        high = float(np.max(values))
        assert texts == ends(low, high)
        for cell, value in zip(row[1:], values, strict=True):
            assert shows(cell, overlays.overlay(image, value, low=low, high=high))


def test_a_word_missing_in_one_run_is_a_text():
    runs = [run_of("a red house"), run_of("a blue house")]
    rows = read_figure(comparisons.compare(runs, ["red", "blue", "house"])).rows
    assert isinstance(rows[0][1][2], str) and isinstance(rows[1][1][1], str)
    assert isinstance(rows[0][1][1], Image.Image)


@pytest.mark.parametrize(
    ("prompts", "words", "error"),
    [
        (("red house",), None, ArgumentError),
        (("red house", "blue tree"), None, ArgumentError),
        (("red house", "red house"), ["house", "dog"], UnknownWordError),
    ],
)
def test_runs_without_common_words_are_refused(prompts, words, error):
    with pytest.raises(error):
        comparisons.compare(list(map(run_of, prompts)), words)


TREE = {"source": "a tree", "cross_replace": [0, 1], "self_replace": [0, 1]}


@pytest.mark.parametrize(
    ("settings", "labels"),
    [
        ([{"seed": 1}, {"seed": 0}], ["seed 1", "seed 0"]),
        (
            [{"steps": 1, "guidance": None}, {"steps": 25, "guidance": 4.0}],
            ["1 step", "25 steps, guidance 4"],
        ),
        (
            [{"edits": [{"kind": "confine", "word": "house", "where": [0, 0, 0.5, 9]}]}, {}],
            ["“house” confined to 0, 0, 0.5, 9, strength 3", "no edits"],
        ),
        (
            [
                {"edits": [{"kind": "reweight", "word": "house", "weight": -2}]},
                {"edits": [{"kind": "rule", "name": "mine"}, {"kind": "rule"}]},
            ],
            [
                "“house” ×−2",
                "the function mine, a function",
            ],
        ),
        ([{"edit": TREE}, {"seed": 3}], ["edited from “a tree”, seed 7", "seed 3"]),
        (
            [{}, {"scheduler": "Euler"}, {"model": "joint", "scheduler": "Flow"}],
            ["org/model, DDIMScheduler", "org/model, Euler", "joint, Flow"],
        ),
    ],
)
def test_labels_say_what_differs(settings, labels):
    assert comparisons.labels([run_of(**given) for given in settings]) == labels
