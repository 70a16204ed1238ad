"""The results over HTTP: each visitor's own, by name; and what the command line would draw."""

import io
import json
import secrets
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from cli.calling import call, files
from making import made_explanation
from PIL import Image

from app.serving import GRID_FIELDS, PROMPT, Served, drawn, generating
from heedmap.drawing import editing
from heedmap.results.grids import Grid
from heedmap.results.runs import Run

pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def visited(server: Served) -> Iterator[Served]:
    """The server, asked by a visitor who has nothing yet."""
    server.visitor = secrets.token_hex(16)
    yield server


def listed(server: Served) -> list[dict[str, Any]]:
    status, body, headers = server.ask("/results")
    assert status == 200 and headers["Cache-Control"] == "private, no-store"
    found = json.loads(body)
    assert found["all"] == len(found["results"])
    return found["results"]


def renamed(server: Served, name: str, wanted: Any) -> tuple[int, str]:
    body = json.dumps({"name": wanted}).encode()
    status, said, _ = server.ask(f"/results/{quote(name, safe='')}/name", body, **JSON)
    return status, said.decode()


def test_what_was_drawn_is_listed_opened_renamed_and_deleted(visited: Served):
    assert listed(visited) == []
    generating(visited, "gallery", PROMPT)
    (one,) = listed(visited)
    assert (one["name"], one["kind"], one["title"]) == ("a-red-house-7", "run", PROMPT)
    folder = visited.shelf.folder(one["name"])
    page, picture = (visited.ask(f"/results/a-red-house-7/{what}") for what in ("page", "picture"))
    assert page[1] == (folder / "index.html").read_bytes()
    assert picture[1] == (folder / "image.png").read_bytes()
    assert picture[2]["Content-Type"] == "image/png"
    for answer in (page, picture):
        assert answer[2]["Content-Security-Policy"].startswith("sandbox allow-scripts")
    before = files(folder)
    assert renamed(visited, "a-red-house-7", "The house of ‘Ann’") == (
        200, '{"name":"the-house-of-ann"}',
    )  # fmt: skip
    assert files(visited.shelf.folder("the-house-of-ann")) == before
    assert visited.ask("/results/a-red-house-7/page")[0] == 404
    assert visited.ask("/results/the-house-of-ann/end", b"")[0] == 200
    assert listed(visited) == [] and not folder.exists()


@pytest.mark.parametrize("what", ["page", "picture", "zip", "name", "end", "comparison"])
def test_nothing_of_another_visitors_result_is_told_or_touched(
    visited: Served, run: Run, what: str
):
    ann = visited.visitor
    name = visited.app.worker.store.put(run, ann).name
    before, folder = files(visited.out), visited.shelf.root.name
    for bob in (secrets.token_hex(16), "", "../../", folder, f"{ann};{ann}"):
        visited.visitor = bob
        for wanted in (name, f"../{folder}/{name}", f"{folder}/{name}", folder):
            path = f"/results/{quote(wanted, safe='')}"
            body = {"name": b'{"name": "mine"}', "end": b""}.get(what)
            path += {"zip": ".zip"}.get(what, f"/{what}")
            if what == "comparison":
                path = f"/comparison?run={quote(wanted, safe='')}&run={quote(wanted, safe='')}"
            status, said, _ = visited.ask(path, body, **JSON)
            assert status in (400, 404), (bob, path)
            assert PROMPT.encode() not in said and len(said) < 300
        if len(bob) == 32:
            assert listed(visited) == []
    visited.visitor = ann
    assert files(visited.out) == before
    assert [one["name"] for one in listed(visited)] == [name]


def test_a_name_that_is_taken_and_one_that_is_none(visited: Served, run: Run):
    put = visited.app.worker.store.put
    names = [put(run, visited.visitor).name for _ in range(2)]
    before = files(visited.out)
    said = f"The name {names[1]} is taken: choose another."
    assert renamed(visited, names[0], names[1]) == (400, said)
    for wanted, status in ((" ", 400), ("../", 400), (5, 422), (None, 422), ("x" * 501, 422)):
        found, said = renamed(visited, names[0], wanted)
        assert found == status and said.endswith(".") and "/tmp" not in said
    said = "The name '..' has no letter and no digit: expected some."
    assert renamed(visited, names[0], "..") == (400, said)
    for body in (b"", b"[]", b"{", b'{"name": "\\ud800"}', b"\xff", b"x" * 5000):
        assert visited.ask(f"/results/{names[0]}/name", body, **JSON)[0] in (400, 413, 422)
    assert files(visited.out) == before


def test_a_result_that_holds_something_else_stays(visited: Served, run: Run):
    name = visited.app.worker.store.put(run, visited.visitor).name
    (visited.shelf.folder(name) / "notes.txt").write_text("the best")
    status, said, _ = visited.ask(f"/results/{name}/end", b"")
    assert status == 400 and b"files that heedmap did not write, and stays" in said
    with zipfile.ZipFile(io.BytesIO(visited.ask(f"/results/{name}.zip")[1])) as archive:
        assert not [entry for entry in archive.namelist() if "notes" in entry]


@pytest.mark.parametrize("file", ["index.html", "image.png"])
def test_a_link_in_a_result_is_not_followed(visited: Served, run: Run, tmp_path: Path, file: str):
    name = visited.app.worker.store.put(run, visited.visitor).name
    (tmp_path / "secret").write_text("PASSWORD=1")
    path = visited.shelf.folder(name) / file
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    what = {"index.html": "page", "image.png": "picture"}[file]
    status, said, _ = visited.ask(f"/results/{name}/{what}")
    assert status == 404 and b"PASSWORD" not in said


def test_a_strangers_page_learns_nothing_not_even_a_name(visited: Served, run: Run):
    """As an `img` of another page asks, without an origin: for a name that can be guessed."""
    name = visited.app.worker.store.put(run, visited.visitor).name
    for site in ("cross-site", "same-site", "nonsense"):
        asks = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
        answers = [visited.ask(f"/results/{n}/picture", **asks)[:2] for n in (name, "not-there")]
        assert answers[0] == answers[1] and answers[0][0] == 403
        framed = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
        assert visited.ask(f"/results/{name}/page", **framed)[0] == 403
        assert visited.ask("/results", **asks)[0] == 403
    for site in ("same-origin", "none"):
        assert visited.ask(f"/results/{name}/picture", **{"Sec-Fetch-Site": site})[0] == 200
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert visited.ask("/", **link, **{"Sec-Fetch-Dest": "document"})[0] == 200
    for answer in (visited.ask(f"/results/{name}/picture"), visited.ask("/")):
        assert answer[2]["Cross-Origin-Resource-Policy"] == "same-origin"
    evil = {"Origin": "http://evil.example", **JSON}
    for what, body in (("name", b'{"name": "x"}'), ("end", b"")):
        assert visited.ask(f"/results/{name}/{what}", body, **evil)[0] == 403
    assert [one["name"] for one in listed(visited)] == [name]


def test_the_folders_own_results_are_all_seen_where_one_is_served(model, run: Run, tmp_path: Path):
    """Those that the command line saved, too; and nothing else that lies there."""
    run.save(tmp_path / "Meine Läufe é")
    (tmp_path / "letters").mkdir()
    with Served(tmp_path, {}) as alone:
        alone.visitor = "0" * 32
        (one,) = listed(alone)
        assert one["name"] == "Meine Läufe é"
        path = f"/results/{quote(one['name'])}"
        assert alone.ask(f"{path}/page")[0] == 200
        assert alone.ask(f"{path}.zip")[0] == 200
        generating(alone, "alone", PROMPT)
        alone.visitor = "1" * 32
        assert {one["name"] for one in listed(alone)} == {"Meine Läufe é", "a-red-house-7"}
    for gallery, count in (("own", 0), ("all", 2)):
        with Served(tmp_path, {"ann": "x"} if gallery == "all" else {}, gallery=gallery) as other:
            assert len(listed(other)) == count


def test_a_sheet_has_the_bytes_of_the_command_line(visited: Served, model, desk: Path):
    put = visited.app.worker.store.put
    runs = [put(editing.edit(model, PROMPT, "a red sea", seed=5, steps=2), visited.visitor).name]
    generating(visited, "sheet", PROMPT)
    runs.append(next(one["name"] for one in listed(visited) if one["kind"] == "run"))
    edit, run = (visited.shelf.folder(name) for name in runs)
    for kind, type_ in (("png", "image/png"), ("svg", "image/svg+xml"), ("pdf", "application/pdf")):
        result = call(
            *("compare", edit / "source", edit / "edited", run, "--word", "red", "--scale", "raw"),
            *("--out", f"said.{kind}", "-q"),
        )
        assert result.exit_code == 0, result.output
        query = f"run={runs[0]}&run={runs[1]}&word=red&scale=raw&format={kind}"
        status, body, headers = visited.ask(f"/comparison?{query}")
        assert status == 200 and headers["Content-Type"] == type_
        assert body == (desk / f"said.{kind}").read_bytes()
        assert headers["Content-Security-Policy"].startswith("sandbox;")
        taken = visited.ask(f"/comparison?{query}&take=1")[2]["Content-Disposition"]
        assert taken == f'attachment; filename="heedmap-comparison.{kind}"'


def test_a_sheet_is_dark_on_a_dark_screen_and_never_where_it_is_taken_along(
    visited: Served, run: Run
):
    name = visited.app.worker.store.put(run, visited.visitor).name
    query = f"/comparison?run={name}&run={name}"
    corners = {}
    for more in ("", "&dark=1", "&dark=1&take=1"):
        status, body, _ = visited.ask(query + more)
        assert status == 200
        corners[more] = Image.open(io.BytesIO(body)).convert("RGB").getpixel((0, 0))
    white = (255, 255, 255)
    assert corners == {"": white, "&dark=1": (28, 28, 31), "&dark=1&take=1": white}
    status, body, _ = visited.ask(f"{query}&dark=1&format=svg")
    assert status == 200 and b"<svg" in body


def test_a_grid_is_shown_by_the_pictures_of_its_edits(visited: Served, model, tmp_path: Path):
    """Its sheet is white, and too small to be read."""
    grid = editing.grid(model, PROMPT, weights={"red": [0, 2]}, seeds=1, steps=2)
    name = visited.app.worker.store.put(grid, visited.visitor).name
    assert [one["cells"] for one in listed(visited)] == [2]
    folder, path = visited.shelf.folder(name), f"/results/{name}/picture"
    for query, number in (("", 1), ("?cell=1", 1), ("?cell=2", 2)):
        status, body, headers = visited.ask(path + query)
        assert status == 200 and headers["Content-Type"] == "image/png"
        assert body == (folder / f"cells/{number:03d}/image.png").read_bytes()
    for number in ("0", "3", "-1", "x", "", "1/../2", "²", "9" * 9):
        status, said, _ = visited.ask(f"{path}?cell={quote(number)}")
        assert status == 404 and said == (
            b"This grid has no such cell: expected a number from 1 to 2."
        )
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/image.png").write_text("PASSWORD=1")
    (folder / "cells/001").rename(folder / "cells/old")
    (folder / "cells/001").symlink_to(tmp_path / "secret")
    status, said, _ = visited.ask(path)
    assert status == 404 and b"PASSWORD" not in said


def test_what_cannot_be_compared_is_one_sentence(visited: Served, run: Run, model):
    put = visited.app.worker.store.put
    one = put(run, visited.visitor).name
    grid = put(
        editing.grid(model, PROMPT, weights={"red": [0, 2]}, seeds=3, steps=2), visited.visitor
    ).name
    told = put(made_explanation(), visited.visitor).name
    for query, sentence in (
        ("", "0 results and 0 words are to be compared: expected 1 to 12 results"),
        (f"run={one}", "1 run cannot be compared: expected two or more"),
        ("&".join(f"run={one}" for _ in range(13)), "13 results and 0 words are to be compared"),
        (f"run={one}&run={one}" + "&word=red" * 25, "2 results and 25 words are to be compared"),
        (f"run={grid}&run={one}", f"The result {grid} is a grid: choose runs or edits to compare."),
        (f"run={told}&run={one}", f"The result {told} is an explanation: choose runs or edits"),
        (f"run={one}&run={one}&word=zebra", "zebra"),
        (f"run={one}&run={one}&word=%00", "house"),
        (f"run={one}&run={one}&scale=evil", "“Colours” is 'evil'"),
        (f"run={one}&run={one}&format=exe", "the format is 'exe'"),
        (f"run={one}&run=../{one}", "not there any more"),
    ):
        status, body, _ = visited.ask(f"/comparison?{query}")
        said = body.decode()
        assert status == 400 and sentence in f"{said}\n{said[0].lower()}{said[1:]}", said
        assert said.endswith(".") and str(visited.out) not in said and "\n" not in said


def test_a_grid_has_the_bytes_of_the_command_line(visited: Served, desk: Path):
    fields = [PROMPT, "", *GRID_FIELDS]
    fields[3], fields[4], fields[5] = "red=-1:3:3", "2", "0.4,0.8"
    fields[10] = True  # renormalize
    drawn(visited, "Draw the grid", "grid", fields)
    (one,) = listed(visited)
    assert one["kind"] == "grid" and one["made_with"] == "12 edits · Seed 7, 8"
    result = call(
        *("grid", PROMPT, "--weight", "red=-1:3:3", "--count", 2, "--seed", 7, "--steps", 2),
        *("--cross", "0.4,0.8", "--renormalize", "--out", "said", "-q"),
    )
    assert result.exit_code == 0, result.output
    folder = visited.shelf.folder(one["name"])
    assert folder.name == "grid-a-red-house-7" and isinstance(Grid.load(folder), Grid)
    assert files(folder) == files(desk / "said")
    for name in files(folder):
        assert (folder / name).read_bytes() == (desk / "said" / name).read_bytes(), name
    with zipfile.ZipFile(io.BytesIO(visited.ask(f"/results/{one['name']}.zip")[1])) as archive:
        assert {entry.partition("/")[2] for entry in archive.namelist()} == set(files(folder))
