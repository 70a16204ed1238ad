"""Record the text cross-attention of a pipeline, and edit it, while a `with` block is open."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from heedmap import checks
from heedmap.backends.base import Pipeline
from heedmap.errors import ArgumentError, quoted
from heedmap.io.values import MAX_WHOLE
from heedmap.options import AXES, BranchName, GenerateOptions, Keep, Tokens
from heedmap.recording.calls import Wanted
from heedmap.recording.edits import Edit, checked_edits
from heedmap.recording.interventions import AfterStep, Intervention
from heedmap.recording.probing import Probe
from heedmap.recording.recorder import Trace
from heedmap.recording.steering import Steering
from heedmap.text.concepts import checked_concepts
from heedmap.text.words import TokenTable


def trace(
    pipe: Pipeline,
    keep: Keep = GenerateOptions.keep,
    *,
    tokens: Tokens = GenerateOptions.tokens,
    branches: Iterable[BranchName] = GenerateOptions.branches,
    concepts: Sequence[str] = GenerateOptions.concepts,
    prompts: str | Sequence[str] | None = None,
    limit: int = GenerateOptions.limit,
    edits: Iterable[Edit] = (),
) -> Trace:
    """Record the text cross-attention of a pipeline while the `with` block is open.

        with heedmap.trace(pipe, keep={"layer", "step"}) as trace:
            images = pipe(["a cat", "a dog"]).images
        trace.maps[0]["cat"]

    Without edits the pictures are bit-identical to those of the bare pipeline, and the pipeline is
    as it was afterwards, whatever happened inside.

    Args:
        pipe: a pipeline of Stable Diffusion or PixArt.
        keep: the axes to keep, of "layer", "step", "head", or "all"; the others are averaged
            while it runs (steps: over the calls of the model).
        tokens: "prompt" for the prompt's own tokens with start and end, "all" for the padding too.
        branches: what to record of a guided run: "conditional", "negative", or both.
        concepts: words and phrases to look for in each picture, whether or not its prompt has them,
            by the queries that it is drawn with (`Trace.concept_maps`).
        prompts: the texts that `prompt_embeds` were made of, where the pipeline is given these; the
            words are else the positions of the tokens. They are encoded again, and refused if that
            gives something else.
        limit: how many bytes may be kept in all; a run that would keep more is refused before its
            first step.
        edits: what to change in the attention of every prompt, as in `generate`. The pictures are
            then others, and the maps are of what was changed. Weights that are written into a
            prompt, as `(word:1.5)`, are not read here: pass `Reweight`.

    Raises:
        ArgumentError: if an axis, a branch, the choice of tokens or an edit is not known, or a
            concept is none.
        ModelError: if the model has no text cross-attention.
    """
    wanted = _wanted(keep, tokens, branches, concepts, limit)
    if prompts is not None:
        texts = checks.in_order([prompts] if isinstance(prompts, str) else prompts)
        if texts is None or not all(map(checks.is_text, texts)):
            raise ArgumentError(f"prompts is {quoted(prompts)}: expected a list of texts")
        wanted = replace(wanted, prompts=tuple(texts))
    return Trace(pipe, wanted, Intervention(edits=checked_edits(edits)))


def steered(
    pipe: Any,
    keep: Keep = GenerateOptions.keep,
    *,
    tokens: Tokens = GenerateOptions.tokens,
    branches: Iterable[BranchName] = GenerateOptions.branches,
    concepts: Sequence[str] = GenerateOptions.concepts,
    limit: int = GenerateOptions.limit,
    tables: Iterable[TokenTable] = (),
    steering: Steering | None = None,
    watch: Mapping[int, Sequence[int]] | None = None,
    after_step: AfterStep | None = None,
    probe: Probe | None = None,
    predicts: bool = False,
) -> Trace:
    """A trace that takes part in the run.

    What it takes is told by `trace`, `Wanted` and `Intervention`; `tables` are those of prompts
    that were read before, and are not read again.
    """
    wanted = _wanted(keep, tokens, branches, concepts, limit)
    known = {table.prompt: table for table in tables}
    wanted = replace(wanted, tables=known, weights_read=True)
    return Trace(pipe, wanted, Intervention(steering, (), watch or {}, after_step, probe, predicts))


def _wanted(
    keep: Keep, tokens: Tokens, branches: Iterable[BranchName], concepts: Sequence[str], limit: int
) -> Wanted:
    """What is to be recorded; ArgumentError if something of it is not known."""
    axes = frozenset(checks.any_of("keep", keep, AXES))
    checks.one_of("tokens", tokens, get_args(Tokens))
    sides = frozenset(checks.any_of("branches", branches, get_args(BranchName), least=1))
    checks.whole("limit", limit, least=1, most=MAX_WHOLE)
    return Wanted(axes, tokens, sides, limit, checked_concepts(concepts))
