"""Places in an image, as `generate` takes them and `run.json` has them."""

from heedmap.checks import as_ordered_list, check_int
from heedmap.errors import ArgumentError, format_number, quoted
from heedmap.io.word_edits import Mask, parse_region

Place = tuple[int | float, ...] | Mask
"""A pixel (x, y), a box (left, top, right, bottom) in pixels, or a mask."""


def check_places(places: object) -> tuple[Place, ...]:
    """Return the places of a list; ArgumentError if it is no list of places."""
    several = as_ordered_list(places)
    if several is None:
        raise ArgumentError(
            f"places is {quoted(places)}: expected a list of places, such as [(40, 80)]"
        )
    return tuple(map(_place, several))


def _place(place: object) -> Place:
    if isinstance(place, tuple | list) and len(place) == 2:
        return tuple(check_int("a pixel of places", side, least=0) for side in place)
    return parse_region(place, "a place")


def place_label(place: Place) -> str:
    """Return the name of a place in figures."""
    if isinstance(place, Mask):
        return "mask"
    return ",".join(map(format_number, place))
