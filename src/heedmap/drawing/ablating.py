"""Leave a word of a run out, both ways, and all else as it was: what would the picture be?"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from heedmap.drawing import generation, repeating
from heedmap.drawing.batch import Progress
from heedmap.drawing.repetitions import compared, unmatched
from heedmap.drawing.saved_calls import SavedCall
from heedmap.errors import ArgumentError, UnknownWordError, quoted, warn
from heedmap.options import GenerateOptions
from heedmap.recording.edits import Edit, Reweight, WordEdit
from heedmap.results.ablations import Ablation, ablated_run, check_word, shortened, with_trust
from heedmap.results.folders import load_result
from heedmap.results.runs import Run
from heedmap.text.weights import parse_weights
from heedmap.text.words import TokenTable
from heedmap.wiring.family import Pipeline
from heedmap.wiring.prompt_tables import prompt_table


def ablate(
    pipe: Pipeline | None,
    run: Run | str | Path,
    word: str,
    *,
    progress: Progress | None = None,
    **given: Any,
) -> Ablation:
    """What a picture would have been without one of its words, from the same noise and settings.

        found = heedmap.ablate(pipe, "outputs/house", "house")
        found.columns.image, found.unread.image, found.difference("columns"), found.sheet()
        found.trust.columns.heat.rank        # does the heat say where the word acted?
        found.run.trust["house"]             # the same: it is on the run's sheet, page and file

    Two ways, since neither is the cause itself. `columns`: the word's tokens are not attended to,
    their probabilities being 0 in every layer and step; what they would have drawn goes to no other
    token, as with `Reweight(word, 0)`. The tokens after the word have read it, and still tell of
    it. `unread`: the prompt is read without the word's characters. Articles, punctuation and all
    else stay, but for the spaces before it: "a red house, at night" without "house" is
    "a red , at night". Edits of the run that name the word are left out with it then, rules of your
    own act as they are, and so does a second prompt (of SDXL) that was given.

    The run is drawn again first, so that nothing but the word can make a difference; where it is
    not the one that was saved, a warning says so, and the one that was drawn again is held.

    Args:
        pipe: the pipeline to draw with; None loads the model that the settings name.
        run: a run that is no edit, or its folder; or a prompt of several words, which is drawn as
            by `generate`. A text that names a folder is that folder.
        word: a word or phrase of its prompt; all its places are meant.
        progress: called after every step with the steps done and those of all.
        given: of a run what its settings tell apart but do not hold, as of `repeat`; of a prompt
            all that `generate` takes.

    Raises:
        ArgumentError: if the run is an edit, nothing is left of the prompt, or something is missing
            in `given`.
        ModelError: if the model that the settings name cannot be loaded.
        RunError: if the run cannot be drawn again.
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
    """As `ablate`, of several words by themselves: the run is drawn again once for all of them."""
    named = isinstance(run, str | Path)
    drawn = named and not _is_folder(run)
    if drawn:
        if pipe is None:
            raise ArgumentError(
                f"the prompt {quoted(run)} comes without a pipeline: expected one to draw it with; "
                "load one first"
            )
        _check_prompt(pipe, str(run), words, given)
        saved = generation.generate(pipe, str(run), progress=progress, **given)
        # What is noted is asked of the settings, as whoever opens the run later has to.
        given = {n: v for n, v in given.items() if n == "edits" or n in saved.settings.arguments}
    else:
        saved = load_result(run) if named else run
    mine, *_ = [ablated_run(saved, word, run) for word in words]
    pipe = pipe if pipe is not None else repeating.load_for(mine)
    again = [] if drawn else [mine]

    def vary(asked: SavedCall) -> list[SavedCall]:
        calls = [asked for _ in again]
        for word in words:
            calls += [_unattended(asked, word), _shortened(pipe, asked, mine.maps.tokens, word)]
        return calls

    runs, changed = repeating.variants(pipe, mine, vary, given, progress)
    if again:
        saved, mine = mine, runs.pop(0)
        apart = compared(saved, mine, changed)
        if not apart.same:
            names = [*unmatched(changed)][:3]
            why = f" ({', '.join(names)})" if names else ""
            warn(
                f"the run drawn again is not the one that was saved{why}: its picture differs by "
                f"up to {apart.largest} of 255; the word was left out of the one drawn again"
            )
    pairs = zip(runs[::2], runs[1::2], strict=True)
    return with_trust(
        [
            Ablation(word.strip(), mine.maps.tokens.find(word), mine, columns, unread)
            for word, (columns, unread) in zip(words, pairs, strict=True)
        ]
    )


def _is_folder(run: str | Path) -> bool:
    """Whether a path or a text names a folder: a text of one word is taken for one, too."""
    return isinstance(run, Path) or len(run.split()) < 2 or os.path.isdir(Path(run))


def _check_prompt(pipe: Any, prompt: str, words: Sequence[str], given: dict[str, Any]) -> None:
    """Raise a HeedmapError if one of the words cannot be left out, before anything is drawn."""
    rest = {name: value for name, value in given.items() if name not in ("seed", "edits")}
    GenerateOptions.taken(rest)
    table = prompt_table(pipe, parse_weights(prompt).text, rest)
    for word in words:
        check_word(prompt, table, word)


def _unattended(asked: SavedCall, word: str) -> SavedCall:
    """The same with the word's columns of P at 0, after all else that is done to them."""
    return replace(asked, edits=(*asked.edits, Reweight(word.strip(), 0.0)))


def _shortened(pipe: Any, asked: SavedCall, table: TokenTable, word: str) -> SavedCall:
    """The same with a prompt without the word, and without the edits that name it."""
    less = shortened(asked.prompt, table, word)
    left = prompt_table(pipe, parse_weights(less).text, asked.options.arguments)
    edits = tuple(edit for edit in asked.edits if _stands(edit, left))
    return replace(asked, prompt=less, edits=edits)


def _stands(edit: Edit, table: TokenTable) -> bool:
    """Whether all words that an edit names are in a prompt."""
    if not isinstance(edit, WordEdit):
        return True
    try:
        for word in (edit.word, *(getattr(edit, "along", None) or ())):
            table.matches(word)
    except UnknownWordError:
        return False
    return True
