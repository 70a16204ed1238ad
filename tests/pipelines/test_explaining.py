"""A saved run drawn again up to a step; all that is shown can be computed of the file alone."""

import base64
import json

import numpy as np
import pytest
from making import random_pixart, with_settings
from numpy.testing import assert_allclose

import heedmap as hm
from heedmap.errors import ArgumentError, HeedmapError, RunError, SelectionError, UnknownWordError

PROMPT = "a red house"
AT = (20, 41)


@pytest.fixture(scope="module")
def run(random_model):
    return hm.generate(random_model, PROMPT, seed=3, steps=2, keep=("layer", "step", "head"))


def recompute(folder):
    """All `numbers`, from the file alone and by nothing of heedmap."""
    content = json.loads((folder / "explain.json").read_text("utf-8"))
    given = {
        name: np.frombuffer(base64.b64decode(held["float32"]), "<f4")
        .reshape(held["shape"])
        .astype(np.float64)
        for name, held in content["inputs"].items()
        if isinstance(held, dict)
    }
    report = content["report"]
    h = content["report"]["head"]
    heads, tokens = given["key"].shape[:2]

    def softmax(scores):
        raised = np.exp(scores - scores.max())
        return raised / raised.sum()

    mask = given.get("mask", np.zeros((heads, tokens)))
    scores = np.array([k @ q for q, k in zip(given["query"], given["key"], strict=True)])
    scaled = scores * content["inputs"]["scale"]
    rows = np.array([softmax(row) for row in scaled + mask])
    acted = given.get("edited", rows)
    width = given["value"].shape[2]
    by_head = [given["weight"][:, n * width : (n + 1) * width] for n in range(heads)]
    parts = np.array(
        [
            [w @ (p * v) for p, v in zip(acted[n], given["value"][n], strict=True)]
            for n, w in enumerate(by_head)
        ]
    )
    joined = np.concatenate([acted[n] @ given["value"][n] for n in range(heads)])
    joined = joined + given.get("added", 0)
    together = given["weight"] @ joined + given.get("bias", 0) + given.get("residual", 0)
    together = together / content["inputs"]["factor"]
    word = report["tokens"]

    def length(vector):
        return float(np.sqrt((vector**2).sum()))

    return content, {
        "scores": scores[h],
        "softmax": rows[h],
        "unscaled_softmax": softmax(scores[h] + mask[h]),
        "probabilities": acted[h],
        "contributions": [length(part) for part in parts[h]],
        "heads_contributions": [length(part) for part in parts.sum(axis=0)],
        "word_probabilities": acted[:, word].sum(axis=1),
        "word_contributions": [length(part[word].sum(axis=0)) for part in parts],
        "tokens_contributions": [length(part.sum(axis=0)) for part in parts],
        "heads_output": joined,
        "output": together,
        "difference": np.abs(together - given["output"]).max(),
    }


def check_file(folder):
    content, expected = recompute(folder)
    numbers = content["numbers"]
    assert numbers.keys() == expected.keys()
    for name, value in expected.items():
        assert_allclose(numbers[name], value, rtol=1e-8, atol=1e-12, err_msg=name)
    assert numbers["difference"] < 1e-5
    return content


def test_an_explanation_is_recomputed_from_its_file_alone(random_model, run, tmp_path):
    found = hm.explain(random_model, run, "house", AT)
    content = check_file(found.save(tmp_path / "x"))
    assert content["report"]["maps_difference"] < 1e-6 and content["report"]["settings_diff"] == []
    back = hm.Explanation.load(tmp_path / "x")
    assert back.numbers == found.numbers and back.report == found.report
    assert back.page() == found.page() and repr(back) == repr(found)


def test_a_masked_model_with_an_edit_is_explained(tmp_path):
    pipe = random_pixart()
    pipe.set_progress_bar_config(disable=True)
    edits = [hm.Reweight("house", -1.5)]
    run = hm.generate(pipe, PROMPT, seed=3, steps=2, edits=edits, keep=("layer", "step"))
    found = hm.explain(pipe, run, "house", AT)
    content = check_file(found.save(tmp_path / "x"))
    assert content["inputs"]["mask"] and content["inputs"]["edited"]
    assert content["report"]["automatic_axes"] == ["layer", "head", "step"]


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ({"word": "cat"}, UnknownWordError),
        ({"at": (500, 0)}, ArgumentError),
        ({"step": 2}, SelectionError),
    ],
)
def test_arguments_that_fit_no_run_are_refused(random_model, run, asked, kind):
    with pytest.raises(kind):
        hm.explain(random_model, run, **{"word": "house", "at": AT, **asked})


def test_a_negative_weight_chooses_the_lowest_head(random_model):
    run = hm.generate(random_model, "a red (house:-0.5)", seed=3, steps=2)
    one = hm.explain(random_model, run, "house", AT, step=1)
    shares = one.probabilities[:, list(one.report.tokens)].sum(axis=1)
    assert shares.min() < 0 and one.report.head == shares.argmin()


def test_a_run_that_cannot_be_repeated_is_refused(random_model, run, tmp_path):
    with pytest.raises(HeedmapError, match="image"):
        hm.explain(random_model, with_settings(run, arguments={"image": "<Image>"}), "house", AT)
    with pytest.raises(RunError):
        hm.explain(random_model, tmp_path, "house", AT)
