"""What the settings of a file ask for: read back whole, or refused in a sentence."""

from types import SimpleNamespace

import pytest
from making import settings_of

from heedmap.drawing import saved_options
from heedmap.drawing.saved_options import _check_masks
from heedmap.errors import ArgumentError, RunError
from heedmap.files.settings import Confined, Mask, Ruled
from heedmap.options import EditOptions
from heedmap.recording.edits import Confine, Reweight

EDIT = {"source": "a cat", "cross": [0, 0.7], "self": [0.1, 0.2]}


class Pipe:
    """What a pipeline takes, and nothing else of it."""

    config = SimpleNamespace()

    def __call__(
        self, prompt, height=None, width=None, num_inference_steps=30, guidance_scale=6.0, eta=0.0
    ): ...


def read(given=(), pipe=None, **noted):
    return saved_options.saved_call(settings_of(**noted), pipe or Pipe(), dict(given))


def test_what_was_asked_for():
    asked = read(
        prompt="a red house", seed=5, steps=4, guidance=2.5, size=[64, 96], negative="sea",
        keep=["layer", "step"], tokens="all", branches=["conditional", "negative"],
        arguments={"eta": 0.5}, batch_place=[1, 3], defaults={},
    )  # fmt: skip
    assert (asked.prompt, asked.seed, asked.place) == ("a red house", 5, (1, 3))
    options = asked.options
    assert (options.steps, options.guidance, options.size) == (4, 2.5, (64, 96))
    assert (options.negative, options.tokens) == ("sea", "all")
    assert set(options.keep) == {"layer", "step"}
    assert set(options.branches) == {"conditional", "negative"}
    assert options.arguments == {"eta": 0.5}


@pytest.mark.parametrize(
    ("noted", "found"),
    [
        ({"steps": 30, "defaults": {"steps": "pipeline"}}, None),
        ({"steps": 30, "defaults": {}}, 30),
        ({"steps": 25, "defaults": {"steps": "pipeline"}}, 25),  # which was another one's
        ({"steps": 3, "defaults": {"steps": "timesteps"}}, None),
        ({"steps": 3, "defaults": {"steps": "sigmas"}}, None),
    ],
)
def test_what_nobody_asked_for_is_left_to_the_pipeline(noted, found):
    assert read(**noted).options.steps == found


def test_a_size_that_the_pipeline_chose_is_not_asked_for():
    assert read(size=[64, 96], defaults={"size": "pipeline"}).options.size is None
    assert read(size=[64, 96], defaults={}).options.size == (64, 96)

    class Fixed(Pipe):
        def __call__(self, prompt, num_inference_steps=30, guidance_scale=6.0): ...

    assert read(pipe=Fixed(), size=[64, 96], defaults={}).options.size is None


def test_the_place_of_an_edit_is_beside_its_source():
    assert read().place == (0, 1)
    assert read(edit=EDIT).place == (1, 2)
    for odd in ([1, 1], [2, 1], [0, 1025]):
        with pytest.raises(RunError, match=r"batch_place=.*expected a number and how many"):
            read(batch_place=odd)


def test_an_edit_reads_what_edit_was_asked_for():
    asked = saved_options.read_edit(
        settings_of(edit={**EDIT, "kind": "refine", "kind_asked": None, "only": "cat->dog",
                          "windows": {"red": [0.1, 0.5]}, "threshold": 0.3, "self_cells": 64})
    )  # fmt: skip
    assert (asked.source, asked.cross, asked.own) == ("a cat", (0, 0.7), (0.1, 0.2))
    options = asked.options
    assert (options.kind, options.only, options.words) == (None, "cat->dog", {"red": (0.1, 0.5)})
    assert (options.threshold, options.self_cells) == (0.3, 64)
    older = settings_of(edit={**EDIT, "kind": "refine"})  # which did not note what was asked
    assert saved_options.read_edit(older).options.kind == "refine"
    # What blended nothing was asked for no threshold, whatever it notes.
    plain = settings_of(edit={**EDIT, "threshold": 0.4, "blend_from": 0.3})
    assert saved_options.read_edit(plain).options == EditOptions(words={})


def test_a_run_that_is_no_edit_has_none():
    with pytest.raises(RunError, match="have edit=None: expected what was asked of an edit; make"):
        saved_options.read_edit(settings_of())


@pytest.mark.parametrize("name", ["self", "prompts", "seeds", "edits", "progress", "steps", "sky"])
def test_arguments_that_a_file_may_not_bring(name):
    """What would take the place of our own, of the pipeline itself, or be for nobody."""

    class Any(Pipe):
        def __call__(self, prompt, height=None, **kwargs): ...

    for pipe in (Pipe(), Any()):
        if name == "sky" and isinstance(pipe, Any):
            assert read(pipe=pipe, arguments={name: 1}).options.arguments == {"sky": 1}
        else:
            with pytest.raises(RunError, match=f"an argument '{name}', which .* does not take"):
                read(pipe=pipe, arguments={name: 1})


def test_what_a_file_cannot_hold_is_given_and_nothing_else():
    noted = {"eta": {"object": "Tensor"}}
    with pytest.raises(
        ArgumentError, match=r"the argument eta of this run .* pass it in Python, as in"
    ):
        read(arguments=noted)
    assert read({"eta": 3}, arguments=noted).options.arguments == {"eta": 3}
    with pytest.raises(ArgumentError, match="the eta that was passed is not the one"):
        read({"eta": 0.25}, arguments={"eta": 0.5})
    with pytest.raises(ArgumentError, match="image was passed, but this run had no such argument"):
        read({"image": 3})


def test_edits_are_read_or_given():
    weighted = {"kind": "reweight", "word": "red", "weight": 2.0, "renormalize": False}
    rule = {"kind": "rule", "name": "fade"}
    assert read(edits=[weighted]).edits == (Reweight("red", 2),)
    with pytest.raises(ArgumentError, match="the edit 'fade' of this run is not in its settings"):
        read(edits=[weighted, rule])
    with pytest.raises(ArgumentError, match="not those that the settings of this run tell of: exp"):
        read({"edits": [Reweight("red", 3)]}, edits=[weighted])
    with pytest.raises(ArgumentError, match="expected 1 that are told alike"):
        read({"edits": [Confine("red", (0, 0, 9, 9))]}, edits=[weighted])
    given = (Reweight("red", 2),)
    assert read({"edits": given}, edits=[weighted]).edits == given


@pytest.mark.parametrize(
    ("masks", "size", "said"),
    [
        ([(128, 64)], (128, 64), ""),
        ([(64, 128)], (128, 64), "the mask of '0' .* is 64×128 pixels: expected 128×64"),
        ([(128, 64), (128, 65)], (128, 64), "the mask of '1' in the settings is 128×65 pixels"),
        ([(2**13, 2**13)], None, ""),
        ([(2**13, 2**13), (1, 1)], None, "the 2 masks of this run have 67,108,865 pixels together"),
        ([(2**12, 2**12)] * 5, (2**12, 2**12), "the 5 masks of this run have 83,886,080 pixels"),
        ([], None, ""),
    ],
)  # fmt: skip
def test_masks_are_as_wide_and_as_high_as_the_picture(masks, size, said):
    noted = [Confined(word=str(n), where=Mask(mask=mask)) for n, mask in enumerate(masks)]
    others = [Confined(word="x", where=(0, 0, 9, 9)), Ruled()]
    if not said:
        _check_masks([*others, *noted], size)
        return
    with pytest.raises(RunError, match=said):
        _check_masks([*others, *noted], size)
