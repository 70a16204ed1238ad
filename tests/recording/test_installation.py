"""What stands in a pipeline while a trace is open; what it does is tested with traces."""

import pytest
from diffusers import DDIMScheduler
from making import random_pipeline

from heedmap.backends.processors import RecordingProcessor
from heedmap.backends.registry import cross_attention_layers, self_attention_layers
from heedmap.errors import TraceError
from heedmap.recording.recorder import Installation
from heedmap.recording.steering import Steerer, Steering


@pytest.fixture
def pipe():
    return random_pipeline()


def state(pipe):
    """What of a pipeline somebody could change: processors, hooks, methods put on instances."""
    kinds = {name: id(one) for name, one in pipe.unet.attn_processors.items()}
    hooks = dict(pipe.unet._forward_pre_hooks)
    return kinds, hooks, sorted(vars(pipe.scheduler)), sorted(vars(pipe))


def put(pipe, steerer=None):
    made = Installation(pipe, steerer)
    made.put(lambda name, scores: None, lambda *args: None)
    return made


def ours(layers):
    return [isinstance(layer.processor, RecordingProcessor) for layer in layers.values()]


def test_all_is_taken_off_again(pipe):
    before = state(pipe)
    made = put(pipe)
    made.listen(lambda latents: latents)
    made.check()
    assert all(ours(cross_attention_layers(pipe))) and not any(ours(self_attention_layers(pipe)))
    assert "step" in vars(pipe.scheduler) and len(pipe.unet._forward_pre_hooks) == 1
    made.take_off()
    assert state(pipe) == before
    made.take_off()  # there is nothing left
    assert state(pipe) == before


def test_all_the_rest_is_taken_off_where_something_fails(pipe):
    before = state(pipe)
    made = put(pipe)

    def fails():
        raise OSError("broken")

    made.also(fails)
    made.listen(lambda latents: latents)
    with pytest.raises(OSError, match="broken"):
        made.take_off()
    assert state(pipe) == before


def test_self_attention_too_where_an_edit_shares_it(pipe):
    before = state(pipe)
    now = lambda: None  # noqa: E731
    alone = put(pipe, Steerer(Steering({1: ()}), now))
    assert not any(ours(self_attention_layers(pipe)))
    alone.take_off()
    made = put(pipe, Steerer(Steering({1: ()}, {1: 0}), now))
    own = self_attention_layers(pipe)
    assert all(ours(own))
    made.follow()
    first = next(iter(own.values()))
    theirs = first.processor.original
    first.set_processor(theirs)  # as perturbed-attention guidance does
    made.follow()
    assert all(ours(own)) and first.processor.original is theirs
    made.take_off()
    assert state(pipe) == before


def test_a_processor_that_was_replaced_is_told(pipe):
    made = put(pipe)
    name, layer = next(iter(made.layers.items()))
    layer.set_processor(layer.processor.original)
    with pytest.raises(TraceError, match=f"processor of {name} was replaced while the trace"):
        made.check()
    made.take_off()


def test_each_scheduler_is_listened_to_once(pipe):
    heard = []
    made = put(pipe)
    for _ in range(2):
        made.listen(lambda latents: heard.append(latents) or latents)
    first = pipe.scheduler
    pipe.scheduler = DDIMScheduler.from_config(first.config)
    made.listen(lambda latents: heard.append(latents) or latents)
    for scheduler in (first, pipe.scheduler):
        scheduler.set_timesteps(3)
        noise = pipe.unet.conv_in.weight.new_zeros(1, 4, 4, 4)
        scheduler.step(noise, scheduler.timesteps[0], noise)
    assert len(heard) == 2
    made.take_off()
    assert "step" not in vars(first) and "step" not in vars(pipe.scheduler)
