"""Edits by name: what they say, what they refuse, and what they do in a run."""

import numpy as np
import pytest
import torch
from making import generate_batch, random_pipeline
from PIL import Image

import heedmap
from heedmap import Confine, Reweight, Run
from heedmap.backends.prompts import prompt_table
from heedmap.errors import (
    ArgumentError,
    HeedmapWarning,
    TruncatedWordError,
    UnknownWordError,
)
from heedmap.io.schemas import to_json
from heedmap.io.word_edits import Mask
from heedmap.mathematics.rules import Site
from heedmap.pipelines import generation
from heedmap.recording.edits import rules_of
from heedmap.text.tokenization import tokenize

SIZE = (128, 128)
everywhere = lambda selection: None  # noqa: E731
LEFT, RIGHT = (0, 0, 64, 128), (64, 0, 128, 128)


@pytest.fixture(scope="module")
def pipe():
    """One for all: an edit leaves it as it was."""
    return random_pipeline()


def generate(pipe, prompt="a red house", edits=(), steps=2, **options):
    return heedmap.generate(pipe, prompt, seed=7, steps=steps, edits=edits, **options)


def same(a, b) -> bool:
    """Whether two runs have the same picture and the same maps, to the bit."""
    maps = zip(a.maps.values(), b.maps.values(), strict=True)
    return np.array_equal(np.asarray(a.image), np.asarray(b.image)) and all(
        np.array_equal(one.values, other.values) for one, other in maps
    )


def of_left(grid=(16, 16)) -> np.ndarray:
    """bool (h, w), True in the left half."""
    mask = np.zeros(grid, bool)
    mask[:, : grid[1] // 2] = True
    return mask


# --- Reweight ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "edits"),
    [
        ("a (red house:-1)", [Reweight("red house", -1)]),
        ("a (red:3) (house:0.5)", [Reweight("house", 0.5), Reweight("red", np.float32(3))]),
        ("(red:+6) and red", [Reweight("red", 2, False), Reweight("red", 3)]),
    ],
)
def test_reweight_equals_a_weight_in_the_prompt(pipe, written, edits):
    bare = written.replace("(red:+6) and red", "(red:+6) and (red:+6)")
    plain = generation.parse_weights(written).text
    assert same(generate(pipe, bare), generate(pipe, plain, edits))


# --- Confine ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(192, 128), (64, 160)])
def test_a_confined_word_acts_only_inside_its_box(pipe, size):
    width, height = size
    right = (width // 2, 0, width, height)
    run = generate(pipe, edits=[Confine("house", right, end=1)], size=size)
    for word, leaves_left in (("house", True), ("red", True), ("a", False)):
        values = run.maps[word].values
        left = values[:, : values.shape[1] // 4]  # maps are smooth between cells
        assert (left.max() < 1e-6) == leaves_left
    assert run.maps["house"].values.max() > generate(pipe, size=size).maps["house"].values.max()


@pytest.mark.parametrize(
    "where",
    [
        of_left((128, 128)).tolist(),
        Image.fromarray(of_left((128, 128))),
        Image.fromarray(of_left((128, 128)).astype(np.uint8) * 255),
        np.array(LEFT),
    ],
    ids=["lists", "picture 1", "picture L", "box array"],
)
def test_a_region_can_be_given_in_many_forms(pipe, where):
    table = tokenize("a red house", pipe.tokenizer)
    rule, _ = rules_of([Confine("house", where)], table, SIZE, everywhere)[0]
    plain, _ = rules_of([Confine("house", LEFT)], table, SIZE, everywhere)[0]
    assert torch.equal(rule.region, plain.region)
    assert rule.tokens == table.find("red house")
    assert torch.equal(rule.region > 0.5, torch.from_numpy(of_left((128, 128))))


@pytest.mark.parametrize(
    ("prompt", "word", "kept"),
    [
        ("a red cat in the snow", "cat", "red cat"),
        ("a red cat in the snow", "red cat", "red cat"),
        ("big old red cat", "cat", "old red cat"),
        ("masterpiece, cat, snow", "snow", "snow"),
        ("a dog chasing cats", "cats", "cats"),
        ("THE cat", "cat", "cat"),
        ("a red house next to a blue tree", "red", "red"),
    ],
)
def test_a_confined_word_takes_its_phrase_along(pipe, prompt, word, kept):
    table = prompt_table(pipe, prompt)
    rule, _ = rules_of([Confine(word, LEFT)], table, SIZE, everywhere)[0]
    assert rule.tokens == table.find(kept)
    alone, _ = rules_of([Confine(word, LEFT, along=())], table, SIZE, everywhere)[0]
    assert alone.tokens == table.find(word)


def test_regions_that_do_not_meet_hide_the_end_everywhere(pipe):
    """That is a warning, unless one of them leaves the end alone."""
    edits = [Confine(word, where, end=1) for word, where in (("house", LEFT), ("red", RIGHT))]
    generate(pipe, edits=[edits[0], Confine("red", RIGHT, end=1, tail=False)])
    with pytest.warns(HeedmapWarning, match="hidden everywhere"):
        run = generate(pipe, edits=edits)
    assert all(np.isfinite(heat.values).all() for heat in run.maps.values())


UPPER = (0, 0, 128, 64)


@pytest.mark.filterwarnings("ignore:.*hidden everywhere:heedmap.HeedmapWarning")
@pytest.mark.parametrize(
    ("prompt", "edits", "places"),
    [
        ("two cats", [("cats", LEFT), ("cats", RIGHT)], {"cats": "lr", "two": "lr"}),
        ("cat and red cat", [("cat", LEFT)], {"cat": "l", "red": "l", "and": "lr"}),
        ("cat red dog", [("cat", LEFT), ("dog", RIGHT)], {"cat": "l", "red dog": "r"}),
        ("a red cat", [("cat", LEFT), ("red", RIGHT)], {"cat": "l", "red": "r"}),
        ("a red cat", [("red cat", LEFT), ("cat", RIGHT)], {"red": "l", "cat": "lr"}),
        ("cat on dog", [("cat", LEFT, ["dog"]), ("dog", RIGHT)], {"cat": "l", "dog": "lr"}),
    ],
)
def test_a_word_is_visible_in_each_of_its_regions(pipe, prompt, edits, places):
    edits = [Confine(*edit[:2], along=edit[2] if edit[2:] else None, end=1) for edit in edits]
    run = generate(pipe, prompt, edits, tokens="all")
    p = run.maps.recording.arrays
    for word, sides in places.items():
        for layer, array in zip(run.maps.recording.layers, p, strict=True):
            seen = array[..., list(run.maps.tokens.find(word))].mean((0, 1)).min(-1)
            found = seen.reshape(layer.grid)[:, [0, -1]] > 0
            assert found.tolist() == [["l" in sides, "r" in sides]] * layer.grid[0]


def test_the_regions_of_a_word_act_in_their_own_windows(pipe):
    table = prompt_table(pipe, "a cat")
    weak = Confine("cat", UPPER, 1.0, end=0.5)
    strong = Confine("cat", LEFT, 2.0, start=0.25, end=0.75, tail=False)
    rule, tail = rules_of([weak, strong], table, SIZE, everywhere)[0]
    token = table.find("cat")[0]
    hidden = -np.inf
    for step, expected in enumerate(
        ([1, 1, hidden, hidden], [3, 1, 2, hidden], [2, hidden, 2, hidden], None)
    ):
        bias = rule.bias(Site("layer", step, 4, (2, 2)))
        assert (None if bias is None else bias[:, token].tolist()) == expected
        at_end = tail.bias(Site("layer", step, 4, (2, 2)))
        if expected is not None:
            assert at_end[:, -1].tolist() == [min(one, 0) for one in expected]


def test_a_word_with_an_edit_at_some_steps_is_not_confined_with_another(pipe):
    edits = [
        Confine("house", LEFT, end=1),
        Confine("red", RIGHT, end=1, steps=slice(0, 1), tail=False),
    ]
    run = generate(pipe, edits=edits, keep="all")
    maps = run.maps
    for layer, array in zip(maps.recording.layers, maps.recording.arrays, strict=True):
        p = array[..., list(maps.tokens.find("red"))].min((1, 3))
        seen = p.reshape(2, *layer.grid)[:, :, [0, -1]] > 0
        assert not seen[0, :, 0].any() and seen[0, :, 1].all() and seen[1].all()


# --- rules of a user's own ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [lambda p: p.mean(-1), lambda p: p.round().int(), lambda p: p.to("meta")]
)
def test_a_rule_with_a_wrong_result_is_refused(pipe, wrong):
    with pytest.raises(ArgumentError, match="the same shape"):
        generate(pipe, edits=[lambda p, site: wrong(p)])


# --- in a run -----------------------------------------------------------------------------------


def test_the_settings_have_the_edits(pipe, tmp_path):
    mask = of_left((128, 128))
    edits = [
        Reweight("red", np.float32(1.5), renormalize=True),
        Confine("house", np.array([0, 0, 64, 128]), end=1, along=("red",)),
        Confine("a", mask, strength=2, start=0.25, tail=False),
    ]
    run = generate(pipe, edits=edits, steps=4)
    mask[:] = True
    everywhere = {"layers": None, "heads": None, "steps": None}
    assert to_json(run.settings.edits) == [
        {"kind": "reweight", "word": "red", "weight": 1.5, "renormalize": True, **everywhere},
        {
            "kind": "confine",
            "word": "house",
            "where": [0, 0, 64, 128],
            "strength": 3.0,
            "start": 0.0,
            "end": 1.0,
            "along": ["red"],
            "tail": True,
            **everywhere,
        },
        {
            "kind": "confine",
            "word": "a",
            "where": to_json(Mask.of(of_left((128, 128)))),
            "strength": 2.0,
            "start": 0.25,
            "end": 0.6,
            "along": None,
            "tail": False,
            **everywhere,
        },
    ]
    back = Run.load(run.save(tmp_path / "run", overlays=False))
    assert back.settings == run.settings
    box = back.settings.edits[1].where
    again = [edits[0], Confine("house", box, end=1, along=["red"]), edits[2]]
    assert same(run, generate(pipe, edits=again, steps=4))
    assert same(run, generate(pipe, edits=back.settings.edits, steps=4))


def test_edits_act_on_every_image_of_a_batch(pipe):
    prompts = ["a red house", "house (at:2) red sea"]
    edits = [Reweight("red", 2), Confine("house", LEFT)]
    runs = generate_batch(pipe, prompts, seeds=[7, 8], steps=2, edits=iter(edits))
    plain = generate_batch(pipe, prompts, seeds=[7, 8], steps=2)
    for number, run in enumerate(runs):
        assert not same(run, plain[number])
        assert len(run.settings.edits) == 2
    alone = generate(pipe, prompts[0], edits)
    difference = np.asarray(runs[0].image).astype(int) - np.asarray(alone.image)
    assert np.abs(difference).max() <= 1


def unchanged(p, site):
    return p


@pytest.mark.parametrize(
    ("edit", "others"),
    [
        (Reweight("red", 1), [Reweight("house", 2)]),
        (Confine("red", LEFT, start=0.6, end=0.9), []),
        (unchanged, [Reweight("house", 2)]),
    ],
)
def test_an_edit_that_changed_nothing_gives_a_warning(pipe, edit, others):
    with pytest.warns(UserWarning, match="changed nothing") as warned:
        run = generate(pipe, edits=[edit, *others])
    assert len(warned) == 1
    other = generate(pipe, edits=others)
    difference = np.asarray(run.image).astype(int) - np.asarray(other.image)
    assert np.abs(difference).max() <= 1


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: [Reweight(7, 2)],
        lambda: [Reweight("red", 1e7)],
        lambda: [Confine("red", LEFT, along="a")],
        lambda: [Confine("red", LEFT, tail=None)],
        lambda: [Confine("red", LEFT, strength=10**400)],
        lambda: [Confine("red", LEFT, 1, 0.5, 0.4)],
        lambda: [Confine("red", (0, 0, 64, 129))],
        lambda: [Confine("red", (5, 5, 5, 9))],
        lambda: [Confine("red", (0.1, 0.1, 0.6, 0.6))],  # fractions
        lambda: [Confine("red", [[1, 2], [3]])],
        lambda: [Confine("red", np.ones((128, 128)))],
        lambda: [Confine("red", of_left((64, 128)))],
        lambda: [Confine("red", ~np.ones(SIZE, bool))],
        lambda: [Confine("red", Image.new("RGB", SIZE))],
        lambda: [Reweight],
        lambda: [lambda p: p],
    ],
)
def test_edits_are_refused_before_the_first_step(pipe, make):
    def never(*_):
        raise AssertionError("a step was run")

    with pytest.raises(ArgumentError):
        generate(pipe, edits=make(), progress=never)


@pytest.mark.filterwarnings("ignore:the model reads")
@pytest.mark.parametrize(
    "make", [lambda word: Reweight(word, 2), lambda word: Confine("a", LEFT, along=[word])]
)
def test_words_that_are_not_read_are_refused(pipe, make):
    with pytest.raises(UnknownWordError):
        generate(pipe, edits=[make("cat")])
    with pytest.raises(TruncatedWordError):
        generate(pipe, "a house " * 40 + "red", [make("red")])
