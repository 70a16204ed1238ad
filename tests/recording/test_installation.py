"""What stands in a pipeline while a trace is open; what it does is tested with traces."""

import pytest
from diffusers import DDIMScheduler
from making import random_pipeline

from heedmap.backends.processors import RecordingProcessor
from heedmap.backends.registry import cross_attention_layers, family_of, self_attention_layers
from heedmap.errors import TraceError
from heedmap.recording.edits import AttentionController, Steering
from heedmap.recording.tracing import TraceHooks


@pytest.fixture
def pipe():
    return random_pipeline()


def state(pipe):
    """What of a pipeline somebody could change: processors, hooks, methods put on instances."""
    kinds = {name: id(one) for name, one in pipe.unet.attn_processors.items()}
    hooks = dict(pipe.unet._forward_pre_hooks)
    return kinds, hooks, sorted(vars(pipe.scheduler)), sorted(vars(pipe))


def put(pipe, controller=None):
    made = TraceHooks(family_of(pipe), controller)
    made.install(lambda name, scores: None, lambda *args: None)
    return made


def ours(layers):
    return [isinstance(layer.processor, RecordingProcessor) for layer in layers.values()]


def test_all_is_taken_off_again(pipe):
    before = state(pipe)
    made = put(pipe)
    made.begin_call(lambda latents: latents)
    made.check()
    assert all(ours(cross_attention_layers(pipe))) and not any(ours(self_attention_layers(pipe)))
    assert "step" in vars(pipe.scheduler) and len(pipe.unet._forward_pre_hooks) == 1
    made.remove()
    assert state(pipe) == before
    made.remove()  # there is nothing left
    assert state(pipe) == before


def test_all_the_rest_is_taken_off_where_something_fails(pipe):
    before = state(pipe)
    made = put(pipe)

    def fails():
        raise OSError("broken")

    made.undo.callback(fails)
    made.begin_call(lambda latents: latents)
    with pytest.raises(OSError):
        made.remove()
    assert state(pipe) == before


def test_self_attention_too_where_an_edit_shares_it(pipe):
    before = state(pipe)
    alone = put(pipe, AttentionController(Steering({1: ()})))
    alone.install_self_attention((), lambda name, scores: None)
    assert not any(ours(self_attention_layers(pipe)))
    alone.remove()
    made = put(pipe, AttentionController(Steering({1: ()}, {1: 0})))
    own = self_attention_layers(pipe)
    made.install_self_attention((), lambda name, scores: None)
    assert all(ours(own))
    made.check()
    first = next(iter(own.values()))
    theirs = first.processor.original
    first.set_processor(theirs)  # as perturbed-attention guidance does
    made.check()
    assert all(ours(own)) and first.processor.original is theirs
    made.end_call()
    assert not any(ours(own))
    made.remove()
    assert state(pipe) == before


def test_a_processor_that_was_replaced_is_told(pipe):
    made = put(pipe)
    layer = next(iter(made.layers.values()))
    layer.set_processor(layer.processor.original)
    with pytest.raises(TraceError):
        made.check()
    made.remove()


def test_the_scheduler_is_listened_to_in_a_call_alone(pipe):
    heard = []

    def hear(latents):
        heard.append(latents)
        return latents

    made, first = put(pipe), pipe.scheduler
    made.begin_call(hear)
    made.begin_call(hear)
    first.set_timesteps(3)
    noise = pipe.unet.conv_in.weight.new_zeros(1, 4, 4, 4)
    first.step(noise, first.timesteps[0], noise)
    assert len(heard) == 1
    pipe.scheduler = DDIMScheduler.from_config(first.config)
    made.begin_call(hear)
    assert "step" not in vars(first) and "step" in vars(pipe.scheduler)
    made.end_call()
    assert "step" not in vars(pipe.scheduler)
    made.remove()
