"""What words read in joint attention, of the image and of each other: exact, and named."""

from collections import defaultdict

import numpy as np
import pytest
from oracle import softmax, watch

import heedmap as hm
from families.checking import WHOLE, assert_restored, compare, count_passes, expect, paint, state_of
from families.models import TABLE
from heedmap.errors import ArgumentError, SelectionError
from heedmap.recording.tracing import trace

PROMPTS = ["a red house", "a cat"]


@pytest.mark.parametrize("family", ["sd3", "klein_images", "zimage"])
def test_what_words_read_is_exact(load, family):
    pipe, row = load(family), TABLE[family]
    call = lambda: paint(pipe, prompt=PROMPTS, **row.arguments(2, seeds=(1, 2)))  # noqa: E731
    of_image, of_text, near = defaultdict(list), defaultdict(list), defaultdict(float)

    def act(run):
        p = softmax(run.text, run.key, run.key.shape[-1] ** -0.5, run.mask).numpy()
        ends = (run.tokens, run.tokens + run.query.shape[2])
        of_image[run.name].append(p[..., slice(*ends)].swapaxes(2, 3))
        of_text[run.name].append(p[..., : run.tokens])
        near[run.name] = max(run.near, near[run.name])

    with watch(pipe, act):
        bare = call()
    before = state_of(pipe)
    with trace(pipe, WHOLE, reads=True) as traced:
        assert np.array_equal(call(), bare)
    assert_restored(pipe, before)
    schedule = row.layouts(2), row.groups(2)
    compare([maps.reading for maps in traced.maps], expect(of_image, *schedule), near)
    whole = np.mean([p.mean(axis=(0, 2)) for p in expect(of_text, *schedule).values()], axis=0)
    for image, found in enumerate(traced.text_attention):
        columns = list(found.recording.positions)
        wanted = whole[image][np.ix_(columns, columns)]
        assert found.values.dtype == np.float32 and found.values.shape == wanted.shape
        np.testing.assert_allclose(found.values, wanted, atol=1e-6)
        assert np.ptp(found.values) > 1e-3


def test_what_words_read_has_maps_files_and_figures_of_its_own(load, tmp_path):
    pipe, more = load("sd3"), {"seed": 1, "steps": 2, "size": (48, 80), "keep": {"layer", "step"}}
    run = hm.generate(pipe, "a red house", **more, reads=True)
    heat = run.maps.select(steps=1)["house"].reads
    array = np.mean([part[1, 0] for part in run.maps.reading.arrays], axis=0)
    columns = [run.maps.recording.columns[n] for n in run.maps.tokens.find("house")]
    np.testing.assert_allclose(heat.values.mean(), array[:, columns].mean(), rtol=1e-2)
    assert heat.share_of == "reads" and heat.label != "house"
    assert not np.allclose(heat.values, run.maps.select(steps=1)["house"].values)
    saved = hm.Run.load(run.save(tmp_path / "run"))
    np.testing.assert_array_equal(saved.maps["house"].reads, run.maps.reads["house"])
    np.testing.assert_array_equal(saved.text_attention.values, run.text_attention.values)
    assert {"reads.png", "text.png"} <= {path.name for path in (tmp_path / "run").iterdir()}
    again = hm.repeat(pipe, saved).run
    np.testing.assert_array_equal(again.text_attention.values, run.text_attention.values)
    axes, _ = run.text_attention.figure().axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[:5] == ["<start>", "a", "red", "house", "<end>"]
    plain = hm.generate(pipe, "a red house", **more)
    assert plain.text_attention is None and plain.maps["house"].reads is None
    with pytest.raises(SelectionError):
        plain.maps.reads  # noqa: B018


@pytest.mark.parametrize("family", ["sd1", "sigma", "qwen21"])
def test_words_that_read_nothing_of_the_image_are_refused_before_sampling(load, family):
    pipe = load(family)
    passes = count_passes(pipe)
    with pytest.raises(ArgumentError):
        hm.generate(pipe, "a cat", **TABLE[family].options(reads=True))
    assert not passes
