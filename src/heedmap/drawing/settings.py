"""What decides a picture besides its prompt and seed, noted as it was before the run.

A run's settings say what was asked for, not what came out: with a strength, an end before the end,
or an interrupt, fewer steps are run than were asked for, and only those asked for draw the picture
again.
"""

import hashlib
import inspect
import json
import platform
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

import torch

from heedmap.drawing.pipeline_arguments import noted_argument
from heedmap.files.settings import Scheduler, Versions
from heedmap.models import pipelines
from heedmap.tiny import card
from heedmap.wiring.family import default_of
from heedmap.wiring.registry import processors

SCHEDULERS = ("scheduler", "low_res_scheduler")
"""What they are called in a pipeline."""
_PLAIN_ATTENTION = "AttnProcessor2_0"
_COMMIT = re.compile(r"snapshots[\\/]([0-9a-f]{40})(?:[\\/]|$)")


def asked(
    pipe: Any, name: str, given: Any, arguments: Mapping[str, Any] | None = None
) -> tuple[Any, str | None]:
    """What was asked for of "steps" or "guidance", and whose default it is where nothing was.

    Args:
        pipe: a pipeline.
        name: "steps" or "guidance".
        given: by the user; None for nothing.
        arguments: others of the pipeline, of which "timesteps" and "sigmas" are steps too.

    Returns:
        The value, None where the pipeline does not say, and "card" (of the embedded model),
        "pipeline", the argument that says it, or None, where the user said it.
    """
    for argument in ("timesteps", "sigmas") if name == "steps" else ():
        listed = (arguments or {}).get(argument)
        if listed is not None and hasattr(listed, "__len__"):
            return len(listed), argument
    if given is not None:
        return noted_argument(given), None
    if pipelines.is_embedded(pipe):
        return getattr(card.defaults(), name), "card"
    argument = {"steps": "num_inference_steps", "guidance": "guidance_scale"}[name]
    found = default_of(pipe, argument)
    return (found, "pipeline") if isinstance(found, int | float) else (None, "pipeline")


def parameters(pipe: Any) -> Mapping[str, inspect.Parameter]:
    """The arguments that a pipeline takes, by name."""
    return inspect.signature(type(pipe).__call__).parameters


def describe(pipe: Any) -> dict[str, Any]:
    """What a pipeline is and what it runs on: all settings but what it is called with.

    Model with revision, class, scheduler with its whole configuration, the class of each part,
    LoRAs with weights and scales, adapters, attention processors that are not diffusers' usual
    ones, precision, device, threads, versions.
    """
    # A pipeline whose parts wait on the CPU computes elsewhere.
    device = torch.device(getattr(pipe, "_execution_device", pipe.device))
    found = {name: scheduler_of(pipe, name) for name in SCHEDULERS}
    return {
        "model": pipelines.name_of(pipe),
        "revision": _revision(pipe),
        "pipeline": type(pipe).__name__,
        "scheduler": type(getattr(pipe, "scheduler", None)).__name__,
        "schedulers": {name: about for name, about in found.items() if about is not None},
        "parts": {name: _part(pipe, name, part) for name, part in _parts(pipe)},
        "configs": {name: digest for name, part in _parts(pipe) if (digest := _config(part))},
        "options": _options(pipe),
        "attention": _attention(pipe),
        "loras": _loras(pipe),
        "adapters": _adapters(pipe),
        "device": device.type,
        "hardware": _hardware(device),
        "dtype": _dtype(pipe.dtype),
        "threads": torch.get_num_threads(),
        "versions": _versions(),
    }


@cache
def _versions() -> Versions:
    return Versions(
        heedmap=version("heedmap"),
        torch=version("torch"),
        diffusers=version("diffusers"),
        transformers=version("transformers"),
        python=platform.python_version(),
    )


def scheduler_of(pipe: Any, name: str) -> Scheduler | None:
    """A scheduler's class and its whole configuration; None if the pipeline has none."""
    scheduler = getattr(pipe, name, None)
    if scheduler is None:
        return None
    config = getattr(scheduler, "config", {})
    return Scheduler(
        kind=type(scheduler).__name__,
        config={
            key: noted_argument(value) for key, value in config.items() if not key.startswith("_")
        },
    )


def differences(noted: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What is not as it was noted, by its dotted name: (noted, now); None where it is not there."""
    found: dict[str, tuple[Any, Any]] = {}
    for key in dict.fromkeys([*now, *noted]):
        before, after = noted.get(key), now.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            inner = differences(before, after)
            found |= {f"{key}.{name}": pair for name, pair in inner.items()}
        elif before != after:
            found[key] = before, after
    return found


# --- of what a pipeline is made ---------------------------------------------------------------


def _parts(pipe: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a pipeline that are there, but for its schedulers; a compiled one as it was."""
    for name, kind in getattr(pipe, "config", {}).items():
        part = getattr(pipe, name, None) if isinstance(kind, list | tuple) else None
        if part is not None and not name.endswith("scheduler"):
            yield name, getattr(part, "_orig_mod", part)
    if getattr(pipe, "watermark", None) is not None:
        yield "watermark", pipe.watermark


def _part(pipe: Any, name: str, part: Any) -> str:
    """The class of a part, and what is not as the pipeline has it: precision, place, manner."""
    said = [type(part).__name__]
    dtype = getattr(part, "dtype", None)
    if isinstance(dtype, torch.dtype) and dtype != pipe.dtype:
        said.append(_dtype(dtype))
    said += [what for what in ("slicing", "tiling") if getattr(part, f"use_{what}", False)]
    if getattr(part, "use_tiling", False):
        names = ("tile_sample_min_size", "tile_latent_min_size", "tile_overlap_factor")
        said += [f"{name}={getattr(part, name)}" for name in names if hasattr(part, name)]
    if hasattr(part, "model_max_length"):
        said.append(f"{part.model_max_length} tokens")
    if _is_channels_last(part):
        said.append("channels last")
    freed = _freed(part)
    if freed:
        said.append(f"FreeU {freed}")
    source, own = _source(part), pipelines.name_of(pipe)
    folder = str(card.FOLDER) if own == card.EMBEDDED else own
    if source and folder not in source and f"models--{own.replace('/', '--')}" not in source:
        said.append(f"from {source}")
    return ", ".join(said)


def _config(part: Any) -> str | None:
    """What tells a part's configuration from another; None if it has none."""
    config = getattr(part, "config", None)
    to_dict = getattr(config, "to_dict", None)
    entries = to_dict() if callable(to_dict) else config
    if not isinstance(entries, Mapping):
        return None
    plain = {str(k): noted_argument(v) for k, v in entries.items() if not str(k).startswith("_")}
    said = json.dumps(plain, sort_keys=True, default=str)
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _options(pipe: Any) -> dict[str, Any]:
    """What a pipeline was told when it was made, and the layers that its guidance perturbs."""
    config = getattr(pipe, "config", {})
    plain = {k: v for k, v in config.items() if k[0] != "_" and not isinstance(v, list | tuple)}
    layers = getattr(pipe, "pag_applied_layers", None)
    told = {key: noted_argument(value) for key, value in plain.items()}
    return told if layers is None else {**told, "pag_applied_layers": noted_argument(layers)}


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


def _freed(part: Any) -> str:
    """The strengths of FreeU where it is on."""
    for block in getattr(part, "up_blocks", None) or ():
        strengths = {key: getattr(block, key, None) for key in ("s1", "s2", "b1", "b2")}
        if any(value is not None for value in strengths.values()):
            return " ".join(f"{key}={value}" for key, value in strengths.items())
    return ""


def _source(part: Any) -> str:
    """What a part was loaded from."""
    config = getattr(part, "config", None)
    found = getattr(config, "_name_or_path", None) or getattr(part, "name_or_path", None)
    return found if isinstance(found, str) else ""


def _revision(pipe: Any) -> str | None:
    """The commit of a hub's model; of the embedded one what its weights are; None if unknown."""
    if pipelines.is_embedded(pipe):
        return _embedded_weights()
    for _, part in _parts(pipe):
        commit = getattr(getattr(part, "config", None), "_commit_hash", None)
        if isinstance(commit, str):
            return commit
        path = _COMMIT.search(_source(part))
        if path:
            return path[1]
    return None


@cache
def _embedded_weights() -> str:
    """SHA-256 of the embedded model's weights."""
    digest = hashlib.sha256()
    for path in sorted(card.FOLDER.rglob("*.safetensors")):
        digest.update(path.read_bytes())
    return f"sha256:{digest.hexdigest()}"


def _attention(pipe: Any) -> tuple[str, ...]:
    """The classes of the model's attention processors, where they are not diffusers' usual ones."""
    kinds = {type(processor).__name__ for processor in processors(pipe).values()}
    return () if kinds <= {_PLAIN_ATTENTION} else tuple(sorted(kinds))


def _loras(pipe: Any) -> tuple[dict[str, Any], ...]:
    """The LoRAs of each part: of which weights, at which scale, and whether they act."""
    found: list[dict[str, Any]] = []
    for name, part in _parts(pipe):
        for adapter, config in (getattr(part, "peft_config", None) or {}).items():
            found.append({"name": str(adapter), "part": name, **_lora(part, adapter, config)})
    # What was fused into the weights and then unloaded acts on, and is known by name alone.
    fused = {str(adapter) for adapter in getattr(pipe, "fused_loras", ())}
    gone = fused - {lora["name"] for lora in found}
    return (*found, *({"name": adapter, "fused": True} for adapter in sorted(gone)))


def _lora(part: Any, adapter: str, config: Any) -> dict[str, Any]:
    digest, scales, fused, active = hashlib.sha256(), [], False, False
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
                weight = getattr(held[adapter], "weight", held[adapter])
                digest.update(f"{path}.{letter}".encode())
                digest.update(str(noted_argument(weight).get("sha256")).encode())
    alike = len(set(scales)) == 1
    return {
        "from": getattr(config, "base_model_name_or_path", None) or None,
        "rank": noted_argument(getattr(config, "r", None)),
        "scale": scales[0] if alike else scales,
        "active": active,
        "fused": fused,
        "sha256": digest.hexdigest(),
    }


def _adapters(pipe: Any) -> dict[str, Any]:
    """IP-Adapters with their scales, and the words of textual inversions with their vectors."""
    found: dict[str, Any] = {}
    held = processors(pipe).values()
    pictures = [p for p in held if hasattr(p, "num_tokens") and hasattr(p, "scale")]
    if pictures:
        scales = [noted_argument(processor.scale) for processor in pictures]
        alike = all(scale == scales[0] for scale in scales)
        found["ip_adapter"] = {
            "tokens": noted_argument(pictures[0].num_tokens),
            "scale": scales[0] if alike else scales,
        }
    for name, encoder in (("tokenizer", "text_encoder"), ("tokenizer_2", "text_encoder_2")):
        words = _inversions(getattr(pipe, name, None), getattr(pipe, encoder, None))
        if words:
            found[name] = words
    return found


def _inversions(tokenizer: Any, encoder: Any) -> dict[str, str | None]:
    """By added word the SHA-256 of its vector; None where that is offloaded to the disk."""
    if tokenizer is None or encoder is None or not hasattr(tokenizer, "get_added_vocab"):
        return {}
    special = set(getattr(tokenizer, "all_special_tokens", ()))
    added = {w: n for w, n in tokenizer.get_added_vocab().items() if w not in special}
    vectors = encoder.get_input_embeddings().weight if added else ()
    return {
        word: noted_argument(vectors[n]).get("sha256")
        for word, n in added.items()
        if n < len(vectors)
    }


def _hardware(device: torch.device) -> str:
    """What computes: the instructions of a CPU, the name of a GPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        without = "" if torch.backends.mkldnn.enabled else ", without oneDNN"
        return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}{without}"
    return platform.machine()


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
