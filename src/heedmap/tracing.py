"""The one module that touches diffusers' attention: install, record, restore.

A trace puts a processor of its own in front of the processor of every text cross-attention layer.
It calls the original, so the picture is the original's to the bit, and reads the queries and keys
that the original computes (through hooks on the projections), from which the probabilities are
computed beside it. That serves every processor that projects with `to_q` and `to_k`, known or not.

Which tokens a map belongs to is taken from the pipeline's own `encode_prompt`, and checked against
the token ids that the text encoder was given.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import wraps
from types import TracebackType
from typing import Any, Literal

import torch
from diffusers import DiffusionPipeline, UNet2DConditionModel
from diffusers.models.attention_processor import Attention
from torch.nn.functional import interpolate

from heedmap import attention
from heedmap.errors import ArgumentError, ModelError, NothingRecordedError, TraceError
from heedmap.maps import AXES, Axis, HeatMaps, Layer, Recording
from heedmap.words import TokenTable, tokenize

Tokens = Literal["prompt", "all"]


def cross_attention_layers(pipe: DiffusionPipeline) -> dict[str, Attention]:
    """The text cross-attention layers of a pipeline's UNet, by dotted path, as they are run.

    Raises:
        ModelError: if the pipeline has no UNet with text cross-attention.
    """
    unet: Any = getattr(pipe, "unet", None)
    layers = {}
    if isinstance(unet, UNet2DConditionModel):
        found = [
            (name, module)
            for name, module in unet.named_modules()
            if isinstance(module, Attention) and module.is_cross_attention
        ]
        # The UNet registers its middle last; within a stage the order is that of the forward pass.
        stages = ("down_blocks", "mid_block", "up_blocks")
        layers = dict(sorted(found, key=lambda item: stages.index(item[0].partition(".")[0])))
    if not layers:
        raise ModelError(
            f"{type(pipe).__name__} has no UNet with text cross-attention: expected a Stable "
            "Diffusion pipeline (1.x and its relatives); transformers such as SD 3 or Flux are not "
            "supported"
        )
    return layers


def trace(
    pipe: DiffusionPipeline, keep: Iterable[Axis] = ("layer",), *, tokens: Tokens = "prompt"
) -> "Trace":
    """Record the text cross-attention of a pipeline while the `with` block is open.

        with heedmap.trace(pipe, keep={"layer", "step"}) as trace:
            images = pipe(["a cat", "a dog"]).images
        trace.maps[0]["cat"]

    The pictures are bit-identical to those of the bare pipeline, and the pipeline is as it was
    afterwards, whatever happened inside.

    Args:
        pipe: a Stable Diffusion pipeline.
        keep: the axes to keep, of "layer", "step", "head"; the others are averaged while it runs.
        tokens: "prompt" for the prompt's own tokens with start and end, "all" for the padding too.

    Raises:
        ArgumentError: if an axis or the choice of tokens is not known.
        ModelError: if the model has no text cross-attention.
    """
    keep = frozenset(keep)
    if not keep <= set(AXES):
        raise ArgumentError(
            f"keep={sorted(keep)} is not known: expected any of 'layer', 'step', 'head'"
        )
    if tokens not in ("prompt", "all"):
        raise ArgumentError(f"tokens={tokens!r} is not known: expected 'prompt' or 'all'")
    return Trace(pipe, keep, tokens)


@dataclass
class _Call:
    """What one call of the pipeline has left so far."""

    tables: tuple[TokenTable, ...]  # one an image
    positions: tuple[tuple[int, ...], ...]  # the K axis of each image
    order: int  # calls of the UNet in a step of the scheduler
    branches: int = 0
    latent: tuple[int, int] = (0, 0)
    passes: int = 0
    timesteps: list[float] = field(default_factory=list)
    # By image, layer and step ("" and 0 where those axes are averaged): sum and number of maps.
    sums: dict[tuple[int, str, int], torch.Tensor] = field(default_factory=dict)
    counts: dict[tuple[int, str, int], int] = field(default_factory=dict)
    grids: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def step(self) -> int:
        return (self.passes - 1) // self.order


class Trace:
    """An open recording; made by `trace`. `maps` has one entry an image, in the order of images."""

    def __init__(self, pipe: DiffusionPipeline, keep: frozenset[Axis], tokens: Tokens) -> None:
        self._pipe = pipe
        self._keep = keep
        self._tokens: Tokens = tokens
        self._layers = cross_attention_layers(pipe)
        self._heads = {name: layer.heads for name, layer in self._layers.items()}
        self._calls: list[_Call] = []
        self._installed: dict[str, RecordingProcessor] = {}
        self._undo: list[Callable[[], None]] = []
        self._open = False

    # --- what was recorded ---

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """One recording an image, in the order of the images, over all calls so far."""
        done = [call for call in self._calls if call.passes]
        if not done:
            raise NothingRecordedError(
                "nothing was recorded: call the pipeline inside of the `with` block of the trace"
            )
        return tuple(
            self._recording(call, image) for call in done for image in range(len(call.tables))
        )

    @property
    def maps(self) -> tuple[HeatMaps, ...]:
        """The heat maps of each image, in the order of the images, over all calls so far."""
        return tuple(HeatMaps(recording) for recording in self.recordings)

    def _recording(self, call: _Call, image: int) -> Recording:
        names = list(call.grids) if "layer" in self._keep else [""]
        arrays = []
        steps = range(len(call.timesteps)) if "step" in self._keep else (0,)
        for name in names:
            keys = [(image, name, step) for step in steps]
            stacked = torch.stack([call.sums[key] / call.counts[key] for key in keys])
            arrays.append(stacked.cpu().numpy())
        layers = tuple(Layer(name, self._heads[name], call.grids[name]) for name in names if name)
        if not layers:
            layers = (Layer("mean", max(self._heads.values()), call.latent),)
        factor = int(getattr(self._pipe, "vae_scale_factor", 8))
        h, w = call.latent
        return Recording(
            layers, tuple(arrays), self._keep, tuple(call.timesteps), call.positions[image],
            call.tables[image], call.latent, (w * factor, h * factor),
        )  # fmt: skip

    # --- install and restore ---

    def __enter__(self) -> "Trace":
        if self._open:
            raise TraceError("this trace is open already: open it once, or make another")
        for name, layer in self._layers.items():
            if isinstance(layer.processor, RecordingProcessor):
                raise TraceError(
                    f"another trace is open on this UNet (at {name}): close it first, since two "
                    "recordings of one UNet would mix"
                )
        try:
            self._install()
        except BaseException:
            self._restore()
            raise
        self._open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._restore()

    def _install(self) -> None:
        for name, layer in self._layers.items():
            recorder: Any = RecordingProcessor(layer.processor, name, self._record)
            self._undo.append(_put_back(layer, layer.processor, recorder))
            layer.set_processor(recorder)
            self._installed[name] = recorder
        unet = self._pipe.unet
        handle = unet.register_forward_pre_hook(self._before_pass, with_kwargs=True)
        self._undo.append(handle.remove)
        self._undo.append(_replace_method(self._pipe, "encode_prompt", self._watch_encoding))

    def _restore(self) -> None:
        self._open = False
        self._installed.clear()
        first: BaseException | None = None
        while self._undo:
            try:
                self._undo.pop()()
            except BaseException as error:  # the rest must be undone all the same
                first = first or error
        if first is not None:
            raise first

    # --- while it runs ---

    def _watch_encoding(self, encode: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(encode)

        @wraps(encode)
        def watched(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind(*args, **kwargs).arguments
            read: list[torch.Tensor] = []

            def listen(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                read.append(args[0] if args else kwargs["input_ids"])

            encoder = getattr(self._pipe, "text_encoder")  # noqa: B009 - pyright does not know it
            handle = encoder.register_forward_pre_hook(listen, with_kwargs=True)
            try:
                result = encode(*args, **kwargs)
            finally:
                handle.remove()
            self._begin(given, read, images=result[0].shape[0])
            return result

        return watched

    def _begin(self, given: dict[str, Any], read: list[torch.Tensor], images: int) -> None:
        """A call of the pipeline begins: its prompts, as the text encoder read them."""
        prompt = given.get("prompt")
        if prompt is None or not read:
            raise TraceError(
                "the pipeline was given prompt_embeds, which do not tell the words: pass the "
                "prompt as text"
            )
        tokenizer = getattr(self._pipe, "tokenizer")  # noqa: B009
        prompts = [prompt] if isinstance(prompt, str) else list(prompt)
        if hasattr(self._pipe, "maybe_convert_prompt"):
            prompts = self._pipe.maybe_convert_prompt(prompts, tokenizer)
        tables = [tokenize(text, tokenizer) for text in prompts]
        for table, ids in zip(tables, read[0].tolist(), strict=True):
            if [token.id for token in table.tokens] != ids:
                raise TraceError(
                    f"the text encoder read other tokens than the prompt {table.prompt!r} has: "
                    "heedmap cannot label its maps; pass the prompt as plain text"
                )
        each = images // len(tables)
        per_image = tuple(table for table in tables for _ in range(each))
        kinds = (
            ("start", "text", "end", "pad") if self._tokens == "all" else ("start", "text", "end")
        )
        order = int(getattr(self._pipe.scheduler, "order", 1))
        self._calls.append(_Call(per_image, tuple(t.positions(*kinds) for t in per_image), order))

    def _before_pass(
        self, unet: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """The UNet is about to run: which step this is, and the latent's true size."""
        for name, recorder in self._installed.items():
            if self._layers[name].processor is not recorder:
                raise TraceError(
                    f"the attention processor of {name} was replaced while the trace was open "
                    "(attention slicing, fused projections, xformers and load_ip_adapter do that): "
                    "do it before the trace is opened"
                )
        if not self._calls:
            raise TraceError(
                "the UNet ran before the pipeline encoded a prompt: call the pipeline itself, with "
                "the prompt as text, inside of the trace"
            )
        call = self._calls[-1]
        sample = args[0] if args else kwargs["sample"]
        timestep = args[1] if len(args) > 1 else kwargs["timestep"]
        rows, latent = sample.shape[0], (sample.shape[-2], sample.shape[-1])
        images = len(call.tables)
        if rows not in (images, 2 * images):
            raise TraceError(
                f"the UNet was given {rows} latents for {images} images: expected one or two (with "
                "guidance) for each"
            )
        call.branches, call.latent = rows // images, latent
        call.passes += 1
        if call.step == len(call.timesteps):
            call.timesteps.append(float(torch.as_tensor(timestep).flatten()[0]))

    def _record(
        self,
        name: str,
        attn: Attention,
        query: torch.Tensor,
        key: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> None:
        """Take in one layer's queries (B, Q, H·d) and keys (B, K, H·d) of all branches."""
        call = self._calls[-1]
        images = len(call.tables)
        first = (call.branches - 1) * images  # the conditional branch comes last
        q = attention.split_heads(query[first:], attn.heads)
        k = attention.split_heads(key[first:], attn.heads)
        q = attn.norm_q(q) if attn.norm_q is not None else q
        k = attn.norm_k(k) if attn.norm_k is not None else k
        if mask is not None:
            rows = query.shape[0]
            bias: Any = attn.prepare_attention_mask(mask, key.shape[1], rows)
            mask = bias.view(rows, attn.heads, -1, bias.shape[-1])[first:]
        grid = attention.grid_of(query.shape[1], call.latent)
        call.grids[name] = grid
        for image in range(images):
            p = attention.probabilities(
                q[image], k[image], scale=attn.scale, mask=None if mask is None else mask[image]
            )[..., list(call.positions[image])]
            if "head" not in self._keep:
                p = p.mean(dim=0, keepdim=True)
            if "layer" not in self._keep:
                p = _regrid(p, grid, call.latent)
            slot = (
                image,
                name if "layer" in self._keep else "",
                call.step if "step" in self._keep else 0,
            )
            if slot in call.sums:
                if call.sums[slot].shape != p.shape:
                    raise ArgumentError(
                        "the layers have different numbers of heads: heads cannot be kept while "
                        "layers are averaged; keep 'layer' too"
                    )
                call.sums[slot] += p
                call.counts[slot] += 1
            else:
                call.sums[slot] = p
                call.counts[slot] = 1


class RecordingProcessor:
    """Calls the layer's own processor and hands its queries and keys on."""

    def __init__(self, original: Any, name: str, record: Callable[..., None]) -> None:
        self.original = original
        self.name = name
        self.record = record

        # `Attention.forward` reads the signature of `processor.__call__` to decide which keyword
        # arguments to pass on, so the instance shows that of the original.
        def call(*args: Any, **kwargs: Any) -> torch.Tensor:
            return type(self).__call__(self, *args, **kwargs)

        call.__signature__ = inspect.signature(original.__call__)
        self.__dict__["__call__"] = call

    def __call__(
        self,
        attn: Attention,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Run the original processor; its output is returned untouched."""
        seen: dict[str, torch.Tensor] = {}

        def listener(what: str) -> Callable[..., None]:
            def listen(module: torch.nn.Module, args: Any, output: torch.Tensor) -> None:
                seen.setdefault(what, output)

            return listen

        handles = [
            projection.register_forward_hook(listener(what))
            for what, projection in (("query", attn.to_q), ("key", attn.to_k))
            if projection is not None
        ]
        try:
            output = self.original(
                attn, hidden_states, encoder_hidden_states, attention_mask, *args, **kwargs
            )
        finally:
            for handle in handles:
                handle.remove()
        if set(seen) != {"query", "key"}:
            raise TraceError(
                f"{type(self.original).__name__} at {self.name} does not use the layer's own "
                "projections (fused projections?): call unfuse_qkv_projections() before the trace"
            )
        with torch.no_grad():
            self.record(
                self.name, attn, seen["query"].detach(), seen["key"].detach(), attention_mask
            )
        return output


def _put_back(layer: Attention, original: Any, ours: Any) -> Callable[[], None]:
    def undo() -> None:
        # A processor that the user set meanwhile is theirs to keep.
        if layer.processor is ours:
            layer.set_processor(original)

    return undo


def _replace_method(
    owner: Any, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Callable[[], None]:
    """Put a wrapped method on the instance; the result takes it off again."""
    before = vars(owner).get(name)
    vars(owner)[name] = wrap(getattr(owner, name))

    def undo() -> None:
        if before is None:
            vars(owner).pop(name, None)
        else:
            vars(owner)[name] = before

    return undo


def _regrid(p: torch.Tensor, grid: tuple[int, int], latent: tuple[int, int]) -> torch.Tensor:
    """(H, Q, K) from the layer's grid to the latent's, so that layers can be averaged."""
    if grid == latent:
        return p
    heads, _, k = p.shape
    planes = p.permute(0, 2, 1).reshape(heads, k, *grid)
    planes = interpolate(planes, size=latent, mode="bilinear", antialias=True)
    return planes.reshape(heads, k, -1).permute(0, 2, 1)
