"""The processor in front of a layer's own: it listens, changes what it is asked to, and goes."""

import inspect

import numpy as np
import pytest
import torch
from diffusers.models.attention_processor import Attention, AttnProcessor, AttnProcessor2_0
from making import random_pipeline, run

from heedmap.backends import processors
from heedmap.backends.tap import RecordingProcessor, install
from heedmap.backends.registry import cross_attention_layers, self_attention_layers
from heedmap.errors import TraceError
from heedmap.recording.tracing import trace

NAME = "the layer"


@pytest.fixture
def layer(pipe):
    """One layer of text cross-attention."""
    return next(iter(cross_attention_layers(pipe).values()))


def given(layer, rows=2):
    """What a layer takes: places of a picture, and the states of a text."""
    torch.manual_seed(0)
    return torch.randn(rows, 9, layer.query_dim), torch.randn(rows, 5, layer.to_k.in_features)


def by_definition(layer, places, text):
    """Probabilities (B, H, Q, K) and values (B, H, K, d), from the projections."""
    query, key, value = (
        part.unflatten(-1, (layer.heads, -1)).transpose(1, 2)
        for part in (layer.to_q(places), layer.to_k(text), layer.to_v(text))
    )
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    return scores.softmax(dim=-1), value


KINDS = pytest.mark.parametrize("kind", [AttnProcessor2_0, AttnProcessor])


@KINDS
@torch.no_grad()
def test_recorded_scores_equal_the_layers_computation(layer, kind):
    layer.set_processor(kind())
    places, text = given(layer)
    plain = layer(places, text)
    heard, undone = [], []
    made = install({NAME: layer}, lambda *said: heard.append(said), undone.append)
    assert layer.processor is made[NAME]
    assert torch.equal(layer(places, text), plain)
    ((name, scores),) = heard
    assert name == NAME and scores.query.shape[:3] == (2, layer.heads, 9)
    p = (scores.query @ scores.key.transpose(-1, -2) * scores.scale).softmax(dim=-1)
    torch.testing.assert_close(p, by_definition(layer, places, text)[0])


class Edits:
    """Self-attention takes from the first row; the weights of cross-attention are turned around."""

    def __init__(self, factor=1.0):
        self.factor = factor

    def inputs(self, layer, query, key):
        return query[:1].expand_as(query), key[:1].expand_as(key)

    def output(self, layer, scores, value, output):
        p = (scores.query @ scores.key.mT * scores.scale).softmax(dim=-1)
        return self.factor * p.flip(-1) @ value

    def weights(self, layer, scores, p):
        return p.flip(-1)


@KINDS
@torch.no_grad()
def test_edits_change_the_output(pipe, kind):
    for layers in (self_attention_layers(pipe), cross_attention_layers(pipe)):
        layer = next(iter(layers.values()))
        places, text = given(layer)
        text = text if layer.is_cross_attention else None
        p, value = by_definition(layer, places, places if text is None else text)
        edited = p[:1].expand_as(p) if text is None else p.flip(-1)
        out = (edited @ value).transpose(1, 2).flatten(2)
        expected = layer.to_out[0](out) / layer.rescale_output_factor
        processor = RecordingProcessor(kind(), NAME, lambda *_: None, Edits())
        torch.testing.assert_close(processor(layer, places, text), expected)


@torch.no_grad()
def test_a_second_attention_after_the_texts_is_unchanged(layer):
    """An IP-Adapter's processor computes a second one, with its picture."""
    places, text = given(layer)

    class Twice(AttnProcessor2_0):
        def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None):
            once = super().__call__(attn, hidden_states, encoder_hidden_states)
            return once + super().__call__(attn, hidden_states, 2 * encoder_hidden_states[:, :3])

    heard = []
    processor = RecordingProcessor(Twice(), NAME, lambda _, scores: heard.append(scores), Edits(0))
    silent = layer.to_out[0](torch.zeros_like(places)) / layer.rescale_output_factor
    rest = AttnProcessor2_0()(layer, places, 2 * text[:, :3])
    torch.testing.assert_close(processor(layer, places, text), silent + rest)
    assert len(heard) == 1
    torch.testing.assert_close(heard[0].key, by_key(layer, text))


def by_key(layer, text):
    return layer.to_k(text).unflatten(-1, (layer.heads, -1)).transpose(1, 2)


def test_the_layer_is_restored_also_after_an_error(layer):
    places, text = given(layer)
    before = set(vars(layer))

    class Fails(AttnProcessor2_0):
        def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None):
            assert "get_attention_scores" in vars(attn)
            raise OSError("within")

    processor = RecordingProcessor(Fails(), NAME, lambda *_: None)
    with pytest.raises(OSError):
        processor(layer, places, text)
    assert set(vars(layer)) == before


def test_the_recording_processor_has_the_originals_signature():
    class Curious:
        def __call__(self, attn, hidden_states, mood="calm"): ...

    processor = RecordingProcessor(Curious(), NAME, lambda *_: None)
    assert [*inspect.signature(processor.__call__).parameters] == ["attn", "hidden_states", "mood"]


def test_recording_processors_are_installed_and_removed(pipe):
    layers = cross_attention_layers(pipe)
    before = {name: layer.processor for name, layer in layers.items()}
    undone = []
    made = install(layers, lambda *_: None, undone.append)
    assert {name: one.original for name, one in made.items()} == before
    with pytest.raises(TraceError):
        install(layers, lambda *_: None, undone.append)
    assert {name: layer.processor for name, layer in layers.items()} == made
    mine = AttnProcessor()
    name, first = next(iter(layers.items()))
    first.set_processor(mine)  # what a user set meanwhile is theirs
    for undo in reversed(undone):
        undo()
    assert {name: layer.processor for name, layer in layers.items()} == before | {name: mine}


# --- with whole pipelines ---------------------------------------------------------------------


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
    with pytest.raises(TraceError), trace(pipe):
        run(pipe, "a house")


@pytest.mark.parametrize(
    "built", [{}, {"qk_norm": "layer_norm"}, {"cross_attention_norm": "layer_norm"}, {"bias": True}]
)
def test_keys_of_a_layer_equal_those_of_its_processor(built):
    torch.manual_seed(0)
    layer = Attention(query_dim=12, cross_attention_dim=10, heads=3, dim_head=4, **built)
    for parameter in layer.parameters():
        parameter.data.normal_()
    heard = []
    recorder = RecordingProcessor(layer.processor, "it", lambda _, scores: heard.append(scores.key))
    states = torch.randn(2, 5, 10)
    recorder(layer, torch.randn(2, 9, 12), encoder_hidden_states=states)
    torch.testing.assert_close(processors.keys_of(layer, states), heard[0])
