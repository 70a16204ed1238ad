"""A pipeline with processors of its own: what reaches them, and which are refused."""

import pytest
from diffusers.models.attention_processor import AttnProcessor2_0
from making import run

from heedmap.errors import TraceError
from heedmap.recording.tracing import trace


def test_keyword_arguments_still_reach_the_processor(pipe):
    seen = []

    class Curious(AttnProcessor2_0):
        def __call__(
            self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, mood=None
        ):
            seen.append(mood)
            return super().__call__(attn, hidden_states, encoder_hidden_states, attention_mask)

    pipe.unet.set_attn_processor(Curious())
    with trace(pipe):
        run(pipe, "a house", steps=1, cross_attention_kwargs={"mood": "curious"})
    assert set(seen) == {"curious"}


def test_processors_that_compute_no_attention_are_refused(pipe):
    class Hidden:
        def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None):
            return hidden_states

    pipe.unet.set_attn_processor(Hidden())
    with pytest.raises(TraceError, match="Hidden"), trace(pipe):
        run(pipe, "a house")
