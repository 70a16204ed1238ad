"""What decides a picture besides its prompt and seed, noted as it was before the run.

A run's settings say what was asked for, not what came out: with a strength, an end before the end,
or an interrupt, fewer steps are run than were asked for, and only those asked for draw the picture
again.
"""

import hashlib
import json
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

import torch

from heedmap.drawing.pipeline_arguments import noted_argument
from heedmap.files.settings import Scheduler, Versions
from heedmap.models import pipelines
from heedmap.tiny import card
from heedmap.wiring import parts
from heedmap.wiring.arguments import STEP_LISTS, THEIR_NAMES
from heedmap.wiring.family import default_of
from heedmap.wiring.registry import cross_attention_layers, family_of
from heedmap.wiring.schedules import SCHEDULERS
from heedmap.wiring.skipping import skipping_tools


def asked(
    pipe: Any, name: str, given: Any, arguments: Mapping[str, Any] | None = None
) -> tuple[Any, str | None]:
    """What was asked for of "steps" or "guidance", and whose default it is where nothing was.

    Args:
        pipe: a pipeline.
        name: "steps" or "guidance".
        given: by the user; None for nothing.
        arguments: others of the pipeline, of which some list the steps one by one.

    Returns:
        The value, None where the pipeline does not say, and "card" (of the embedded model),
        "pipeline", the argument that says it, or None, where the user said it.
    """
    for argument in STEP_LISTS if name == "steps" else ():
        listed = (arguments or {}).get(argument)
        if listed is not None and hasattr(listed, "__len__"):
            return len(listed), argument
    if given is not None:
        return noted_argument(given), None
    if pipelines.is_embedded(pipe):
        return getattr(card.defaults(), name), "card"
    found = default_of(pipe, THEIR_NAMES[name])
    return (found, "pipeline") if isinstance(found, int | float) else (None, "pipeline")


def describe(pipe: Any) -> dict[str, Any]:
    """What a pipeline is and what it runs on: all settings but what it is called with.

    Model with revision, class, scheduler with its whole configuration, the class of each part,
    LoRAs with weights and scales, adapters, attention processors that are not diffusers' usual
    ones, precision, device, threads, versions.
    """
    device, held = parts.device_of(pipe), list(parts.parts_of(pipe))
    found = {name: scheduler_of(pipe, name) for name in SCHEDULERS}
    options, layers = _noted(parts.told(pipe)), cross_attention_layers(pipe)
    if skipping := skipping_tools(family_of(pipe).denoiser(pipe), layers):
        options["skipping"] = list(skipping)
    return {
        "model": pipelines.name_of(pipe),
        "revision": _revision(pipe),
        "pipeline": type(pipe).__name__,
        "scheduler": type(getattr(pipe, "scheduler", None)).__name__,
        "schedulers": {name: about for name, about in found.items() if about is not None},
        "parts": {name: _part(pipe, part) for name, part in held},
        "configs": {name: digest for name, part in held if (digest := _config(part))},
        "options": options,
        "attention": parts.unusual_attention(pipe),
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
    return Scheduler(
        kind=type(scheduler).__name__, config=_noted(parts.configuration(scheduler) or {})
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


def _part(pipe: Any, part: Any) -> str:
    """The class of a part, and what is not as the pipeline has it: precision, manner, place."""
    said = [type(part).__name__]
    dtype = getattr(part, "dtype", None)
    if isinstance(dtype, torch.dtype) and dtype != pipe.dtype:
        said.append(_dtype(dtype))
    said += parts.manner(part)
    source, own = parts.source_of(part), pipelines.name_of(pipe)
    folder = str(card.FOLDER) if own == card.EMBEDDED else own
    if source and folder not in source and f"models--{own.replace('/', '--')}" not in source:
        said.append(f"from {source}")
    return ", ".join(said)


def _config(part: Any) -> str | None:
    """What tells a part's configuration from another; None if it has none."""
    entries = parts.configuration(part)
    if entries is None:
        return None
    said = json.dumps(_noted(entries), sort_keys=True, default=str)
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _noted(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {key: noted_argument(value) for key, value in entries.items()}


def _revision(pipe: Any) -> str | None:
    """The commit of a hub's model; of the embedded one what its weights are; None if unknown."""
    return _embedded_weights() if pipelines.is_embedded(pipe) else parts.commit_of(pipe)


@cache
def _embedded_weights() -> str:
    """SHA-256 of the embedded model's weights."""
    digest = hashlib.sha256()
    for path in sorted(card.FOLDER.rglob("*.safetensors")):
        digest.update(path.read_bytes())
    return f"sha256:{digest.hexdigest()}"


def _loras(pipe: Any) -> tuple[dict[str, Any], ...]:
    """The LoRAs of each part: of which weights, at which scale, and whether they act."""
    found = [_lora(*lora) for lora in parts.loras(pipe)]
    # What was fused into the weights and then unloaded acts on, and is known by name alone.
    gone = parts.fused_names(pipe) - {lora["name"] for lora in found}
    return (*found, *({"name": adapter, "fused": True} for adapter in sorted(gone)))


def _lora(told: dict[str, Any], weights: dict[str, torch.Tensor]) -> dict[str, Any]:
    digest = hashlib.sha256()
    for path, weight in weights.items():
        digest.update(f"{path}{_digest(weight)}".encode())
    return {**_noted(told), "scale": _one(told["scale"]), "sha256": digest.hexdigest()}


def _adapters(pipe: Any) -> dict[str, Any]:
    """IP-Adapters with their scales, and the words of textual inversions with their vectors."""
    found: dict[str, Any] = {}
    pictures = parts.image_prompts(pipe)
    if pictures:
        scales = [noted_argument(scale) for _, scale in pictures]
        found["ip_adapter"] = {"tokens": noted_argument(pictures[0][0]), "scale": _one(scales)}
    for tokenizer, words in parts.added_words(pipe).items():
        found[tokenizer] = {word: _digest(vector) for word, vector in words.items()}
    return found


def _one(several: list[Any]) -> Any:
    """What all of them are, where they are alike."""
    return several[0] if several and several.count(several[0]) == len(several) else several


def _digest(tensor: torch.Tensor) -> str | None:
    """The SHA-256 of a tensor; None where it is offloaded to the disk."""
    return noted_argument(tensor).get("sha256")


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
