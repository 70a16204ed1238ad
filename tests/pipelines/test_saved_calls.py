"""The arguments of a saved run, read from its settings."""

from types import SimpleNamespace

import pytest
from making import settings_of

from heedmap.pipelines.repeating import saved_call


class Pipe:
    """The parameters of a pipeline."""

    config = SimpleNamespace()

    def __call__(
        self, prompt, height=None, width=None, num_inference_steps=30, guidance_scale=6.0, eta=0.0
    ): ...


def read(pipe=None, **noted):
    return saved_call(settings_of(**noted), pipe or Pipe(), {})


@pytest.mark.parametrize(
    ("noted", "found"),
    [
        ({"steps": 30, "defaults": {"steps": "pipeline"}}, None),
        ({"steps": 30, "defaults": {}}, 30),
        ({"steps": 25, "defaults": {"steps": "pipeline"}}, 25),  # the default of another pipeline
        ({"steps": 3, "defaults": {"steps": "timesteps"}}, None),
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
