"""Edits at some layers, heads and steps: by the definition there, and nothing elsewhere."""

import numpy as np
import pytest
import torch
from diffusers.models.attention_processor import AttnProcessor, AttnProcessor2_0
from making import same_pixels
from oracle import (
    HOUSE,
    RED,
    SIZE,
    SWAP,
    confined,
    edited,
    generated,
    held_maps,
    injected,
    load_random,
    normal,
    reads,
    weighed,
)

import heedmap as hm
from heedmap.errors import ArgumentError, HeedmapWarning, SelectionError

LEFT, RIGHT = (0, 0, 64, 128), (64, 0, 128, 128)


@pytest.fixture(
    scope="module", params=[("unet", AttnProcessor2_0), ("pixart", AttnProcessor)], ids=str
)
def pipe(request):
    return load_random(*request.param)


def layers_of(pipe) -> list[str]:
    return [layer.name for layer in hm.layer_shapes(pipe)]


def in_heads(heads, inside, outside):
    """The probabilities (H, Q, K) of some heads, and the others'."""
    chosen = torch.zeros(len(outside), 1, 1, dtype=torch.bool)
    chosen[heads] = True
    return torch.where(chosen, inside, outside)


def test_selected_words_equal_the_definition(pipe):
    """Elsewhere nothing acts; regions of one word at other sites are apart."""
    layers = layers_of(pipe)
    edits = [
        hm.Reweight("red", 3, renormalize=True, layers=layers[0], heads=[1], steps=slice(1, None)),
        hm.Confine("house", LEFT, 2, end=1, along=[], tail=False, layers=layers[1:], heads=0),
        hm.Confine("house", RIGHT, 1, end=1, along=[], tail=False, steps=[-1]),
    ]

    def rule(here):
        whole, scores = (0.0, 1.0), here.scores[0]
        bias = torch.zeros_like(scores)
        if here.name != layers[0]:
            bias[0] += confined(here, HOUSE, LEFT, 2, whole, SIZE)
        if here.step == 2:
            bias += confined(here, HOUSE, RIGHT, 1, whole, SIZE)
        p = (scores + bias).softmax(-1).nan_to_num(0.0)
        if here.name == layers[0] and here.step > 0:
            p = in_heads([1], normal(weighed(p, [(RED, 3)])), p)
        return p

    run, held = generated(pipe, edits, rule, steps=3, keep="all")
    held_maps([run.maps.recording], held)
    assert min(held.moved[1:]) > 1e-4 > held.moved[0]


def test_an_edit_takes_from_its_source_at_selected_sites(pipe):
    layers, steps = layers_of(pipe)[:2], (1, 3)

    def rule(here, source, own):
        p = weighed(injected(here, source, own, SWAP, (0.2, 0.8)), [([2, 3, 4, 5], -2)])
        return in_heads([0], p, own) if here.name in layers and here.step in steps else own

    sites = {"layers": layers, "heads": 0, "at_steps": steps, "cross_replace": (0.2, 0.8)}
    pair, _ = edited(pipe, "a red house", "a (blue:-2) house", rule, **sites)
    assert pair.report.sites == 4


def test_self_attention_is_replaced_at_selected_steps(pipe):
    def sharing(step, cells):
        return [0, int(step not in (1, 2))]

    window = {"cross_replace": 0, "self_replace": (0.2, 1.0), "at_steps": slice(0, 3)}
    own = lambda here, source, own: own  # noqa: E731
    pair, held = edited(pipe, "a red house", "a red at", own, sharing=sharing, **window)
    assert pair.report.self_sites == held.own > 0


def test_an_edit_outside_of_its_window_changes_nothing_and_says_so(pipe):
    how = {"seed": 7, "steps": 4, **reads(pipe)}
    late = hm.Confine("house", LEFT, steps=slice(3, 4))
    with pytest.warns(HeedmapWarning):
        idle = hm.generate(pipe, "a red house", edits=[late], **how)
    assert same_pixels(idle.image, hm.generate(pipe, "a red house", **how).image)
    texts = "a red house", "a blue house"
    with pytest.warns(HeedmapWarning):
        pair = hm.edit(pipe, *texts, cross_replace=0.5, at_steps="2:", self_replace=0, **how)
    plain = hm.edit(pipe, *texts, cross_replace=0, self_replace=0, **how)
    assert same_pixels(pair.edited.image, plain.edited.image)


@pytest.mark.parametrize("axis", [{"layers": "absent"}, {"heads": 99}, {"steps": slice(9, None)}])
def test_sites_that_there_are_not_are_refused_before_the_first_step(pipe, axis):
    passes = []
    model = pipe.unet if hasattr(pipe, "unet") else pipe.transformer
    handle = model.register_forward_hook(lambda *_: passes.append(1))
    run = {"seed": 7, "steps": 2, **reads(pipe)}
    try:
        with pytest.raises(SelectionError):
            hm.generate(pipe, "a red house", edits=[hm.Reweight("red", 2, **axis)], **run)
        own = {"at_steps" if name == "steps" else name: one for name, one in axis.items()}
        with pytest.raises(SelectionError):
            hm.edit(pipe, "a red house", "a blue house", **run, **own)
    finally:
        handle.remove()
    assert not passes


def test_a_selection_is_saved_and_repeated(pipe, tmp_path):
    edit = hm.Reweight("red", 3, layers="*", heads=np.int64(1), steps=slice(1, 2))
    run = hm.generate(pipe, "a red house", seed=7, steps=2, edits=[edit], **reads(pipe))
    loaded = hm.Run.load(run.save(tmp_path / "run"))
    assert loaded.settings.edits == (edit,) and (edit.heads, edit.steps) == ((1,), "1:2")
    assert hm.repeat(pipe, loaded).same
    options = {"seed": 7, "steps": 2, "at_steps": 0, "heads": [1], **reads(pipe)}
    pair = hm.edit(pipe, "a red house", "a blue house", **options)
    saved = hm.EditResult.load(pair.save(tmp_path / "pair"))
    assert (saved.report.options.at_steps, saved.report.options.heads) == ((0,), (1,))
    assert hm.repeat(pipe, saved).same
    with pytest.raises(ArgumentError):
        hm.Reweight("red", 3, layers=lambda layer: True)
