"""Generate a run without one of its words."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from heedmap.backends.base import Pipeline
from heedmap.backends.prompts import prompt_table
from heedmap.errors import UnknownWordError, warn
from heedmap.pipelines import repeating
from heedmap.pipelines.generation import Progress
from heedmap.pipelines.repeating import compared
from heedmap.recording.edits import Edit, Reweight, WordEdit
from heedmap.results.ablations import Ablation, check_ablatable, shorter_prompt
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

    The word is left out in two ways. `columns`: the probabilities of its tokens are 0 in every
    layer and step, as with `Reweight(word, 0)`; later tokens have still read the word. `unread`:
    the word and the spaces before it are removed from the prompt, so "a red house, at night"
    without "house" is "a red , at night"; edits that name the word are left out, and rules of your
    own and a second prompt (of SDXL) stay.

    The run itself is generated again first. If it differs from the saved one, a warning says so,
    and the ablation holds the new one.

    Args:
        pipe: the pipeline to use; None loads the model named in the settings.
        run: a run that is not an edit, or its folder.
        word: a word or phrase of its prompt, at all its places.
        progress: called after every step with the number of steps done and of all steps.
        given: as in `repeat`.

    Returns:
        The run and both runs without the word, with their differences and the measures.

    Raises:
        ArgumentError: if the run is an edit, nothing is left of the prompt, or something is missing
            in `given`.
        ModelError: if the model named in the settings cannot be loaded.
        RunError: if the run cannot be generated again.
        TruncatedWordError: if the model did not read the word.
        UnknownWordError: if the prompt has no such word.
    """
    saved = load_result(run) if isinstance(run, str | Path) else run
    saved = check_ablatable(saved, word, run)
    pipe = repeating.load_for(saved) if pipe is None else pipe
    word, table = word.strip(), saved.maps.tokens
    call = repeating.saved_call(saved.settings, pipe, given)
    without_attention = replace(call, edits=(*call.edits, Reweight(word, 0.0)))
    prompt = shorter_prompt(call.prompt, table, word)
    without_word = prompt_table(pipe, parse_weights(prompt).text, call.options.arguments)
    edits = tuple(edit for edit in call.edits if _has_words(edit, without_word))
    calls = (call, without_attention, replace(call, prompt=prompt, edits=edits))
    (again, columns, unread), changed = repeating.generate_calls(pipe, saved, calls, progress)
    result = compared(saved, again, changed)
    if not result.same:
        warn(f"the ablation is that of a new run, which is not the saved one: {result}")
    return Ablation(word, table.find(word), again, columns, unread)


def _has_words(edit: Edit, table: TokenTable) -> bool:
    words = (edit.word, *(getattr(edit, "along", None) or ())) if isinstance(edit, WordEdit) else ()
    try:
        return all(table.matches(word) for word in words)
    except UnknownWordError:
        return False
