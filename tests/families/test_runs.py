"""Runs of every family: saved, shown and read back, repeated, and averaged over axes."""

import numpy as np
import pytest
import torch
from diffusers import (
    StableDiffusionImg2ImgPipeline,
)
from diffusers.models.transformers import transformer_flux2
from matplotlib.text import Text
from oracle import assert_probabilities, denoiser, softmax, watch
from peft.utils import get_peft_model_state_dict

import heedmap as hm
from families import models
from families.checking import paint
from families.models import KINDS, TABLE, picture
from heedmap.errors import ArgumentError, SelectionError
from heedmap.page.packing import pack
from heedmap.recording.tracing import trace

PROMPT = "a red house"
PAIR = [PROMPT, "the cat sat at a big tree"]


@pytest.mark.parametrize("family", TABLE)
def test_a_run_is_saved_read_back_and_repeated(load, family, tmp_path):
    row, pipe = TABLE[family], load(family)
    images = {name: value for name, value in row.call.items() if name.endswith("image")}
    run = hm.generate(pipe, PROMPT, keep="all", **row.options(branches=row.branches))
    saved = run.save(tmp_path / "run", overlays=False)
    again = hm.Run.load(saved)
    assert again.settings == run.settings and np.array_equal(again.image, run.image)
    pairs = [(run.maps, again.maps), (run.negative_maps, again.negative_maps)]
    pairs = pairs[: len(row.branches)]
    has_references = row.is_joint and "image" in row.call and family != "qwen21_images"
    assert bool(run.references) == has_references
    for mine, theirs in zip(run.references, again.references, strict=True):
        pairs.append((mine.maps, theirs.maps))
        assert np.array_equal(mine.image, theirs.image)
    for mine, theirs in pairs:
        assert mine.recording.layers == theirs.recording.layers
        assert mine.recording.table == theirs.recording.table
        assert all(map(np.array_equal, mine.recording.arrays, theirs.recording.arrays))
    if images:
        with pytest.raises(ArgumentError):
            hm.repeat(pipe, saved)
    found = hm.repeat(pipe, saved, **images)
    assert found.same and found.changed == {}, str(found)
    assert found.run.settings == run.settings


@pytest.mark.parametrize("family", KINDS)
def test_a_page_shows_each_layer_and_a_word_is_left_out(load, family):
    row, pipe = TABLE[family], load(family)
    run = hm.generate(pipe, PROMPT, keep="all", **row.options())
    page, packed = run.explorer(), pack([{"prompt": run.maps.recording}], 10**8)
    shorts = [layer.short for layer in run.maps.layers]
    assert [layer["short"] for layer in packed["layers"]] == shorts
    assert all(f'"{short}"' in page for short in shorts)
    assert page.count("data:image/webp") >= len(run.references)
    images = {name: value for name, value in row.call.items() if name == "image"}
    ablation = hm.ablate(pipe, run, "house", **images)
    assert not ablation.without["attention"].maps["house"].values.any()
    assert tuple(ablation.without["prompt"].maps) == ("a", "red")


DOUBLE, FOUR = {"double": 2, "single": 2}, {"early": 2, "middle": 1, "late": 1}
THREE = {"early": 1, "middle": 1, "late": 1}
GROUPS = {
    "sd3": FOUR,
    **dict.fromkeys(("qwen", "qwen21", "cogview4", "krea", "zimage", "lumina2"), THREE),
}
GROUPS |= dict.fromkeys(("aura", "bria", "fibo", "flux", "klein", "longcat", "ovis"), DOUBLE)
GROUPS["ernie"] = THREE


@pytest.mark.parametrize("family", GROUPS)
def test_groups_of_layers_are_selected(load, family):
    pipe = load(family)
    maps = hm.generate(pipe, PROMPT, keep="all", **TABLE[family].options()).maps
    groups = [group for group, count in GROUPS[family].items() for _ in range(count)]
    assert [layer.group for layer in maps.recording.layers] == groups
    with pytest.raises(SelectionError, match=groups[0]):
        maps.select(layers="up")


def test_steps_that_a_model_is_published_with_are_counted(load):
    pipe = load("qwen21")
    pipe.register_to_config(sample_sigmas=[1.0, 0.7, 0.2])
    run = hm.generate(pipe, PROMPT, seed=1, size=(64, 64))
    assert run.settings.steps == len(run.maps.recording.timesteps) == 3


WHOLE = [name for name, row in TABLE.items() if not row.is_joint]


@pytest.mark.parametrize("family", [*WHOLE, "sd35", "flux", "krea", "ernie"])
def test_shapes_equal_those_of_a_real_pass(load, family):
    row, pipe, seen = TABLE[family], load(family), {}
    with watch(pipe, lambda run: seen.update({run.name: run})):
        made = paint(pipe, "at", **row.arguments())
    options = {name: row.call[name] for name in row.call if name.startswith(("max", "complex"))}
    shapes = hm.layer_shapes(pipe, "at", size=made.shape[2:0:-1], **options)
    assert [one.name for one in shapes] == list(seen)
    for one in shapes:
        run = seen[one.name]
        heads, positions, width = run.query.shape[1:]
        tokens, layer = run.count(-1), run.layer
        assert one.grid in row.grids and np.prod(one.grid) == positions
        assert one.hidden == (positions, layer.to_q.in_features)
        assert one.text[0] == tokens
        assert row.is_joint or one.text[1] == denoiser(pipe).config.cross_attention_dim
        assert one.query == (positions, layer.to_q.out_features)
        assert one.key == (tokens, layer.to_k.out_features)
        assert one.scores == (positions, tokens + row.is_joint * positions)
        assert (one.heads, one.head_dim) == (heads, width)
        assert one.scale == pytest.approx(width**-0.5)
        assert one.output == run.output[0].shape[1:]
        assert (one.masked is None) != row.masks_padding


# --- axes ---


@pytest.mark.parametrize("family", ["sd35", "flux", "kontext"])
def test_refined_maps_are_propagated_along_the_images_part_of_the_softmax(load, family):
    row, pipe, plain, made = TABLE[family], load(family), [], []
    layouts = row.layouts(2)

    def keep(run):
        layout = layouts[run.number]
        if "conditional" not in layout:
            return
        p = run.attention()[layout.index("conditional")]
        text, image = p[..., : run.tokens], p[..., run.tokens : run.tokens + 15]
        plain.append(text.mean(0))
        if len(plain) > 4:  # the second of two steps; there are four layers
            squared = (image / image.sum(-1, keepdim=True)) ** 2
            squared /= squared.sum(-1, keepdim=True)
            made.append(squared.mean(0))

    with watch(pipe, keep):
        run = hm.generate(pipe, PROMPT, tokens="all", **row.options())
    expected = torch.stack(made).mean(0) @ torch.stack(plain).mean(0)
    refined = run.maps.recording.refined
    np.testing.assert_allclose(refined, expected.view(5, 3, -1), rtol=1e-4, atol=1e-7)
    assert len(made) == 4 and run.maps.refined["house"].values.std() > 0


# --- reference images ---


def test_a_reference_image_has_maps_of_the_words_that_its_own_positions_read(load, monkeypatch):
    """Of 24 tokens, 15 positions of the image, and references of 6×4 and 4×5: row 2, column 1."""
    pipe, row, found, module = load("klein_images"), TABLE["klein_images"], {}, transformer_flux2
    attend, place = module.dispatch_attention_fn, 24 + 15 + 24 + 11

    def read_red(query, key, *args, **kwargs):
        query = query.clone()
        query[:, place] = 20 * key[:, row.red[1]]
        return attend(query, key, *args, **kwargs)

    def keep(run):
        if run.number % 2 == 0:  # the conditional branch
            p = softmax(run.others[0, :, 24:], run.key[0], run.query.shape[-1] ** -0.5)
            found.setdefault(run.name, []).append(p[..., :24])

    monkeypatch.setattr(module, "dispatch_attention_fn", read_red)
    with watch(pipe, keep), trace(pipe, "all", tokens="all") as traced:
        paint(pipe, prompt="a red dog", **row.arguments())
    ((first, second),) = traced.reference_maps
    assert (first.recording.size, second.recording.size) == ((64, 96), (80, 64))
    for layer, array in zip(second.recording.layers, second.recording.arrays, strict=True):
        np.testing.assert_allclose(array, torch.stack(found[layer.name]), atol=1e-5)
    red = second["red"].values
    assert np.divmod(red.argmax(), 80)[0] // 16 == 2 and red.argmax() % 80 // 16 == 1
    assert red.max() > 2 * first["red"].values.max()


# --- shares of the attention to the text ---


@pytest.mark.parametrize("family", ["sd35", "flux"])
@pytest.mark.parametrize("weight", [None, -1.5])
def test_shares_of_the_text_are_divided_by_its_sum_at_each_site(load, family, weight, tmp_path):
    row, pipe, sites = TABLE[family], load(family), {}
    layouts = row.layouts(2)

    def keep(run):
        layout = layouts[run.number]
        if "conditional" not in layout:
            return
        text = run.attention()[layout.index("conditional")][..., : run.tokens].clone()
        text[..., list(row.red)] *= weight or 1
        share = text / text.abs().sum(-1, keepdim=True)
        sites.setdefault(run.name, []).append((share, run.near))

    edits = [] if weight is None else [hm.Reweight("red", weight)]
    call = row.options(keep="all", tokens="all", edits=edits)
    plain = hm.generate(pipe, "a red dog", **call)
    with watch(pipe, keep):
        run = hm.generate(pipe, "a red dog", share_of="text", **call)
    assert np.array_equal(run.image, plain.image)
    recording = run.maps.recording
    for layer, array in zip(recording.layers, recording.arrays, strict=True):
        for found, (share, near) in zip(array, sites[layer.name], strict=True):
            assert_probabilities(found, share, 2 * near)
    if weight is None:
        back = hm.Run.load(run.save(tmp_path / "run", overlays=False))
        assert hm.repeat(pipe, back).run.settings.share_of == "text"
        assert hm.explain(pipe, back, "dog", (20, 41)).report.maps_difference < 1e-5


def test_edits_have_shares_of_the_text_and_figures_name_them(load):
    pipe, call = load("sd3"), TABLE["sd3"].options(negative=None)
    target = "a blue house"
    pair = hm.edit(pipe, PROMPT, target, share_of="text", **call)
    run = hm.generate(pipe, PROMPT, share_of="text", **call)
    mine, theirs = (one.maps["house"].values for one in (pair.source, run))
    np.testing.assert_allclose(mine, theirs, atol=1e-5)
    for figure in (pair.figure(), run.figure(), run.maps["red"].figure()):
        texts = [text.get_text().replace("\n", " ") for text in figure.findobj(Text)]
        assert any("share of the attention to the" in text for text in texts)
    run = hm.generate(load("sd1"), "at", share_of="text", seed=1, steps=1)
    assert run.maps.recording.share_of is None  # a softmax of its own has no other shares


# --- what is saved and repeated ---


@pytest.mark.parametrize("family", ["sigma", "flux"])
def test_edits_are_saved_and_repeated(load, family, tmp_path):
    pipe, call = load(family), TABLE[family].options()
    pair = hm.edit(pipe, "a (red:2) house", "a big house", only="red->big", **call)
    found = hm.repeat(pipe, pair.save(tmp_path / "pair", overlays=False))
    assert found.same and found.changed == {}


def test_img2img_is_repeated_with_the_class_of_its_settings(load, tmp_path):
    """The folder says `StableDiffusionPipeline`."""
    pipe, image = load("sd1", StableDiffusionImg2ImgPipeline), picture(64, 48)
    run = hm.generate(pipe, PROMPT, seed=3, steps=10, image=image, strength=0.5)
    assert len(run.maps.recording.timesteps) == 5 and run.settings.steps == 10
    saved = run.save(tmp_path / "run", overlays=False)
    assert hm.repeat(None, saved, image=image).same
    with pytest.raises(ArgumentError):
        hm.repeat(pipe, saved, image=picture(48, 64))


def test_loras_are_saved_with_their_scales(load, tmp_path):
    trained = load("short")
    trained.unet.add_adapter(models.lora())
    weights = get_peft_model_state_dict(trained.unet)
    trained.save_lora_weights(tmp_path / "lora", unet_lora_layers=weights)
    pipe = load("short")
    pipe.load_lora_weights(tmp_path / "lora", adapter_name="style")
    run = hm.generate(pipe, PROMPT, seed=3, steps=2, size=(64, 64))
    (saved,) = run.settings.loras
    assert saved["name"] == "style" and saved["part"] == "unet"
    assert hm.repeat(pipe, run.save(tmp_path / "run", overlays=False)).same
    pipe.set_adapters("style", 0.25)
    found = hm.repeat(pipe, tmp_path / "run")
    assert not found.same
    assert found.changed == {"loras": ([saved], [{**saved, "scale": 0.25}])}
