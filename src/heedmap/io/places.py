"""Places in an image, as `generate` takes them and `run.json` has them."""

from collections import Counter
from collections.abc import Iterable

from heedmap.checks import as_ordered_list, check_int, check_text
from heedmap.errors import ArgumentError, format_number, quoted
from heedmap.io.word_edits import Mask, parse_region

Place = tuple[int | float, ...] | Mask | str
"""A pixel (x, y), a box (left, top, right, bottom) in pixels, a mask, or a word, whose mask is
meant."""
MAX_PLACES = 100
"""Places of one run."""


def check_places(places: object) -> tuple[Place, ...]:
    """Return the places of a list.

    ArgumentError if it is no list of places, or holds too many.
    """
    several = as_ordered_list(places)
    is_single = bool(several) and all(isinstance(side, int | float) for side in several)
    if several is None or is_single or len(several) > MAX_PLACES:
        raise ArgumentError(
            f"places is {quoted(places)}: expected a list of at most {MAX_PLACES} places, such as "
            "[(40, 80), 'house']"
        )
    return tuple(map(_place, several))


def _place(place: object) -> Place:
    if isinstance(place, str):
        return check_text("a place", place, "house").strip()
    if isinstance(place, tuple | list) and len(place) == 2:
        return tuple(check_int("a pixel of places", side, least=0) for side in place)
    return parse_region(place, "a place")


def place_label(place: Place) -> str:
    """Return the name of a place in figures."""
    if isinstance(place, Mask):
        return "mask"
    if isinstance(place, str):
        return place
    return ",".join(map(format_number, place))


def place_labels(places: Iterable[Place]) -> list[str]:
    """Return the names of places; equal ones are numbered from the second on: "mask 2"."""
    counts: Counter[str] = Counter()
    labels: list[str] = []
    for label in map(place_label, places):
        counts[label] += 1
        labels.append(f"{label} {counts[label]}" if counts[label] > 1 else label)
    return labels
