"""Of what a pipeline is made: its parts and their configurations, and what was attached to them."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from heedmap.wiring.family import as_written
from heedmap.wiring.prompt_tables import encoders
from heedmap.wiring.registry import processors

_USUAL_ATTENTION = "AttnProcessor2_0"
_COMMIT = re.compile(r"snapshots[\\/]([0-9a-f]{40})(?:[\\/]|$)")


def parts_of(pipe: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a pipeline that are there, but for its schedulers; a compiled one as it was."""
    for name, kind in getattr(pipe, "config", {}).items():
        part = getattr(pipe, name, None) if isinstance(kind, list | tuple) else None
        if part is not None and not name.endswith("scheduler"):
            yield name, as_written(part)
    if getattr(pipe, "watermark", None) is not None:
        yield "watermark", pipe.watermark


def device_of(pipe: Any) -> torch.device:
    """Where a pipeline computes; one whose parts wait on the CPU does so elsewhere."""
    return torch.device(getattr(pipe, "_execution_device", pipe.device))


@contextmanager
def left_early(pipe: Any) -> Iterator[None]:
    """Do what a pipeline does itself at the end of a call, where the block leaves it before that.

    Parts that wait on the CPU go back there, and attention processors that a guidance of its own
    put in place for the call (perturbed-attention guidance does) are taken off.
    """
    parts = [part for _, part in parts_of(pipe) if isinstance(part, torch.nn.Module)]
    found: list[Any] = [module for part in parts for module in part.modules()]
    before = [(layer, layer.processor) for layer in found if hasattr(layer, "set_processor")]
    try:
        yield
    except BaseException:
        for layer, processor in before:
            if layer.processor is not processor:
                layer.set_processor(processor)
        free = getattr(pipe, "maybe_free_model_hooks", None)
        if free is not None:
            free()
        raise


def configuration(part: Any) -> dict[str, Any] | None:
    """With what a part was made, but for where it came from; None if it does not say."""
    config = getattr(part, "config", None)
    to_dict = getattr(config, "to_dict", None)
    entries = to_dict() if callable(to_dict) else config
    if not isinstance(entries, Mapping):
        return None
    return {str(key): value for key, value in entries.items() if not str(key).startswith("_")}


def told(pipe: Any) -> dict[str, Any]:
    """What a pipeline was told when it was made, and the layers that its guidance perturbs."""
    config = configuration(pipe) or {}
    plain = {key: value for key, value in config.items() if not isinstance(value, list | tuple)}
    layers = getattr(pipe, "pag_applied_layers", None)
    return plain if layers is None else {**plain, "pag_applied_layers": layers}


def manner(part: Any) -> list[str]:
    """How a part computes where it is not as everybody's does, in a few words each."""
    said = [what for what in ("slicing", "tiling") if getattr(part, f"use_{what}", False)]
    if "tiling" in said:
        names = ("tile_sample_min_size", "tile_latent_min_size", "tile_overlap_factor")
        said += [f"{name}={getattr(part, name)}" for name in names if hasattr(part, name)]
    if hasattr(part, "model_max_length"):
        said.append(f"{part.model_max_length} tokens")
    if _is_channels_last(part):
        said.append("channels last")
    return said + _freed(part)


def _is_channels_last(part: Any) -> bool:
    """Whether a part's weights lie in the order that its convolutions compute in otherwise."""
    if not isinstance(part, torch.nn.Module):
        return False
    return any(
        weight.ndim == 4
        and not weight.is_contiguous()
        and weight.is_contiguous(memory_format=torch.channels_last)
        for weight in part.parameters()
    )


def _freed(part: Any) -> list[str]:
    """The strengths of FreeU where it is on."""
    for block in getattr(part, "up_blocks", None) or ():
        strengths = {key: getattr(block, key, None) for key in ("s1", "s2", "b1", "b2")}
        if any(value is not None for value in strengths.values()):
            return ["FreeU " + " ".join(f"{key}={value}" for key, value in strengths.items())]
    return []


def source_of(part: Any) -> str:
    """What a part was loaded from; empty if it does not say."""
    config = getattr(part, "config", None)
    found = getattr(config, "_name_or_path", None) or getattr(part, "name_or_path", None)
    return found if isinstance(found, str) else ""


def commit_of(pipe: Any) -> str | None:
    """The commit of the hub that a pipeline's parts were loaded from; None if unknown."""
    for _, part in parts_of(pipe):
        commit = getattr(getattr(part, "config", None), "_commit_hash", None)
        if isinstance(commit, str):
            return commit
        path = _COMMIT.search(source_of(part))
        if path:
            return path[1]
    return None


def unusual_attention(pipe: Any) -> tuple[str, ...]:
    """The classes of the model's attention processors, where they are not diffusers' usual ones."""
    kinds = {type(processor).__name__ for processor in processors(pipe).values()}
    return () if kinds <= {_USUAL_ATTENTION} else tuple(sorted(kinds))


# --- what was attached ------------------------------------------------------------------------


def loras(pipe: Any) -> list[tuple[dict[str, Any], dict[str, torch.Tensor]]]:
    """The LoRAs of each part: what is told of them, scales layer by layer, and their matrices."""
    return [
        _lora(name, part, adapter, config)
        for name, part in parts_of(pipe)
        for adapter, config in (getattr(part, "peft_config", None) or {}).items()
    ]


def fused_names(pipe: Any) -> set[str]:
    """The LoRAs that were fused into the weights, by name; unloaded ones act on."""
    return {str(adapter) for adapter in getattr(pipe, "fused_loras", ())}


def _lora(name: str, part: Any, adapter: str, config: Any) -> Any:
    weights: dict[str, torch.Tensor] = {}
    scales, fused, active = [], False, False
    for path, module in part.named_modules():
        scaling = getattr(module, "scaling", None)
        if not isinstance(scaling, dict) or adapter not in scaling:
            continue
        scales.append(float(scaling[adapter]))
        fused |= adapter in getattr(module, "merged_adapters", ())
        on = not getattr(module, "disable_adapters", False)
        active |= on and adapter in getattr(module, "active_adapters", ())
        for letter in ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B"):
            held = getattr(module, letter, None) or {}
            if adapter in held:
                weights[f"{path}.{letter}"] = getattr(held[adapter], "weight", held[adapter])
    told_of = {
        "name": str(adapter),
        "part": name,
        "from": getattr(config, "base_model_name_or_path", None) or None,
        "rank": getattr(config, "r", None),
        "scale": scales,
        "active": active,
        "fused": fused,
    }
    return told_of, weights


def image_prompts(pipe: Any) -> list[tuple[Any, Any]]:
    """The IP-Adapters of each layer that has some: how many tokens each has, and at which scale."""
    held = processors(pipe).values()
    return [
        (p.num_tokens, p.scale) for p in held if hasattr(p, "num_tokens") and hasattr(p, "scale")
    ]


def added_words(pipe: Any) -> dict[str, dict[str, torch.Tensor]]:
    """The vectors of textual inversions, by the tokenizer's name and the word."""
    found = {name: _inversions(*pair) for name, pair in encoders(pipe).items()}
    return {name: words for name, words in found.items() if words}


def _inversions(tokenizer: Any, encoder: Any) -> dict[str, torch.Tensor]:
    if not hasattr(tokenizer, "get_added_vocab"):
        return {}
    special = set(getattr(tokenizer, "all_special_tokens", ()))
    added = {w: n for w, n in tokenizer.get_added_vocab().items() if w not in special}
    vectors: Any = encoder.get_input_embeddings().weight if added else ()
    return {word: vectors[n] for word, n in added.items() if n < len(vectors)}
