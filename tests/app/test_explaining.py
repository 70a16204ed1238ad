"""Taking a number of a result apart in the app: whose result, which number, at what cost."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")

from cli.calling import files

from app.serving import PROMPT, Served, drawn, ended
from heedmap.app import fields
from heedmap.app.jobs import JobQueue
from heedmap.app.labels import sentence_for
from heedmap.app.options import Limits, Options
from heedmap.app.requests import ExplainRequest
from heedmap.app.result_store import ResultStore
from heedmap.app.worker import Worker
from heedmap.drawing import editing, explaining
from heedmap.errors import ArgumentError
from heedmap.results.explanations import Explanation
from heedmap.results.runs import Run


def asked_for(run: Run, result: str, **more: Any) -> ExplainRequest:
    named: dict[str, Any] = {"word": "house", "at": (20, 30), "model": run.settings.model, **more}
    return ExplainRequest(result=result, **named)


def test_it_has_the_bytes_of_python(worker: Worker, queue: JobQueue, model, run: Run, desk: Path):
    name = worker.store.put(run, "").name
    asked = asked_for(run, name, layer="up 1.0", head=1, step=1)
    worker.models = (run.settings.model,)
    state = ended(queue.enter(lambda job: worker.explain(asked, job)))
    assert state.phase == "done", state.sentence
    folder = worker.store.shelf("").folder(state.result.name)
    given: dict[str, Any] = {"layer": "up 1.0", "head": 1, "step": 1}
    explaining.explain(model, run, "house", (20, 30), **given).save(desk / "said")
    assert files(folder) == files(desk / "said")
    for file in files(folder):
        assert (folder / file).read_bytes() == (desk / "said" / file).read_bytes(), file
    assert folder.name == "house-at-20-30-up-1-0-head-1-step-1"
    about = worker.store.shelf("").result(folder.name)
    assert (about.kind, about.title) == ("explanation", f"house at 20,30: {PROMPT}")
    assert about.made_with == f"up 1.0 · head 1 · step 1 · Seed {run.settings.seed}"


def test_an_edit_is_its_edited_picture_and_of_a_grid_a_cell(worker, queue, model, run: Run):
    worker.models = (run.settings.model,)
    grid = editing.grid(model, PROMPT, ["a red sea", "a blue sea"], seeds=[3], steps=2)
    of_grid = worker.store.put(grid, "").name
    of_edit = worker.store.put(grid.cells[1].pair, "").name
    for name, cell in ((of_grid, 2), (of_edit, None)):
        asked = asked_for(run, name, word="sea", cell=cell)
        state = ended(queue.enter(lambda job, asked=asked: worker.explain(asked, job)))
        assert state.phase == "done", state.sentence
        found = Explanation.load(worker.store.shelf("").folder(state.result.name))
        assert found.about.prompt == "a blue sea"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"word": "zebra"}, "'zebra' is not in the prompt"),
        ({"at": (4000, 0)}, "the place 4000,0 is outside of the picture: expected x from 0"),
        (
            {"layer": "up 9.9"},
            "“Layer” is 'up 9.9': expected the name of one layer; the nearest are up ",
        ),
        ({"head": 99, "layer": "up 1.0"}, "“Head” is 99, and up 1.0 has 2 heads: the nearest is "),
        ({"step": 99}, "“Step” is 99, and the run has 2 steps: the nearest is 1"),
        ({"cell": 1}, "“Cell of a grid” is for a grid, and a-red-house-3 is none: leave it empty"),
        ({"model": "org/other"}, "this result was drawn with "),
        ({"result": "nobodys"}, "this result is not there any more: make it again"),
        ({"result": "../store"}, "this result is not there any more: make it again"),
    ],
)
def test_what_cannot_be_taken_apart_is_one_sentence(worker, queue, run: Run, more, said: str):
    worker.models = (run.settings.model,) if "model" not in more else ("org/other",)
    asked = asked_for(run, worker.store.put(run, "").name)
    asked = ExplainRequest(**{**vars(asked), **more})
    state = ended(queue.enter(lambda job: worker.explain(asked, job)))
    assert state.phase == "failed" and said in state.sentence, state.sentence
    assert len(worker.store.shelf("").results()) == 1


def test_the_limits_of_the_operator_hold(queue, model, run: Run, tmp_path: Path):
    for limits, said in (({"steps": 1}, "“Steps” is 2, more"), ({"size": 64}, "is 128×128, more")):
        store = ResultStore(tmp_path / said[-4:], 10, shared=True)
        worker = Worker(store, Options(limits=Limits(**limits)))
        asked = asked_for(run, store.put(run, "").name)
        state = ended(queue.enter(lambda job, w=worker, a=asked: w.explain(a, job)))
        assert state.phase == "failed" and said in state.sentence, state.sentence


def test_a_visitor_takes_apart_what_is_on_their_own_shelf(server: Served, run: Run):
    own = server.app.worker.store.put(run, server.visitor).name
    name = server.app.worker.store.put(run, "b" * 32).name
    server.app.worker.store.shelf("b" * 32).rename(name, "theirs")
    boxes = ["", "house", "20,30", "up 1.0", "0", "1"]
    said = drawn(server, "Take it apart", "mine", [run.settings.model, own, *boxes])
    assert "Saved as" in said and "house-at-20-30-up-1-0-head-0-step-1" in said
    said = drawn(server, "Take it apart", "theirs", [run.settings.model, "theirs", *boxes])
    assert "This result is not there any more: make it again." in said
    listed = json.loads(server.ask("/results")[1])["results"]
    assert {one["kind"] for one in listed} == {"run", "explanation"}
    (one,) = (one["name"] for one in listed if one["kind"] == "explanation")
    status, page, headers = server.ask(f"/results/{one}/page")
    assert status == 200 and b"how a number comes about" in page
    assert "sandbox" in headers["Content-Security-Policy"]
    assert server.ask(f"/results/{one}/picture")[0] == 200
    assert server.ask(f"/comparison?run={own}&run={one}")[0] == 400


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({0: " "}, "“Result” is empty: expected the name of a result"),
        ({0: 5}, "“Result” is 5: expected a text"),
        ({1: "x"}, "“Cell of a grid” is 'x': expected a whole number"),
        ({2: ""}, "“Word” is empty: expected a word of its prompt"),
        ({2: "#x"}, "“Word” is '#x': expected '#' and its number, as in #2"),
        ({3: "7"}, "“Pixel” is '7': expected X,Y in whole pixels, such as 40,72"),
        ({3: "7,"}, "“Pixel” is '7,': expected X,Y in whole pixels"),
        ({3: "7,1.5"}, "“Pixel” is '7,1.5': expected X,Y in whole pixels"),
        ({4: 5}, "“Layer” is 5: expected a text"),
        ({5: "x"}, "“Head” is 'x': expected a whole number"),
        ({6: "x"}, "“Step” is 'x': expected a whole number"),
    ],
)
def test_fields_that_cannot_be_read(change: dict[int, Any], said: str):
    values: list[Any] = ["a-run", "", "house", "20, 30", "", "", ""]
    assert fields.explain_values(*values) == {
        "result": "a-run", "cell": None, "word": "house", "at": (20, 30), "layer": None,
        "head": None, "step": None,
    }  # fmt: skip
    for place, value in change.items():
        values[place] = value
    with pytest.raises(ArgumentError) as error:
        fields.explain_values(*values)
    assert sentence_for(error.value).startswith(said)
    assert fields.explain_values("a", "2", "#3", "1,2", "up 1.0", "0", "4")["word"] == 3
