"""Jobs over HTTP: from the button to the result, or to one sentence."""

import json
import re
import threading
import time
from typing import Any

import pytest
from cli.calling import files

from app.serving import EVIL, FIELDS, PROMPT, Served, event, generating, until
from heedmap.app import jobs
from heedmap.drawing import generation
from heedmap.results.runs import Run

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")


def test_a_job_over_http_saves_a_run_and_shows_its_page(server: Served):
    before = {one.name for one in server.shelf.results()}
    said = generating(server, "first", PROMPT)
    (name,) = {one.name for one in server.shelf.results()} - before
    assert f"./results/{name}.zip" in said and "Saved as" in said
    assert f"./results/{name}/page" in said
    assert Run.load(server.shelf.folder(name)).settings.prompt == PROMPT


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (0, "", "“Prompt” is empty: write what is to be drawn"),
        (0, " \n ", "“Prompt” is empty: write what is to be drawn"),
        (0, EVIL * 100, "characters: expected at most 2000"),
        (2, "-1", "“Seed” is -1: expected a whole number"),
        (2, "seven", "“Seed” is 'seven': expected a whole number"),
        (3, "5000", "“Steps” is 5000, more than this server draws: expected 1 to 100"),
        (3, "2.5", "“Steps” is '2.5': expected a whole number"),
        (5, "64", "one of “Width” and “Height” is empty: expected both"),
    ],
)
def test_mistakes_end_in_one_sentence_in_the_page(server, capfd, place, value, sentence):
    before = files(server.out)
    fields: list[Any] = [PROMPT, *FIELDS]
    fields[place] = value
    said = generating(server, f"wrong{place}{len(str(value))}", *fields)
    assert sentence.lower() in said.lower()
    assert 'role=\\"alert\\"' in said and files(server.out) == before
    assert "Traceback" not in capfd.readouterr().err


def test_a_bug_of_ours_is_a_general_sentence_and_stands_in_the_log(server, monkeypatch, caplog):
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret of /etc/passwd")

    monkeypatch.setattr(generation, "generate", broken)
    said = generating(server, "broken", PROMPT)
    assert "Something went wrong in heedmap itself" in said
    assert "secret" not in said and "Traceback" not in said
    assert any("secret" in str(record.exc_info[1]) for record in caplog.records if record.exc_info)


def test_a_second_visitor_waits_and_is_told_the_place(server: Served, monkeypatch):
    go, real = threading.Event(), generation.generate

    def slow(*arguments: Any, **options: Any) -> Run:
        assert go.wait(30)
        return real(*arguments, **options)

    monkeypatch.setattr(generation, "generate", slow)
    said: dict[str, str] = {}

    def visit(session: str) -> None:
        said[session] = generating(server, session, PROMPT)

    visitors = [threading.Thread(target=visit, args=(f"visitor{n}",)) for n in range(2)]
    visitors[0].start()
    until(lambda: server.app.queue._current is not None)
    visitors[1].start()
    until(lambda: len(server.app.queue._waiting) == 1)
    time.sleep(0.5)
    go.set()
    for visitor in visitors:
        visitor.join(60)
    assert "1 job is before yours" in said["visitor1"]
    assert "1 job is before yours" not in said["visitor0"]
    assert all("Saved as" in text for text in said.values())


def test_a_visitor_who_leaves_ends_the_job(server: Served, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jobs, "PATIENCE", 1.0)
    before = files(server.out)
    messages = event(server, "Generate", [PROMPT, *FIELDS[:2], "100", *FIELDS[3:]], "leaver")
    for message in messages:
        if re.search(r"\d+ of 100 steps", json.dumps(message)):
            break
    messages.close()
    until(lambda: server.app.queue._current is None)
    assert files(server.out) == before
