"""What makes heavy imports shorter."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Import modules in the block without looking for garbage among them.

    torch and diffusers bring some 700,000 objects, all of which stay. Python looks through those
    that are there whenever there are some more, which is a quarter of the time that it takes to
    import them. What the block made counts as looked through afterwards.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # else somebody keeps objects aside, who wants them there
            gc.freeze()
            gc.unfreeze()  # to the oldest
        gc.enable()
