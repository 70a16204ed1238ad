"""A prompt read without one of its words. Pure text."""

from bisect import bisect_left, bisect_right

from heedmap.text.weights import Span, WeightedPrompt, spelled
from heedmap.text.words import TokenTable


def leave_out(prompt: WeightedPrompt, table: TokenTable, query: str) -> str:
    """What is written without a word or phrase, at all of its places, those past the limit too.

    Its characters go, and with them the spaces before it where spaces follow, or nothing. All else
    stays: articles, punctuation, hyphens and the weights of other words. "a red house, at night"
    without "house" is "a red , at night".

    Args:
        prompt: the prompt, with the weights that it was written with.
        table: what the model reads of its text.
        query: a word or phrase of it.

    Returns:
        as `parse_weights` reads it; empty where nothing is left.

    Raises:
        UnknownWordError: if the word is not in the prompt.
    """
    text, places = prompt.text, table.matches(query)
    gone: set[int] = set()
    for place in places:
        start, end = place[0].start, place[-1].end
        if not text[end : end + 1].strip():
            start = len(text[:start].rstrip())
        gone.update(range(start, end))
    kept = [at for at in range(len(text)) if at not in gone]
    left = "".join(text[at] for at in kept)
    numbers = {word.number for place in places for word in place}
    stays = [word for word in table.words if word.number not in numbers]
    ends = [word.end for word in stays]
    spans: list[Span] = []
    for start, end, weight in prompt.spans:
        following = bisect_right(ends, start)
        if following < len(stays) and stays[following].start < end:  # else it goes with its word
            inner = slice(bisect_left(kept, start), bisect_left(kept, end))
            first = inner.start + len(left[inner]) - len(left[inner].lstrip())
            spans.append((first, first + len(left[inner].strip()), weight))
    return spelled(left, spans).strip()
