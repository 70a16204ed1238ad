"""One call each: from a prompt to a run with its picture and its maps."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Unpack

from heedmap.backends import loading
from heedmap.backends.base import Pipeline
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import check_served, picture_size
from heedmap.errors import warn
from heedmap.mathematics.rules import Rule
from heedmap.options import GenerateOptions
from heedmap.pipelines.arguments import GenerateKeywords, spelled_out
from heedmap.pipelines.batch import Batch, Preview, Progress, check_prompts, draw, drawn_seed
from heedmap.recording.edits import (
    Confine,
    Edit,
    checked_edits,
    rules_of,
    warn_of_idle,
    weights_rule,
)
from heedmap.recording.probing import Probe
from heedmap.recording.steering import Steering
from heedmap.results.runs import Run
from heedmap.text.weights import WeightedPrompt, parse_weights, token_weights
from heedmap.text.words import TokenTable


@spelled_out(GenerateOptions)
def generate(
    pipe: Pipeline,
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
            `heedmap.options.GenerateOptions` tells, and any other argument of the pipeline. The
            names of diffusers (num_inference_steps, guidance_scale, negative_prompt, height,
            width, generator) are synonyms; a generator stands for its seed.

    Raises:
        ArgumentError: if an argument is out of range, a weight is not a number, or an edit does not
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
    pipe: Pipeline,
    prompts: Sequence[str],
    *,
    seeds: Sequence[int],
    edits: Iterable[Edit] = (),
    progress: Progress | None = None,
    preview: Preview | None = None,
    probe: Probe | None = None,
    **options: Unpack[GenerateKeywords],
) -> list[Run]:
    """Generate several pictures in one batch: one run for each prompt with its seed.

    Arguments and errors are those of `generate`; the edits are made of every prompt, and a `probe`
    ends the run with `probing.Reached`.
    """
    rest: dict[str, Any] = {**options}
    asked = GenerateOptions.taken(rest)
    prompts, seeds = check_prompts(prompts, seeds)
    check_served(pipe)
    edits = checked_edits(edits)
    parsed = [parse_weights(prompt) for prompt in prompts]
    pictured = (0, 0)  # edits that name places name them in the picture that will be
    if edits:
        size = asked.size
        pictured = picture_size(pipe, rest) if size is None else loading.check_size(pipe, size)
    texts = [prompt.text for prompt in parsed]
    read = {}
    if edits or any(prompt.spans for prompt in parsed):
        read = {text: prompt_table(pipe, text, rest) for text in dict.fromkeys(texts)}
    tables = [read[text] for text in texts] if read else []
    made = [[rules_of(edit, table, pictured) for edit in edits] for table in tables]
    rules = _rules(parsed, tables, made)
    batch = Batch(texts, prompts, seeds, edits, list(read.values()))
    steering = Steering(rules) if rules else None
    runs, recorder = draw(
        *(pipe, batch, replace(asked, arguments=rest), steering),
        progress=progress,
        preview=preview,
        probe=probe,
    )
    if edits:
        warn_of_idle(edits, made, recorder.sites)
        drawn = runs[0].image.size
        if drawn != pictured and any(isinstance(edit, Confine) for edit in edits):
            warn(
                "the words were confined in a picture of {}×{} pixels, but it came out with {}×{}: "
                "pass size={}".format(*pictured, *drawn, drawn)
            )
    return runs


def _rules(
    prompts: Sequence[WeightedPrompt],
    tables: Sequence[TokenTable],
    made: Sequence[Sequence[list[Rule]]],
) -> dict[int, list[Rule]]:
    """By prompt its rules: its own weights, then those that were made of each edit."""
    found: dict[int, list[Rule]] = {}
    for number, (table, of_edits) in enumerate(zip(tables, made, strict=True)):
        mine = [rule for rules in of_edits for rule in rules]
        weights = token_weights(prompts[number].spans, table)
        if any(weight != 1 for weight in weights.values()):
            mine = [weights_rule(weights, table), *mine]
        if mine:
            found[number] = mine
    return found
