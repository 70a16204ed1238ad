"""What the tabs with jobs have in common: their buttons, and following a job to its end."""

import logging
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from heedmap.app import fragments
from heedmap.app.jobs import GENERAL, Job, JobQueue, State
from heedmap.app.labels import sentence_for
from heedmap.app.requests import JobRequest
from heedmap.app.visitors import visitor_of
from heedmap.app.worker import ResultSummary
from heedmap.errors import HeedmapError

_LOG = logging.getLogger(__name__)
UNSEEN: dict[str, Any] = {
    "show_progress": "hidden",
    "api_visibility": "private",
    "preprocess": False,  # what a field holds is read by us, whose errors are sentences
}
"""How each event of the page is told to Gradio."""


class VisitorJobs:
    """The jobs of the visitors: of each tab of each visitor the last one.

    Args:
        queue: where jobs wait.
        listeners: the sessions whose page is listening.
    """

    def __init__(self, queue: JobQueue, listeners: Container[str]) -> None:
        self._queue, self._listeners = queue, listeners
        self._jobs: dict[tuple[str, str], Job] = {}

    def cancel(self, session: str, tab: str) -> None:
        """End the job of a tab, if there is one."""
        job = self._jobs.get((session, tab))
        if job is not None:
            job.cancel()

    def follow(
        self, session: str, tab: str, work: Callable[[Job], ResultSummary], client: str = ""
    ) -> Iterator[State]:
        """Put a visitor's job in line, and tell its states as long as the tab has no other.

        Nothing of it stays behind, whether it ends, its visitor leaves, or nobody asks for its next
        state.

        Raises:
            HeedmapError: if the line is full.
        """
        self.cancel(session, tab)
        job = self._queue.enter(work, client)
        self._jobs[session, tab] = job
        try:
            for state in job.states(heard=lambda: session in self._listeners):
                if self._jobs.get((session, tab)) is not job:
                    return
                yield state
        finally:
            job.cancel()
            if self._jobs.get((session, tab)) is job:
                del self._jobs[session, tab]


@dataclass(frozen=True)
class JobForm:
    """What every tab with jobs has.

    Attributes:
        name: of the tab.
        run: starts a job.
        cancel: ends it.
        status: where it stands.
        page: of its result.
    """

    name: str
    run: gr.Button
    cancel: gr.Button
    status: gr.HTML
    page: gr.HTML

    def busy(self, is_busy: bool) -> dict[Any, Any]:
        """Which buttons can be pressed."""
        return {
            self.run: gr.update(interactive=not is_busy),
            self.cancel: gr.update(interactive=is_busy),
        }

    def connect(
        self,
        jobs: VisitorJobs,
        fields: Sequence[Any],
        triggers: Sequence[Any],
        examples: Mapping[gr.Button, Sequence[Any]],
        ask: Callable[..., JobRequest],
        work: Callable[[Any, Job], ResultSummary],
    ) -> None:
        """Connect the tab's parts.

        Args:
            jobs: the visitors' jobs.
            fields: what is filled in.
            triggers: events that start a job.
            examples: buttons, and what they fill into the fields before they start one.
            ask: from the visitor and the values of the fields to what is asked for.
            work: does it.
        """

        def run(request: gr.Request, *values: Any) -> Iterator[Any]:
            yield from self._followed(jobs, request, ask, work, values)

        def cancel(request: gr.Request) -> None:
            jobs.cancel(str(request.session_hash), self.name)

        job: dict[str, Any] = {
            "inputs": list(fields),
            "outputs": [self.status, self.page, self.run, self.cancel],
            "concurrency_id": "jobs",  # all that wait may be followed: the page's limit is theirs
        }
        gr.on(list(triggers), run, **job, **UNSEEN)
        self.cancel.click(cancel, queue=False, **UNSEEN)
        for button, values in examples.items():
            button.click(
                lambda values=values: list(values), outputs=list(fields), queue=False, **UNSEEN
            ).then(run, **job, **UNSEEN)

    def _followed(
        self,
        jobs: VisitorJobs,
        request: gr.Request,
        ask: Callable[..., JobRequest],
        work: Callable[[Any, Job], ResultSummary],
        values: Sequence[Any],
    ) -> Iterator[Any]:
        try:
            visitor = visitor_of(str(request.headers.get("cookie", "")))
            asked = ask(visitor, *values)
            told = False
            session, client = str(request.session_hash), request.client
            address = client.host if client else ""
            for state in jobs.follow(session, self.name, partial(work, asked), address):
                shown: dict[Any, Any] = {self.status: fragments.of_state(state)}
                if state.phase == "done":
                    shown[self.page] = fragments.of_result(state.result.name)
                elif not told:  # what was drawn before is among the results
                    shown[self.page] = ""
                if state.ended or not told:
                    shown |= self.busy(not state.ended)
                    told = True
                yield shown
        except Exception as error:
            trouble = fragments.of_trouble(sentence(error))
            yield {self.status: trouble, self.page: "", **self.busy(False)}


def sentence(error: Exception) -> str:
    """What a visitor is told of an error; one of heedmap's own goes to the log besides."""
    if isinstance(error, HeedmapError):
        return sentence_for(error)
    _LOG.error("an error of the app", exc_info=error)
    return GENERAL
