"""What UNets have beside maps, where text and image share a softmax: against float64."""

import inspect
import re
from collections import defaultdict
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from itertools import chain

import numpy as np
import pytest
import torch
from cli.calling import good
from diffusers import FirstBlockCacheConfig
from matplotlib.text import Text
from oracle import assert_probabilities
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

import heedmap as hm
from families import models
from families.checking import denoiser, paint, state_of
from families.joint import ROOM, SHORT, asked, watched
from heedmap.backends.layer_shapes import pick
from heedmap.backends.prompts import prompt_table
from heedmap.errors import ArgumentError, SelectionError, TraceError
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.recordings import Recording
from heedmap.recording.tracing import trace

EACH = pytest.mark.parametrize("family", ["sd35", "flux"])


# --- the shapes of layers -----------------------------------------------------------------------


@EACH
def test_shapes_equal_those_of_a_real_pass(load, family):
    pipe, seen = load(family), {}
    shapes = hm.layer_shapes(pipe, "at", size=(48, 80), **SHORT)
    with watched(pipe, lambda ran: seen.update({ran.name: ran})):
        paint(pipe, "at", steps=1, width=48, height=80, **SHORT)
    assert [one.name for one in shapes] == list(seen)
    for one in shapes:
        ran, layer = seen[one.name], seen[one.name].layer
        assert one.grid == (5, 3) and one.hidden == ran.image.shape[1:] == (15, layer.query_dim)
        assert one.text == ran.text.shape[1:] and one.projected == hasattr(layer, "to_out")
        assert one.query == one.image_key == (15, layer.to_q.out_features)
        assert one.key == (one.text[0], layer.to_k.out_features)
        assert one.scores == (15, one.text[0] + 15) and one.scale == 16**-0.5
        assert one.output[1] == ran.output[0].shape[2]
        for what, how, shape in one.chain():
            a, b, c, d = map(int, re.findall(r"\d+", how))
            assert b == c and (a, d) == shape, what
    parts = ["double", "single"] if family == "flux" else ["early", "late"]
    assert [pick(shapes, part)[0].name for part in parts] == [
        shapes[0].name, shapes[2 if family == "flux" else 3].name,
    ]  # fmt: skip


# --- refined maps -------------------------------------------------------------------------------


@EACH
def test_refined_maps_are_propagated_along_the_images_part_of_the_softmax(load, family):
    pipe, plain, made = load(family), [], []

    def tell(ran):
        p, count = ran.attention()[0][-1], ran.text.shape[1]
        text, image = p[..., :count], p[..., count:]
        plain.append(text.mean(0))
        if len(plain) > 4:  # the second of two steps; there are four layers
            squared = (image / image.sum(-1, keepdim=True)) ** 2
            squared /= squared.sum(-1, keepdim=True)
            made.append((squared @ torch.stack(plain).mean(0)).mean(0))

    with watched(pipe, tell):
        run = hm.generate(
            pipe, "a red house", seed=1, steps=2, tokens="all", size=(48, 80), **SHORT
        )
    expected = torch.stack(made).mean(0).view(5, 3, -1)
    np.testing.assert_allclose(run.maps.recording.refined, expected, rtol=1e-4, atol=1e-7)
    assert len(made) == 4 and run.maps.refined["house"].values.std() > 0
    assert run.maps["house"].mask().shape == (80, 48)
    assert run.maps.segment().labels.shape == (80, 48)


# --- concepts -----------------------------------------------------------------------------------

SOUGHT = ["sky", "at sea"]
FAMILIES = ("sd35", "flux", "chroma", "klein", "dev2", "qwen", "cogview4")


class Attention(TorchFunctionMode):
    """The arguments and the output (1, H, N, d) of the first attention in the block."""

    def __init__(self):
        super().__init__()
        self.found = None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        if func is scaled_dot_product_attention and self.found is None:
            given = dict(zip(("query", "key", "value"), args, strict=False)) | (kwargs or {})
            self.found = given | {"output": output}
        return output


@contextmanager
def block_calls(pipe):
    """The name and the arguments of each block that runs, and the text states of each pass."""
    ran, texts, handles = [], [], []

    def begin(_, args, kwargs):
        texts.append(kwargs["encoder_hidden_states"])

    def keep(block, args, kwargs, name):
        given = inspect.signature(block.forward).bind(*args, **kwargs).arguments
        ran.append((name, len(texts) - 1, dict(given)))

    model = denoiser(pipe)
    handles.append(model.register_forward_pre_hook(begin, with_kwargs=True))
    for name, block in model.named_modules():
        if re.fullmatch(r"(single_)?transformer_blocks\.\d+", name):
            handles.append(
                block.register_forward_pre_hook(partial(keep, name=name), with_kwargs=True)
            )
    try:
        yield ran, texts
    finally:
        for handle in handles:
            handle.remove()


def projected(double, states):
    """The text states as the first block is given them."""
    if hasattr(double, "txt_in"):
        return double.txt_in(double.txt_norm(states))
    if hasattr(double, "context_embedder"):
        return double.context_embedder(states)
    return double.patch_embed.text_proj(states)


def doubled(given, row):
    """One row of a block's arguments, in float64."""
    rows = len(given["hidden_states"])

    def double(value):
        if isinstance(value, tuple):  # rotations, of no row
            return tuple(
                one.to(torch.cdouble if one.is_complex() else torch.double) for one in value
            )
        if not isinstance(value, torch.Tensor):
            return value
        value = value[[row]] if len(value) == rows else value
        return value.double() if value.is_floating_point() else value

    return {name: double(value) for name, value in given.items()}


def with_concepts(given, concepts, tokens, family):
    """The arguments of a block with the concepts for its text of so many tokens."""
    given, count = dict(given), concepts.shape[1]
    if given.get("encoder_hidden_states") is None:
        given["hidden_states"] = torch.cat([concepts, given["hidden_states"][:, tokens:]], dim=1)
    else:
        given["encoder_hidden_states"] = concepts
    given |= {name: None for name in given if "mask" in name}
    if "joint_attention_kwargs" in given:
        given["joint_attention_kwargs"] = {}
    if family == "qwen":
        image, text = given["image_rotary_emb"]
        given["image_rotary_emb"] = image, text[:1].repeat(count, 1)
    elif family not in ("sd3", "sd35", "cogview4"):
        given["image_rotary_emb"] = tuple(
            torch.cat([one[:1].repeat(count, 1), one[tokens:]]) for one in given["image_rotary_emb"]
        )
    return given


@torch.no_grad()
def concept_shares(pipe, family, ran, texts, states, places, row):
    """By layer the shares of concepts (S, H, Q, C) and the similarities of outputs (S, 1, Q, C).

    The blocks of a float64 copy run on the image's states of the call, with its text and with the
    concepts' own, whose states are (1, K, C) and whose places are those among them.
    """
    double, shares, alike = deepcopy(denoiser(pipe)).double(), defaultdict(list), defaultdict(list)
    concepts, last = None, None
    for name, number, given in ran:
        if number != last:
            concepts, last = projected(double, states.double()), number
        tokens, count = texts[number].shape[1], concepts.shape[1]
        given = doubled(given, row)
        with Attention() as prompt:
            double.get_submodule(name)(**given)
        with Attention() as own:
            after = double.get_submodule(name)(**with_concepts(given, concepts, tokens, family))
        if isinstance(after, torch.Tensor):
            concepts = after[:, :count]
        else:
            concepts = after[1] if family == "cogview4" else after[0]
        image, theirs = slice(tokens, None), slice(count)
        if family in ("sd3", "sd35"):  # the text follows the image
            image, theirs = slice(-tokens), slice(-count, None)
        query, key = prompt.found["query"][:, :, image], prompt.found["key"]
        every = torch.cat([key, own.found["key"][:, :, theirs]], dim=2)
        scores = query @ every.mT * query.shape[-1] ** -0.5
        mask = prompt.found.get("attn_mask")
        if mask is not None:
            mask = mask.expand(-1, -1, key.shape[2], -1)[:, :, image]
            if mask.dtype == torch.bool:
                mask = torch.zeros(mask.shape).double().masked_fill(~mask, -torch.inf)
            scores[..., : key.shape[2]] += mask
        p = scores.softmax(-1)[0, :, :, key.shape[2] :]
        layer = f"{name}.attn1" if family == "cogview4" else f"{name}.attn"
        shares[layer].append(torch.stack([p[..., list(one)].sum(-1) for one in places], dim=-1))
        seen = prompt.found["output"][0, :, image].transpose(0, 1).flatten(1)
        heard = own.found["output"][0, :, theirs].transpose(0, 1).flatten(1)
        means = torch.stack([heard[list(one)].mean(0) for one in places], dim=-1)
        alike[layer].append((seen @ means).softmax(-1)[None])
    return [{name: torch.stack(one) for name, one in of.items()} for of in (shares, alike)]


def regional(tokens: int, positions: int) -> dict[str, torch.Tensor]:
    """A mask of regional prompting: half of the image sees half of the text, and no other half."""
    seen = torch.ones(1, 1, tokens + positions, tokens + positions, dtype=torch.bool)
    seen[..., tokens : tokens + positions // 2, 2 : tokens // 2] = False
    seen[..., tokens : tokens + positions // 2, tokens + positions // 2 :] = False
    return {"attention_mask": seen}


@pytest.mark.parametrize(
    ("family", "kwargs"),
    [
        *((family, None) for family in FAMILIES),
        ("flux", "joint_attention_kwargs"),
        ("klein", "attention_kwargs"),
    ],
)
def test_concepts_have_their_share_beside_the_prompt_and_the_similarity_of_outputs(
    load, family, kwargs, tmp_path
):
    """Their tokens have the place of the text's first one, and no mask hides them."""
    pipe, prompts = load(family), ["a red house", "a cat"]
    size = {"width": 48, "height": 80, "max_sequence_length": ROOM[family] + 16}
    more = {**asked(family), **size}
    if kwargs is not None:
        more[kwargs] = regional(size["max_sequence_length"], 15)
    call = lambda: paint(pipe, prompt=prompts, seeds=(1, 2), **more)  # noqa: E731
    with block_calls(pipe) as (ran, texts):
        bare = call()
    before = state_of(pipe)["processors"], state_of(pipe)["hooks"]
    with trace(pipe, "all", concepts=SOUGHT) as traced:
        assert np.array_equal(call(), bare)
    assert (state_of(pipe)["processors"], state_of(pipe)["hooks"]) == before
    with trace(pipe, "all") as alone:
        call()
    asking = [f"sky and at sea and {prompt}" for prompt in prompts]
    with block_calls(pipe) as (_, read):
        paint(pipe, prompt=asking, seeds=(1, 2), steps=1, **more)
    for image, recording in enumerate(traced.concept_recordings):
        table = prompt_table(pipe, asking[image], size)
        # CogView 4 pads the shorter prompt of a batch in front.
        shift = read[0].shape[1] - len(table.tokens) if family == "cogview4" else 0
        own = [[n + shift for n in table.find(one) if table.tokens[n].start < 15] for one in SOUGHT]
        tokens = sorted({*chain(*own)})
        places = [[*map(tokens.index, one)] for one in own]
        expected, similar = concept_shares(
            pipe, family, ran, texts, read[0][[image]][:, tokens], places, image
        )
        assert [word.text for word in recording.table.words] == SOUGHT
        for layer, array in zip(recording.layers, recording.arrays, strict=True):
            np.testing.assert_allclose(array, expected[layer.name], atol=1e-5)
            assert array.max() > 1e-2
        assert recording.refined is not None
        for layer, array in zip(recording.layers, recording.outputs, strict=True):
            np.testing.assert_allclose(array, similar[layer.name], atol=1e-5)
            # The outputs of CogView 4's random weights are nearly 0, so that all are alike.
            assert family == "cogview4" or np.ptp(array) > 1e-2
        recording.save(tmp_path / f"{image}")
        maps = HeatMaps(Recording.load(tmp_path / f"{image}")).outputs
        assert all(map(np.array_equal, maps.recording.arrays, recording.outputs))
        np.testing.assert_allclose(maps["sky"].values + maps["at sea"].values, 1, atol=1e-6)
    for one, other in zip(traced.recordings, alone.recordings, strict=True):
        assert all(map(np.array_equal, one.arrays, other.arrays))


def test_similarities_of_outputs_are_averaged_where_no_axis_is_kept(load):
    pipe, more, maps = load("sd3"), {"num_images_per_prompt": 2, "width": 48, "height": 48}, []
    for keep in ((), ("layer", "step")):
        with trace(pipe, keep, concepts=SOUGHT) as traced:
            paint(pipe, ["a cat", "at"], seeds=(1, 2, 3, 4), **more, **SHORT)
        maps.append([one.outputs["sky"].values for one in traced.concept_maps])
        assert traced.concept_recordings[0].outputs[0].shape[:2] == (2 if keep else 1, 1)
    np.testing.assert_allclose(*maps, atol=1e-5)
    assert len(maps[0]) == 4 and np.ptp(maps[0], axis=0).max() > 1e-3


def test_weights_change_the_outputs_of_the_image_that_concepts_are_compared_with(load):
    pipe, call, maps = load("flux"), {"width": 48, "height": 48, "steps": 1, **SHORT}, []
    for edits in ([], [hm.Reweight("red", -4)]):
        with trace(pipe, "all", concepts=SOUGHT, edits=edits) as traced:
            paint(pipe, "a red house", **call)
        maps.append(traced.concept_recordings[0].outputs[0])  # its states are not edited yet
    assert np.abs(maps[0] - maps[1]).max() > 1e-4


@pytest.mark.parametrize(("family", "concepts"), [("sd3", ["sky"]), ("sd1", SOUGHT)])
def test_one_concept_or_a_softmax_of_the_text_alone_has_no_similarities(load, family, concepts):
    more = SHORT if family == "sd3" else {}
    run = hm.generate(load(family), "at", seed=1, steps=1, concepts=concepts, **more)
    assert run.concepts["sky"].values.max() > 0
    with pytest.raises(SelectionError):
        run.concepts.outputs  # noqa: B018


def test_concepts_are_refused_where_layers_may_be_skipped(load):
    pipe = load("flux")
    pipe.transformer.enable_cache(FirstBlockCacheConfig(threshold=0.1))
    with pytest.raises(TraceError), trace(pipe, concepts=["sky"]):
        paint(pipe, "at", width=48, height=48, **SHORT)


# --- explanations -------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("layer", ["0", "3"])  # double and single blocks of Flux
def test_an_explanation_has_the_image_as_one_more_token(load, family, layer, tmp_path):
    pipe, seen = load(family), []
    edits = [hm.Reweight("red", -1.5)] if layer == "0" else []
    call = {"seed": 1, "steps": 2, "size": (48, 80), "keep": "all", **SHORT}
    run = hm.generate(pipe, "a red house", edits=edits, **call)
    name = run.maps.recording.layers[int(layer)].name

    def tell(ran):
        if ran.name == name:
            p, values, near = ran.attention()
            seen.append((ran.text.shape[1], p[-1], values[-1], near))

    with watched(pipe, tell):
        found = hm.explain(pipe, run, "house", (20, 41), layer=name, head=1, step=1, edits=edits)
    place = 2 * 3 + 1  # row and column of the pixel's position of 16 pixels
    count, p, values, near = seen[1]
    p = p[:, place]
    assert found.tokens[-1].kind == "image" and len(found.tokens) == count + 1
    shares = torch.cat([p[:, :count], p[:, count:].sum(-1, keepdim=True)], dim=-1)
    assert_probabilities(found.attention.probabilities, shares[1], near)
    if edits:
        tokens = list(prompt_table(pipe, "a red house", SHORT).find("red"))
        for one in (p, shares):
            one[:, tokens] *= -1.5
    assert_probabilities(found.probabilities, shares, near)
    heads = torch.einsum("hn,hnd->hd", p, values).flatten()
    np.testing.assert_allclose(found.heads_output, heads, atol=1e-5 * float(heads.abs().max()))
    assert found.difference < 1e-5 * np.abs(found.inputs.output).max()
    assert found.report.maps_difference < near
    back = hm.Explanation.load(found.save(tmp_path / "x"))
    assert back.numbers == found.numbers and back.page() == found.page()
    assert "<image>" in found.table()


@pytest.mark.parametrize(
    ("family", "place"),  # of Chroma and Flux.2 a double and a single block
    [*((family, -1) for family in FAMILIES[2:]), ("chroma", 0), ("klein", 0)],
)
def test_other_transformers_are_explained(load, family, place):
    """The heads' sum of values is what the layer computed, and P what the maps hold."""
    pipe = load(family)
    call = {"seed": 1, "steps": 2, "size": (48, 80), "keep": "all", **asked(family)}
    call["guidance"] = call.pop("guidance_scale", None)
    run = hm.generate(pipe, "a red house", **call)
    name = run.maps.recording.layers[place].name
    found = hm.explain(pipe, run, "house", (20, 41), layer=name, head=1, step=1)
    assert found.report.maps_difference < 1e-5
    assert found.difference < 1e-5 * np.abs(found.inputs.output).max()
    np.testing.assert_allclose(found.probabilities.sum(-1), 1, atol=1e-5)


def test_explain_chooses_among_the_layers_of_a_group(load):
    pipe = load("flux")
    run = hm.generate(pipe, "a red house", seed=1, steps=2, **SHORT)
    found = hm.explain(pipe, run, "house", (20, 41), layer="single")
    assert found.report.layer.name.startswith("single_") and found.report.maps_difference is None


# --- shares of the attention to the text --------------------------------------------------------


@EACH
@pytest.mark.parametrize("weight", [None, -1.5])
def test_shares_of_the_text_are_divided_by_its_sum_at_each_site(load, family, weight, tmp_path):
    pipe, sites, near = load(family), {}, {}
    red = list(prompt_table(pipe, "a red house", SHORT).find("red"))

    def tell(ran):
        p, _, near[ran.name] = ran.attention()
        text = p[-1][..., : ran.text.shape[1]].clone()
        text[..., red] *= 1 if weight is None else weight
        sites.setdefault(ran.name, []).append(text / text.abs().sum(-1, keepdim=True))

    edits = [] if weight is None else [hm.Reweight("red", weight)]
    call = {"seed": 1, "steps": 2, "size": (48, 80), "edits": edits, **SHORT}
    plain = hm.generate(pipe, "a red house", **call)
    with watched(pipe, tell):
        run = hm.generate(pipe, "a red house", keep="all", tokens="all", share_of="text", **call)
    assert np.array_equal(run.image, plain.image)
    recording = run.maps.recording
    for layer, array in zip(recording.layers, recording.arrays, strict=True):
        assert_probabilities(array, torch.stack(sites[layer.name]), 2 * near[layer.name])
    assert (plain.settings.share_of, run.settings.share_of) == ("all", "text")
    back = hm.Run.load(run.save(tmp_path / "run", overlays=False))
    assert back.maps.recording.share_of == back.maps["house"].share_of == "text"
    if weight is None:
        assert hm.repeat(pipe, back).run.settings.share_of == "text"
        found = hm.explain(pipe, back, "house", (20, 41))
        assert found.report.maps_difference < 1e-5


@pytest.mark.parametrize("halved", [False, True])  # by autocast, but not for probabilities
def test_concepts_as_shares_of_the_text_and_their_own(load, halved):
    """Without the image's keys: the odds to the prompt's words stay as they are."""
    pipe, found = load("sd3"), {}
    for share_of in ("all", "text"):
        spec = {"tokens": "all", "concepts": ["sky"], "share_of": share_of}
        half = torch.autocast("cpu", torch.bfloat16, enabled=halved)
        with half, trace(pipe, "all", **spec) as traced:
            paint(pipe, "a red house", guidance_scale=1.0, width=48, height=48, **SHORT)
        (words,), (concepts,) = traced.recordings, traced.concept_recordings
        found[share_of] = words.arrays[1].astype(float), concepts.arrays[1].astype(float)
    (of_all, sky), (of_text, expected) = found["all"], found["text"]
    # With the concept's keys beside them the words have 1 - sky of what they had.
    words = of_all.sum(-1, keepdims=True) * (1 - sky)
    np.testing.assert_allclose(expected, sky / (words + sky), atol=1e-5)
    np.testing.assert_allclose(of_text.sum(-1), 1, atol=1e-5)


def test_figures_pages_and_tables_name_the_shares(load, tmp_path):
    pipe, call = load("flux"), {"seed": 1, "steps": 2, "keep": ["step"], **SHORT}
    runs = [hm.generate(pipe, "a cat", share_of=share, **call) for share in ("all", "text")]
    names = ("share of all attention", "share of the attention to the text")

    def texts_of(figure):
        return " ".join(text.get_text().replace("\n", " ") for text in figure.findobj(Text))

    for run, name in zip(runs, names, strict=True):
        figures = [run.figure(), run.maps["cat"].figure(), run.timeline("cat")]
        figures.append(hm.ablate(pipe, run, "cat").figure())
        assert all(name in texts_of(figure) for figure in figures)
        assert f'"shareOf":"{run.settings.share_of}"' in run.explorer()
        assert name.capitalize() in good("inspect", run.save(tmp_path / run.settings.share_of))
    assert names[0] in texts_of(hm.edit(pipe, "a cat", "a dog", **call).figure())
    assert all(name in texts_of(hm.compare(runs)) for name in names)


def test_shares_of_the_text_have_no_meaning_in_a_softmax_of_its_own(load):
    pipe = load("sd1")
    for ask in (hm.generate, hm.trace):
        with pytest.raises(ArgumentError):
            ask(pipe, *["at"] * (ask is hm.generate), share_of="text")
    with pytest.raises(ArgumentError):
        hm.locate(pipe, models.picture(64, 64), "at", share_of="text")
    assert hm.generate(pipe, "at", seed=1, steps=1).maps.recording.share_of is None
