"""Drawing the edits of one source: what is asked of the memory, and what is told."""

import warnings

import numpy as np
import pytest
from making import random_pipeline
from PIL import Image

import heedmap as hm
from heedmap.errors import HeedmapWarning
from heedmap.options import DrawOptions, EditOptions
from heedmap.pipelines import edit_batches
from heedmap.pipelines.edit_plans import Plan, Planner
from heedmap.pipelines.editing import edit_base


@pytest.fixture(scope="module")
def pipe():
    return random_pipeline()


@pytest.mark.parametrize(
    ("size", "image", "expected"),
    [
        (None, None, None),
        ((96, 64), None, (96, 64)),
        (None, Image.new("RGB", (40, 72)), (40, 72)),
        ((96, 64), Image.new("RGB", (40, 72)), (96, 64)),
        (None, [Image.new("RGB", (40, 72))], None),
    ],
)
def test_the_size_that_memory_is_estimated_for(pipe, monkeypatch, size, image, expected):
    asked = []

    def stop(pipe, size, batch):
        asked.append((size, batch))
        raise MemoryError

    monkeypatch.setattr(edit_batches, "fitting", stop)
    options = DrawOptions(size=size, arguments={} if image is None else {"image": image})
    base = edit_base(pipe, "a red house", EditOptions(batch=3), {})
    with pytest.raises(MemoryError):
        edit_batches.draw_edits(base, [Planner(base).plan("a red sea")], 1, options)
    assert asked == [(expected, 3)]


def test_batches_of_the_size_asked_for(pipe, monkeypatch):
    asked = []
    monkeypatch.setattr(edit_batches, "fitting", lambda *given: asked.append(given[1:]) or 2)
    pairs = hm.edit(
        pipe, "a red house", ["a red sea", "a big house"], seed=1, steps=1, size=(64, 96)
    )
    assert asked == [((64, 96), None)]
    assert pairs[0].source is pairs[1].source
    hm.edit(pipe, "a red house", "a red sea", seed=1, steps=1, batch=5)
    assert asked[1] == (None, 5)


def test_what_should_change_nothing_is_no_trouble(pipe):
    """The cell of the weight 1 is what the others are compared with."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = hm.grid(pipe, "a red house", weights={"red": [1, 3]}, seeds=1, steps=1, cross=0)
    assert len(made.cells) == 2


def test_what_changed_nothing_though_it_should(pipe):
    with pytest.warns(UserWarning, match="'a \\(red:1.0001\\) house' changed nothing in the pic"):
        hm.edit(pipe, "a (red:1.0001) house", seed=1, steps=1, cross=0, self_attention=0)


@pytest.mark.parametrize("size", [(128, 128), (37, 70), (5, 3)])
def test_the_part_that_changed_most(size):
    rng = np.random.default_rng(0)
    before = rng.integers(0, 256, (*size, 3)).astype(float)
    after = before.copy()
    h, w = (max(1, side // 8) for side in size)
    after[h : 2 * h, :w, 0] = np.where(before[h : 2 * h, :w, 0] < 128, 255, 0)
    expected = ((after - before)[h : 2 * h, :w] / 255) ** 2
    assert edit_batches.most_changed(before, after) == pytest.approx(expected.mean())
    assert edit_batches.most_changed(before, before) == 0


def told(plan: Plan, cross: float, own: float) -> str:
    return edit_batches._looser(plan.during((0.0, cross), (0.0, own)))


def test_which_window_to_loosen(pipe):
    planner = Planner(edit_base(pipe, "a red house", EditOptions(), {}))
    swap, more = planner.plan("a red sea"), planner.plan("a red house and a sea")
    assert (swap.purpose, more.purpose) == ("swap", "addition")
    take = "take less from the source, with a smaller window of"
    assert told(swap, 1, 0.4) == f"{take} cross-attention (now up to 1)"
    assert told(swap, 0.8, 0.9) == f"{take} self-attention (now up to 0.9)"
    both = "cross-attention (now up to 0.8) and self-attention (now up to 0.4)"
    assert told(swap, 0.8, 0.4) == told(more, 0.8, 0.4) == f"{take} {both}"
    assert told(more, 0.1, 0) == f"{take} cross-attention (now up to 0.1)"
    assert told(more, 0, 0) == "try another seed, or other words"


def test_what_almost_nothing_is_does_not_read_as_the_bound_itself(embedded, monkeypatch):
    monkeypatch.setattr(edit_batches, "most_changed", lambda *images: 0.019996)
    with pytest.warns(HeedmapWarning, match=r"the MSE is 0\.0199 in that 64th .* 0\.02 or"):
        hm.edit(embedded, "a red house", "a blue house", seed=3, steps=2, cross=0)


def test_a_guess_of_pairs_is_told_once_and_noted(pipe):
    """The words correspond one to one only in the last of these."""
    targets = ["a purple giraffe playing chess", "a big castle on a hill", "a blue boat"]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        first, _, last = hm.edit(pipe, "a red house", targets, seed=1, steps=2)
    said = [str(one.message) for one in told if "giraffe" in str(one.message)]
    assert len(said) == 1 and said[0] in (first.about.notes or ())
    assert "'house'" in said[0] and "'red'" in said[0] and "chess" not in said[0]
    assert not any("boat" in note for note in last.about.notes or ())
