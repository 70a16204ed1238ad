"""The processor that heedmap puts in front of a layer's own.

It runs the layer's own processor and takes the place of one thing within: the first attention that
is computed there, which is the text's (an IP-Adapter's come after it). So it serves every processor
that ends in `scaled_dot_product_attention` or in `Attention.get_attention_scores`, whatever happens
before and after: fused or adapted projections, slices, image prompts.
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from diffusers.models.attention_processor import Attention
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from heedmap import attention
from heedmap.attention import Scores
from heedmap.errors import TraceError

Record = Callable[[str, Scores], None]
F = TypeVar("F", bound=Callable[..., Any])


def uncompiled(function: F) -> F:
    """A function that `torch.compile` leaves as it is; what is around it is compiled."""
    return cast(F, torch.compiler.disable(function))


class RecordingProcessor:
    """Runs the layer's own processor and hands what its attention is made of to `record`.

    Args:
        original: the layer's processor.
        name: the layer's dotted path.
        record: called with the name and the scores of all rows of the batch.
    """

    def __init__(self, original: Any, name: str, record: Record) -> None:
        self.original = original
        self.name = name
        self.record = record

        # `Attention.forward` reads the signature of `processor.__call__` to decide which keyword
        # arguments to pass on, so the instance shows that of the original.
        def call(*args: Any, **kwargs: Any) -> torch.Tensor:
            return type(self).__call__(self, *args, **kwargs)

        call.__signature__ = inspect.signature(original.__call__)
        self.__dict__["__call__"] = call

    @uncompiled
    def __call__(
        self, attn: Attention, hidden_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        """Run the original processor; its output is returned untouched."""
        tap = _Tap(attn, rows=hidden_states.shape[0])
        with tap:
            output = self.original(attn, hidden_states, *args, **kwargs)
        scores = tap.scores()
        if scores is None:
            raise TraceError(
                f"{type(self.original).__name__} at {self.name} computes its attention where "
                "heedmap cannot see it (xformers?): call pipe.unet.set_default_attn_processor() "
                "before the trace"
            )
        with torch.no_grad():
            self.record(self.name, scores)
        return output


class _Tap(TorchFunctionMode):
    """Listens to the attention that is computed while it is open, in this thread alone."""

    def __init__(self, attn: Attention, rows: int) -> None:
        super().__init__()
        self.attn = attn
        self.rows = rows
        self.fused: Scores | None = None
        # What the classic computation was given, by slices of the B·H rows where it is sliced.
        self.classic: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]] = []

    def __enter__(self) -> "_Tap":
        original = self.attn.get_attention_scores

        def watched(
            query: torch.Tensor, key: torch.Tensor, attention_mask: torch.Tensor | None = None
        ) -> torch.Tensor:
            if sum(len(part) for part, _, _ in self.classic) < self.rows * self.attn.heads:
                self.classic.append((query.detach(), key.detach(), attention_mask))
            return original(query, key, attention_mask)

        vars(self.attn)["get_attention_scores"] = watched
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        vars(self.attn).pop("get_attention_scores", None)
        super().__exit__(*error)

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is not scaled_dot_product_attention or self.fused or self.classic:
            return func(*args, **kwargs)
        output, log_sum = attention.fused(*args, **kwargs)
        given = _SIGNATURE.bind(*args, **kwargs).arguments
        query, key = given["query"].detach(), given["key"].detach()
        scale = given.get("scale") or query.shape[-1] ** -0.5
        self.fused = Scores(query, key, scale, given.get("attn_mask"), log_sum)
        return output

    def scores(self) -> Scores | None:
        """What was heard, as (B, H, …); None if there was no attention."""
        if self.fused or not self.classic:
            return self.fused
        shape = (-1, self.attn.heads)
        query = torch.cat([part for part, _, _ in self.classic]).unflatten(0, shape)
        key = torch.cat([part for _, part, _ in self.classic]).unflatten(0, shape)
        masks = [part for _, _, part in self.classic if part is not None]
        mask = torch.cat(masks).unflatten(0, shape) if masks else None
        return Scores(query, key, self.attn.scale, mask)


_SIGNATURE = inspect.signature(attention.fused)
