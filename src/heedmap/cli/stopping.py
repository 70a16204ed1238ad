"""Ctrl-C before any verb has begun: what hears it is there before all else, and imports nothing."""

import os

TYPE_CHECKING = False  # as `typing` has it, which takes longer to import than all else here
if TYPE_CHECKING:
    from types import FrameType

NOTHING_KEPT = "Interrupted: nothing was kept."


def end_at_once(number: int, frame: "FrameType | None") -> None:
    """At Ctrl-C while the command line itself is imported, and no verb has begun."""
    try:
        os.write(2, f"{NOTHING_KEPT}\n".encode())
    finally:
        os._exit(130)  # what is being imported cannot make another error of it
