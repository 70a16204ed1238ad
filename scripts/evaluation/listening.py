"""What `published` needs of a run, heard by hooks of its own: nothing of heedmap takes part.

A benchmark may keep what a library may not: here every head of every layer at every step is kept,
with whole matrices of self-attention.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isqrt
from typing import Any

import torch
from diffusers.models.attention_processor import Attention

CROSS, OWN = ".attn2", ".attn1"


@dataclass(frozen=True, eq=False)
class Block:
    """What one transformer block did at one step, for one picture; by the letters of `published`.

    Attributes:
        words: probabilities of the text's tokens, (H, Q, K).
        brought: what each head brought of them, A V W, (H, Q, C).
        queries: what asked the text, of all heads, (Q, C).
        own: probabilities of the picture's places, the mean over heads, (Q, Q).
        outputs: what they brought, (Q, C).
    """

    words: torch.Tensor
    brought: torch.Tensor
    queries: torch.Tensor
    own: torch.Tensor
    outputs: torch.Tensor

    @property
    def grid(self) -> tuple[int, int]:
        """(h, w); the pictures of the drawn world are square."""
        side = isqrt(len(self.own))
        return side, side


@dataclass(eq=False)
class Heard:
    """Steps in order, each the blocks by their dotted path, in the order in which they ran."""

    steps: list[dict[str, Block]] = field(default_factory=list)


@contextmanager
def listening(pipe: Any) -> Iterator[Heard]:
    """Hear all blocks of a UNet while a pipeline draws one picture, or is shown one.

    Of a guided batch it hears the last row, which reads the prompt.
    """
    heard, own = Heard(), dict[str, tuple[torch.Tensor, torch.Tensor]]()

    def begin(*_: Any) -> None:
        heard.steps.append({})

    def hear(name: str) -> Any:
        @torch.no_grad()
        def hook(layer: Attention, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            states = given[0][-1]
            text = named.get("encoder_hidden_states")
            p, brought, queries = attention(layer, states, states if text is None else text[-1])
            block = name.removesuffix(CROSS).removesuffix(OWN)
            if name.endswith(OWN):
                own[block] = p.mean(dim=0), brought.sum(dim=0)
            else:
                heard.steps[-1][block] = Block(p, brought, queries, *own.pop(block))

        return hook

    hooks = [pipe.unet.register_forward_pre_hook(begin)]
    hooks += [
        layer.register_forward_pre_hook(hear(name), with_kwargs=True)
        for name, layer in pipe.unet.named_modules()
        if isinstance(layer, Attention)
    ]
    try:
        yield heard
    finally:
        for hook in hooks:
            hook.remove()


def attention(
    layer: Any, states: torch.Tensor, read: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A layer's attention, by its definition.

    Args:
        layer: whose weights.
        states: (Q, C).
        read: (K, C'), the text; or the states themselves.

    Returns:
        probabilities (H, Q, K); what each head brings, (H, Q, C), whose sum and the layer's bias
        are its output; the queries (Q, C).
    """
    queries = layer.to_q(states)
    q, k, v = (
        x.unflatten(-1, (layer.heads, -1)).movedim(1, 0)
        for x in (queries, layer.to_k(read), layer.to_v(read))
    )
    p = (q @ k.mT * layer.scale).softmax(dim=-1)
    weight = layer.to_out[0].weight.T.unflatten(0, (layer.heads, -1))  # (H, d, C)
    return p, p @ v @ weight, queries
