"""Families whose text and image share one softmax: their calls, and their layers from outside."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from diffusers.models.attention_processor import Attention
from diffusers.models.transformers.transformer_flux import FluxAttention
from torch import Tensor, nn
from torch.nn.functional import linear

from families.checking import denoiser, joint_attention

SHORT = {"max_sequence_length": 12}
NAMES = ("sd3", "sd35", "flux", "schnell", "chroma", "klein", "dev2", "qwen", "cogview4")
UNGUIDED = {"guidance_scale": 1.0}
# What each is asked for: no guidance, and room for its template.
ROOM = dict.fromkeys(NAMES, 12) | {"cogview4": 16, "klein": 24, "dev2": 230}
PLAIN = dict.fromkeys(("sd3", "sd35", "chroma", "klein", "cogview4"), UNGUIDED)
PROMPTS = ["a red house", "at"]
_TEXTS = {"negative_prompt": ["at night", "a"]}
NEGATIVE = {  # what makes each run a negative prompt, in a pass of its own
    "flux": {**_TEXTS, "true_cfg_scale": 3.0},
    "chroma": {**_TEXTS, "guidance_scale": 3.0},
    "klein": {"guidance_scale": 3.0},
    "qwen": {**_TEXTS, "true_cfg_scale": 3.0},
    "cogview4": {**_TEXTS, "guidance_scale": 3.0},
}


def asked(family: str, **more) -> dict:
    return {"max_sequence_length": ROOM[family], **PLAIN.get(family, {}), **more}


@dataclass
class Ran:
    """A layer that has just run in the pass of this number; its output for image and text."""

    name: str
    layer: nn.Module
    step: int
    image: Tensor
    text: Tensor  # (B, 0, C) where the image attends to itself alone
    places: Sequence[Tensor]
    output: tuple[Tensor, Tensor]
    original: Callable[[], tuple[Tensor, Tensor]]  # the output of diffusers' own processor

    def attention(self, sources: Sequence[int] | None = None) -> tuple[Tensor, Tensor, float]:
        """P (B, H, Q, K + N), the values and what float32 allows, by `joint_attention`."""
        return joint_attention(self.layer, self.image, self.text, self.places, sources)

    def assert_output(self, heads: Tensor, tolerance: float) -> None:
        """Hold the image's output in the last rows against P V of these, (B', H, Q, d)."""
        expected = heads.transpose(1, 2).flatten(2)
        if hasattr(self.layer, "to_out"):  # a single block of Flux has none
            out = self.layer.to_out[0]
            expected = linear(expected, out.weight.double(), out.bias.double())
        near = tolerance * float(expected.abs().max())
        found = self.output[0][-len(heads) :].double()
        torch.testing.assert_close(found, expected, rtol=0, atol=near)


@contextmanager
def watched(pipe, tell: Callable[[Ran], object], *, alone: bool = False) -> Iterator[None]:
    """Tell of each joint layer of SD 3 or Flux that has run; also of the image `alone`."""
    places: dict[str, Tensor] = {}
    passes: list[int] = []

    def before(model, args, kwargs):
        passes.append(1)
        places.update({n: one for n, one in kwargs.items() if n in ("txt_ids", "img_ids")})

    @torch.no_grad()
    def after(name, layer, args, kwargs, output):
        image = kwargs.get("hidden_states", args[0] if args else None)
        text, each = kwargs.get("encoder_hidden_states"), [*places.values()]
        is_alone = isinstance(layer, Attention) and layer.added_kv_proj_dim is None
        count = 0 if is_alone else len(each[0]) if text is None else None

        def parts(output):
            return output if count is None else (output[:, count:], output[:, :count])

        if is_alone and not alone:  # the second attention of SD 3.5
            return
        if count is not None:  # a single block of Flux has joined them
            text, image = image[:, :count], image[:, count:]
        original = lambda: parts(layer.processor.original(layer, *args, **kwargs))  # noqa: E731
        tell(Ran(name, layer, len(passes) - 1, image, text, each, parts(output), original))

    handles = [denoiser(pipe).register_forward_pre_hook(before, with_kwargs=True)]
    for name, layer in denoiser(pipe).named_modules():
        if isinstance(layer, Attention | FluxAttention):
            hook = partial(after, name)
            handles.append(layer.register_forward_hook(hook, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
