"""The arguments of a saved run, read from its settings."""

from types import SimpleNamespace

import pytest
from making import settings_of

from heedmap.errors import ArgumentError
from heedmap.pipelines.repeating import saved_call
from heedmap.recording.edits import Confine, Reweight


class Pipe:
    """The parameters of a pipeline."""

    config = SimpleNamespace()

    def __call__(
        self, prompt, height=None, width=None, num_inference_steps=30, guidance_scale=6.0, eta=0.0
    ): ...


def read(given=(), pipe=None, **noted):
    return saved_call(settings_of(**noted), pipe or Pipe(), dict(given))


def test_settings_give_all_arguments_of_the_call():
    call = read(
        prompt="a red house", seed=5, steps=4, guidance=2.5, size=[64, 96], negative="sea",
        keep=["layer", "step"], tokens="all", branches=["conditional", "negative"],
        concepts=["sky"], arguments={"eta": 0.5}, batch_place=[1, 3], defaults={},
    )  # fmt: skip
    assert (call.prompt, call.seed, call.place) == ("a red house", 5, (1, 3))
    options = call.options
    assert (options.steps, options.guidance, options.size) == (4, 2.5, (64, 96))
    assert (options.negative, options.tokens, options.concepts) == ("sea", "all", ("sky",))
    assert (options.keep, options.branches) == (("layer", "step"), ("conditional", "negative"))
    assert options.arguments == {"eta": 0.5}
    assert read().place == (0, 1)


@pytest.mark.parametrize(
    ("noted", "found"),
    [
        ({"steps": 30, "defaults": {"steps": "pipeline"}}, None),
        ({"steps": 30, "defaults": {}}, 30),
        ({"steps": 25, "defaults": {"steps": "pipeline"}}, 25),  # the default of another pipeline
        ({"steps": 3, "defaults": {"steps": "timesteps"}}, None),
        ({"steps": 3, "defaults": {"steps": "sigmas"}}, None),
    ],
)
def test_a_default_of_the_pipeline_is_not_passed(noted, found):
    assert read(**noted).options.steps == found


def test_a_size_that_the_pipeline_chose_is_not_passed():
    assert read(size=[64, 96], defaults={"size": "pipeline"}).options.size is None
    assert read(size=[64, 96], defaults={}).options.size == (64, 96)

    class Fixed(Pipe):
        def __call__(self, prompt, num_inference_steps=30, guidance_scale=6.0): ...

    assert read(pipe=Fixed(), size=[64, 96], defaults={}).options.size is None


def test_arguments_that_cannot_be_saved_must_be_given():
    noted = {"eta": {"object": "Tensor"}}
    with pytest.raises(ArgumentError):
        read(arguments=noted)
    with pytest.raises(ArgumentError):
        read({"eta": 0.25}, arguments={"eta": 0.5})
    with pytest.raises(ArgumentError):
        read({"image": 3})
    assert read({"eta": 0.5}, arguments={"eta": 0.5}).options.arguments == {"eta": 0.5}


def test_saved_edits_are_read_and_rules_must_be_given():
    weighted = {"kind": "reweight", "word": "red", "weight": 2.0, "renormalize": False}
    rule = {"kind": "rule", "name": "fade"}
    assert read(edits=[weighted]).edits == (Reweight("red", 2),)
    with pytest.raises(ArgumentError):
        read(edits=[weighted, rule])
    for other in (Reweight("red", 3), Confine("red", (0, 0, 9, 9))):
        with pytest.raises(ArgumentError):
            read({"edits": [other]}, edits=[weighted])
    given = (Reweight("red", 2),)
    assert read({"edits": given}, edits=[weighted]).edits == given
