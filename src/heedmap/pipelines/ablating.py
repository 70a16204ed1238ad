"""Generate a run without one of its words."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from heedmap.backends.base import Pipeline
from heedmap.backends.prompts import prompt_table
from heedmap.errors import ArgumentError, UnknownWordError, quoted, warn
from heedmap.options import GenerateOptions
from heedmap.pipelines import generation, repeating
from heedmap.pipelines.batch import Progress
from heedmap.pipelines.repeating import SavedCall, compared, unmatched
from heedmap.recording.edits import Edit, Reweight, WordEdit
from heedmap.results.ablations import Ablation, ablated_run, check_word, shortened, with_trust
from heedmap.results.grids import load_result
from heedmap.results.runs import Run
from heedmap.text.weights import parse_weights
from heedmap.text.words import TokenTable


def ablate(
    pipe: Pipeline | None,
    run: Run | str | Path,
    word: str,
    *,
    progress: Progress | None = None,
    **given: Any,
) -> Ablation:
    """Generate a run again without one of its words, from the same noise and settings.

        found = heedmap.ablate(pipe, "outputs/house", "house")
        found.columns.image, found.unread.image, found.difference("columns"), found.sheet()
        found.trust.columns.heat.rank        # does the heat map show where the word acted?
        found.run.trust["house"]             # the same, saved with the run

    The word is left out in two ways. `columns`: the probabilities of its tokens are 0 in every
    layer and step, as with `Reweight(word, 0)`; later tokens have still read the word. `unread`:
    the word and the spaces before it are removed from the prompt, so "a red house, at night"
    without "house" is "a red , at night"; edits that name the word are left out, and rules of your
    own and a second prompt (of SDXL) stay.

    The run itself is generated again first. If it differs from the saved one, a warning says so,
    and the ablation holds the new one.

    Args:
        pipe: the pipeline to use; None loads the model named in the settings.
        run: a run that is not an edit, or its folder; or a prompt of several words, which is
            generated first. A text that names a folder is that folder.
        word: a word or phrase of its prompt, at all its places.
        progress: called after every step with the number of steps done and of all steps.
        given: of a run as in `repeat`; of a prompt the arguments of `generate`.

    Raises:
        ArgumentError: if the run is an edit, nothing is left of the prompt, or something is missing
            in `given`.
        ModelError: if the model named in the settings cannot be loaded.
        RunError: if the run cannot be generated again.
        TruncatedWordError: if the model did not read the word.
        UnknownWordError: if the prompt has no such word.
    """
    return ablate_each(pipe, run, [word], progress=progress, **given)[0]


def ablate_each(
    pipe: Pipeline | None,
    run: Run | str | Path,
    words: Sequence[str],
    *,
    progress: Progress | None = None,
    **given: Any,
) -> list[Ablation]:
    """Ablate each of several words; the run itself is generated again only once."""
    named = isinstance(run, str | Path)
    drawn = named and not _is_folder(run)
    if drawn:
        if pipe is None:
            raise ArgumentError(
                f"the prompt {quoted(run)} is given without a pipeline: expected a pipeline, as "
                "heedmap.load returns it"
            )
        _check_prompt(pipe, str(run), words, given)
        saved = generation.generate(pipe, str(run), progress=progress, **given)
        # Saved arguments are read from the settings, as for a run that is loaded.
        given = {n: v for n, v in given.items() if n == "edits" or n in saved.settings.arguments}
    else:
        saved = load_result(run) if named else run
    mine, *_ = [ablated_run(saved, word, run) for word in words]
    pipe = pipe if pipe is not None else repeating.load_for(mine)
    again = [] if drawn else [mine]

    def vary(asked: SavedCall) -> list[SavedCall]:
        calls = [asked for _ in again]
        for word in words:
            calls += [
                _without_attention(asked, word),
                _without_word(pipe, asked, mine.maps.tokens, word),
            ]
        return calls

    runs, changed = repeating.variants(pipe, mine, vary, given, progress)
    if again:
        saved, mine = mine, runs.pop(0)
        apart = compared(saved, mine, changed)
        if not apart.same:
            names = [*unmatched(changed)][:3]
            why = f" ({', '.join(names)})" if names else ""
            warn(
                f"the run that was generated again differs from the saved one{why} by up to "
                f"{apart.largest} of 255: the ablation is that of the new run"
            )
    pairs = zip(runs[::2], runs[1::2], strict=True)
    return with_trust(
        [
            Ablation(word.strip(), mine.maps.tokens.find(word), mine, columns, unread)
            for word, (columns, unread) in zip(words, pairs, strict=True)
        ]
    )


def _is_folder(run: str | Path) -> bool:
    """Return whether a path or a text names a folder; a text of one word does."""
    return isinstance(run, Path) or len(run.split()) < 2 or os.path.isdir(Path(run))


def _check_prompt(pipe: Any, prompt: str, words: Sequence[str], given: dict[str, Any]) -> None:
    """Raise a HeedmapError if a word cannot be left out of a prompt."""
    rest = {name: value for name, value in given.items() if name not in ("seed", "edits")}
    GenerateOptions.taken(rest)
    table = prompt_table(pipe, parse_weights(prompt).text, rest)
    for word in words:
        check_word(prompt, table, word)


def _without_attention(asked: SavedCall, word: str) -> SavedCall:
    """Return the call with the word's probabilities set to 0 after all other edits."""
    return replace(asked, edits=(*asked.edits, Reweight(word.strip(), 0.0)))


def _without_word(pipe: Any, asked: SavedCall, table: TokenTable, word: str) -> SavedCall:
    """Return the call without the word in its prompt, and without the edits that name it."""
    less = shortened(asked.prompt, table, word)
    left = prompt_table(pipe, parse_weights(less).text, asked.options.arguments)
    edits = tuple(edit for edit in asked.edits if _has_words(edit, left))
    return replace(asked, prompt=less, edits=edits)


def _has_words(edit: Edit, table: TokenTable) -> bool:
    """Return whether a prompt has all words that an edit names."""
    if not isinstance(edit, WordEdit):
        return True
    try:
        for word in (edit.word, *(getattr(edit, "along", None) or ())):
            table.matches(word)
    except UnknownWordError:
        return False
    return True
