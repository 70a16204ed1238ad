"""Many cases in several processes: what each finds, however a process ends.

Of n processes each takes every n-th number. One that dies, or hangs where no alarm reaches it, is
found by the number that it was at, and another one goes on after it.
"""

import gc
import multiprocessing
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from attacking.findings import Finding, Trouble

_DEAF = 60.0  # seconds at one case after which a process is killed
_EVERY = 2.0  # seconds from one message of a process to the next

# What tries a case: from its number to the case, as plain JSON, and what is wrong with it.
Attempt = Callable[[int], tuple[Any, list[Trouble]]]


@dataclass
class Tally:
    """What came of it.

    Attributes:
        part: of the attack.
        cases: how many were tried.
        seconds: by the clock.
        found: by key, the first case of each.
        often: by key, how many cases.
        told: whatever else was counted.
    """

    part: str
    cases: int = 0
    seconds: float = 0.0
    found: dict[str, Finding] = field(default_factory=dict)
    often: dict[str, int] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Count a finding; the first of its kind is kept."""
        self.found.setdefault(finding.key, finding)
        self.often[finding.key] = self.often.get(finding.key, 0) + 1

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        found = [{**f.to_dict(), "cases": self.often[key]} for key, f in self.found.items()]
        return {
            "part": self.part, "cases": self.cases, "seconds": round(self.seconds, 1),
            **self.told, "found": found,
        }  # fmt: skip


@dataclass
class _Worker:
    process: Any
    wire: Connection
    at: Any  # the number of the case that it is at; shared memory
    since: float
    told: dict[str, int] = field(default_factory=dict)
    seen: int = -1


def run(
    part: str, made: Callable[[], tuple[Attempt, Mapping[str, int]]], n: int, *,
    processes: int = 1, minutes: float | None = None,
    progress: Callable[[Tally], None] = lambda tally: None,
) -> Tally:  # fmt: skip
    """Try the cases from 0 to n − 1.

    Args:
        part: of the attack.
        made: called in each process: what tries a case there, and what it counts meanwhile.
        n: how many.
        processes: that try at once.
        minutes: after which no further case is tried.
        progress: called now and then.
    """
    tally, began = Tally(part), time.monotonic()
    until = None if minutes is None else time.time() + 60 * minutes
    done: list[_Worker] = []

    def start(first: int) -> _Worker:
        context = multiprocessing.get_context("fork")
        near, far = context.Pipe(duplex=False)
        at = context.Value("q", first)
        arguments = (made, far, at, first, n, processes, until)
        process = context.Process(target=_work, args=arguments, daemon=True)
        process.start()
        far.close()
        return _Worker(process, near, at, time.monotonic())

    working = [start(first) for first in range(min(processes, n))]
    while working:
        wait([worker.wire for worker in working], timeout=_EVERY)
        for worker in list(working):
            ended = _heard(worker, tally)
            if not ended:
                continue
            working.remove(worker)
            done.append(worker)
            if ended == "died":
                at = worker.at.value
                fault = Trouble("died", f"exit code {worker.process.exitcode}", "the process")
                tally.add(Finding(part, fault, {"number": at}))
                if at + processes < n:
                    working.append(start(at + processes))
        tally.cases = sum(worker.told.get("cases", 0) for worker in working + done)
        tally.seconds = time.monotonic() - began
        progress(tally)
    for name in {name for worker in done for name in worker.told} - {"cases"}:
        tally.told[name] = sum(worker.told.get(name, 0) for worker in done)
    return tally


def _heard(worker: _Worker, tally: Tally) -> str:
    """Take what a process says; returns how it ended, or nothing."""
    try:
        while worker.wire.poll():
            kind, said = worker.wire.recv()
            if kind == "broken":
                raise RuntimeError(f"the attack itself is broken:\n{said}")
            if kind == "found":
                tally.add(Finding(tally.part, *said))
            else:
                worker.told = said
                if kind == "end":
                    worker.process.join()
                    return "done"
    except (EOFError, OSError):
        worker.process.join()
        return "died"
    now = time.monotonic()
    if worker.at.value != worker.seen:
        worker.seen, worker.since = worker.at.value, now
    elif now - worker.since > _DEAF:
        worker.process.kill()
        worker.process.join()
        return "died"
    return ""


def _work(
    made: Callable[[], tuple[Attempt, Mapping[str, int]]], wire: Connection, at: Any, first: int,
    n: int, stride: int, until: float | None,
) -> None:  # fmt: skip
    attempt, counted = made()
    gc.collect()
    gc.freeze()  # the libraries' objects: to look through them takes half of what a case may
    cases, told = 0, time.monotonic()
    for number in range(first, n, stride):
        if until is not None and time.time() > until:
            break
        at.value = number
        try:
            case, wrong = attempt(number)
        except BaseException:
            wire.send(("broken", f"case {number}\n{traceback.format_exc()}"))
            raise
        cases += 1
        for one in wrong:
            wire.send(("found", (one, case)))
        if time.monotonic() - told > _EVERY:
            told = time.monotonic()
            wire.send(("word", {"cases": cases, **counted}))
    wire.send(("end", {"cases": cases, **counted}))
