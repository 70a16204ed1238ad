"""Drawing the edits of one source: what is asked of the memory, and what is told."""

import warnings

import pytest
from making import random_pipeline
from PIL import Image

import heedmap as hm
from heedmap.options import EditOptions, GenerateOptions
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
    options = GenerateOptions(size=size, arguments={} if image is None else {"image": image})
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


def told(plan: Plan, cross: float, own: float) -> str:
    return edit_batches._looser(plan.during((0.0, cross), (0.0, own)))
