"""What every attention layer must put out, computed beside a run in float64 from its definition.

Hooks on the layers, and nothing of heedmap but the call that draws: Q, K and V as diffusers' own
processor hands them to torch (`watch`) or by the layer's own weights (`beside`), the softmax and
the rules by arithmetic of the tests' own. What a layer really puts out is held against it, so an
edit that shows in its maps but not in its picture is found.

Probabilities are held to what float32 allows, `tolerance`, by `assert_probabilities`.
"""

import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

import diffusers
import numpy as np
import torch
from diffusers import (
    AuraFlowTransformer2DModel,
    BriaFiboTransformer2DModel,
    BriaTransformer2DModel,
    ChromaTransformer2DModel,
    CogView4Transformer2DModel,
    DDIMScheduler,
    ErnieImageTransformer2DModel,
    Flux2Transformer2DModel,
    FluxTransformer2DModel,
    Krea2Transformer2DModel,
    LongCatImageTransformer2DModel,
    Lumina2Transformer2DModel,
    OvisImageTransformer2DModel,
    QwenImageTransformer2DModel,
    SD3Transformer2DModel,
    ZImageTransformer2DModel,
)
from diffusers.models.attention_processor import (
    Attention,
    AttnProcessor,
    AttnProcessor2_0,
    SlicedAttnProcessor,
)
from diffusers.models.transformers.transformer_krea2 import Krea2RMSNorm
from making import random_pipeline, random_pixart
from torch import Tensor, nn
from torch.nn.functional import linear, pad, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

import heedmap as hm

UNIT = 2.0**-24  # the rounding of float32, relative to the number
EXP = 40  # of them in torch's fast exponential, `exp_u20`


def tolerance(
    query: torch.Tensor, key: torch.Tensor, scale: float | None = None, sums: int = 1
) -> float:
    """How far a probability in float32 may be from float64, relative to it, for these Q and K.

    A sum of n products has n roundings, in whatever order a kernel adds them, each of at most u =
    2⁻²⁴ times the sum of the magnitudes (Higham, *Accuracy and Stability of Numerical Algorithms*,
    3.1). So a score q·k/√d is within d·u·‖q‖‖k‖/√d, and within (d + 6)·u of that size once it is
    scaled, has a mask added, and the row's largest score or its log-sum is taken away. It stands
    above and below the fraction e^s / Σ e^s', and an error of a score is one of e^s, relative to
    it: twice. Two exponentials, the sum over K tokens and the division make 2·40 + K + 4 more.

    Args:
        query: (..., Q, d), as the layer used it: no rounding of what made it is in the bound.
        key: (..., K, d).
        scale: factor of QKᵀ. Default: 1/√d.
        sums: how many sums over d channels there are up to a score: 3 where the oracle norms
            Q and K in float64, the layer in float32.
    """
    d = query.shape[-1]
    longest = float(query.double().norm(dim=-1).max() * key.double().norm(dim=-1).max())
    size = longest * (d**-0.5 if scale is None else scale)
    return UNIT * (2 * (sums * d + 6) * size + 2 * EXP + key.shape[-2] + 4)


def assert_probabilities(found, expected, relative: float, message: str = "") -> None:
    """Each within this share of the expected one; of what float32 cannot hold, nothing is left."""
    least = float(torch.finfo(torch.float32).tiny)
    np.testing.assert_allclose(found, expected, rtol=relative, atol=least, err_msg=message)


def softmax(query, key, scale: float, mask: torch.Tensor | None = None) -> torch.Tensor:
    """P (..., Q, K) by definition; a mask is added, or True where a token may be seen."""
    scores = query.double() @ key.double().mT * scale
    if mask is not None:
        mask = torch.where(mask, 0.0, -torch.inf) if mask.dtype == torch.bool else mask
        scores = scores + mask.double()
    return scores.softmax(-1)


@dataclass
class Here:
    """One layer at one step, for the images of the conditional branch.

    `scores` are QKᵀ/√d + M before the softmax, (B, H, Q, K) float64.
    """

    name: str
    step: int
    steps: int
    grid: tuple[int, int]
    scores: torch.Tensor

    @property
    def p(self) -> torch.Tensor:
        return self.scores.softmax(-1)


# From a place to the probabilities of each image, those that must have acted.
Rule = Callable[[Here], Sequence[torch.Tensor]]
# From a step and a number of cells to the image each image takes its self-attention from.
Sharing = Callable[[int, int], Sequence[int]]


@dataclass
class Held:
    """What was held against the definition, by (layer, step): P and P' (B, H, Q, K)."""

    plain: dict[tuple[str, int], torch.Tensor] = field(default_factory=dict)
    edited: dict[tuple[str, int], torch.Tensor] = field(default_factory=dict)
    grids: dict[str, tuple[int, int]] = field(default_factory=dict)
    own: int = 0  # self-attentions that took something
    order: list[tuple[str, int, tuple[int, int]]] = field(default_factory=list)  # as they ran
    among: dict[tuple[str, int], torch.Tensor] = field(default_factory=dict)  # P (B, H, Q, Q)
    moved: list[float] = field(default_factory=list)  # of the last image, by site
    near: dict[tuple[str, int], float] = field(default_factory=dict)  # what float32 allows


def acts(window: float | tuple[float, float], step: int, steps: int) -> bool:
    """Whether a window of fractions, as they are written, holds a step."""
    low, high = window if isinstance(window, tuple) else (0, window)
    return Fraction(str(low)) * steps <= step < Fraction(str(high)) * steps


def denoiser(pipe):
    """The UNet or the transformer of a pipeline, inside of a compiled or adapted one."""
    found = pipe.unet if hasattr(pipe, "unet") else pipe.transformer
    found = getattr(found, "_orig_mod", found)
    return found.get_base_model() if hasattr(found, "get_base_model") else found


@contextmanager
def compare_layers(
    pipe,
    steps: int,
    rule: Rule = lambda here: list(here.p),
    sharing: Sharing | None = None,
    images: int = 1,
    near: float = 2e-5,
) -> Iterator[Held]:
    """Hold each attention of the runs inside against the definition; one pass is one step."""
    held = Held()
    at = {"pass": -1, "latent": (0, 0)}

    def before(model, args, kwargs):
        at["pass"] += 1
        at["latent"] = tuple((args[0] if args else kwargs["sample"]).shape[-2:])

    @torch.no_grad()
    def after(name, layer, args, kwargs, output):
        assert not layer.residual_connection and layer.rescale_output_factor == 1
        x = args[0]
        text = kwargs.get("encoder_hidden_states")
        source = args[0] if text is None else text
        bias = None if layer.to_v.bias is None else layer.to_v.bias.double()
        query, key, value = (
            made.double().unflatten(-1, (layer.heads, -1)).transpose(1, 2)
            for made in (
                layer.to_q(args[0]),
                layer.to_k(source),
                linear(source.double(), layer.to_v.weight.double(), bias),
            )
        )
        step = at["pass"]
        assert step < steps, "more passes than steps"
        rows = range(len(x) - images, len(x))  # the conditional branch is the last
        if text is None and sharing is not None:
            for row, source in zip(rows, sharing(step, x.shape[1]), strict=True):
                held.own += rows[source] != row
                query[row], key[row] = query[rows[source]], key[rows[source]]
        scores = query @ key.mT / query.shape[-1] ** 0.5
        mask = kwargs.get("attention_mask")
        if mask is not None:
            scores = scores + mask.double().reshape(len(x), 1, 1, -1)
        p = scores.softmax(-1)
        grid = _grid(x.shape[1], at["latent"])
        held.order.append((name, step, grid))
        if text is None:
            held.among[name, step] = p[list(rows)]
        else:
            held.grids[name] = grid
            held.near[name, step] = tolerance(query, key)
            held.plain[name, step] = p[list(rows)]
            p[list(rows)] = torch.stack(
                list(rule(Here(name, step, steps, grid, scores[list(rows)])))
            )
            held.edited[name, step] = p[list(rows)]
            change = (held.edited[name, step] - held.plain[name, step])[-1]
            held.moved.append(float(change.abs().sum(-1).mean()) / 2)
        project = layer.to_out[0]
        expected = linear(
            (p @ value).transpose(1, 2).flatten(2), project.weight.double(), project.bias.double()
        )
        scale = float(expected.abs().max())
        torch.testing.assert_close(output.double(), expected, rtol=0, atol=near * scale)

    handles = [denoiser(pipe).register_forward_pre_hook(before, with_kwargs=True)]
    handles += [
        layer.register_forward_hook(
            lambda layer, args, kwargs, output, name=name: after(name, layer, args, kwargs, output),
            with_kwargs=True,
        )
        for name, layer in denoiser(pipe).named_modules()
        if isinstance(layer, Attention)
    ]
    try:
        yield held
    finally:
        for handle in handles:
            handle.remove()
    assert held.edited, "no attention was held against anything"


def _grid(cells: int, latent: tuple[int, int]) -> tuple[int, int]:
    h, w = latent
    while h * w > cells:
        h, w = -(-h // 2), -(-w // 2)
    assert h * w == cells
    return h, w


def shares(box: tuple[float, ...], size: tuple[int, int], grid: tuple[int, int]) -> torch.Tensor:
    """How much of each cell of a grid lies in a box of pixels: (h, w) float64."""
    left, top, right, bottom = box

    def side(start, end, pixels, cells):
        each = pixels / cells
        edges = [(n * each, (n + 1) * each) for n in range(cells)]
        return torch.tensor(
            [max(0.0, min(end, b) - max(start, a)) / each for a, b in edges], dtype=torch.float64
        )

    return torch.outer(side(top, bottom, size[1], grid[0]), side(left, right, size[0], grid[1]))


def confined(
    here: Here,
    tokens: Sequence[int],
    box: tuple[float, ...],
    strength: float,
    window: tuple[float, float],
    size: tuple[int, int],
) -> torch.Tensor:
    """The bias (Q, K) of one region: `strength` on the tokens inside, -inf outside."""
    bias = torch.zeros(here.scores.shape[-2:], dtype=torch.float64)
    if acts(window, here.step, here.steps):
        share = shares(box, size, here.grid).flatten()
        inside = share >= min(0.5, float(share.max()))
        bias[:, list(tokens)] = torch.where(inside, strength, -torch.inf)[:, None].double()
    return bias


# --- any layer, also where text and image share a softmax ---------------------------------------

SEQUENCES = (ZImageTransformer2DModel, Lumina2Transformer2DModel, ErnieImageTransformer2DModel)


def newer(name: str) -> tuple[type[nn.Module], ...]:
    """A model of diffusers' that its oldest supported version may lack."""
    return (getattr(diffusers, name),) if hasattr(diffusers, name) else ()


APART = newer("QwenImage21Transformer2DModel")
"""Those whose image attends in an attention of its own, the last of a layer."""
JOINT = (
    *SEQUENCES,
    *APART,
    SD3Transformer2DModel,
    FluxTransformer2DModel,
    Krea2Transformer2DModel,
    BriaFiboTransformer2DModel,
    BriaTransformer2DModel,
    ChromaTransformer2DModel,
    Flux2Transformer2DModel,
    LongCatImageTransformer2DModel,
    OvisImageTransformer2DModel,
    QwenImageTransformer2DModel,
    CogView4Transformer2DModel,
    AuraFlowTransformer2DModel,
    *newer("Flux3Transformer2DModel"),
)
PARTS = ("query", "key", "value", "attn_mask")


def registers(model: nn.Module) -> int:
    """How many states of its own a model puts in front of its text."""
    return model.register_tokens.shape[1] if hasattr(model, "register_tokens") else 0


class Kernel(TorchFunctionMode):
    """The first attention that torch is asked for, or the last: its arguments, and its output."""

    def __init__(self, last: bool = False):
        super().__init__()
        self.given, self.last = None, last

    def __torch_function__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        if func is scaled_dot_product_attention and (self.last or self.given is None):
            self.given = {
                **dict(zip(PARTS, args, strict=False)),
                **(kwargs or {}),
                "output": output,
            }
        return output

    @property
    def mask(self) -> Tensor | None:
        """What is added to the scores, float64."""
        mask = self.given.get("attn_mask")
        if mask is None or mask.dtype != torch.bool:
            return mask if mask is None else mask.double()
        return torch.zeros(mask.shape).double().masked_fill(~mask, -torch.inf)


@dataclass
class LayerRun:
    """An attention layer that has just run, by what diffusers' own processor hands to torch.

    Queries are the image's; keys and values are those of the text, and of the image behind them
    where both share a softmax, with reference images at the end; float64, (B, H, ·, d).
    """

    name: str
    number: int  # of the pass
    layer: nn.Module
    tokens: int  # of the text; 0 where the image attends to itself alone
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    lengths: Sequence[int]  # of the rows' own texts in a sequence
    output: tuple[Tensor, Tensor | None]  # of the image, and of text and reference images
    plain: tuple[Tensor, Tensor | None]  # by diffusers' processor
    others: Tensor  # the queries of reference images
    text: Tensor  # those of the text
    gate: Tensor | float  # of the outputs of the image's heads (B, Q, H·d)

    def attention(self, sources: Sequence[int] | None = None) -> Tensor:
        """P (B, H, Q, K + N); a row may take the image's queries and keys of its source."""
        query, key = self.query, self.key
        if sources is not None:
            query, key = query[list(sources)], key.clone()
            image = slice(self.tokens, self.tokens + query.shape[2])
            key[:, :, image] = key[list(sources), :, image]
        return softmax(query, key, query.shape[-1] ** -0.5, self.mask)

    def count(self, row: int) -> int:
        """The number of tokens of a row's own text."""
        return self.lengths[row] if self.lengths else self.tokens

    @property
    def near(self) -> float:
        """What float32 allows of P, relative to it."""
        return tolerance(self.query, self.key)

    @torch.no_grad()
    def assert_output(self, changed: Tensor, near: float = 2e-5) -> Tensor:
        """Hold the image's output in the last rows against P' V of this P'; return the change."""
        rows = slice(len(self.query) - len(changed), None)
        difference = changed - self.attention()[rows]
        gate = self.gate[rows] if torch.is_tensor(self.gate) else self.gate
        heads = (difference @ self.value[rows]).transpose(1, 2).flatten(2) * gate
        change = self._project(heads.to(self.output[0])).double()
        plain = self.plain[0][rows].double()
        scale = float(plain.abs().max())
        found = self.output[0][rows].double()
        torch.testing.assert_close(found, plain + change, rtol=0, atol=near * scale)
        return change / scale

    def _project(self, heads: Tensor) -> Tensor:
        """The output projection with its LoRA, without its bias; none in single blocks of Flux."""
        project = getattr(self.layer, "to_out", None)
        if project is None:
            return heads
        if not isinstance(project, nn.ModuleList):  # of the heads and of an MLP beside them
            heads = pad(heads, (0, project.in_features - heads.shape[-1]))
            return project(heads) - project(torch.zeros_like(heads))
        return project[0](heads) - project[0](torch.zeros_like(heads))


def _plain(layer: nn.Module):
    """Diffusers' processor of a layer, as one that asks torch for the whole attention."""
    processor = getattr(layer.processor, "original", layer.processor)
    classic = isinstance(processor, AttnProcessor | SlicedAttnProcessor)
    return AttnProcessor2_0() if classic else processor


def row_orders(model, args, kwargs) -> tuple:
    """Of a sequence the rows' tokens, the positions, and orders: text, hidden, image, padding."""
    if not isinstance(model, SEQUENCES):
        return ()
    if isinstance(model, ZImageTransformer2DModel):  # it is given lists
        given = inspect.signature(model.forward).bind(*args, **kwargs).arguments
        lengths = [-(-len(text) // 32) * 32 for text in given["cap_feats"]]
        count = given["x"][0][0].numel() // 4
        first = -(-count // 32) * 32
        order = [*range(first, first + max(lengths)), *range(first)]
        return lengths, count, [order] * len(lengths)
    if isinstance(model, ErnieImageTransformer2DModel):
        lengths, count = kwargs["text_lens"].tolist(), kwargs["hidden_states"][0, 0].numel()
        order = [*range(count, count + max(lengths)), *range(count)]
        return lengths, count, [order] * len(lengths)
    lengths = kwargs["encoder_attention_mask"].sum(1).tolist()
    count = kwargs["hidden_states"][0, 0].numel() // 4
    orders = [[*range(n), *range(n + count, max(lengths) + count)] for n in lengths]
    return (
        lengths,
        count,
        [[*o, *range(n, n + count)] for o, n in zip(orders, lengths, strict=True)],
    )


def spread_text(slots: Tensor, positions: int) -> tuple[int, list[Tensor]]:
    """Of a text with reference images in it, and the image behind: its tokens, and an order.

    The order is that of text, image and references. A slot is of four positions of an image.
    """
    slots = slots.repeat_interleave(1 + 3 * slots)
    text, images = (~slots).nonzero().flatten(), slots.nonzero().flatten()
    return len(text), [*text, *images.roll(positions)]


def align(x: Tensor, orders: Sequence[Sequence[int]], dim: int = 0) -> Tensor:
    pairs = zip(x, orders, strict=True)  # of each row and its order
    return torch.stack([row.index_select(dim, torch.tensor(order)) for row, order in pairs])


@contextmanager
def watch(pipe, act: Callable[[LayerRun], object], *, alone: bool = False) -> Iterator[None]:
    """Call `act` after each attention to the text; also after those of the image `alone`.

    Each layer's own processor runs once more beside it. A layer that computed nothing, since a
    cache skipped it, is left out.
    """
    model, tokens, passes, computed = denoiser(pipe), [0], [-1], set()
    image = [None]  # the number of the image's positions, where reference images may follow
    is_joint, is_apart = isinstance(model, JOINT), isinstance(model, APART)
    sequence, spread = [], []  # of the text, the image and reference images
    single = ("single_", "layers.", *["transformer_blocks"] * hasattr(model, "text_fusion"))

    def begin(_, args, kwargs):
        passes[0] += 1
        if is_joint:
            sequence[:] = row_orders(model, args, kwargs)
            text = None if sequence else kwargs["encoder_hidden_states"]
            tokens[0] = max(sequence[0]) if sequence else text.shape[1] + registers(model)
            image[0] = own_positions(kwargs)
        if is_apart:
            tokens[0], spread[:] = spread_text(kwargs["img_mask"][0], image[0])

    @torch.no_grad()
    def after(name, layer, args, kwargs, output):
        if layer not in computed:
            return
        text = kwargs.get("encoder_hidden_states", args[1] if len(args) > 1 else None)
        text = None if text is kwargs.get("hidden_states") else text  # Lumina 2 gives both twice
        is_single = is_apart or (is_joint and name.startswith(single))
        count = tokens[0] if is_single or (is_joint and text is not None) else 0
        if text is None and not is_single and not alone:
            computed.discard(layer)
            return
        processor = _plain(layer)
        taken = inspect.signature(processor.__call__).parameters
        given = {key: value for key, value in kwargs.items() if key in taken}
        if "freqs_cis" in taken:  # ERNIE-Image's, by another name than its layer's
            given.setdefault("freqs_cis", kwargs.get("image_rotary_emb"))
        with Kernel(is_apart) as call:
            plain = processor(layer, *args, **given)
        gate = layer.to_gate(args[0]).sigmoid()[:, count:] if hasattr(layer, "to_gate") else 1.0
        computed.discard(layer)
        if call.given is None:  # linear attention
            return
        query, key, value = (call.given[part].double() for part in PARTS[:3])
        mask, others, text_query = call.mask, query[:, :, :0], query[:, :, :0]
        lengths, positions, orders = sequence if count and sequence else ((), image[0], [])
        if orders:
            query, key, value = (align(part, orders, 1) for part in (query, key, value))
            mask = mask if mask is None else align(mask, orders, 2)
        if is_apart:
            key, value = key[:, :, spread], value[:, :, spread]
            mask = mask if mask is None else mask[..., spread]
        elif count:
            last = isinstance(model, SD3Transformer2DModel)  # there the text follows the image
            order = torch.arange(key.shape[2]).roll(count if last else 0)
            own = order[count:][:positions]
            others, text_query = query[:, :, order[count + len(own) :]], query[:, :, order[:count]]
            key, value, query = key[:, :, order], value[:, :, order], query[:, :, own]
            if mask is not None:
                mask = mask[..., order]
                mask = mask[..., own, :] if mask.shape[-2] > 1 else mask

        def parts(output):
            if is_apart:
                return output[:, -query.shape[2] :], None
            if is_single:
                output = align(output, orders) if orders else output
                output = output[:, count:], output[:, :count]
            if not isinstance(output, tuple):
                return output, None
            first, text = output
            size = first.shape[1] if positions is None else positions
            return first[:, :size], torch.cat([text, first[:, size:]], dim=1)

        act(
            LayerRun(
                name=name,
                number=passes[0],
                layer=layer,
                tokens=count or (0 if text is None else key.shape[2]),
                query=query,
                key=key,
                value=value,
                mask=mask,
                lengths=lengths,
                output=parts(output),
                plain=parts(plain),
                others=others,
                text=text_query,
                gate=gate,
            )
        )

    handles = [model.register_forward_pre_hook(begin, with_kwargs=True)]
    for name, layer in model.named_modules():
        if not hasattr(layer, "processor") or any(
            part in name for part in (".fuser.", "text_fusion", "context")
        ):
            continue
        hook = partial(after, name)
        handles.append(layer.register_forward_hook(hook, with_kwargs=True))
        for part in layer.modules():
            if isinstance(part, nn.Linear):
                mark = lambda *_, layer=layer: computed.add(layer)  # noqa: E731
                handles.append(part.register_forward_hook(mark))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def own_positions(given) -> int | None:
    """The number of positions of the image that is drawn, by the arguments of a pass; None: all."""
    if given.get("img_ids") is not None:
        places = given["img_ids"]
        numbers = (places[0] if places.ndim == 3 else places)[:, 0]
        return int((numbers == numbers.min()).sum())
    if given.get("img_shapes") is not None:
        shapes = given["img_shapes"][0]
        _, h, w = shapes if isinstance(shapes, tuple) else shapes[-1 if "img_mask" in given else 0]
        return h * w
    return None


class Shares(dict[str, list[np.ndarray]]):
    """By layer, P (B, H, Q, K) of the text's tokens in each pass.

    `near` is what float32 allows of them, and `passes` are the numbers of their passes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.near: dict[str, float] = {}
        self.passes: dict[str, list[int]] = {}

    def add(self, run: LayerRun) -> None:
        p = run.attention()[..., : run.tokens]
        for row, length in zip(p, run.lengths, strict=False):
            row[..., length:] /= 0.0  # no token of the row: NaN, since it must have 0
        self.setdefault(run.name, []).append(p.numpy())
        self.passes.setdefault(run.name, []).append(run.number)
        self.near[run.name] = max(run.near, self.near.get(run.name, 0.0))


@contextmanager
def reference(pipe) -> Iterator[Shares]:
    """Beside a run: the probabilities of the text's tokens in float64."""
    shares = Shares()
    with watch(pipe, shares.add):
        yield shares


# --- runs held against a rule -------------------------------------------------------------------

K = 77
STEPS = 5
SIZE = (128, 128)
# "a red house" by the letters' tokenizers: start and a (T5 reads a as two tokens, and no start),
# r, e, d, house, end, and padding.
RED, HOUSE, TAIL = [2, 3, 4], [5], list(range(6, K))


def load_random(kind, processor):
    """A pipeline of random weights with these processors, drawn at SIZE unless told otherwise."""
    made = random_pipeline() if kind == "unet" else random_pixart(sample_size=16)
    made.scheduler = DDIMScheduler.from_config(made.scheduler.config)
    denoiser(made).set_attn_processor(processor())
    return made


def reads(pipe):
    """The arguments with which a pipeline reads K tokens."""
    return {"max_sequence_length": K} if hasattr(pipe, "transformer") else {}


def first(pipe):
    """The tokens of the first word, where that is "a"."""
    return [0, 1] if hasattr(pipe, "transformer") else [1]


def weighed(p, weights):
    """E ⊙ P."""
    every = torch.ones(K, dtype=p.dtype)
    for tokens, weight in weights:
        every[tokens] *= weight
    return p * every


def normal(p):
    """Rows divided by the sum of their magnitudes."""
    return p / p.abs().sum(-1, keepdim=True)


def generated(pipe, edits, rule, prompt="a red house", steps=2, **arguments):
    with compare_layers(pipe, steps, lambda here: [rule(here)]) as held:
        arguments = reads(pipe) | arguments
        run = hm.generate(pipe, prompt, seed=1, steps=steps, edits=edits, **arguments)
    return run, held


def columns(*pairs):
    """M (K, K) of pairs (source tokens, target tokens): each of the one, shared by the other."""
    matrix = torch.zeros(K, K, dtype=torch.float64)
    for here, there in pairs:
        for w in here:
            matrix[w, there] = 1 / len(there)
    return matrix


def in_order(here, there):
    """Token to token, the surplus to the last."""
    return [([w], [there[min(n, len(there) - 1)]]) for n, w in enumerate(here)]


SWAP = columns(  # "a red house" -> "a blue house": three tokens to four
    ([0], [0]),
    ([1], [1]),
    (RED, [2, 3, 4, 5]),
    (HOUSE, [6]),
    ([6], [7]),
    *in_order(range(7, K), range(8, K)),
)


def edited(pipe, source, target, rule, steps=STEPS, sharing=None, **arguments):
    """Hold an edit against a rule from (place, P of the source, P of the target) to P'."""

    def both(here):
        found = rule(here, *here.p)
        return found if isinstance(found, tuple) else (here.p[0], found)

    with compare_layers(
        pipe, steps, both, sharing or (lambda step, cells: [0, 1]), images=2
    ) as held:
        arguments = {"self_replace": 0, "seed": 7, "steps": steps, **reads(pipe)} | arguments
        pair = hm.edit(pipe, source, target, **arguments)
    return pair, held


def injected(here, source, own, matrix, window, tokens=None):
    """α ⊙ (P_src M) + (1 − α) ⊙ P, with α 1 for these tokens while the window holds."""
    alpha = torch.zeros(K, dtype=torch.float64)
    alpha[list(range(K)) if tokens is None else tokens] = float(acts(window, here.step, here.steps))
    return alpha * (source @ matrix) + (1 - alpha) * own


def held_maps(recordings, held):
    """The recorded maps are what acted."""
    for image, recording in enumerate(recordings):
        for layer, array in zip(recording.layers, recording.arrays, strict=True):
            for step, found in enumerate(array):
                expected = held.edited[layer.name, step][image][..., recording.positions]
                assert_probabilities(found, expected, held.near[layer.name, step], layer.name)


# --- maps that self-attention carries on -------------------------------------------------------


def propagated_maps(held, image, passes, grid=None):
    """The mean of P and what the mean self-attention makes of it, each (h, w, K).

    passes: of each pass its share of its step, and whether maps are carried on in it. The grid is
    the coarsest of the self-attentions of 16 to 48 cells, or else the finest.
    """
    own = {here for name, number, here in held.order if (name, number) in held.among}
    middle = [here for here in own if 16 <= min(here) <= 48]
    grid = grid or (min(middle) if middle else max(own))
    total, weight = 0, 0
    among, late = 0, 0
    for name, number, here in held.order:
        if number >= len(passes):
            break
        share, is_late = passes[number]
        if (name, number) in held.edited:
            plane = held.edited[name, number][image].mean(0).T.reshape(1, -1, *here)
            plane = torch.nn.functional.interpolate(
                plane, size=grid, mode="bilinear", antialias=True
            )
            total = total + share * plane[0].flatten(1).T
            weight += share
        elif is_late and here == grid:
            square = held.among[name, number][image] ** 2
            among = among + share * (square / square.sum(-1, keepdim=True)).mean(0)
            late += share
    plain = total / weight
    refined = among / late @ plain if late else plain
    return plain.reshape(*grid, -1), refined.reshape(*grid, -1)


# --- concepts of joint attention ---


@contextmanager
def block_calls(pipe):
    """The name, the pass and the arguments of each block, and the text states of each pass."""
    calls, texts, handles, sequence = [], [], [], []

    def begin(model, args, kwargs):
        states = kwargs.get("encoder_hidden_states")
        texts.append(None if states is None else pad(states, (0, 0, registers(model), 0)))
        sequence[:] = row_orders(model, args, kwargs)

    def keep(block, args, kwargs, name):
        given = inspect.signature(block.forward).bind(*args, **kwargs).arguments
        if "rotary_pos_emb" in given:
            given = rows_first(**given)
        for part in [*given][:3] if sequence else ():  # states, mask and rotations
            given[part] = given[part] if given[part] is None else align(given[part], sequence[2])
        if name == refined:  # before which the text is refined
            count = max(sequence[0]) if sequence else texts[-1].shape[1]
            texts[-1] = next(iter(given.values()))[:, :count]
        calls.append((name, len(texts) - 1, dict(given)))

    model = denoiser(pipe)
    refined = "transformer_blocks.0" if hasattr(model, "text_fusion") else "layers.0"
    handles.append(model.register_forward_pre_hook(begin, with_kwargs=True))
    for name, block in model.named_modules():
        if re.fullmatch(r"((single_|joint_)?transformer_blocks|layers)\.\d+", name):
            hook = partial(keep, name=name)
            handles.append(block.register_forward_pre_hook(hook, with_kwargs=True))
    try:
        yield calls, texts
    finally:
        for handle in handles:
            handle.remove()


def rows_first(x, rotary_pos_emb, temb, attention_mask):
    """The arguments of a block of ERNIE-Image, whose rows are the second axis."""
    temb = torch.stack([one[0] for one in temb], dim=1)
    states = {"x": x.transpose(0, 1), "attention_mask": attention_mask[:, 0, 0]}
    return states | {"rotary_pos_emb": rotary_pos_emb, "temb": temb}


def run_block(block, given):
    if "rotary_pos_emb" not in given:
        return block(**given)
    changed = {"x": given["x"].transpose(0, 1), "temb": given["temb"].unbind(1)}
    return block(**given | changed).transpose(0, 1)


def project(double, states):
    """The text states as the first block is given them."""
    if isinstance(double, (*SEQUENCES, Krea2Transformer2DModel)):
        return states
    if isinstance(double, APART):
        return double.txt_in(states)
    if hasattr(double, "txt_in"):
        return double.txt_in(double.txt_norm(states))
    if hasattr(double, "context_embedder_norm"):
        states = double.context_embedder_norm(states)
    if hasattr(double, "context_embedder"):
        return double.context_embedder(states)
    return double.patch_embed.text_proj(states)


def row_in_float64(given, row):
    """One row of a block's arguments."""
    rows = len(next(iter(given.values())))

    def double(value):
        if isinstance(value, tuple):  # rotations, of no row
            return tuple(
                one.to(torch.cdouble if one.is_complex() else torch.double) for one in value
            )
        if not isinstance(value, torch.Tensor):
            return value
        value = value[[row]] if len(value) == rows else value
        return value.double() if value.is_floating_point() else value

    made = {name: double(value) for name, value in given.items()}
    if "modulation" in made:  # whose last row is of the text of all rows
        made["modulation"] = made["modulation"][[row, -1]]
    return made


def replace_text(given, concepts, tokens, family):
    """The arguments of a block with the concepts for its text of so many tokens."""
    given, count = dict(given), concepts.shape[1]
    names = list(given)
    if given.get("encoder_hidden_states") is None:
        given[names[0]] = torch.cat([concepts, given[names[0]][:, tokens:]], dim=1)
    else:
        given["encoder_hidden_states"] = concepts
    given |= {name: None for name in given if "mask" in name}
    if family == "qwen21":  # the text's tokens see those before them, by the masks of a prefill
        given |= {"hidden_states": concepts, "segments": [(0, count, True)]}
        given |= {"modulation": given["modulation"][-1:], "kv_cache_mode": None}
        given |= {"layer_cache": None, "key_valid": None}
        # At place 0, they are not rotated.
        return given | {"rotary_emb": torch.ones_like(given["rotary_emb"][:1])}
    if "joint_attention_kwargs" in given:
        given["joint_attention_kwargs"] = {}
    if family == "qwen":
        image, text = given["image_rotary_emb"]
        given["image_rotary_emb"] = image, text[:1].repeat(count, 1)
    elif family in ("zimage", "lumina2", "ernie"):
        places = given[names[2]]
        given[names[2]] = torch.cat([*[places[:, :1]] * count, places[:, tokens:]], dim=1)
    elif "image_rotary_emb" in given and family != "cogview4":
        given["image_rotary_emb"] = tuple(
            torch.cat([one[:1].repeat(count, 1), one[tokens:]]) for one in given["image_rotary_emb"]
        )
    return given


@torch.no_grad()
def joint_concepts(pipe, family, calls, texts, states, places, row, positions):
    """By layer the shares of concepts (S, H, Q, C) and the similarities of outputs (S, 1, Q, C).

    The blocks of a float64 copy run on the image's states of the call, with its text and with the
    concepts' own, whose states are (1, K, C) and whose places are those among them. The image has
    so many positions.
    """
    double, shares, alike = deepcopy(denoiser(pipe)).double(), defaultdict(list), defaultdict(list)
    for part in double.modules():
        if isinstance(part, Krea2RMSNorm):  # it computes in float32
            part.float()
    concepts, last = None, None
    for name, number, given in calls:
        if number != last:
            concepts, last = project(double, states.double()), number
        tokens, count = texts[number].shape[1], concepts.shape[1]
        given = row_in_float64(given, row)
        with Kernel(isinstance(double, APART)) as prompt:
            run_block(double.get_submodule(name), given)
        with Kernel() as own:
            replaced = replace_text(given, concepts, tokens, family)
            after = run_block(double.get_submodule(name), replaced)
        if isinstance(after, torch.Tensor):
            concepts = after[:, :count]
        else:
            concepts = after[1] if family == "cogview4" else after[0]
        image, theirs = slice(tokens, tokens + positions), slice(count)
        if family in ("sd3", "sd35"):  # the text follows the image
            image, theirs = slice(-tokens), slice(-count, None)
        if isinstance(double, APART):
            image = slice(positions)
        query, key = prompt.given["query"][:, :, image], prompt.given["key"]
        both = torch.cat([key, own.given["key"][:, :, theirs]], dim=2)
        scores = query @ both.mT * query.shape[-1] ** -0.5
        if prompt.mask is not None:
            mask = prompt.mask.expand(-1, -1, key.shape[2], -1)
            scores[..., : key.shape[2]] += mask[:, :, image]
        p = scores.softmax(-1)[0, :, :, key.shape[2] :]
        names = {"cogview4": "attn1", "zimage": "attention", "ernie": "self_attention"}
        layer = f"{name}.{names.get(family, 'attn')}"
        shares[layer].append(torch.stack([p[..., one].sum(-1) for one in places], dim=-1))
        image = prompt.given["output"][0, :, image].transpose(0, 1).flatten(1)
        text = own.given["output"][0, :, theirs].transpose(0, 1).flatten(1)
        means = torch.stack([text[one].mean(0) for one in places], dim=-1)
        alike[layer].append((image @ means).softmax(-1)[None])
    return [{name: torch.stack(one) for name, one in of.items()} for of in (shares, alike)]
