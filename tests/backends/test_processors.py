"""A pipeline with processors of its own: what reaches them, and which are refused."""

import pytest
from diffusers.models.attention_processor import AttnProcessor2_0
from making import run
from torch.nn.functional import scaled_dot_product_attention

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


def test_a_processor_that_holds_the_kernel_itself_is_refused(pipe):
    """It is not looked up in `torch.nn.functional` when it is called."""

    class Holding:
        def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None):
            text = hidden_states if encoder_hidden_states is None else encoder_hidden_states
            return scaled_dot_product_attention(hidden_states, *[attn.to_k(text)] * 2)

    pipe.unet.set_attn_processor(Holding())
    with pytest.raises(TraceError, match="Holding"), trace(pipe):
        run(pipe, "a house")
