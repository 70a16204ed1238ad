"""One call each: from a prompt to a run with its picture and its maps."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Unpack

from diffusers import DiffusionPipeline

from heedmap.drawing.batch import Batch, Preview, Progress, check_prompts, draw, drawn_seed
from heedmap.drawing.keywords import GenerateKeywords, spelled_out
from heedmap.options import GenerateOptions
from heedmap.recording.edits import Edit, checked_edits
from heedmap.results.runs import Run
from heedmap.text.weights import parse_weights
from heedmap.wiring.registry import cross_attention_layers


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
    parsed = [parse_weights(prompt) for prompt in prompts]
    batch = Batch(
        [prompt.text for prompt in parsed],
        prompts,
        seeds,
        edits=checked_edits(edits),
        spans=[prompt.spans for prompt in parsed],
    )
    runs, _ = draw(pipe, batch, replace(asked, arguments=rest), progress=progress, preview=preview)
    return runs
