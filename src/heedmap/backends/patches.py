"""Put something in the place of an instance's method for a while, and take it off again."""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any


class _Put:
    """What stands on an instance in front of its class's method, and what stood there before."""

    def __init__(self, owner: Any, name: str, method: Callable[..., Any]) -> None:
        # Whoever asks for the signature is told that of the method itself.
        update_wrapper(self, getattr(owner, name))
        self.owner, self.name, self.method = owner, name, method
        self.under = vars(owner).get(name)
        self.live = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.method(*args, **kwargs)

    def __reduce__(self) -> Any:
        """A copy of the owner, or what is pickled of it, has its own method."""
        return getattr, (self.owner, self.name)


def put(owner: Any, name: str, method: Callable[..., Any]) -> Callable[[], None]:
    """Put a method on an instance, in front of its class's own.

    Returns:
        A function that takes it off again, in whatever order several are taken off; what somebody
        else has put there meanwhile stays.
    """
    placed = _Put(owner, name, method)
    vars(owner)[name] = placed

    def undo() -> None:
        placed.live = False
        top = vars(owner).get(name)
        while isinstance(top, _Put) and not top.live:
            top = top.under
        if top is None:
            vars(owner).pop(name, None)
        else:
            vars(owner)[name] = top

    return undo
