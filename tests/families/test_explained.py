"""Numbers taken apart, in every family: by definition, and as the run kept them."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from diffusers import HeunDiscreteScheduler
from diffusers.models.transformers.transformer_flux2 import Flux2ParallelSelfAttention
from making import cross_attention_layers, generate_batch
from numpy.testing import assert_allclose
from oracle import assert_probabilities, watch

import heedmap as hm
from families import models
from families.checking import assert_restored, state_of
from families.models import APART, BETAS, DISTINCT, TABLE, picture
from heedmap.errors import HeedmapWarning

PROMPT, WORD, AT = "a red dog", "dog", (20, 11)
ALL = ("layer", "step", "head")
CALL = {"seed": 3, "steps": 2, "keep": ALL, "tokens": "all"}


@contextmanager
def runs_of(pipe, name):
    """The runs of a layer, by the number of their pass."""
    found = {}

    def keep(run):
        if run.name == name:
            found[run.number] = run

    with watch(pipe, keep):
        yield found


def middle_layer(pipe) -> str:
    names = list(cross_attention_layers(pipe))
    return names[len(names) // 2]


def position_of(found) -> int:
    """The number of the position in its grid."""
    row, column = found.report.place
    return row * found.report.layer.grid[1] + column


def rows_of(run, row, place):
    """P (H, K) at a place, with the image's share in a last column where it has one."""
    p = run.attention()[row, :, place]
    text, image = p[:, : run.count(row)], p[:, run.count(row) :]
    return torch.cat([text, image.sum(-1, keepdim=True)], dim=-1) if image.numel() else text


def assert_explained(found, run, row, saved=None, p=None) -> None:
    """Hold each number against its definition, in one row of the batch, and P' if it is given."""
    place, head, tokens = position_of(found), found.report.head, run.count(row)
    expected = {
        "query": (found.inputs.query, run.query[row, :, place]),
        "key": (found.inputs.key[:, :tokens], run.key[row][:, :tokens]),
        "value": (found.inputs.value[:, :tokens], run.value[row][:, :tokens]),
    }
    for name, (got, wanted) in expected.items():
        near = 1e-5 * float(wanted.abs().max())
        assert_allclose(got, wanted.numpy(), rtol=0, atol=near, err_msg=name)
    shares = rows_of(run, row, place)
    assert_probabilities(found.attention.probabilities, shares[head], run.near)
    acted = shares if p is None else p(shares)
    assert_probabilities(found.probabilities, acted, 4 * run.near)
    whole = run.attention()[row, :, place]
    heads = torch.einsum("hn,hnd->hd", whole, run.value[row]).flatten().numpy()
    if p is None and found.inputs.added is None:
        assert_allclose(found.heads_output, heads, atol=1e-5 * float(np.abs(heads).max()))
    output = run.output[0][row, place].double().numpy()
    if isinstance(run.layer, Flux2ParallelSelfAttention):  # whose projection is also of an MLP
        output = heads
    assert_allclose(found.inputs.output, output, rtol=1e-6, atol=1e-6)
    assert found.difference < 1e-5 * max(float(np.abs(output).max()), 1)
    if saved is not None:
        recording = saved.recording
        number = [layer.name for layer in recording.layers].index(found.report.layer.name)
        kept = recording.arrays[number][found.report.step, :, place]
        columns = list(recording.positions)
        assert_probabilities(kept, found.probabilities[:, columns], 2 * run.near)
        assert found.report.maps_difference < 2 * run.near


@pytest.mark.parametrize("family", DISTINCT)
def test_an_explanation_equals_the_recording_and_the_definition(load, family, tmp_path):
    row, pipe = TABLE[family], load(family)
    saved = hm.generate(pipe, PROMPT, **row.options(**CALL))
    name = middle_layer(pipe)
    images = {key: value for key, value in row.call.items() if key.endswith("image")}
    before = state_of(pipe)
    with runs_of(pipe, name) as runs:
        found = hm.explain(pipe, saved, WORD, AT, layer=name, head=1, step=-1, **images)
    assert_restored(pipe, before)
    report = found.report
    assert (report.layer.name, report.head, report.step) == (name, 1, 1)
    number = 1 if row.layout != APART else 2
    assert max(runs) <= number + 1  # it went no further than it had to
    layout = row.layouts(2)[number]
    assert_explained(found, runs[number], layout.index("conditional"), saved.maps)
    assert found.inputs.edited is None
    if not row.is_joint:
        assert (found.inputs.mask is not None) == row.masks_padding
    if row.masks_padding:
        pads = [token.position for token in found.tokens if token.kind == "pad"]
        assert (found.probabilities[:, pads] == 0).all()
    back = hm.Explanation.load(found.save(tmp_path / "x"))
    assert back.numbers == found.numbers and back.page() == found.page()


def test_the_default_layer_and_head_have_the_most_attention_below_a_half(load):
    pipe = load("sd1")
    saved = hm.generate(pipe, PROMPT, **CALL)
    found = hm.explain(pipe, saved, WORD, AT, step=0)
    recording, sites = saved.maps.recording, []
    columns = [recording.columns[token] for token in found.report.tokens]
    for layer, array in zip(recording.layers, recording.arrays, strict=True):
        (h, w), (width, height) = layer.grid, saved.image.size
        place = int(AT[1] / height * h) * w + int(AT[0] / width * w)
        shares = array[0, :, place][:, columns].sum(-1)
        sites += [(float(share), layer.name, head) for head, share in enumerate(shares)]

    best = max(site for site in sites if site[0] <= 0.5)
    assert best[1:] == (found.report.layer.name, found.report.head)
    assert found.report.automatic_axes == ("layer", "head")


def test_one_image_of_a_batch_is_explained(load):
    pipe = load("sd1")
    call = {name: value for name, value in CALL.items() if name != "seed"}
    saved = generate_batch(pipe, ["a cat", PROMPT, "at sea"], seeds=[1, 2, 3], **call)
    name = middle_layer(pipe)
    with runs_of(pipe, name) as runs:
        found = hm.explain(pipe, saved[1], WORD, AT, layer=name, step=1)
    assert_explained(found, runs[1], len(runs[1].query) // 2 + 1, saved[1].maps)


def test_the_first_pass_of_a_step_is_explained(load):
    pipe = load("sd1")
    pipe.scheduler = HeunDiscreteScheduler(**BETAS, steps_offset=1)
    saved = hm.generate(pipe, PROMPT, **{**CALL, "steps": 3})
    name = middle_layer(pipe)
    with runs_of(pipe, name) as runs:
        found = hm.explain(pipe, saved, WORD, AT, layer=name, step=1)
    assert max(runs) == 2 and found.report.passes == (0, 2)
    assert_explained(found, runs[2], 1)


def test_a_model_in_half_precision_is_explained(load):
    """Each number is one that the model had, without a digit more."""
    pipe, kind = load("sd1").to(torch.bfloat16), torch.bfloat16
    saved = hm.generate(pipe, PROMPT, **CALL)
    found = hm.explain(pipe, saved, WORD, AT, layer=middle_layer(pipe), step=1)
    for name in ("query", "key", "value", "weight", "output"):
        array = torch.tensor(getattr(found.inputs, name))
        assert torch.equal(array.to(kind).double(), array)
    assert found.report.maps_difference < 1e-4
    largest = max(1, float(np.abs(found.inputs.output).max()))
    assert found.difference < 4 * torch.finfo(kind).eps * largest


class Sharpen:
    """A rule of one's own."""

    def __call__(self, p, site):
        raised = p**2
        return raised / raised.sum(dim=-1, keepdim=True)


@pytest.mark.parametrize(
    ("family", "way"),
    [
        *[(family, way) for family in ("sd1", "sd35", "flux") for way in ("reweight", "own")],
        ("sd1", "weight"),
    ],
)
def test_changed_attention_is_explained(load, way, family):
    pipe, row = load(family), TABLE[family]
    edits = {"weight": [], "reweight": [hm.Reweight("red", -1.5)]}.get(way, [Sharpen()])
    prompt = "a (red:-1.5) dog" if way == "weight" else PROMPT
    saved = hm.generate(pipe, prompt, **row.options(**CALL, edits=edits))
    name = middle_layer(pipe)
    again = {"edits": edits} if way == "own" else {}
    with runs_of(pipe, name) as runs:
        found = hm.explain(pipe, saved, WORD, AT, layer=name, step=1, **again)

    def change(p):
        text = p[:, :-1] if row.is_joint else p
        if edits and way != "reweight":
            text = text**2 / (text**2).sum(-1, keepdim=True)
        else:
            text = text.clone()
            text[:, list(row.red)] *= -1.5
        return torch.cat([text, p[:, text.shape[1] :]], dim=-1)

    number = 2 if row.layout == APART else 1
    index = row.layouts(2)[number].index("conditional")
    assert_explained(found, runs[number], index, saved.maps, change)
    assert found.inputs.edited is not None


def test_a_pair_of_an_edit_is_explained(load):
    pipe = load("sigma")
    options = TABLE["sigma"].options(seed=3, keep=ALL, cross_replace=0.5, self_replace=0)
    pair, name = hm.edit(pipe, PROMPT, "a red cup", **options), middle_layer(pipe)
    for step in (0, 1):
        with runs_of(pipe, name) as runs:
            found = hm.explain(pipe, pair, "cup", AT, layer=name, step=step)
        source, own = (rows_of(runs[step], row, position_of(found)) for row in (-2, -1))
        acted = source if step == 0 else own
        assert_explained(found, runs[step], -1, pair.edited.maps, lambda _, acted=acted: acted)
        assert (found.inputs.edited is not None) == (step == 0)


# --- what is put beside a model ---


def test_an_image_prompt_is_part_of_an_explanation(adapted):
    name, more = middle_layer(adapted), {"ip_adapter_image": picture(32, 32)}
    with runs_of(adapted, name) as runs:
        saved = hm.generate(adapted, PROMPT, **CALL, **more)
    found = hm.explain(adapted, saved, WORD, AT, layer=name, step=1, **more)
    assert_explained(found, runs[1], 1, saved.maps)
    assert np.abs(found.inputs.added).max() > 1e-3


def test_a_lora_is_part_of_an_explanation(load):
    pipe = load("sd1")
    pipe.unet.add_adapter(models.lora())
    name = middle_layer(pipe)
    with runs_of(pipe, name) as runs:
        saved = hm.generate(pipe, PROMPT, **CALL)
    found = hm.explain(pipe, saved, WORD, AT, layer=name, step=1)
    assert_explained(found, runs[1], 1, saved.maps)
    base = cross_attention_layers(pipe)[name].to_out[0].base_layer
    assert np.abs(found.inputs.weight - base.weight.detach().numpy()).max() > 1e-3


def test_another_model_than_the_runs_gives_a_warning(load):
    pipe = load("sd1")
    saved = hm.generate(pipe, PROMPT, **CALL)
    with torch.no_grad():
        for layer in cross_attention_layers(pipe).values():
            layer.to_k.weight.mul_(-1)
    with pytest.warns(HeedmapWarning):
        found = hm.explain(pipe, saved, WORD, AT)
    assert found.report.maps_difference > 1e-3
