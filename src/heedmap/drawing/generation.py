"""One call each: from a prompt to a run with its picture and its maps."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import torch
from diffusers import DiffusionPipeline
from PIL import Image

from heedmap.attention.rules import Rule
from heedmap.drawing.batch import Batch, Preview, Progress, check_prompts, draw, drawn_seed
from heedmap.drawing.keywords import GenerateKeywords, spelled_out
from heedmap.errors import HeedmapWarning
from heedmap.models import pipelines
from heedmap.options import GenerateOptions
from heedmap.recording.edits import Confine, Edit, checked, rules_of, warn_of_idle, weights_rule
from heedmap.recording.steering import Steering
from heedmap.results.runs import Run
from heedmap.text.weights import parse_weights, token_weights
from heedmap.wiring.families import cross_attention_layers, family_of
from heedmap.wiring.prompt_tables import prompt_table


@spelled_out(GenerateOptions)
def generate(
    pipe: DiffusionPipeline,
    prompt: str,
    *,
    seed: int | None = None,
    edits: Iterable[Edit] = (),
    progress: Progress | None = None,
    preview: Preview | None = None,
    **options: Unpack[GenerateKeywords],
) -> Run:
    """Generate one picture and record which word acted where.

    Args:
        pipe: a pipeline, as `load` gives it.
        prompt: what to draw. Weights in brackets, `(word:1.5)`, multiply the attention that a word
            draws; `heedmap.text.weights` says how they are written.
        seed: of the starting noise; drawn, and noted in the run's settings, if None.
        edits: what to change in the prompt's attention: `Reweight`, `Confine`, or rules of your
            own, each a callable `rule(P, site) -> P'`. They act one after the other, but for
            `Confine`, which comes first, before the softmax.
        progress: called after every step.
        preview: called after every step with a copy of the latents (1, C, h, w); changes nothing.
        options: steps, guidance, size, negative, keep, limit, tokens and branches, as
            `heedmap.options.GenerateOptions` tells, and any other argument of the pipeline.

    Raises:
        ArgumentError: if an argument is out of range, a weight is no number, or an edit does not
            fit the picture.
        TraceError: if the maps could not be recorded.
        TruncatedWordError: if the model does not read a word that is weighted or edited.
        UnknownWordError: if a word that is edited is not in the prompt.
    """
    return generate_batch(
        pipe,
        [prompt],
        seeds=[drawn_seed() if seed is None else seed],
        edits=edits,
        progress=progress,
        preview=preview,
        **options,
    )[0]


@spelled_out(GenerateOptions)
def generate_batch(
    pipe: DiffusionPipeline,
    prompts: Sequence[str],
    *,
    seeds: Sequence[int],
    edits: Iterable[Edit] = (),
    progress: Progress | None = None,
    preview: Preview | None = None,
    **options: Unpack[GenerateKeywords],
) -> list[Run]:
    """Generate several pictures in one batch: one run for each prompt with its seed.

    Arguments and errors are those of `generate`; the edits are made of every prompt.
    """
    rest: dict[str, Any] = {**options}
    asked = GenerateOptions.taken(rest)
    prompts, seeds = check_prompts(prompts, seeds)
    cross_attention_layers(pipe)  # a model without them has no prompt to read either
    edits = checked(edits)
    parsed = [parse_weights(prompt) for prompt in prompts]
    pictured = _picture_size(pipe, asked.size, rest) if edits else (0, 0)
    texts = [prompt.text for prompt in parsed]
    read = {}
    if edits or any(prompt.spans for prompt in parsed):
        read = {text: prompt_table(pipe, text, rest) for text in dict.fromkeys(texts)}
    rules: dict[int, list[Rule]] = {}
    made: list[list[list[Rule]]] = []  # by prompt, of each edit
    for number, prompt in enumerate(parsed if read else ()):
        table = read[prompt.text]
        weights = token_weights(prompt.spans, table)
        made.append([rules_of(edit, table, pictured) for edit in edits])
        mine = [rule for several in made[number] for rule in several]
        if any(weight != 1 for weight in weights.values()):
            mine = [weights_rule(weights, table), *mine]
        if mine:
            rules[number] = mine
    batch = Batch(texts, prompts, seeds, edits, list(read.values()))
    steering = Steering(rules) if rules else None
    runs, recorder = draw(
        pipe, batch, replace(asked, arguments=rest), steering, progress=progress, preview=preview
    )
    if edits:
        warn_of_idle(edits, made, recorder.sites)
        drawn = runs[0].image.size
        if drawn != pictured and any(isinstance(edit, Confine) for edit in edits):
            warnings.warn(
                "the words were confined in a picture of {}×{} pixels, but it came out with "
                "{}×{}: pass the size".format(*pictured, *drawn),
                HeedmapWarning,
                stacklevel=2,
            )
    return runs


def _picture_size(
    pipe: DiffusionPipeline, size: tuple[int, int] | None, arguments: Mapping[str, Any]
) -> tuple[int, int]:
    """The (width, height) that a picture will have, for edits that name places in it."""
    if size is not None:
        return pipelines.check_size(pipe, size)
    start = arguments.get("image")
    start = start[0] if isinstance(start, list | tuple) and start else start
    side = family_of(pipe).cell_side(pipe)
    # Inpainting brings its picture to the model's size; others go by the picture.
    if "mask_image" in arguments or not isinstance(start, Image.Image | torch.Tensor):
        return pipelines.own_size(pipe)
    w, h = start.size if isinstance(start, Image.Image) else start.shape[:-3:-1]
    return w - w % side, h - h % side
