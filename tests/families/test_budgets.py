"""The budget of attention: shares of all keys and entropies against float64, and planted sinks."""

import sys

import numpy as np
import pytest
import torch
from diffusers.models.transformers import transformer_flux2
from oracle import watch

import heedmap as hm
from families.checking import paint
from families.models import TABLE
from heedmap.errors import ArgumentError, NothingRecordedError, SelectionError
from heedmap.recording.tracing import trace

PROMPTS = ["a red house", "the big cat"]
GROUPS = {
    "sd1": ["start", "words", "end", "padding"],
    "sd2": ["start", "words", "end", "padding"],
    "sigma": ["words", "end", "padding"],
    "sd3": ["start", "words", "end", "padding", "image"],
    "klein_images": ["template", "words", "padding", "image", "references"],
    "zimage": ["template", "words", "padding", "image"],
    "qwen_edit": ["template", "references", "words", "image"],
}


@pytest.mark.parametrize("family", GROUPS)
def test_shares_and_entropies_are_exact_for_each_image_of_a_guided_batch(load, family):
    row, pipe, found = TABLE[family], load(family), {}
    prompts = PROMPTS[: 1 if family == "qwen_edit" else 2]
    layouts = row.layouts(2)

    def keep(run):
        layout = layouts[run.number]
        if "conditional" in layout:
            p = run.attention().chunk(len(layout))[layout.index("conditional")]
            entropy = -torch.xlogy(p, p).sum(-1, keepdim=True)
            found.setdefault(run.name, []).append(torch.cat([p, entropy], -1).mean(2))

    def call():
        seeds = range(len(prompts))
        return paint(pipe, prompt=prompts, seeds=seeds, **row.arguments(len(prompts)))

    bare = call()
    with watch(pipe, keep), trace(pipe, "all", budget=True) as traced:
        assert np.array_equal(call(), bare)
    assert len(traced.budgets) == len(prompts)
    for image, budget in enumerate(traced.budgets):
        recording = budget.recording
        assert [layer.name for layer in recording.layers] == [*found]
        for layer, array in zip(recording.layers, recording.arrays, strict=True):
            exact = torch.stack([p[image] for p in found[layer.name]])
            np.testing.assert_allclose(array[:, :, 0], exact, rtol=1e-5, atol=1e-8)
        seen = int((exact[..., :-1] > 0).any(1).any(0).sum())  # others are hidden by a mask
        for sink in budget.sink_rows(k=1.5):
            assert sink["times"] == pytest.approx(sink["share"] * seen)
        for by in ((), ("layer",), ("head", "layer", "step")):
            rows = budget.rows(by)
            assert [*rows[0]] == [*by, *GROUPS[family], "entropy"]
            for one in rows:
                assert sum(one[name] for name in GROUPS[family]) == pytest.approx(1, abs=1e-6)
    whole, layers = (budget.rows(by) for by in ((), ("layer",)))
    for name, value in whole[0].items():
        assert value == pytest.approx(np.mean([one[name] for one in layers]))


def test_a_planted_sink_is_found_as_a_token_and_as_a_position(load, monkeypatch):
    """Of 24 tokens, and positions of 5×3, 6×4 and 4×5: two words, and a position of each image."""
    pipe, row, module = load("klein_images"), TABLE["klein_images"], transformer_flux2
    attend, places = module.dispatch_attention_fn, [*row.red, 24 + 7, 24 + 15 + 24 + 11]

    def attract(query, key, *args, **kwargs):
        query, key = query.clone(), key.clone()
        query[..., 0], key[..., 0] = 8, 0
        key[:, places, :, 0] = 8
        return attend(query, key, *args, **kwargs)

    monkeypatch.setattr(module, "dispatch_attention_fn", attract)
    with trace(pipe, budget=True) as traced:
        paint(pipe, prompt="a red dog", **row.arguments())
    (budget,) = traced.budgets
    sinks = budget.sink_rows(k=3)
    names = {(sink["group"], sink["text"].split()[-2:][0], sink["key"]) for sink in sinks}
    tokens = [("words", budget.recording.table.tokens[n].text.split()[1], n) for n in row.red]
    others = [("image", "(2,", 31), ("references", "(2,", 74)]
    assert names == {*tokens, *others}
    assert next(sink["text"] for sink in sinks if sink["key"] == 74) == "1 (2, 1)"
    assert len(sinks) == 4 * len(budget.recording.layers)
    for sink in sinks:
        assert sink["times"] == pytest.approx(sink["share"] * (24 + 15 + 24 + 20))
    assert budget.sink_rows(k=50) == []


def test_axes_have_equal_means_while_recording_and_afterwards(load):
    pipe, call = load("sd1"), TABLE["sd1"].arguments()
    kept = []
    for axes in ("all", ("step",), ("layer",), ()):
        with trace(pipe, axes, budget=True) as traced:
            paint(pipe, prompt=PROMPTS[0], **call)
        kept += traced.budgets
    whole, steps, layers, averaged = kept
    pairs = [(steps, ("step",)), (layers, ("layer",)), (averaged, ())]
    for budget, by in pairs:
        for one, other in zip(budget.rows(), whole.rows(by), strict=True):
            assert one == pytest.approx(other, abs=1e-6)
    with pytest.raises(SelectionError):
        layers.rows(["step"])
    with pytest.raises(ArgumentError):
        layers.sinks(k=-1)


def test_a_budget_is_saved_read_repeated_and_drawn(load, tmp_path, monkeypatch):
    pipe = load("sd3")
    call = TABLE["sd3"].options(keep=("layer", "step"))
    plain = hm.generate(pipe, PROMPTS[0], **call)
    run = hm.generate(pipe, PROMPTS[0], budget=True, **call)
    assert np.array_equal(run.image, plain.image)
    back = hm.Run.load(run.save(tmp_path / "run", overlays=False))
    by = ("layer", "step")
    assert back.budget.rows(by) == run.budget.rows(by)
    assert hm.repeat(pipe, back).run.budget.rows(by) == run.budget.rows(by)
    table = back.budget(by=by)
    assert table.to_dict("records") == run.budget.rows(by)
    assert [*back.budget.sinks(2).columns[:3]] == ["layer", "group", "text"]
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert back.budget(by) == run.budget.rows(by)
    for axis in by:
        (axes,) = back.budget.figure([axis]).axes
        rows = back.budget.rows([axis])
        widths = [[bar.get_width() for bar in bars] for bars in axes.containers]
        assert np.transpose(widths) == pytest.approx(np.array([[*r.values()][1:-1] for r in rows]))
        assert [text.get_text() for text in axes.get_yticklabels()] == [str(r[axis]) for r in rows]
    with pytest.raises(NothingRecordedError):
        _ = plain.budget
    with pytest.raises(NothingRecordedError):
        _ = hm.Run.load(plain.save(tmp_path / "plain", overlays=False)).budget


def test_a_budget_is_that_of_the_prompt_whichever_branch_has_maps(load):
    pipe, budgets = load("sd1"), []
    for branch in ("negative", "conditional"):
        with trace(pipe, branches=[branch], budget=True) as traced:
            paint(pipe, prompt="a cat", **TABLE["sd1"].arguments())
        budgets += traced.budgets
    one, other = budgets
    assert one.rows() == other.rows()
