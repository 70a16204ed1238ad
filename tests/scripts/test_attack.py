"""The attack: that it would see what it looks for; that what was found once stays mended."""

import itertools
import json
import os
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

import attack
from attacking import (
    chunks,
    crowd,
    findings,
    folders,
    kills,
    recipes,
    reporting,
    seeds,
    texts,
    zips,
)  # fmt: skip
from attacking.findings import EVIL, Finding, Trouble, Wrong, remembered, trouble
from attacking.spelling import Sheet
from heedmap import explorer
from heedmap.errors import HeedmapError, HeedmapWarning
from heedmap.mathematics import agreement
from heedmap.results.ablations import Ablation
from heedmap.results.explanations import Explanation
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the attack is of Linux alone")


@pytest.fixture(scope="module")
def root(embedded, tmp_path_factory) -> Path:
    """The seeds."""
    drawn = tmp_path_factory.mktemp("drawn")
    seeds.draw(embedded, drawn)
    return seeds.needed(drawn, tmp_path_factory.mktemp("seeds") / "needed")


@pytest.fixture
def tries(root: Path, tmp_path: Path) -> folders.Attack:
    return folders.Attack(root, tmp_path, 0)


# --- what was found once ----------------------------------------------------------------------


@pytest.mark.parametrize("name", remembered("folders"))
def test_folders_that_were_found_once(tries: folders.Attack, name: str):
    assert tries.attempt(remembered("folders")[name]) == []


@pytest.mark.parametrize("name", remembered("texts"))
def test_texts_that_were_found_once(embedded, monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setattr(texts, "_pipe", lambda: embedded)
    assert texts.Attack(0).attempt(remembered("texts")[name]) == []


@pytest.mark.slow
def test_a_round_finds_nothing(tmp_path: Path):
    script = Path(attack.__file__)
    done = subprocess.run(
        [sys.executable, script, "round", "--json"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout, done.stderr
    found = {part: told["found"] for part, told in json.loads(done.stdout).items()}
    assert found == {part: [] for part in attack.PARTS} and done.returncode == 0


# --- what counts as found ---------------------------------------------------------------------


def bare(said: str) -> HeedmapError:
    """A sentence as it would be if errors did not see to it."""
    error = HeedmapError()
    error.args = (said,)
    return error


def raising(error: BaseException):
    def act():
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (HeedmapError("one sentence"), None),
        (HeedmapError(""), "sentence"),
        (bare("x" * 3000), "sentence"),
        (bare("two\nlines"), "sentence"),
        (bare("\ud800"), "sentence"),
        (ValueError("x"), "error"),
        (RecursionError("x"), "error"),
        (MemoryError(), "memory"),
        (UserWarning("x"), "warning"),
        (HeedmapWarning("x"), "warning"),  # raised, not told
        (Wrong("page", "x"), "page"),
    ],
)
def test_what_is_trouble(error: Exception, kind: str | None):
    found = trouble(raising(error), "here")
    assert (found and found.kind) == kind
    assert found is None or found.where == "here"


def test_errors_are_told_apart_by_their_place():
    found = trouble(lambda: explorer.frame(5), "framing")
    assert found is not None and found.where.startswith("explorer/__init__.py:")
    one, other = (Trouble("error", f"ValueError: {text}", "x.py:1 f") for text in "ab")
    assert one.key == other.key
    assert one.key != Trouble("error", "TypeError: a", "x.py:1 f").key


def test_what_takes_long_or_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(findings, "SECONDS", 0.02)
    monkeypatch.setattr(findings, "STOPPED", 0.2)
    monkeypatch.setattr(findings, "HANGS", 0.2)

    def busy(seconds: float) -> None:
        until = time.process_time() + seconds
        while time.process_time() < until:
            pass

    os.mkfifo(tmp_path / "pipe")
    for act, told in (
        (lambda: busy(0.05), "slow"),
        (lambda: busy(20), "computes"),
        (lambda: (tmp_path / "pipe").read_bytes(), "hangs"),
        (lambda: time.sleep(20), "hangs"),
    ):
        found = trouble(act, "here")
        assert found is not None and found.kind == "time" and found.what.startswith(told)
    assert trouble(lambda: None, "here") is None


# --- cases ------------------------------------------------------------------------------------


def test_a_case_is_that_of_its_number_and_seed(root: Path):
    decks = [recipes.Deck(root, seed) for seed in (0, 0, 1)]
    cases = [[json.dumps(deck.case(n)) for n in range(300)] for deck in decks]
    assert cases[0] == cases[1] != cases[2]
    assert len(set(cases[0])) > 290
    drawn = [json.loads(case) for case in cases[0]]
    done = {change["do"] for case in drawn for change in case.get("changes", ())}
    assert done == {
        *("json", "about", "header", "bytes", "kind", "array", "shape", "chunk", "ihdr")
    }
    assert any("zip" in case for case in drawn)
    tried = texts.Attack(3)
    assert tried(5)[0] == texts.Attack(3)(5)[0] != texts.Attack(4)(5)[0]


def test_values_that_nobody_writes():
    sheet = Sheet('{"a": [1, 2], "b": {"c": "x"}}')
    sheet.change(["a", 0], "put", ["json", "1e999"])
    sheet.change(["b", "c"], "put", ["nested", 3, "["])
    sheet.change(["a"], "twice", None)
    assert sheet.text() == '{"a": [1e999, 2], "b": {"c": [[[1]]]}, "a": 0}'
    sheet.change(["nothing", 7], "put", ["json", "1"])  # a place that an earlier change took away
    sheet.change([], "put", ["json", "NaN"])
    assert sheet.text() == "NaN"


def test_chunks_of_a_picture():
    file = BytesIO()
    Image.new("RGB", (3, 2), "red").save(file, "PNG")
    parts = chunks.split(file.getvalue())
    assert [name for name, _ in parts] == [b"IHDR", b"IDAT", b"IEND"]
    assert chunks.join(parts) == file.getvalue()
    broken = chunks.join(parts, wrong=0)
    with pytest.raises((OSError, SyntaxError)):
        Image.open(BytesIO(broken)).load()


def test_archives(tmp_path: Path):
    (tmp_path / "run.json").write_text("{}")
    with zipfile.ZipFile(BytesIO(zips.pack(tmp_path, []))) as archive:
        assert archive.namelist() == ["result/run.json"]
    named = zips.pack(tmp_path, [{"how": "name", "entry": 0, "name": "../x"}])
    with zipfile.ZipFile(BytesIO(named)) as archive:
        assert archive.infolist()[0].orig_filename == "../x"
    field = {"how": "field", "entry": 0, "record": "central", "field": "size", "value": 7}
    with zipfile.ZipFile(BytesIO(zips.pack(tmp_path, [field]))) as archive:
        assert archive.infolist()[0].file_size == 7


# --- planted faults ---------------------------------------------------------------------------

SOUND = {"seed": "run", "changes": []}
PACKED = {"seed": "pair", "changes": [], "zip": []}


def test_sound_results_are_sound(tries: folders.Attack):
    for name in seeds.NAMES:
        assert tries.attempt({"seed": name, "changes": []}) == []
    assert tries.attempt(PACKED) == []
    assert tries.told == {"folders": 8, "archives": 1, "opened": 9, "used in full": 9}
    assert list(tries._scratch.iterdir()) == []


def kinds(found: list[Trouble]) -> set[str]:
    return {one.kind for one in found}


def test_an_error_of_a_reader(tries: folders.Attack, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(folders.folders, "load_result", lambda folder: {}["x"])
    assert kinds(tries.attempt(SOUND)) == {"error"}


def test_markup_that_a_page_lets_through(tries: folders.Attack, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Run, "explorer", lambda run: f"<html>{EVIL}</html>")
    assert kinds(tries.attempt(SOUND)) == {"page"}


@pytest.mark.parametrize(
    "command",
    [
        "heedmap generate $(id)", "heedmap generate a; id", "heedmap generate `id`",
        "heedmap generate 'a' | id", "heedmap generate a\nid", 'heedmap generate "$(id)"',
        "import os\nos.system('id')", "run = hm.generate(", "id",
    ],
)  # fmt: skip
def test_commands_that_run_something_else(tries: folders.Attack, monkeypatch, command: str):
    monkeypatch.setattr(
        folders.repeating, "repeat_run", lambda *_, **__: [["In the shell", command, ""]]
    )
    found = tries.attempt(SOUND)
    assert kinds(found) == ({"command"} if command != "id" else set())  # a name runs nothing


def test_results_that_are_saved_as_others(tries: folders.Attack, monkeypatch: pytest.MonkeyPatch):
    save = Run.save

    def other(run: Run, folder: Path, **options) -> Path:
        black = Image.new("RGB", run.image.size)
        return save(Run(black, run.maps, run.settings, run.negative_maps), folder, **options)

    monkeypatch.setattr(Run, "save", other)
    assert kinds(tries.attempt(SOUND)) == {"unequal"}


WHY = {"seed": "why", "changes": []}


def test_explanations_that_are_not_what_they_say(
    tries: folders.Attack, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        patch.setattr(Explanation, "page", lambda found: f"<p>{EVIL}</p>")
        assert kinds(tries.attempt(WHY)) == {"page"}
    with monkeypatch.context() as patch:
        patch.setattr(folders, "_kept", lambda found, folder: {}["x"])
        assert kinds(tries.attempt(WHY)) == {"error"}
    for value in ("nan", 1e31):
        array = {"do": "array", "file": "explain.json", "name": "key", "share": 0.1, "value": value}
        assert tries.attempt({"seed": "why", "changes": [array]}) == []  # refused in a sentence


def test_ablations_that_are_not_what_they_say(
    tries: folders.Attack, monkeypatch: pytest.MonkeyPatch
):
    without = {"seed": "without", "changes": []}
    with monkeypatch.context() as patch:
        patch.setattr(Ablation, "load", classmethod(lambda cls, folder: {}["x"]))
        assert kinds(tries.attempt(without)) == {"error"}
    with monkeypatch.context() as patch:
        patch.setattr(agreement, "auc", lambda values, inside: 1.5)
        assert "unequal" in kinds(tries.attempt(without))
    with monkeypatch.context() as patch:
        save = Ablation.save
        patch.setattr(
            Ablation, "save", lambda found, to: save(replace(found, columns=found.unread), to)
        )
        assert kinds(tries.attempt(without)) == set()  # it is refused in a sentence
        patch.setattr(Ablation, "save", lambda found, to: save(replace(found, word="a"), to))
        assert kinds(tries.attempt(without)) == set()
    change = {
        "do": "json",
        "file": "ablate.json",
        "place": ["word"],
        "how": "put",
        "value": ["json", '"a"'],
    }
    assert tries.attempt({**without, "changes": [change]}) == []


def test_archives_that_reach_out(tries: folders.Attack, monkeypatch: pytest.MonkeyPatch):
    unpack = folders.archives.unpack

    def reaching(file, folder: Path, **options) -> None:
        unpack(file, folder, **options)
        (folder.parent / "evil").touch()

    monkeypatch.setattr(folders.archives, "unpack", reaching)
    assert kinds(tries.attempt(PACKED)) == {"unpacked"}


def test_texts_that_break_a_reader(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(texts.READERS, "box", lambda text: 1 / text.count("("))
    tried = texts.Attack(0)
    assert kinds(tried.attempt({"reader": "box", "text": [["a", 3]]})) == {"error"}
    assert tried.attempt({"reader": "box", "text": [["(", 1]]}) == []
    assert tried.told["characters"] == 4


def test_a_case_is_made_smaller(tries: folders.Attack, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(explorer, "page", raising(KeyError("x")))
    change = {"do": "json", "file": "run.json", "place": ["words"], "how": "gone"}
    case = {**SOUND, "changes": [change, change], "zip": [{"how": "store", "entry": 0}]}
    (found,) = {one.key: one for one in tries.attempt(case)}.values()
    assert folders.smaller(tries, case, found.key) == SOUND


# --- many of them -----------------------------------------------------------------------------


def test_a_process_that_dies_is_found_and_the_others_go_on():
    def made():
        told = {"odd": 0}

        def attempt(number: int):
            told["odd"] += number % 2
            if number == 7:
                os._exit(9)
            wrong = [Trouble("error", "x: y", "z")] if number in (2, 12) else []
            return {"n": number}, wrong

        return attempt, told

    tally = crowd.run("folders", made, 20, processes=2)
    assert {f.trouble.kind: f.case for f in tally.found.values()} == {
        "error": {"n": 2}, "died": {"number": 7},
    }  # fmt: skip
    assert list(tally.often.values()).count(2) == 1
    assert tally.cases >= 16 and tally.told["odd"] >= 6
    assert json.loads(json.dumps(tally.to_dict()))["found"]


def test_an_attack_that_is_broken_itself_is_no_finding():
    with pytest.raises(RuntimeError, match="the attack itself is broken"):
        crowd.run("folders", lambda: (raising_at, {}), 3)


def raising_at(number: int):
    raise LookupError(number)


def test_what_is_printed_brings_it_about_again(capsys: pytest.CaptureFixture[str]):
    tally = crowd.Tally("texts", cases=3)
    case = {"reader": "box", "text": [["it's \ud800", 1]]}
    tally.add(Finding("texts", Trouble("error", "ValueError: \ud800", "x"), case))
    reporting.show([tally], as_json=False, seed=4)
    said = capsys.readouterr().out
    assert "ValueError: \\ud800" in said
    import shlex

    command = shlex.split(reporting.again(next(iter(tally.found.values())), 4))
    assert command[:3] == ["python", "scripts/attack.py", "texts"]
    assert json.loads(attack.parse(command[2:]).case) == case
    reporting.show([tally], as_json=True, seed=4)
    assert json.loads(capsys.readouterr().out)["texts"]["found"][0]["cases"] == 1


# --- kills ------------------------------------------------------------------------------------


def test_kills_of_a_saver_that_writes_in_place(root: Path, tmp_path: Path, monkeypatch):
    """Half a folder under the name, and folders that stay: both are seen."""

    def in_place(run: Run | Pair, folder: Path, **_) -> Path:
        (folder.parent / ".heedmap.x").mkdir(exist_ok=True)
        folder.mkdir(exist_ok=True)
        for path in sorted(p for p in root.joinpath("run").iterdir() if p.is_file()):
            (folder / path.name).unlink(missing_ok=True)
            time.sleep(0.02)
            (folder / path.name).write_bytes(path.read_bytes())
        return folder

    monkeypatch.setattr(seeds, "DRAWN", ("run",) * 4)
    monkeypatch.setattr(Run, "save", in_place)
    tally = kills.attack(root, tmp_path, 8, seed=0)
    assert {one.trouble.kind for one in tally.found.values()} == {"half", "left"}
    assert tally.cases == 8


def test_what_is_killed_ends(tmp_path: Path):
    file = tmp_path / "x"

    def count() -> None:
        for n in itertools.count():
            file.write_text(str(n))
            time.sleep(0.01)

    kills.killed(count, 0.2)
    before = file.read_text()
    time.sleep(0.05)
    assert file.read_text() == before


# --- the app ----------------------------------------------------------------------------------


def test_what_a_probe_looks_for():
    pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")
    from attacking import addresses, probe

    probing = object.__new__(probe._Probe)
    probing.tally, probing.word, probing.theirs = crowd.Tally("probe"), "secret", "theirs"
    probing.secret, probing.absent = Path("/a/there"), Path("/a/absent")
    log: list[str] = []
    probing.server, probing.logged = SimpleNamespace(said=lambda: "".join(log)), 0
    for answer, wrong in (
        ((200, b"fine", {}), 0),
        ((503, b"busy", {}), 0),
        ((200, b"a secret", {}), 1),
        ((200, b"", {"location": "theirs"}), 1),
        ((500, b"", {}), 1),
        ((404, b"Traceback (most recent call last)", {}), 1),
    ):
        probing.tally.found.clear()
        probing.look(answer, "x", {})
        assert len(probing.tally.found) == wrong, answer
    probing.tally = crowd.Tally("probe")
    log.append("Traceback (most recent call last)\nKeyError: 'x'\n")
    probing.look((200, b"fine", {}), "x", {})
    probing.look((200, b"fine", {}), "x", {})  # told once
    assert [list(probing.tally.often.values())] == [[1]]
    probing.tally.found.clear()
    routes = ("/gradio_api/queue/join", "/gradio_api/run/predict")
    alike = [(r, str(p), (422, b"no")) for r in routes for p in (probing.secret, probing.absent)]
    probe._told_apart(probing, alike, 0, {})
    assert not probing.tally.found
    probe._told_apart(probing, [(*alike[0][:2], (200, b"")), *alike[1:]], 0, {})
    assert len(probing.tally.found) == 1
    assert {"/gradio_api/queue/join", "/gradio_api/file={path_or_url:path}"} <= set(
        addresses.gradio_routes()
    )


def test_what_a_load_must_not_do():
    pytest.importorskip("gradio", reason="pip install -c constraints.txt -e '.[app]'")
    from attacking import load

    fine = load.Counts(served=9, times=[0.1, 0.2])
    state = SimpleNamespace(alive=True, rested=[700.0, 720.0], said="")

    def kinds_of(counts: load.Counts, **changed) -> set[str]:
        now = SimpleNamespace(**{**vars(state), **changed})
        return {one.kind for one in load.wrongs(counts, 3, now)}

    assert kinds_of(fine) == set()
    assert kinds_of(fine, alive=False) == {"dead"}
    assert kinds_of(fine, rested=[700.0, 751.0]) == {"memory"}
    assert kinds_of(fine, rested=[700.0, 751.0, 752.0]) == set()
    assert kinds_of(fine, rested=[700.0, 751.0, 802.0, 853.0]) == {"memory"}
    assert kinds_of(fine, said="Traceback (most …") == {"log"}
    assert kinds_of(load.Counts(served=9, times=[31.0])) == {"slow"}
    assert kinds_of(load.Counts(served=2)) == {"unserved"}
    assert kinds_of(load.Counts(served=9, troubles={"no page": 1})) == {"unserved"}
