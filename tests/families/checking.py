"""What every pipeline must pass: one shared function, and an independent computation beside it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from diffusers import DiffusionPipeline
from diffusers.models.attention_processor import Attention
from diffusers.models.transformers.transformer_flux import FluxAttention
from diffusers.models.transformers.transformer_flux2 import (
    Flux2Attention,
    Flux2ParallelSelfAttention,
)
from oracle import assert_probabilities, tolerance
from torch import nn

from heedmap.recording.tracing import trace

# The rows of a batch, in the order of the branches, as diffusers' pipelines lay them out.
ALONE = ("conditional",)
GUIDED = ("negative", "conditional")
# Both others of InstructPix2Pix read the negative prompt; the text is guided against the one that
# sees the picture, as the conditional one does.
PIX2PIX = ("conditional", "negative", "without picture")
PERTURBED = ("negative", "conditional", "perturbed")
Layout = tuple[str, ...]

TOLERANCE = 1e-5  # of means of numbers that are exact
WHOLE = {"layer", "step", "head"}
JOINT_LAYERS = (FluxAttention, Flux2Attention, Flux2ParallelSelfAttention)


class Scores(dict[str, list[np.ndarray]]):
    """By layer, the probabilities (B, H, Q, K) of each pass; `near`: what float32 allows."""

    def __init__(self) -> None:
        super().__init__()
        self.near: dict[str, float] = {}

    def add(self, name: str, p: torch.Tensor, near: float) -> None:
        self.setdefault(name, []).append(p.numpy())
        self.near[name] = max(near, self.near.get(name, 0.0))


def paint(
    pipe, *prompts, seeds: Sequence[int] = (0,), steps: int = 2, output_type="np", **arguments
) -> np.ndarray:
    """Call a pipeline with fixed noise: its pictures as an array (B, h, w, 3)."""
    made = pipe(
        *prompts,
        num_inference_steps=steps,
        generator=[torch.Generator().manual_seed(seed) for seed in seeds],
        output_type=output_type,
        **arguments,
    ).images
    return made.float().numpy() if torch.is_tensor(made) else np.asarray(made)


def after_steps(pipe, tell: Callable[[int], object]) -> dict[str, object]:
    """The arguments with which a pipeline calls `tell` after each of its steps, by their number."""
    if hasattr(pipe, "transformer"):
        return {"callback": lambda step, *_: tell(step)}

    def told(pipe, step, timestep, given):
        tell(step)
        return given

    return {"callback_on_step_end": told}


def denoiser(pipe) -> nn.Module:
    """The UNet or transformer, inside of a compiled one."""
    found = pipe.unet if hasattr(pipe, "unet") else pipe.transformer
    found = getattr(found, "_orig_mod", found)
    return found.get_base_model() if hasattr(found, "get_base_model") else found


@contextmanager
def reference(pipe) -> Iterator[Scores]:
    """Beside a run: the probabilities in float64, of the layers' own projections.

    Every attention that is handed a text is watched from outside, through a hook on the module: no
    processor is touched, so this serves them all, and nothing here knows of heedmap.
    """
    scores = Scores()
    places: list[torch.Tensor] = []  # of the pass: of text and image

    def place(model: nn.Module, args: tuple, kwargs: dict) -> None:
        places[:] = places_of(kwargs)

    def watch(name: str) -> Callable[..., None]:
        def read(layer: Attention, args: tuple, kwargs: dict) -> None:
            text = kwargs.get("encoder_hidden_states")
            joint = isinstance(layer, JOINT_LAYERS) or layer.added_kv_proj_dim is not None
            if joint or type(layer.processor).__name__ == "CogView4AttnProcessor":
                image = kwargs["hidden_states"]
                if text is None:  # a single block of Flux has joined them
                    text, image = image.split([len(one) for one in places], dim=1)
                mask = mask_of(kwargs, text.shape[1], image.shape[1])
                found, _, near = joint_attention(layer, image, text, places, mask=mask)
                scores.add(name, found[..., : text.shape[1]], near)
                return
            if text is None:  # self-attention
                return
            text = text[0] if isinstance(text, tuple) else text  # IP-Adapter: (text, pictures)
            with torch.no_grad():
                query, key = query_and_key(
                    layer, layer.to_q(args[0]), layer.to_k(text), kwargs.get("image_rotary_emb")
                )
                found = query.double() @ key.double().mT * layer.scale
                mask = layer.prepare_attention_mask(
                    kwargs.get("attention_mask"), key.shape[2], args[0].shape[0]
                )
                if mask is not None:
                    found = found + mask.double().unflatten(0, (-1, layer.heads))
            scores.add(name, found.softmax(dim=-1), allowed(layer, query, key))

        return read

    handles = [
        layer.register_forward_pre_hook(watch(name), with_kwargs=True)
        for name, layer in denoiser(pipe).named_modules()
        if isinstance(layer, (Attention, *JOINT_LAYERS))
    ]
    handles.append(denoiser(pipe).register_forward_pre_hook(place, with_kwargs=True))
    try:
        yield scores
    finally:
        for handle in handles:
            handle.remove()


def query_and_key(
    layer: Attention, query: torch.Tensor, key: torch.Tensor, rotary=None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(B, H, Q, d) and (B, H, K, d) of projections: normed, and the queries rotated by places."""

    def normed(states: torch.Tensor, norm: nn.Module | None) -> torch.Tensor:
        heads = states.unflatten(-1, (layer.heads, -1)).transpose(1, 2)
        if norm is None:
            return heads
        weight = norm.weight
        is_whole = len(weight) != heads.shape[-1]  # over all heads together
        if states.dtype.itemsize < 4:  # another order of the roundings would give other numbers
            whole = norm(states) if is_whole else norm(heads).transpose(1, 2).flatten(2)
            return whole.unflatten(-1, (layer.heads, -1)).transpose(1, 2)
        if is_whole:
            size = states.square().mean(dim=-1, keepdim=True) + norm.eps
            whole = states / size.sqrt() * weight
            return whole.unflatten(-1, (layer.heads, -1)).transpose(1, 2)
        centred = heads - heads.mean(dim=-1, keepdim=True)
        spread = centred.square().mean(dim=-1, keepdim=True) + norm.eps
        return centred / spread.sqrt() * weight + norm.bias

    if query.dtype.itemsize == 4:
        query, key = query.double(), key.double()
    query, key = normed(query, layer.norm_q), normed(key, layer.norm_k)
    if rotary is not None:  # of pairs of channels
        turn = torch.complex(rotary[0][:, ::2].double(), rotary[1][:, ::2].double())
        pairs = torch.view_as_complex(query.double().unflatten(-1, (-1, 2)).contiguous())
        query = torch.view_as_real(pairs * turn).flatten(-2).to(key.dtype)
    return query, key


def allowed(layer: Attention, query: torch.Tensor, key: torch.Tensor) -> float:
    """What float32 allows probabilities of a layer, relative to them: `oracle.tolerance`."""
    norm, d = layer.norm_q, query.shape[-1]
    if norm is None:
        return tolerance(query, key, layer.scale)
    return tolerance(query, key, layer.scale, sums=2 + norm.weight.numel() // d)


def places_of(kwargs: dict) -> list[torch.Tensor]:
    """The places (K, A) of the text and (N, A) of the image in a pass; none without rotations."""
    if "txt_ids" in kwargs:
        return [ids[0] if ids.ndim == 3 else ids for ids in (kwargs["txt_ids"], kwargs["img_ids"])]
    if "original_size" in kwargs:  # CogView 4 spreads 256 places over rows and columns
        h, w = (side // 2 for side in kwargs["hidden_states"].shape[-2:])
        axes = (torch.arange(side) * 256 // side for side in (h, w))
        return [
            torch.zeros(kwargs["encoder_hidden_states"].shape[1], 2),
            torch.cartesian_prod(*axes),
        ]
    if "img_shapes" not in kwargs:
        return []
    # Qwen-Image counts rows and columns from the middle, and the text on from half of the longer.
    shapes = kwargs["img_shapes"][0]
    (_, h, w) = shapes if isinstance(shapes, tuple) else shapes[0]  # beside a ControlNet
    rows, columns = torch.arange(h) - (h - h // 2), torch.arange(w) - (w - w // 2)
    image = torch.cartesian_prod(torch.arange(1), rows, columns)
    text = max(h // 2, w // 2) + torch.arange(kwargs["encoder_hidden_states"].shape[1])
    return [text[:, None].expand(-1, 3), image]


def mask_of(kwargs: dict, text: int, image: int) -> torch.Tensor | None:
    """The mask (B, 1, …, K + N) that is added to the scores of the image's queries."""
    seen, added = kwargs.get("encoder_hidden_states_mask"), kwargs.get("attention_mask")
    if seen is not None:  # Qwen-Image hides padding
        hidden = torch.zeros(len(seen), 1, 1, text + image).double()
        hidden[:, 0, 0, :text][~seen.bool()] = -torch.inf
        return hidden
    return None if added is None else added[:, :, text:].double()  # Chroma adds 1 and 0


@torch.no_grad()
def joint_attention(
    layer: nn.Module,
    image: torch.Tensor,
    text: torch.Tensor,
    places: Sequence[torch.Tensor],
    sources: Sequence[int] | None = None,
    mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """P (B, H, Q, K + N) of the image's queries, and the values, in float64; what float32 allows.

    The keys are those of the text and then of the image, whatever their order in the model, in one
    softmax, as the papers define it. The places of the text and of the image rotate pairs of
    channels (Su et al., 2021). A row takes the image's queries and keys of its source. Projections
    are the layer's own, so that their roundings are the same.
    """

    def projected(name: str, states: torch.Tensor, norm: str | None = None) -> torch.Tensor:
        if hasattr(layer, "to_qkv_mlp_proj"):  # one matrix for all of a single block of Flux.2
            whole = layer.to_qkv_mlp_proj(states)[..., : 3 * layer.inner_dim].chunk(3, dim=-1)
            made = whole[("to_q", "to_k", "to_v").index(name)]
        else:
            made = getattr(layer, name)(states)
        heads = made.double().unflatten(-1, (layer.heads, -1))
        normed = None if norm is None else getattr(layer, norm)
        if isinstance(normed, nn.LayerNorm):  # of CogView 4, without weights
            heads = nn.functional.layer_norm(heads, heads.shape[-1:], eps=normed.eps)
        elif normed is not None:
            size = heads.square().mean(dim=-1, keepdim=True) + normed.eps
            heads = heads / size.sqrt() * normed.weight.double()
        return heads.transpose(1, 2)

    tokens = text.shape[1]
    if getattr(layer, "added_kv_proj_dim", None) is None:  # one projection of both
        both = torch.cat([text, image], dim=1)
        query = projected("to_q", both, "norm_q")[:, :, tokens:]
        key, values = projected("to_k", both, "norm_k"), projected("to_v", both)
        keys = [key[:, :, :tokens], key[:, :, tokens:]]
    else:
        query = projected("to_q", image, "norm_q")
        keys = [projected("add_k_proj", text, "norm_added_k"), projected("to_k", image, "norm_k")]
        values = torch.cat([projected("add_v_proj", text), projected("to_v", image)], dim=2)
    if places:
        keys = [rotated(*pair) for pair in zip(keys, places, strict=True)]
        query = rotated(query, places[1])
    if sources is not None:
        query, keys[1] = query[list(sources)], keys[1][list(sources)]
    key = torch.cat(keys, dim=2)
    scores = query @ key.mT / query.shape[-1] ** 0.5
    p = (scores if mask is None else scores + mask).softmax(dim=-1)
    is_plain = getattr(layer, "norm_q", None) is None and not places
    return p, values, tolerance(query, key, sums=1 if is_plain else 3)


def rotated(heads: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Queries or keys (B, H, N, 16), rotated by places: 4, 4 and 8 channels an axis, or 4 of 4.

    Of two axes each has 8, and a channel's partner is 8 further on.
    """
    sizes, base = {2: ((8, 8), 1e4), 3: ((4, 4, 8), 1e4), 4: ((4, 4, 4, 4), 2e3)}[places.shape[1]]
    angles = [
        places[:, axis, None].double() * base ** -(torch.arange(0, size, 2).double() / size)
        for axis, size in enumerate(sizes)
    ]
    turn = torch.polar(torch.ones(len(places), 8).double(), torch.cat(angles, dim=-1))
    halves = len(sizes) == 2
    pairs = heads.unflatten(-1, (2, -1)).mT if halves else heads.unflatten(-1, (-1, 2))
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * turn)
    return (turned.mT if halves else turned).flatten(-2)


def state_of(pipe) -> dict[str, object]:
    """Everything that a trace might leave changed: processors, hooks, attributes, classes."""
    parts = [part for part in pipe.components.values() if isinstance(part, nn.Module)]
    modules = [module for part in parts for module in part.modules()]
    layers = [module for module in modules if hasattr(module, "processor")]
    return {
        "processors": [layer.processor for layer in layers],
        "hooks": [
            [
                list(hooks.values())
                for name, hooks in vars(module).items()
                if name.endswith("_hooks")
            ]
            for module in modules
        ],
        "attributes": [set(vars(module)) for module in modules],
        # Offloading puts new hooks around `forward` at the end of each call.
        "forward": [
            hasattr(module, "_hf_hook") or vars(module).get("forward") for module in modules
        ],
        "own attributes": set(vars(pipe)),
        "methods": {name: value for name, value in vars(pipe).items() if callable(value)},
        "classes": [
            dict(vars(kind))
            for kind in (Attention, type(denoiser(pipe)), type(pipe), DiffusionPipeline)
        ],
        "processor classes": [dict(vars(type(layer.processor))) for layer in layers],
        "torch": [nn.functional.scaled_dot_product_attention, nn.Module.__call__],
    }


def assert_restored(pipe, before: dict[str, object]) -> None:
    after = state_of(pipe)
    for what, was in before.items():
        assert after[what] == was, f"{what} of the pipeline changed"


def grid(pipe, name: str, latent: tuple[int, int]) -> tuple[int, int]:
    """The grid that a layer has by its place: patches, or in a UNet ceil-halvings of the latent."""
    config = denoiser(pipe).config
    if "in_channels" in config and "axes_dims_rope" in config:  # Flux packs four cells
        return latent[0] // 2, latent[1] // 2
    if name.startswith(("transformer_blocks", "blocks")):
        return latent[0] // config.patch_size, latent[1] // config.patch_size
    levels = len(config.block_out_channels)
    stage, number = name.split(".")[0], name.split(".")[1]
    level = {"down_blocks": int, "up_blocks": lambda n: levels - 1 - int(n)}.get(
        stage, lambda _: levels - 1
    )(number)
    h, w = latent
    for _ in range(level):
        h, w = -(-h // 2), -(-w // 2)
    return h, w


def rows(scores: np.ndarray, layout: Layout, branch: str) -> np.ndarray:
    """The rows of a branch out of a batch: (B, H, Q, K)."""
    return np.split(scores, len(layout))[layout.index(branch)]


def expect(
    scores: Scores,
    layouts: Sequence[Layout],
    groups: Sequence[Sequence[int]],
    branch: str = "conditional",
) -> dict[str, np.ndarray]:
    """By layer, what must have been recorded: (S, B, H, Q, K)."""
    return {
        name: np.stack(
            [np.mean([rows(passes[i], layouts[i], branch) for i in group], 0) for group in groups]
        )
        for name, passes in scores.items()
    }


def compare(recordings, expected: dict[str, np.ndarray], near: dict[str, float]) -> None:
    """Every number of every recording against the independent one, by layer as near as `near`."""
    for image, recording in enumerate(recordings):
        assert {layer.name for layer in recording.layers} == set(expected)
        for layer, array in zip(recording.layers, recording.arrays, strict=True):
            assert array.dtype == np.float32
            wanted = expected[layer.name][:, image][..., list(recording.positions)]
            assert array.shape == wanted.shape, layer.name
            assert_probabilities(array, wanted, near[layer.name], f"image {image}, {layer.name}")


def check(
    pipe,
    call: Callable[[], np.ndarray],
    prompts: Sequence[str],
    layout: Layout | Sequence[Layout] = GUIDED,
    groups: Sequence[Sequence[int]] | None = None,
    branches: Sequence[str] = ("conditional",),
    labels: Sequence[str] | None = None,
    same_picture: Callable[[np.ndarray, np.ndarray], bool] = np.array_equal,
):
    """Run `call` bare and traced, and hold one against the other; returns the recorder.

    Args:
        pipe: the pipeline.
        call: runs it, with the same seeds each time, and gives its pictures.
        prompts: the prompt of each image, in the order of the images.
        layout: the branches of the batch; one for each pass of the UNet where they change.
        groups: which passes of the UNet make a step; each its own unless given.
        branches: what is asked of the trace.
        labels: handed on as the trace's `prompts`.
        same_picture: how the pictures are compared; to the bit unless given.
    """
    with reference(pipe) as scores:
        bare = call()
    before = state_of(pipe)
    extra = {} if labels is None else {"prompts": list(labels)}
    with trace(pipe, WHOLE, tokens="all", branches=tuple(branches), **extra) as recorder:
        traced = call()
    assert_restored(pipe, before)
    assert np.isfinite(bare).all() and bare.std() > 0
    assert same_picture(bare, traced)

    passes = len(next(iter(scores.values())))
    layouts = [layout] * passes if isinstance(layout[0], str) else list(layout)
    groups = groups or [[i] for i in range(passes)]
    found = {"conditional": "recordings", "negative": "negative_recordings"}
    for branch in branches:
        recordings = getattr(recorder, found[branch])
        expected = expect(scores, layouts, groups, branch)
        assert len(recordings) == len(prompts)
        compare(recordings, expected, scores.near)
        for recording in recordings:
            assert len(recording.timesteps) == len(groups)
            tokens = expected[recording.layers[0].name].shape[-1]
            assert recording.positions == tuple(range(tokens))
            for layer in recording.layers:
                assert layer.grid == grid(pipe, layer.name, recording.latent)
                assert layer.heads == expected[layer.name].shape[2]
        if branch == "conditional":
            assert [recording.table.prompt for recording in recordings] == list(prompts)
    assert_telling(expect(scores, layouts, groups), scores.near)
    return recorder


def assert_telling(expected: dict[str, np.ndarray], near: dict[str, float]) -> None:
    """The comparison could have failed: images differ, and so do steps, heads and places."""
    for axis in range(4):
        apart = [
            (np.ptp(wanted, axis=axis) / (near[name] * wanted.max(axis=axis) + 1e-30)).max()
            for name, wanted in expected.items()
        ]
        single = all(wanted.shape[axis] == 1 for wanted in expected.values())
        assert single or max(apart) > 100, f"axis {axis} is flat"
