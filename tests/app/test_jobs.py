"""The line of jobs: one at a time, the others are told their place, errors are one sentence."""

import threading
import time

import pytest

from app.serving import ended, until
from heedmap.app import jobs
from heedmap.app.fragments import of_state
from heedmap.app.jobs import Job, JobQueue, State
from heedmap.errors import ArgumentError, HeedmapError


def test_one_job_at_a_time_and_the_others_are_told_their_place(queue: JobQueue):
    gate, busy, most = threading.Event(), [0], [0]

    def work(job: Job) -> int:
        busy[0] += 1
        most[0] = max(most[0], busy[0])
        gate.wait(20)
        time.sleep(0.02)
        busy[0] -= 1
        return 7

    first = queue.enter(work)
    until(lambda: first.state.phase == "working")
    second, third = queue.enter(work), queue.enter(work)
    assert [job.state for job in (second, third)] == [State("waiting", 1), State("waiting", 2)]
    assert "1 job is before yours" in of_state(second.state)
    assert "2 jobs are before yours" in of_state(third.state)
    second.cancel()
    assert third.state == State("waiting", 1)
    gate.set()
    assert ended(third) == State("done", result=7)
    assert (ended(first).phase, ended(second).phase, most[0]) == ("done", "cancelled", 1)


def test_the_line_is_full_at_some_time(queue: JobQueue):
    gate = threading.Event()
    first = queue.enter(lambda job: gate.wait(20))
    until(lambda: first.state.phase == "working")
    waiting = [queue.enter(lambda job: None) for _ in range(3)]
    with pytest.raises(HeedmapError, match="3 jobs are waiting already"):
        queue.enter(lambda job: None)
    waiting[0].cancel()  # whoever leaves makes room
    waiting.append(queue.enter(lambda job: None))
    gate.set()
    assert [ended(job).phase for job in waiting] == ["cancelled", "done", "done", "done"]


def test_who_has_most_in_a_full_line_gives_way(queue: JobQueue):
    gate = threading.Event()
    first = queue.enter(lambda job: gate.wait(20), "10.0.0.1")
    until(lambda: first.state.phase == "working")
    theirs = [queue.enter(lambda job: None, "10.0.0.1") for _ in range(3)]
    honest = queue.enter(lambda job: 7, "10.0.0.2")
    assert theirs[2].state.phase == "failed" and "others" in theirs[2].state.sentence
    assert honest.state == State("waiting", 3)
    for client in ("10.0.0.1", "10.0.0.2"):  # who has as many as anybody waits with the others
        with pytest.raises(HeedmapError, match="3 jobs are waiting already"):
            queue.enter(lambda job: None, client)
    third = queue.enter(lambda job: 8, "10.0.0.3")
    assert [job.state.phase for job in theirs] == ["waiting", "failed", "failed"]
    gate.set()
    assert [ended(job).result for job in (honest, third)] == [7, 8]
    assert "others" in ended(theirs[1]).sentence and ended(theirs[0]).phase == "done"


def test_a_job_that_nobody_listens_to_is_ended(queue: JobQueue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jobs, "PATIENCE", 0.05)
    steps: list[int] = []

    def work(job: Job) -> None:
        for step in range(1000):
            steps.append(step)
            job.tell("Drawing", step, 1000)
            time.sleep(0.005)

    alone = queue.enter(work)
    until(lambda: alone.state.ended)
    assert alone.state.phase == "cancelled" and len(steps) < 1000


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ArgumentError("the seed is odd"), "the seed is odd"),
        (MemoryError(), "there is not enough memory for this: try a smaller size"),
        (RuntimeError("CUDA out of memory at 0x7f"), "there is not enough memory"),
        (RuntimeError("secret of /etc/passwd"), jobs.GENERAL),
    ],
)
def test_errors_are_one_sentence_and_the_next_job_works(queue: JobQueue, caplog, error, sentence):
    def fail(job: Job) -> None:
        raise error

    state = ended(queue.enter(fail))
    assert state.phase == "failed" and sentence in state.sentence
    shown = of_state(state)
    assert 'role="alert"' in shown and "Traceback" not in shown and "secret" not in shown
    assert bool(caplog.records) != isinstance(error, HeedmapError)  # the log has what is our fault
    assert ended(queue.enter(lambda job: 1)) == State("done", result=1)


def test_a_closed_line_ends_its_jobs_and_takes_none():
    queue = JobQueue(most=3)

    def work(job: Job) -> None:
        while True:
            job.tell("Drawing")
            time.sleep(0.002)

    first, second = queue.enter(work), queue.enter(work)
    until(lambda: first.state.phase == "working")
    queue.close()
    assert [ended(job).phase for job in (first, second)] == ["cancelled", "cancelled"]
    with pytest.raises(HeedmapError, match="about to stop"):
        queue.enter(work)
