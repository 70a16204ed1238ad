"""What counts as found, and how one thing is told from another.

Whatever a stranger sends must end in a result or in one sentence, a `HeedmapError`, within a second
and a bounded amount of memory. All else is trouble.
"""

import json
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from heedmap.errors import HeedmapError, HeedmapWarning

SECONDS = 1.0
"""Of the processor that one thing may take; the clock would count what other programs take."""
HANGS = 10.0
"""Seconds by the clock after which whatever waits is called back."""
LONGEST = 2000
"""Characters that a sentence may have."""
EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\"'>"
"""What must never stand in a page as it is here."""


@dataclass(frozen=True)
class Trouble:
    """What went wrong.

    Attributes:
        kind: "error", "time", "memory", "warning", "sentence", "page", "command", "unequal", …
        what: in one line.
        where: the innermost line of heedmap, or what was done.
    """

    kind: str
    what: str
    where: str

    @property
    def key(self) -> str:
        """What tells it from other trouble: not the numbers in its text."""
        return f"{self.kind} {self.what.partition(':')[0]} {self.where}"


@dataclass(frozen=True)
class Finding:
    """Trouble, and the case that brought it about: plain JSON, by which it can be replayed."""

    part: str
    trouble: Trouble
    case: Any

    @property
    def key(self) -> str:
        """What tells it from others."""
        return f"{self.part} {self.trouble.key}"

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"part": self.part, **asdict(self.trouble), "case": self.case}


class Wrong(Exception):
    """Something that heedmap did is not as it must be.

    Args:
        kind: of trouble.
        what: in one line.
        where: what was done.
    """

    def __init__(self, kind: str, what: str, where: str = "") -> None:
        super().__init__(what)
        self.trouble = Trouble(kind, what, where)


class _Hangs(BaseException):
    """Raised by the alarm, past every `except Exception`."""


@contextmanager
def alarm(seconds: float = HANGS) -> Iterator[None]:
    """Call back whatever hangs, such as the opening of a pipe that nobody writes to."""

    def ring(*_: object) -> None:
        raise _Hangs

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def trouble(
    act: Callable[[], Any], doing: str, *, fine: tuple[type[Exception], ...] = ()
) -> Trouble | None:
    """Do something that may end in a sentence, and say what else came of it.

    Args:
        act: does it.
        doing: what it is, in a word or two.
        fine: errors that are as good as heedmap's own: those that the command line tells.
    """
    found: Trouble | None = None
    began = time.process_time()
    try:
        with alarm(), warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", HeedmapWarning)
            act()
    except HeedmapError as error:
        found = _unsaid(str(error), _place(error, doing))
    except fine:
        pass
    except Wrong as wrong:
        found = Trouble(wrong.trouble.kind, wrong.trouble.what, wrong.trouble.where or doing)
    except Warning as error:
        found = Trouble("warning", _line(error), _place(error, doing))
    except MemoryError as error:
        found = Trouble("memory", _line(error), _place(error, doing))
    except _Hangs as error:
        return Trouble("time", f"hangs: longer than {HANGS:g} s by the clock", _place(error, doing))
    except Exception as error:
        found = Trouble("error", _line(error), _place(error, doing))
    took = time.process_time() - began
    if found is None and took > SECONDS:
        found = Trouble("time", f"slow: {took:.1f} s of the processor", doing)
    return found


def _unsaid(sentence: str, where: str) -> Trouble | None:
    """What is wrong with an error's sentence."""
    if not sentence.strip() or len(sentence) > LONGEST:
        return Trouble("sentence", f"length: it has {len(sentence)} characters", where)
    if any(sign in sentence for sign in "\n\r\0\x1b"):
        return Trouble("sentence", f"control characters: {sentence[:200]!r}", where)
    try:
        sentence.encode()
    except UnicodeEncodeError:
        return Trouble("sentence", f"cannot be printed: {sentence[:200]!r}", where)
    return None


def _line(error: BaseException) -> str:
    said = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {said.encode(errors='backslashreplace').decode()}"


def _place(error: BaseException, doing: str) -> str:
    """The innermost line of heedmap that an error came through."""
    place, trace = doing, error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if "/heedmap/" in code.co_filename:
            short = code.co_filename.rpartition("/heedmap/")[2]
            place = f"{short}:{trace.tb_lineno} {code.co_name}"
        trace = trace.tb_next
    return place


# --- what was found once ----------------------------------------------------------------------

CORPUS = Path(__file__).resolve().parents[2] / "tests" / "corpus"
"""What was found once and mended, a file each; a test replays them."""


def remembered(part: str, folder: Path = CORPUS) -> dict[str, Any]:
    """The cases of a part that were found once, by the names of their files."""
    found = {}
    for path in sorted(folder.glob(f"{part}-*.json")):
        found[path.stem] = json.loads(path.read_text(encoding="utf-8"))["case"]
    return found


def remember(finding: Finding, name: str, folder: Path = CORPUS) -> Path:
    """Write a case down."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{finding.part}-{name}.json"
    told = json.dumps(finding.to_dict(), indent=1)  # ASCII: it may hold a lone surrogate
    path.write_text(told + "\n", encoding="utf-8")
    return path
