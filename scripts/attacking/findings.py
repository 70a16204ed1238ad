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

import heedmap
from heedmap.errors import HeedmapError, HeedmapWarning

_HOUSE = f"{Path(heedmap.__file__).parent}/"
SECONDS = 1.0
"""Seconds of the processor that one thing may take; the clock would count other programs, too."""
SAVING = 3.0
"""The same for saving, which draws and packs a picture for each of up to 75 words, and for a table
of up to 1500 maps."""
_DRAWING = ("saving", "layers by heads")
STOPPED = 10.0
"""Seconds of the processor after which nobody waits for it any longer."""
HANGS = 5.0
"""Seconds by the clock in which nothing was computed: whatever waits is called back."""
LONGEST = 2000
"""Characters that a sentence may have."""
EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\"'>"
"""What must never appear in a page as it is written here."""


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
    """Something that heedmap did is wrong.

    Args:
        kind: of trouble.
        what: in one line.
        where: what was done.
    """

    def __init__(self, kind: str, what: str, where: str = "") -> None:
        super().__init__(what)
        self.trouble = Trouble(kind, what, where)


class _Stopped(BaseException):
    """Raised by an alarm, past every `except Exception`."""


@contextmanager
def alarm() -> Iterator[None]:
    """Call back what computes for too long, and what waits, as for a pipe that nobody writes to.

    Where other programs hold the processor, little is computed in a second: what still computes is
    no more than slow.
    """
    done = time.process_time()

    def stop(*_: object) -> None:
        raise _Stopped("computes", f"more than {STOPPED:g} s of the processor")

    def look(*_: object) -> None:
        nonlocal done
        now = time.process_time()
        if now - done < HANGS / 100:
            raise _Stopped("hangs", f"waits for more than {HANGS:g} s")
        done = now

    before = signal.signal(signal.SIGPROF, stop), signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_PROF, STOPPED)
    signal.setitimer(signal.ITIMER_REAL, HANGS, HANGS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before[0])
        signal.signal(signal.SIGALRM, before[1])


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
    except _Stopped as error:
        # Where it was stopped is chance; what it was doing is not.
        return Trouble("time", ": ".join(error.args), doing)
    except Exception as error:
        found = Trouble("error", _line(error), _place(error, doing))
    took = time.process_time() - began
    if found is None and took > (SAVING if doing in _DRAWING else SECONDS):
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
        if code.co_filename.startswith(_HOUSE):
            short = code.co_filename.removeprefix(_HOUSE)
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
    wrong = finding.trouble  # without what changes from place to place, and from day to day
    about = {"part": finding.part, "kind": wrong.kind, "what": wrong.what.partition(":")[0]}
    told = json.dumps({**about, "case": finding.case}, indent=1)  # ASCII: lone surrogates
    path.write_text(told + "\n", encoding="utf-8")
    return path
