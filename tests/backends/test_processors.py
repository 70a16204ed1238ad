"""A pipeline with processors of its own, sliced or fused: its picture and what reaches it stay."""

import numpy as np
import pytest
import torch
from diffusers.models.attention_processor import AttnProcessor, AttnProcessor2_0
from making import random_pipeline, run

from heedmap.errors import TraceError
from heedmap.recording.tracing import trace


@pytest.mark.parametrize(
    ("dtype", "processor"), [(torch.bfloat16, AttnProcessor2_0), (torch.float32, AttnProcessor)]
)
def test_recording_keeps_the_output_of_any_processor_and_type(pipe, dtype, processor):
    pipe.to(dtype)
    pipe.unet.set_attn_processor(processor())
    plain = run(pipe, "a house")
    with trace(pipe) as recorder:
        traced = run(pipe, "a house")
    assert np.array_equal(plain, traced)
    assert recorder.recordings[0].arrays[0].dtype == np.float32


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


def test_slicing_and_fusing_before_the_trace_are_recorded(pipe):
    pipe.enable_attention_slicing()
    plain = run(pipe, "a house")
    with trace(pipe) as recorder:
        assert np.array_equal(plain, run(pipe, "a house"))
    assert recorder.maps[0]["house"].values.max() > 0
    pipe = random_pipeline()
    with trace(pipe) as apart:
        run(pipe, "a house")
    pipe.unet.fuse_qkv_projections()
    plain = run(pipe, "a house")
    with trace(pipe) as recorder:
        assert np.array_equal(plain, run(pipe, "a house"))
    for a, b in zip(apart.recordings[0].arrays, recorder.recordings[0].arrays, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_processors_that_compute_no_attention_are_refused(pipe):
    class Hidden:
        def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None):
            return hidden_states

    pipe.unet.set_attn_processor(Hidden())
    with pytest.raises(TraceError, match="Hidden"), trace(pipe):
        run(pipe, "a house")
