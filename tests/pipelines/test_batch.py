"""A batch with its trace: what is asked for, what is noted of it, who is told of each step."""

import warnings
from functools import wraps

import numpy as np
import pytest
from making import generate_batch, random_pipeline, same_pixels

from heedmap.errors import ArgumentError, HeedmapWarning
from heedmap.io.schemas import Confined, Mask, Reweighted, Ruled
from heedmap.options import GenerateOptions
from heedmap.pipelines import batch
from heedmap.pipelines.arguments import check_prompts, check_seed, random_seed
from heedmap.pipelines.batch import Batch
from heedmap.pipelines.editing import edit
from heedmap.pipelines.generation import generate
from heedmap.recording.edits import Confine, Reweight


def drawn(pipe, *texts: str, edits=(), **options):
    """The runs of a batch in one step, from seeds that count up."""
    asked = Batch(texts, texts, range(len(texts)), edits)
    return batch.draw(pipe, asked, GenerateOptions(steps=1, **options))[0]


def test_prompts_and_seeds_of_a_batch():
    for prompts, seeds in (
        ("abc", [1, 2, 3]),
        (["a"], 1),
        (3, [1]),
        (None, None),
        (["a"], "1"),
        ({"a", "b"}, [1, 2]),
        (["a", "b"], {1, 2}),
    ):
        with pytest.raises(ArgumentError):
            check_prompts(prompts, seeds)
    with pytest.raises(ArgumentError):
        check_prompts(["a", "b"], [1])
    assert check_prompts(np.array(["a", "b"]), np.arange(2)) == (["a", "b"], [0, 1])


def test_progress_and_the_users_own_callback(pipe):
    told, mine = [], []

    def callback(pipe, step, timestep, tensors):
        mine.append(step)
        return tensors

    bar = dict(pipe._progress_bar_config)
    generate(
        pipe, "a house", seed=0, steps=3, progress=lambda *now: told.append(now),
        callback_on_step_end=callback,
    )  # fmt: skip
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert mine == [0, 1, 2]
    assert pipe._progress_bar_config == bar
    del pipe._progress_bar_config
    generate(pipe, "a house", seed=0, steps=1, progress=lambda *_: None)
    assert "_progress_bar_config" not in vars(pipe)


def test_seeds():
    assert check_seed(np.int64(5)) == 5 and check_seed(2**63 - 1) == 2**63 - 1
    for odd in (-1, 2**63, True, 1.0):
        with pytest.raises(ArgumentError):
            check_seed(odd)
    found = {random_seed() for _ in range(20)}
    assert len(found) > 15 and all(0 <= seed < 2**31 for seed in found)


def fade(p, site):
    return p


def test_edits_are_noted_as_they_were_asked_for(pipe):
    """What a run notes is what `repeat` draws it by; nothing of an edit may be lost."""
    mask = np.zeros((128, 128), dtype=bool)
    mask[:, :64] = True
    edits = [
        Confine("house", (0, 0, 64, 128), along=["red", "a"], strength=2, end=0.5, tail=False),
        Confine("house", mask),
        Reweight("red", -1, renormalize=True),
        fade,
    ]
    (run,) = drawn(pipe, "a red house", edits=edits)
    box, masked, weighted, ruled = run.settings.edits
    assert box == Confined(
        word="house", where=(0, 0, 64, 128), along=("red", "a"), strength=2, start=0, end=0.5,
        tail=False,
    )  # fmt: skip
    assert isinstance(masked, Confined) and masked.along is None
    assert isinstance(masked.where, Mask) and masked.where.mask == (128, 128)
    assert weighted == Reweighted(word="red", weight=-1, renormalize=True)
    assert ruled == Ruled(name="fade")


def test_the_size_that_was_asked_for_is_noted_whatever_came_out():
    """Drawn again, it must be asked for once more: the picture may be what somebody made of it."""
    pipe = random_pipeline()

    class Halving(type(pipe)):
        @wraps(type(pipe).__call__)
        def __call__(self, *args, **given):
            made = super().__call__(*args, **given)
            made.images = [one.resize((one.width // 2, one.height // 2)) for one in made.images]
            return made

    pipe.__class__ = Halving
    (run,) = drawn(pipe, "a house", size=(96, 64))
    assert run.settings.size == (96, 64) and run.image.size == (48, 32)
    (run,) = drawn(pipe, "a house")
    assert run.settings.size == run.image.size == (64, 64)


def test_a_preview_cannot_change_the_picture(pipe):
    seen = []

    def spoil(latents):
        seen.append(latents.shape)
        latents.zero_()

    plain = generate(pipe, "a house", seed=1, steps=2)
    shown = generate(pipe, "a house", seed=1, steps=2, preview=spoil)
    assert seen == [(1, 4, 16, 16)] * 2 and same_pixels(plain.image, shown.image)


def test_words_that_the_model_was_not_taught_are_told_and_noted(embedded):
    taught = "that this model was taught: it does what it can"
    with pytest.warns(HeedmapWarning) as warned:
        runs = generate_batch(
            embedded, ["a (Horse:1.5), a red cat", "a red house"], seeds=[1, 2], steps=1,
            negative="blurry, a cat",
        )  # fmt: skip
    assert [str(one.message) for one in warned] == [f"'Horse' and 'blurry' are not words {taught}"]
    assert [run.settings.untaught for run in runs] == [("Horse", "blurry"), ("blurry",)]
    with warnings.catch_warnings(action="error"):
        assert generate(embedded, "a red house", steps=1).settings.untaught == ()
    with pytest.warns(HeedmapWarning, match="horse"):
        sought = generate(embedded, "a red house", steps=1, concepts=["cat", "horse"])
    assert sought.settings.untaught == ("horse",)


@pytest.mark.parametrize(
    ("size", "far"), [((96, 96), False), ((128, 256), False), ((88, 88), True), ((136, 256), True)]
)
def test_a_size_far_from_the_models_own_is_warned_of(pipe, size, far):
    for call in (
        lambda: generate(pipe, "a house", steps=1, size=size),
        lambda: edit(pipe, "a red house", "a red tree", steps=1, cross=0.0, size=size),
    ):
        with warnings.catch_warnings(record=True, action="always") as warned:
            call()
        said = [one for one in warned if f"{size[0]}×{size[1]}" in str(one.message)]
        assert [one.category for one in said] == [HeedmapWarning] * far
