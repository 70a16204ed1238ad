"""One job at a time on a device, the others in line: where a job stands, and ending it early.

    queue = JobQueue(most=16)
    job = queue.enter(work)         # work(job) runs in the queue's own thread, when its turn comes
    for state in job.states():      # waiting, then what the work tells, then its end
        ...
    queue.close()

Nobody waits for a job whose page is closed: a job that nobody listens to any more is ended.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from heedmap.app.labels import sentence_for
from heedmap.app.quotas import greediest, network
from heedmap.errors import HeedmapError

_LOG = logging.getLogger(__name__)
PATIENCE = 30.0
"""Seconds after which a job that nobody listens to is ended."""
GENERAL = (
    "something went wrong in heedmap itself, and nothing was saved: the log of the server says what"
)
_GAVE_WAY = "others are waiting, too, and you have other jobs in line: ask for this one again later"


class Cancelled(Exception):
    """A job that is not to go on; this is no error, and never shown as one."""


@dataclass(frozen=True)
class State:
    """Where a job stands.

    Attributes:
        phase: "waiting", "working", "done", "cancelled" or "failed".
        before: how many jobs are before it, while it waits.
        doing: what it does, while it works.
        step: how many steps are done.
        steps: of how many; 0 where that is not known.
        preview: a small picture of what it draws, as a data URL.
        result: what it gave, when it is done.
        sentence: why it failed.
    """

    phase: str
    before: int = 0
    doing: str = ""
    step: int = 0
    steps: int = 0
    preview: str = ""
    result: Any = None
    sentence: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing more comes."""
        return self.phase in ("done", "cancelled", "failed")


@dataclass(eq=False)
class Job:
    """One piece of work in the line; made by `JobQueue.enter`."""

    work: "Callable[[Job], Any]"
    queue: "JobQueue"
    whose: str = ""
    _state: State = State("waiting")
    _stop: bool = False
    _heard: float = field(default_factory=time.monotonic)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def tell(self, doing: str, step: int = 0, steps: int = 0, preview: str = "") -> None:
        """Called by the work, to say what it is doing. A preview stays until there is another.

        Raises:
            Cancelled: if the job is not to go on.
        """
        self.check()
        shown = preview or self._state.preview
        self._set(State("working", doing=doing, step=step, steps=steps, preview=shown))

    def check(self) -> None:
        """Raise `Cancelled` if the job is not to go on; the work calls it as often as it can."""
        if not self.wanted:
            raise Cancelled

    @property
    def wanted(self) -> bool:
        """Whether it was not cancelled and somebody listens."""
        return not self._stop and time.monotonic() - self._heard <= PATIENCE

    def cancel(self) -> None:
        """End it before its turn, or at the next step; nothing is saved."""
        self._stop = True
        with self._changed:
            self._changed.notify_all()

    def give_way(self) -> None:
        """End it before its turn, to make room for another visitor's."""
        self._stop = True
        self._set(State("failed", sentence=_GAVE_WAY))

    @property
    def state(self) -> State:
        """Where it stands now."""
        state = self._state
        if state.phase == "waiting":
            return State("cancelled") if self._stop else State("waiting", self.queue.before(self))
        return state

    def states(
        self, *, pause: float = 0.25, heard: Callable[[], bool] = lambda: True
    ) -> Iterator[State]:
        """Where it stands, again and again until it has ended; only what is new.

        Args:
            pause: seconds after which it is looked at anew, at most.
            heard: whether somebody reads what is yielded; while nobody does, only the end is
                yielded, and after some time the job is ended.
        """
        told = None
        while True:
            if is_heard := heard():
                self._heard = time.monotonic()
            elif not self.wanted:
                self.cancel()
            state = self.state
            if state != told and (is_heard or state.ended):
                yield state
                told = state
            if state.ended:
                return
            with self._changed:
                if self.state == state:
                    self._changed.wait(pause)

    def run(self) -> None:
        """Do the work; whatever happens, the job ends in a state. Called by the queue alone."""
        try:
            self.check()
            self._set(State("working"))
            end = State("done", result=self.work(self))
        except Cancelled:
            end = State("cancelled")
        except HeedmapError as error:
            end = State("failed", sentence=sentence_for(error))
        except Exception as error:
            # Visitors are told what they can act on, and nothing about the machine.
            short = isinstance(error, MemoryError) or "out of memory" in str(error).lower()
            said = "there is not enough memory for this: try a smaller size" if short else GENERAL
            _LOG.exception("a job of the app failed")
            end = State("failed", sentence=said)
        self._set(end)

    def _set(self, state: State) -> None:
        with self._changed:
            self._state = state
            self._changed.notify_all()


class JobQueue:
    """The jobs for one device, in the order in which they came.

    Where too many wait, the last one of whoever has most of them gives way.

    Args:
        most: jobs that may wait.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._waiting: deque[Job] = deque()
        self._current: Job | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="heedmap-jobs", daemon=True)
        self._thread.start()

    def enter(self, work: Callable[[Job], Any], client: str = "") -> Job:
        """Put work at the end of the line.

        Args:
            work: what is to be done.
            client: the address of whoever asks.

        Raises:
            HeedmapError: if the line is full and nobody else has more jobs in it, or if it is
                closed.
        """
        job = Job(work, self, network(client))
        with self._changed:
            if self._closed:
                raise HeedmapError("the server is about to stop: nothing is drawn any more")
            self._waiting = deque(other for other in self._waiting if other.wanted)
            gone = self._make_room(job.whose) if len(self._waiting) >= self.most else None
            self._waiting.append(job)
            self._changed.notify_all()
        if gone is not None:
            gone.give_way()
        return job

    def _make_room(self, whose: str) -> Job:
        """Take a job out of the line for another of this visitor's."""
        owners = [other.whose for other in self._waiting]
        most = greediest(owners) if owners else whose
        if owners.count(most) <= owners.count(whose) + 1:
            raise HeedmapError(f"{len(owners)} jobs are waiting already: try again in a while")
        gone = next(other for other in reversed(self._waiting) if other.whose == most)
        self._waiting.remove(gone)
        return gone

    def before(self, job: Job) -> int:
        """How many jobs come before one that waits."""
        with self._changed:
            waiting = [other for other in self._waiting if other.wanted]
            place = waiting.index(job) if job in waiting else 0
            return place + (self._current is not None and self._current is not job)

    def close(self, timeout: float = 1.5) -> None:
        """End the job at work and those that wait.

        Args:
            timeout: seconds that the job at work has to end. A model that is being loaded
                takes longer; its thread ends with the process.
        """
        with self._changed:
            if self._closed:
                return
            self._closed = True
            jobs = [*self._waiting, *([self._current] if self._current else [])]
            self._waiting.clear()
            self._changed.notify_all()
        for job in jobs:
            job.cancel()
        self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._current = None
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                self._current = self._waiting.popleft()
            self._current.run()
