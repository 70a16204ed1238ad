"""Generate images from prompts, and record which word acted where."""

from collections.abc import Iterable, Sequence
from typing import Any

from heedmap.backends.base import Pipeline
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import check_served, picture_size
from heedmap.errors import warn
from heedmap.mathematics.rules import Rule
from heedmap.options import BranchName, GenerateOptions, Keep, Tokens
from heedmap.pipelines.arguments import check_prompts, random_seed, resolve_options
from heedmap.pipelines.batch import Batch, Preview, Progress, draw
from heedmap.recording.edits import (
    Confine,
    Edit,
    Steering,
    checked_edits,
    rules_of,
    warn_of_idle,
    weights_rule,
)
from heedmap.recording.probing import Probe
from heedmap.results.runs import Run
from heedmap.text.weights import WeightedPrompt, parse_weights, token_weights
from heedmap.text.words import TokenTable


def generate(
    pipe: Pipeline,
    prompt: str,
    *,
    seed: int | None = None,
    steps: int | None = None,
    guidance: float | None = None,
    size: tuple[int, int] | None = None,
    negative: str | None = None,
    keep: Keep = GenerateOptions.keep,
    tokens: Tokens = GenerateOptions.tokens,
    branches: Iterable[BranchName] = GenerateOptions.branches,
    concepts: Sequence[str] = GenerateOptions.concepts,
    limit: int = GenerateOptions.limit,
    edits: Iterable[Edit] = (),
    progress: Progress | None = None,
    preview: Preview | None = None,
    **arguments: Any,
) -> Run:
    """Generate an image, and record which word acted where.

        run = heedmap.generate(pipe, "a red house next to a blue tree", seed=7)
        run.image; run.maps["house"].overlay(); run.save("outputs/house")

    Args:
        pipe: a pipeline, as `load` returns it.
        prompt: the prompt. Weights in brackets, `(word:1.5)`, multiply the attention to a word
            (`heedmap.text.weights`).
        seed: the seed of the noise. Default: random, and saved in the settings.
        steps: denoising steps. Default: the model's.
        guidance: classifier-free guidance scale. Default: the model's.
        size: (width, height) in pixels. Default: the model's.
        negative: negative prompt.
        keep: axes to keep in the maps, of "layer", "step", "head"; or "all".
        tokens: "prompt" records the prompt's tokens, "all" the padding, too.
        branches: "conditional" records the prompt's maps, "negative" also those of the negative
            prompt (`Run.negative_maps`).
        concepts: words and phrases to map that the prompt need not contain (`Run.concepts`).
        limit: bytes that the maps may take; a run that needs more is refused before it starts.
        edits: changes of the attention: `Reweight`, `Confine`, or rules of your own, each a
            callable `rule(P, site) -> P'`. They act in order, but `Confine` acts first, before the
            softmax.
        progress: called after every step with the number of steps done and of all steps.
        preview: called after every step with a copy of the latents (1, C, h, w).
        arguments: other arguments of the pipeline. diffusers' names (num_inference_steps,
            guidance_scale, negative_prompt, height, width, generator) work, too.

    Raises:
        ArgumentError: if an argument is out of range, a weight is not a number, or an edit does not
            fit the image.
        TraceError: if the maps could not be recorded.
        TruncatedWordError: if the model does not read a word that is weighted or edited.
        UnknownWordError: if a word that is edited is not in the prompt.
    """
    options = GenerateOptions(
        steps=steps,
        guidance=guidance,
        size=size,
        negative=negative,
        keep=keep,
        tokens=tokens,
        branches=branches,
        concepts=concepts,
        limit=limit,
        arguments=arguments,
    )
    check_served(pipe)
    options, seed = resolve_options(pipe, options, generate, seed)
    seeds = [random_seed() if seed is None else seed]
    runs = generate_batch(
        *(pipe, [prompt], seeds, options, edits), progress=progress, preview=preview
    )
    return runs[0]


def generate_batch(
    pipe: Pipeline,
    prompts: Sequence[str],
    seeds: Sequence[int],
    options: GenerateOptions,
    edits: Iterable[Edit] = (),
    *,
    progress: Progress | None = None,
    preview: Preview | None = None,
    probe: Probe | None = None,
) -> list[Run]:
    """Generate an image for each prompt with its seed, in one batch.

    Args:
        pipe: a pipeline.
        prompts: the prompts.
        seeds: one a prompt.
        options: options that fit the pipeline (`resolve_options`).
        edits: changes of the attention in every image.
        progress: as in `generate`.
        preview: as in `generate`, with the latents of the batch.
        probe: ends the run with `probing.Reached` when it has found its numbers.

    Raises:
        HeedmapError: as in `generate`.
    """
    prompts, seeds = check_prompts(prompts, seeds)
    edits = checked_edits(edits)
    parsed = [parse_weights(prompt) for prompt in prompts]
    # Edits that name a region name it in pixels of the image that will be generated.
    size = options.size or (picture_size(pipe, options.arguments) if edits else (0, 0))
    texts = [prompt.text for prompt in parsed]
    read = {}
    if edits or any(prompt.spans for prompt in parsed):
        read = {text: prompt_table(pipe, text, options.arguments) for text in dict.fromkeys(texts)}
    tables = [read[text] for text in texts] if read else []
    made = [[rules_of(edit, table, size) for edit in edits] for table in tables]
    rules = _rules(parsed, tables, made)
    batch = Batch(texts, prompts, seeds, edits)
    steering = Steering(rules) if rules else None
    runs, recorder = draw(
        *(pipe, batch, options, steering), progress=progress, preview=preview, probe=probe
    )
    if edits:
        warn_of_idle(edits, made, recorder.sites)
        drawn = runs[0].image.size
        if drawn != size and any(isinstance(edit, Confine) for edit in edits):
            warn(
                "the words were confined in an image of {}×{} pixels, but it came out with {}×{}: "
                "pass size={}".format(*size, *drawn, drawn)
            )
    return runs


def _rules(
    prompts: Sequence[WeightedPrompt],
    tables: Sequence[TokenTable],
    made: Sequence[Sequence[list[Rule]]],
) -> dict[int, list[Rule]]:
    """Return the rules of each prompt by its number: its own weights, then those of the edits."""
    found: dict[int, list[Rule]] = {}
    for number, (table, of_edits) in enumerate(zip(tables, made, strict=True)):
        rules = [rule for some in of_edits for rule in some]
        weights = token_weights(prompts[number].spans, table)
        if any(weight != 1 for weight in weights.values()):
            rules = [weights_rule(weights, table), *rules]
        if rules:
            found[number] = rules
    return found
