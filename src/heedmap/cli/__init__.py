"""The command line: thin, one function for each verb.

The verbs are in `verbs`, which imports Typer and no more; a verb imports what it uses when it runs,
so that `--help` is instant, `words` loads no torch and `inspect` no diffusers. A `HeedmapError`
ends in its sentence and exit code 2, an interrupt in 130: Ctrl-C is heard here before any of it is
imported, so this file imports nothing that takes time.
"""

import signal

from heedmap.cli.stopping import end_at_once

TYPE_CHECKING = False  # as `typing` has it, which takes longer to import than all else here
if TYPE_CHECKING:
    from heedmap.cli.verbs import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
    from heedmap.cli import verbs

    verbs.run()


def __getattr__(name: str) -> object:
    """The verbs, imported when they are asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from heedmap.cli import verbs

    return verbs.app
