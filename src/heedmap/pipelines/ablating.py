"""Generate a run without one of its words."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from heedmap.backends.base import Pipeline
from heedmap.backends.prompts import prompt_table
from heedmap.errors import UnknownWordError, warn
from heedmap.pipelines import repeating
from heedmap.pipelines.generation import Progress, sub_progress
from heedmap.recording.edits import Edit, Reweight, WordEdit
from heedmap.results.ablations import Ablation, shorter_prompt
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
    **arguments: Any,
) -> Ablation:
    """Generate a run again without one of its words, from the same noise and settings.

        found = heedmap.ablate(pipe, "outputs/house", "house")
        found.without["attention"].image, found.without["prompt"].image, found.sheet()
        found.agreement["attention"].heat.rank      # does the heat map show where the word acted?

    The word is left out in two ways. Neither isolates the cause.

    - "attention": the probabilities of its tokens are set to 0 in every layer and step; the others
      stay, so rows no longer sum to 1, as with `Reweight(word, 0)`. Later tokens have still read
      the word.
    - "prompt": the word and the spaces before it are removed from the prompt, so "a red house, at
      night" without "house" is "a red , at night". Edits that name the word are left out; rules of
      your own and a second prompt (of SDXL) stay. All other tokens change, too.

    The run itself is generated again first. If it differs from the saved one, a warning says so,
    and the ablation holds the new one.

    Args:
        pipe: the pipeline to use; None loads the model named in the settings.
        run: a run that is not an edit, or its folder.
        word: a word or phrase of its prompt; every occurrence is removed.
        progress: called after every step with the number of steps done and of all steps.
        arguments: those that a file cannot hold, as in `repeat`.

    Returns:
        The run and both runs without the word, with their differences and the measures.

    Raises:
        ArgumentError: if the run is an edit, nothing is left of the prompt, or one of `arguments`
            is missing.
        ModelError: if the model named in the settings cannot be loaded.
        RunError: if the run cannot be generated again.
        WordError: if the prompt has no such word, or the model did not read it.
    """
    saved = load_result(run) if isinstance(run, str | Path) else run
    saved, prompt = shorter_prompt(saved, word)
    pipe = repeating.load_for(saved) if pipe is None else pipe
    call = repeating.saved_call(saved.settings, pipe, arguments)
    call = replace(call, options=replace(call.options, places=(), reads=False))
    table = prompt_table(pipe, parse_weights(prompt).text, call.options.arguments)
    edits = tuple(edit for edit in call.edits if _has_words(table, edit))
    without_attention = replace(call, edits=(*call.edits, Reweight(word.strip(), 0.0)))
    without_prompt = replace(call, prompt=prompt, edits=edits)
    calls = (call, without_attention, without_prompt)
    changed = repeating.settings_diff(saved.settings, pipe)
    with repeating.saved_schedulers(pipe, saved.settings):
        again, *without = (
            repeating.generate_call(pipe, one, sub_progress(progress, done, len(calls)))
            for done, one in enumerate(calls)
        )
    result = repeating.compared(saved, again, changed)
    if not result.same:
        warn(
            f"the run was not reproduced exactly, so the ablation is that of a new one: {result}"
        )
    return Ablation(
        word.strip(), again, {"attention": without[0], "prompt": without[1]}
    )


def _has_words(table: TokenTable, edit: Edit) -> bool:
    """Return True if a prompt has all words that an edit names."""
    if not isinstance(edit, WordEdit):
        return True
    words = (edit.word, *(getattr(edit, "along", None) or ()))
    try:
        return all(table.matches(word) for word in words)
    except UnknownWordError:
        return False
