"""Put something in the place of an instance's method for a while, and take it off again."""

from collections.abc import Callable
from typing import Any


def put(owner: Any, name: str, method: Callable[..., Any]) -> Callable[[], None]:
    """Put a method on an instance, in front of its class's own.

    Returns:
        A function that takes it off again, unless somebody has put another there meanwhile.
    """
    before = vars(owner).get(name)
    vars(owner)[name] = method

    def undo() -> None:
        if vars(owner).get(name) is not method:
            return
        if before is None:
            del vars(owner)[name]
        else:
            vars(owner)[name] = before

    return undo
