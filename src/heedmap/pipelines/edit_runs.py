"""The edits of one source: their plans, their run, and the reports of what they did.

Prompt-to-prompt (Hertz et al., 2022, arXiv 2208.01626): source and edits are generated in one batch
from one noise. For a part of the run the edits take the source's cross-attention, word by word, and
its self-attention. A plan is made before the first step, so that an edit that does not fit the
prompts is refused there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from msgspec import structs

from heedmap.backends.memory import in_batches, max_batch
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import family_of
from heedmap.errors import ArgumentError, TruncatedWordError, quoted
from heedmap.figures import overlays
from heedmap.io.schemas import ChangedWords, EditReport, SavedEdit
from heedmap.maps.masks import phrase_tokens, suppress_rivals
from heedmap.mathematics.rules import (
    Inject,
    Renormalize,
    Rule,
    blend_mask,
    steps_within,
)
from heedmap.options import EditOptions, EditPurpose, GenerateOptions
from heedmap.pipelines.generation import Preview, Progress, generate_batch, sub_progress
from heedmap.pipelines.input_images import ImageSource, distortion_warning
from heedmap.pipelines.measures import change_between, image_difference
from heedmap.recording.controller import Steering
from heedmap.recording.edits import weights_rule
from heedmap.recording.guidance import AnyGuide
from heedmap.recording.probing import Probe
from heedmap.recording.steps import StepState
from heedmap.recording.tracing import Trace
from heedmap.results.edits import (
    EditResult,
    pixel_change,
)
from heedmap.results.runs import Run
from heedmap.text.alignment import WordAlignment, pair_words, swap_of
from heedmap.text.purposes import purpose_of
from heedmap.text.token_mapping import token_shares
from heedmap.text.weights import escape, parse_weights, spelled, token_weights, weighed
from heedmap.text.words import MOVE_IT, TokenTable, Word

FractionWindow = tuple[float, float]
"""The (start, end) of a part of the run, as fractions of it."""
LEAST_KEPT = 20.0
"""Decibels of an image outside of the words that an edit changed, below which a note says so."""


# --- plans ---


class EditSource:
    """The source of edits, with the options that its edits share.

    Attributes:
        pipe: the pipeline that reads the prompts.
        family: its family.
        prompt: the source prompt, with weights.
        table: the words and tokens that the model reads.
        weights: the weights of the source's own image, by position on the K axis.
        rules: the rules of these weights.
        options: the options of the edits.
        sampling: the options of sampling, which fit the pipeline (`resolve_options`).
        guide: the guides of the edited images.
        protected: the tokens of each word whose region stays.
        selection: the layers, heads and steps at which the edits act.
    """

    def __init__(
        self,
        pipe: Any,
        prompt: str,
        options: EditOptions,
        sampling: GenerateOptions,
        *,
        weighted: bool = True,
        guide: Sequence[AnyGuide] = (),
    ) -> None:
        """Read the prompt; unless it is `weighted`, its weights are those of an edit alone."""
        parsed = parse_weights(prompt)
        self.pipe = pipe
        self.family = family_of(pipe)
        self.options: Any = options
        self.sampling = sampling
        self.guide = guide
        self.prompt = prompt
        self.table = prompt_table(pipe, parsed.text, sampling.arguments)
        self.weights: dict[int, float] = {}
        self.rules: tuple[Rule, ...] = ()
        if weighted:
            self.weights = token_weights(parsed.spans, self.table)
        else:
            self.prompt = escape(parsed.text)
        if self.weights:
            self.rules = (weights_rule(self.weights, self.table),)
        self.protected = [self.table.find(word) for word in options.protect]
        self.selection = (options.layers, options.heads, options.at_steps)
        if options.only is not None and self.family.has_quirk("unblended"):
            raise ArgumentError(
                f"{type(pipe).__name__} decodes what its scheduler predicts, which a blend of "
                "latents does not reach: leave only out, or use another pipeline of such a "
                "model, as StableDiffusionPipeline with an LCMScheduler"
            )

    def plan(
        self,
        prompt: str,
        weights: Mapping[str, float] | None = None,
        cross: FractionWindow | None = None,
        self_replace: FractionWindow | None = None,
    ) -> "Plan":
        """Plan the edit of a prompt, with more weights by word or phrase.

        These words count as changed even at the source's weight. The windows are by default those
        of the options, or else of the edit's purpose.
        """
        options = self.options
        weights = weights or {}
        parsed = parse_weights(prompt)
        table = prompt_table(self.pipe, parsed.text, self.sampling.arguments)
        alignment = pair_words(self.table, table)
        if alignment.unread:
            raise TruncatedWordError(
                f"{quoted(alignment.unread[0].text)} is changed, but stands past the {table.room} "
                f"tokens that the model reads: {MOVE_IT}"
            )
        spans = weighed(parsed, table, weights)
        new_weights = token_weights(spans, table)
        purpose = purpose_of(alignment)
        cross_end, self_end = self.family.windows[purpose]
        window: FractionWindow = cross or options.cross_replace or (0.0, cross_end)
        rules: list[Rule] = [self._inject(table, alignment, window)]
        if new_weights:
            rules.append(weights_rule(new_weights, table))
            rules += [Renormalize()] * options.renormalize
        varied = {
            word for name in weights for place in table.matches(name) for word in place
        }
        weighted = [
            (a, b)
            for a, b in alignment.pairs
            if _weight(a, self.weights) != _weight(b, new_weights)
        ]
        about = [
            *alignment.changes,
            *weighted,
            *(pair for pair in alignment.pairs if pair[1] in varied),
        ]
        has_same_tokens = _ids(self.table) == _ids(table)
        is_reweighted = has_same_tokens and not alignment.changes
        swaps = () if options.only is None else swap_of(options.only)
        return Plan(
            source=self,
            target=prompt,
            varied=weights,
            prompt=spelled(parsed.text, spans) if weights else prompt,
            table=table,
            alignment=alignment,
            kind="reweight" if is_reweighted else alignment.kind,
            purpose=purpose,
            has_effect=bool(weighted) or not is_reweighted,
            words=ChangedWords(
                source=_numbers(a for a, _ in about),
                edited=_numbers(b for _, b in about),
            ),
            weights=new_weights,
            rules=tuple(rules),
            swaps=tuple((self.table.phrase(a), table.phrase(b)) for a, b in swaps),
            cross_replace=window,
            self_replace=self_replace or options.self_replace or (0.0, self_end),
        )

    def _inject(
        self,
        table: TokenTable,
        alignment: WordAlignment,
        cross: FractionWindow,
    ) -> Inject:
        """Return the rule that takes the source's cross-attention in a window.

        It takes the plain attention: the weights in a prompt hold for that prompt's image.
        """
        # The shares of the source's tokens that the target's take: (K_src, K).
        columns = torch.zeros(len(self.table.tokens), len(table.tokens))
        for token, position, share in token_shares(self.table, table, alignment):
            columns[token, position] = share
        start, end = (torch.full((len(table.tokens),), bound) for bound in cross)
        has_source = columns.any(dim=0)
        if alignment.kind == "refine":
            end[~has_source] = 0.0  # a new token keeps its own attention
        return Inject(columns, start, end, cross)


def _weight(word: Word | None, weights: Mapping[int, float]) -> float:
    if word is None or not word.tokens:
        return 1.0
    return weights.get(word.tokens[0], 1.0)


def _ids(table: TokenTable) -> list[int | None]:
    return [token.id for token in table.tokens]


def _numbers(words: Iterable[Word | None]) -> tuple[int, ...]:
    """Return the numbers of the words that the model reads."""
    return tuple(sorted({word.number for word in words if word and word.tokens}))


@dataclass(frozen=True, eq=False)
class Plan:
    """One edit of a source, ready to run.

    Attributes:
        source: the source.
        target: the edited prompt as given.
        varied: the weights that a grid varies, by word.
        prompt: the edited prompt with all its weights.
        table: the words and tokens that the model reads.
        alignment: the correspondence of its words with those of the source.
        kind: "replace", "refine" or "reweight".
        purpose: the purpose; None if only weights, signs or articles and the like change.
        has_effect: True if a word, a sign or a weight differs from the source's.
        words: the words of both prompts that the edit is about and that the model reads.
        weights: the weights, by position on the K axis.
        rules: the rules for the probabilities of the edited prompt.
        swaps: positions on the K axis of the source and of the target where the edit is blended.
        cross_replace: the window of cross-attention.
        self_replace: the window of self-attention.
    """

    source: EditSource
    target: str
    varied: Mapping[str, float]
    prompt: str
    table: TokenTable
    alignment: WordAlignment
    kind: str
    purpose: EditPurpose | None
    has_effect: bool
    words: ChangedWords
    weights: Mapping[int, float]
    rules: tuple[Rule, ...]
    swaps: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    cross_replace: FractionWindow
    self_replace: FractionWindow


# --- the run ---


def run_edits(
    source: EditSource,
    plans: Sequence[Plan],
    seed: int,
    progress: Progress | None = None,
    preview: Preview | None = None,
    probe: Probe | None = None,
) -> list[EditResult]:
    """Generate a source and its edits from the noise of one seed.

    If they do not fit into one batch, the source is computed again in each further batch, equal up
    to rounding; all pairs have that of the first. The other arguments are as in `generate_batch`.
    """
    pipe, options, image = source.pipe, source.sampling, source.options.image
    image_source = None if image is None else ImageSource(pipe, image, seed, options)
    pairs: list[EditResult] = []

    def run_batch(some: Sequence[Plan], done: int, remaining: int) -> None:
        images = [source, *some]
        rules = {number: one.rules for number, one in enumerate(images) if one.rules}
        windows = {number: plan.self_replace for number, plan in enumerate(some, 1)}
        latents = None
        if image_source is not None:
            latents = image_source.start(len(images))
        local = LocalBlend(source, some)

        def change(state: StepState) -> torch.Tensor:
            if image_source is not None:
                moved = image_source.next_latents(state.moment, state.latents)
                state = replace(state, latents=moved)
            return local.blend(state)

        runs, trace = generate_batch(
            pipe,
            [one.prompt for one in images],
            [seed] * len(images),
            options,
            steering=Steering(
                rules,
                dict.fromkeys(windows, 0),
                windows,
                source.options.max_self_cells,
                source.selection,
            ),
            latents=latents,
            progress=sub_progress(progress, done, done + remaining),
            preview=preview,
            change=change,
            probe=probe,
            guide=source.guide,
            first_guided=1,
        )
        if image_source is not None:
            input_image = image_source.image
            runs = [
                replace(
                    run,
                    input_image=input_image.image,
                    settings=replace(run.settings, input_image=input_image.settings),
                )
                for run in runs
            ]
        first = pairs[0].source if pairs else runs[0]
        for number, plan in enumerate(some, 1):
            mask = local.masks.get(number)
            pairs.append(_pair(plan, first, runs[number], trace, number, mask))

    batch = source.options.batch or max_batch(pipe, options.size)
    in_batches(plans, batch - 1, run_batch)
    return pairs


class LocalBlend:
    """The blend of latents after each step: the source's where the words of the edits do not act.

    Attributes:
        masks: the last mask of each edit, bool (h, w) of the latent, by its number in the batch.
    """

    def __init__(self, source: EditSource, plans: Sequence[Plan]) -> None:
        self._source = source
        self._plans = plans
        self._tables = [one.table for one in (source, *plans)]
        self.masks: dict[int, torch.Tensor] = {}

    def blend(self, state: StepState) -> torch.Tensor:
        """Return the latents (B, C, h, w) to go on with."""
        moment = state.moment
        latents = state.latents
        options = self._source.options
        steps = steps_within(options.blend_from, 1.0, moment.steps)
        if options.only is None or moment.step not in steps:
            return latents
        blended = latents.clone()
        size = (latents.shape[-2], latents.shape[-1])

        @cache  # all edits ask for the same places of the source
        def acts(image: int, tokens: tuple[int, ...]) -> torch.Tensor:
            """Return the mask (h, w) of the places where a phrase is read more than its rivals."""
            phrases = phrase_tokens(self._tables[image])
            rivals = [phrase for phrase in phrases if {*phrase}.isdisjoint(tokens)]
            if len(rivals) == len(phrases):  # tokens of no phrase name no thing
                rivals = []
            strength = [state.strength(image, phrase) for phrase in (tokens, *rivals)]
            share = torch.from_numpy(suppress_rivals(*np.stack(strength, axis=1))[0])
            return blend_mask(share, size, options.threshold)

        for number, plan in enumerate(self._plans, 1):
            mask = torch.zeros(size, dtype=torch.bool)
            for before, after in plan.swaps:
                mask |= acts(0, before) | acts(number, after)
            for tokens in self._source.protected:
                mask &= ~acts(0, tokens)
            self.masks[number] = mask
            inside = mask.to(latents.device)
            blended[number] = torch.where(inside, latents[number], latents[0])
        return blended


# --- the report ---


def _pair(
    plan: Plan,
    source: Run,
    edited: Run,
    trace: Trace,
    number: int,
    latent_mask: torch.Tensor | None,
) -> EditResult:
    controller = trace.controller
    assert controller is not None
    words = plan.words
    mask = None
    masked_by = None
    inside = np.zeros(source.image.size[::-1], dtype=bool)
    if latent_mask is None:
        for run, numbers in ((source, words.source), (edited, words.edited)):
            for word in numbers:
                inside |= run.maps.at(word).mask()
    else:
        mask = overlays.resize_map(latent_mask.float().numpy(), source.image.size) > 0.5
        inside = mask
        text_of = plan.source.table.text_of
        masked_by = ", ".join(
            f"{text_of(before)}→{plan.table.text_of(after)}"
            for before, after in plan.swaps
        )
    shares = controller.moved[number] or [torch.tensor(0.0)]
    values = {
        **vars(plan.source.options),
        "source": plan.source.prompt,
        "cross_replace": plan.cross_replace,
        "self_replace": plan.self_replace,
        "image": None,
        "batch": None,
    }
    options = SavedEdit(**values)
    report = EditReport(
        kind=plan.kind,
        purpose=plan.purpose,
        why=plan.alignment.why,
        options=options,
        weights=dict(plan.weights),
        words=words,
        steps=trace.steps,
        sites=len(controller.acted[number]),
        self_sites=len(controller.shared[number]),
        moved=torch.stack(shares).mean().item(),
        change=change_between(source.image, edited.image, inside),
        reconstruction=source.input_image
        and image_difference(source.input_image, source.image),
        masked_by=masked_by,
    )
    notes = tuple(filter(None, _notes(plan, source, edited, report, mask)))
    edited = replace(edited, settings=replace(edited.settings, edit=options))
    return EditResult(
        source, edited, structs.replace(report, notes=notes or None), mask
    )


def _notes(
    plan: Plan,
    source: Run,
    edited: Run,
    report: EditReport,
    mask: np.ndarray | None,
) -> Iterator[str]:
    """Yield a sentence for each request with little or no effect.

    They are saved, and shown on pages as well.
    """
    only = plan.source.options.only
    change = pixel_change(source.image, edited.image)
    steps = report.steps
    windows = {
        "cross-attention": plan.cross_replace,
        "self-attention": plan.self_replace,
    }
    sites = {"cross-attention": report.sites, "self-attention": report.self_sites}
    for name, (start, end) in windows.items():
        acts = sites[name] and steps_within(start, end, steps)
        if start < end and not acts:
            yield (
                f"no {name} was copied from the source: none of the {steps} steps falls between "
                f"{start:g} and {end:g} of the run, or no layer of these that the edit may change "
                f"(of self-attention, with at most {report.options.max_self_cells} cells)"
            )
    is_black = any(run.settings.nsfw_content_detected for run in (source, edited))
    if report.reconstruction is not None and not is_black:
        yield distortion_warning(report.reconstruction.psnr_db)
        outside = report.change.outside.psnr_db
        if only is None and outside is not None and outside < LEAST_KEPT:
            yield (
                f"the image also changed outside the edited words (PSNR {outside:.1f} dB): "
                "restrict the edit to their region with only, or use 30 steps or more"
            )
    if only is not None and mask is None:
        yield (
            f"{quoted(only)} did not restrict the edit: it starts at "
            f"{report.options.blend_from:g} of the run, after the last of {steps} steps; "
            "start it earlier, or use more steps"
        )
    if mask is not None and not mask.any():
        yield (
            f"the region of {quoted(only)} is empty, so nothing was edited: lower its threshold "
            f"({report.options.threshold:g}), or name other words"
        )
    elif plan.has_effect and not is_black and change.max() <= 1 / 255:
        yield (
            f"the edit {quoted(plan.prompt)} did not visibly change the image: use a shorter "
            "cross_replace window, or another seed"
        )
