"""A saved run drawn again up to a step; all that is shown can be computed of the file alone."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest
from making import noting, random_pixart
from numpy.testing import assert_allclose

import heedmap as hm
from heedmap.errors import ArgumentError, HeedmapError, RunError, SelectionError, UnknownWordError
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.recordings import short_name

PROMPT, AT = "a red house", (20, 41)


@pytest.fixture(scope="module")
def run(random_model):
    return hm.generate(random_model, PROMPT, seed=3, steps=2, keep=("layer", "step", "head"))


def recomputed(folder):
    """Everything that `shown` holds, from the file alone and by nothing of heedmap."""
    told = json.loads((folder / "explain.json").read_text("utf-8"))
    given = {
        name: np.frombuffer(base64.b64decode(held["float32"]), "<f4").reshape(held["shape"])
        .astype(np.float64)
        for name, held in told["given"].items()
        if isinstance(held, dict)
    }  # fmt: skip
    about, h = told["about"], told["about"]["head"]
    heads, tokens = given["key"].shape[:2]

    def softmax(scores):
        raised = np.exp(scores - scores.max())
        return raised / raised.sum()

    mask = given.get("mask", np.zeros((heads, tokens)))
    scores = np.array([k @ q for q, k in zip(given["query"], given["key"], strict=True)])
    scaled = scores * told["given"]["scale"]
    rows = np.array([softmax(row) for row in scaled + mask])
    acted = given.get("edited", rows)
    width = given["value"].shape[2]
    by_head = [given["weight"][:, n * width : (n + 1) * width] for n in range(heads)]
    parts = np.array(
        [[w @ (p * v) for p, v in zip(acted[n], given["value"][n], strict=True)]
         for n, w in enumerate(by_head)]
    )  # fmt: skip
    joined = np.concatenate([acted[n] @ given["value"][n] for n in range(heads)])
    joined = joined + given.get("added", 0)
    together = given["weight"] @ joined + given.get("bias", 0) + given.get("residual", 0)
    together = together / told["given"]["factor"]
    starts = [one["position"] for one in told["tokens"] if one["kind"] == "start"]
    word = about["tokens"]

    def length(vector):
        return float(np.sqrt((vector**2).sum()))

    return told, {
        "scores": scores[h],
        "scaled": scaled[h],
        "masked": [x if np.isfinite(x) else None for x in (scaled + mask)[h]],
        "probabilities": rows[h],
        "unscaled": softmax(scores[h] + mask[h]),
        "acted": acted[h],
        "brought": [length(part) for part in parts[h]],
        "all_brought": [length(part) for part in parts.sum(axis=0)],
        "output": acted[h] @ given["value"][h],
        "heads": [
            {
                "word": acted[n][word].sum(),
                "start": acted[n][starts].sum() if starts else None,
                "length": length(parts[n].sum(axis=0)),
                "word_length": length(parts[n][word].sum(axis=0)),
            }
            for n in range(heads)
        ],
        "joined": joined,
        "together": together,
        "difference": np.abs(together - given["output"]).max(),
    }


def check_file(folder):
    told, expected = recomputed(folder)
    shown = told["shown"]
    assert shown.keys() == expected.keys()
    for name, value in expected.items():
        if name == "heads":
            for one, other in zip(shown[name], value, strict=True):
                assert one.keys() == other.keys()
                for figure in one:
                    expected_one = other[figure]
                    if expected_one is not None:
                        expected_one = pytest.approx(expected_one, rel=1e-9, abs=1e-13)
                    assert one[figure] == expected_one
        elif name == "masked":
            assert shown[name] == pytest.approx(value, rel=1e-12)
        else:
            assert_allclose(shown[name], value, rtol=1e-8, atol=1e-12, err_msg=name)
    assert shown["difference"] < 1e-5
    return told


def test_all_that_is_shown_is_computed_of_the_file_alone(random_model, run, tmp_path):
    found = hm.explain(random_model, run, "house", AT)
    told = check_file(found.save(tmp_path / "x"))
    assert told["about"]["kept"] < 1e-6 and told["about"]["changed"] == []
    back = hm.Explanation.load(tmp_path / "x")
    assert back.shown == found.shown and back.about == found.about
    assert back.page() == found.page() and repr(back) == repr(found)


def test_of_a_masked_model_and_of_an_edit(tmp_path):
    pipe = random_pixart()
    pipe.set_progress_bar_config(disable=True)
    edits = [hm.Reweight("house", -1.5)]
    run = hm.generate(pipe, PROMPT, seed=3, steps=2, edits=edits, keep=("layer", "step"))
    found = hm.explain(pipe, run, "house", AT)
    told = check_file(found.save(tmp_path / "x"))
    assert told["given"]["mask"] and told["given"]["edited"] and told["about"]["rule"]
    assert told["about"]["chosen"] == {"layer": "kept", "step": "kept", "head": "drawn"}


def test_a_folder_an_edit_and_a_negative_prompt(random_model, run, tmp_path):
    folder = run.save(tmp_path / "run", overlays=False)
    one, other = (hm.explain(random_model, it, "house", AT) for it in (run, str(folder)))
    assert one.shown == other.shown
    by_number = hm.explain(random_model, folder, 2, AT)
    assert by_number.about.word == "house" and by_number.shown == one.shown
    pair = hm.edit(random_model, PROMPT, "a red horse", seed=3, steps=2)
    pair.save(tmp_path / "pair")
    found = hm.explain(random_model, tmp_path / "pair", "horse", AT)
    assert found.about.prompt == "a red horse"


@pytest.mark.parametrize(
    ("asked", "kind", "said"),
    [
        ({"word": "cat"}, UnknownWordError, "'cat' is not in the prompt"),
        ({"at": (500, 0)}, ArgumentError, "outside of the picture"),
        (
            {"layer": "up 9"},
            SelectionError,
            "layer is 'up 9': expected the name of one layer; the near",
        ),
        ({"step": 2}, SelectionError, "step is 2, and the run has 2 steps: the nearest is 1"),
        (
            {"head": 9, "layer": "mid"},
            SelectionError,
            "head is 9, and mid 0 has 2 heads: the nearest is 1",
        ),
        ({"pass_": 1}, SelectionError, "pass_ is 1, and step .* has 1 pass: the nearest is 0"),
        ({"pass_": True}, ArgumentError, "pass_ is True: expected a whole number"),
        ({"branch": "x"}, ArgumentError, "branch is 'x': expected"),
        ({"pass_": -2}, SelectionError, "pass_ is -2, and .*: the nearest is 0"),
        ({"pass_": 1.0}, ArgumentError, "pass_ is 1.0: expected a whole number"),
        ({"head": "1"}, ArgumentError, "head is '1': expected a whole number"),
        ({"branch": "both"}, ArgumentError, "branch is 'both': expected 'conditional' or"),
        ({"branch": "negative"}, UnknownWordError, "'house' is not in the prompt"),
    ],
)
def test_refused_in_a_sentence(random_model, run, asked, kind, said):
    wanted = {"word": "house", "at": AT, **asked}
    with pytest.raises(kind, match=said):
        hm.explain(random_model, run, **wanted)


def test_a_word_of_a_negative_weight_draws_most_where_it_is_lowest(random_model):
    """Among what was kept, and where the run is drawn again."""
    prompt, found = "a red (house:-0.5)", []
    for keep in (("layer", "step", "head"), ()):
        run = hm.generate(random_model, prompt, seed=3, steps=2, keep=keep)
        found.append(hm.explain(random_model, run, "house", AT, step=1))
    one, other = found
    assert (one.about.layer, one.about.head) == (other.about.layer, other.about.head)
    drawn = one.acted[:, list(one.about.tokens)].sum(axis=1)
    assert drawn.min() < 0 and one.about.head == drawn.argmin()


def test_a_layer_or_head_of_a_run_that_kept_none(random_model):
    run = hm.generate(random_model, PROMPT, seed=3, steps=2, keep=())
    with pytest.raises(SelectionError, match="layer is 'up 9': expected"):
        hm.explain(random_model, run, "house", AT, layer="up 9")
    with pytest.raises(SelectionError, match="head is 2, and mid 0 has 2 heads: the nearest is 1"):
        hm.explain(random_model, run, "house", AT, layer="mid", head=2)
    found = hm.explain(random_model, run, "house", AT, layer="mid", head=-1)
    assert found.about.head == 1 and found.about.chosen["head"] == "asked"


def test_a_run_that_cannot_be_drawn_again(random_model, run, tmp_path):
    with pytest.raises(HeedmapError):
        hm.explain(random_model, noting(run, arguments={"image": "<Image>"}), "house", AT)
    with pytest.raises(RunError):
        hm.explain(random_model, tmp_path, "house", AT)


@pytest.mark.parametrize("odd", ["name", "heads", "one head", "grid", "positions"])
def test_maps_of_another_model(random_model, run, odd):
    """As of a file that somebody changed, or where another model draws it again."""
    held = run.maps.recording
    layers, arrays, positions = list(held.layers), list(held.arrays), held.positions
    if odd == "name":
        layers = [replace(one, name=short_name(one.name)) for one in layers]
    elif odd == "heads":
        layers = [replace(one, heads=one.heads + 1) for one in layers]
        arrays = [np.concatenate([one, one[:, :1]], axis=1) for one in arrays]
    elif odd == "one head":
        layers = [replace(one, heads=1) for one in layers]
        arrays = [one[:, :1] for one in arrays]
    elif odd == "grid":
        layers = [replace(one, grid=(1, 1)) for one in layers]
        arrays = [one[:, :, :1] for one in arrays]
    else:
        positions = (*positions[:-1], 77)
    maps = HeatMaps(replace(held, layers=tuple(layers), arrays=tuple(arrays), positions=positions))
    with pytest.raises(RunError):
        hm.explain(random_model, replace(run, maps=maps), "house", AT)
