"""What is refused when a folder is read, so that nothing stumbles over it later."""

import copy
import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pytest
from making import SETTINGS, made_pair, made_run
from msgspec import Meta, Struct, structs
from safetensors import safe_open
from safetensors.numpy import save_file

from heedmap.errors import RunError
from heedmap.files import schemas
from heedmap.files.reports import ChangedWords
from heedmap.files.settings import Settings
from heedmap.maps.recordings import Recording, RecordingFile, check_fit
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run

Change = Callable[[dict[str, Any]], Any]


def edited(path: Path, change: Change) -> None:
    """Change a file of JSON by its text, so that numbers stay as they were written."""
    about = json.loads(path.read_text(encoding="utf-8"))
    change(about)
    said = json.dumps(about, ensure_ascii=True).replace('"@', "").replace('@"', "")
    path.write_text(said, encoding="utf-8")


def tampered(path: Path, change: Change, arrays: Any = None) -> None:
    """Change the metadata of a recording."""
    with safe_open(path, framework="numpy") as file:
        about = json.loads(file.metadata()["heedmap"])
        held = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    change(about)
    said = json.dumps(about).replace('"@', "").replace('@"', "")
    save_file(held if arrays is None else arrays, path, metadata={"heedmap": said})


def at(*path: Any) -> Callable[[Any], Change]:
    """Sets what stands at a place; text between two @ is written as it is."""

    def to(value: Any) -> Change:
        def change(about: dict[str, Any]) -> None:
            here: Any = about
            for key in path[:-1]:
                here = here[key]
            here[path[-1]] = value

        return change

    return to


def nested(depth: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


NESTED = f"@{'[' * 991}{']' * 991}@"  # as text: json itself does not write it
ODD = {
    "seed": [10**300, -1, 1.0, "7", [], None, True, "@1e999@", 2**63],
    "steps": [0, -1, 2.5, "9", [], True, 10**9],
    "guidance": ["4", [], {}, "@1e999@", 10**400, "@NaN@", 1e31, True],
    "size": [[], [128], [128, 128, 3], [0, 128], [128.0, 128], "128x128", None, [-1, 1]],
    "prompt": [None, 5, [], {}, "@\"\\ud800\"@", "x" * 200_000],
    "text": [None, 5, []],
    "model": [None, 5, [], "x" * 5000],
    "versions": [None, [], {}, {"heedmap": 1}],
    "negative": [5, []],
    "defaults": [[], {"steps": 1}, None],
    "keep": ["layer", ["colour"], [[]], [1], None],
    "branches": ["conditional", ["x"]],
    "tokens": ["none", None, 1],
    "batch_place": [[1], [-1, 2], "x", [0.0, 1]],
    "schedulers": [[], {"x": {}}, {"scheduler": {}}, {"scheduler": {"class": 1, "config": {}}}],
    "parts": [[], {"vae": 1}],
    "loras": [{}, [1]],
    "edits": [{}, [{}], [{"kind": 1}], [1]],
    "edit": [{}, None, [], {"source": "a", "cross": 0.8, "self": [0, 0.4]},
             {"source": "a", "cross": [0, 7], "self": [0, 0.4]}],
    "arguments": [[], NESTED, {"deep": NESTED}, {"n": 10**40}, {"n": "@1e999@"}],
    "anything": [nested(40), 10**40, "@-1e999@", "@NaN@"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in ODD.items() for value in values],
    ids=lambda _: None,
)  # fmt: skip
def test_settings_that_heedmap_does_not_write(tmp_path, name, value):
    folder = made_run().save(tmp_path / "x", overlays=False)
    edited(folder / "run.json", at("settings", name)(value))
    with pytest.raises(RunError, match=r"run\.json is not what heedmap wrote: .*; make it again"):
        Run.load(folder)


@pytest.mark.parametrize("name", ["prompt", "seed", "steps", "guidance", "size", "model"])
def test_settings_that_are_not_there(tmp_path, name):
    folder = made_run().save(tmp_path / "x", overlays=False)
    edited(folder / "run.json", lambda about: about["settings"].pop(name))
    with pytest.raises(RunError, match=f"expected the field {name} at settings"):
        Run.load(folder)


def test_what_a_schema_does_not_know_stays(tmp_path):
    folder = made_run().save(tmp_path / "x", overlays=False)
    edited(folder / "run.json", at("settings", "mine")({"a": [1, 2.5, None, "ü"]}))
    run = Run.load(folder)
    assert run.settings.more == {"mine": {"a": [1, 2.5, None, "ü"]}}
    run.save(tmp_path / "y", overlays=False)
    assert Run.load(tmp_path / "y").settings == run.settings


MAPS = {
    "heads": (("layers", 0, "heads"), ["@1e999@", 0, 2.0, 10**9, None]),
    "grid": (("layers", 0, "grid"), [[16], [16, 16, 1], [0, 16], [15, 16], [10**9, 1]]),
    "positions": (("positions",), [["@1e999@"], [], [0, 0], [10**6], [1.5], None, [-1]]),
    "timesteps": (("timesteps",), [[], ["@1e999@"], None, ["1"]]),
    "latent": (("latent",), [[1, 1048576], [1, 16384], [16, 15], [16, 0], [2**40, 1], [8, 8]]),
    "size": (("size",), [[128, 127], [64, 64], [128, 128.0], [2**20, 2**20]]),
    "layers": (("layers",), [[], None, [{"name": "x", "heads": 1, "grid": [1, 1]}] * 20_000]),
}


@pytest.mark.parametrize(
    ("path", "value"), [(path, value) for path, values in MAPS.values() for value in values],
    ids=lambda _: None,
)  # fmt: skip
def test_maps_that_do_not_fit_their_picture(tmp_path, path, value):
    """Nothing is allocated that the file does not hold: a latent of [1, 1048576] took 17 GB."""
    folder = made_run().save(tmp_path / "x", overlays=False)
    tampered(folder / "maps.safetensors", at(*path)(value))
    began = time.process_time()
    with pytest.raises(RunError, match=r"is not what heedmap wrote|is not a recording|hold toge"):
        Run.load(folder)
    assert time.process_time() - began < 1


@pytest.mark.parametrize("value", [3e38, -3e38, np.inf, -np.inf, np.nan, 1.1e20])
def test_numbers_that_cannot_be_added_up(tmp_path, value):
    folder = made_run().save(tmp_path / "x", overlays=False)
    with safe_open(folder / "maps.safetensors", framework="numpy") as file:
        held = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    held["layer.0"][..., 0] = value
    tampered(folder / "maps.safetensors", lambda about: None, held)
    with pytest.raises(RunError, match="is not a recording that heedmap wrote"):
        Run.load(folder)
    held["layer.0"][..., 0] = np.sign(np.nan_to_num(value)) * 1e20
    tampered(folder / "maps.safetensors", lambda about: None, held)
    assert np.isfinite(Run.load(folder).maps["house"].values).all()


@pytest.mark.parametrize(
    ("latent", "size", "grids", "fits"),
    [
        ((16, 16), (128, 128), [(16, 16), (8, 8), (4, 4), (1, 1)], True),
        ((96, 64), (512, 768), [(48, 32), (24, 16), (12, 8)], True),
        ((13, 9), (72, 104), [(7, 5), (4, 3), (2, 2), (1, 1)], True),
        ((13, 9), (72, 104), [(6, 4)], False),  # halved, and rounded down
        ((16, 16), (128, 64), [(16, 16)], False),
        ((16, 16), (128, 256), [(16, 16)], False),
        ((16, 16), (120, 120), [(16, 16)], False),
        ((1, 65), (520, 8), [(1, 65)], False),
        ((1, 64), (512, 8), [(1, 64)], True),
        ((2048, 2048), (16384, 16384), [(64, 64)], False),
    ],
)  # fmt: skip
def test_what_can_be_of_one_run(latent, size, grids, fits):
    if fits:
        check_fit(grids, latent, size)
    else:
        with pytest.raises(ValueError):
            check_fit(grids, latent, size)


def test_a_picture_of_another_size_than_its_settings(tmp_path):
    folder = made_run().save(tmp_path / "x", overlays=False)
    edited(folder / "run.json", at("settings", "size")([64, 64]))
    with pytest.raises(RunError, match="128×128 pixels: expected 64×64, as its folder"):
        Run.load(folder)


EVIDENCE = {
    ("change", "inside", "share"): [None, "0.5", 2, -0.1],
    ("change", "outside"): [None, [], {}, {"share": 1, "mse": 1, "psnr_db": 1, "ssim": 1, "x": 1}],
    ("change", "beside"): [{"share": 1, "mse": 1, "psnr_db": 1, "ssim": 1}],
    ("words", "source"): [[-1], ["1"], None, {}],
    ("moved",): [None, "x"],
    ("kind",): [None, 5],
    ("why",): [None, []],
    ("masked_by",): [None, 1],
}


@pytest.mark.parametrize(
    ("path", "value"), [(path, value) for path, values in EVIDENCE.items() for value in values],
    ids=lambda _: None,
)  # fmt: skip
def test_evidence_that_no_page_could_show(tmp_path, path, value):
    folder = made_pair().save(tmp_path / "x")
    edited(folder / "pair.json", at("about", *path)(value))
    with pytest.raises(RunError, match=r"pair\.json is not what heedmap wrote: .* at about"):
        Pair.load(folder)


# --- the reader itself ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "x is not what heedmap wrote: it is not JSON; make it again"),
        (b"\xff\xfe{", "x is not what heedmap wrote: it is not JSON; make it again"),
        (b"[" * 10**6, "x is not what heedmap wrote: it is not JSON; make it again"),
        (b"7", "heedmap wrote: expected an object, got a whole number; make it again"),
        (b'{"format": true}', "expected a whole number, got true or false at format"),
        (b'{"format": false}', "expected a whole number, got true or false at format"),
        (b'{"format": 2}', "x has format 2: this version of heedmap reads format 1; make it again"),
        (b'{"format": 0}', "x has format 0: this version of heedmap reads format 1; make it again"),
        (b'{"format": 1}', "expected the field settings; make it again"),
        (b'{"format": 1, "a": {"b": "\x01"}}', "it is not JSON"),
    ],
)
def test_sentences_are_of_heedmap(data, sentence):
    with pytest.raises(RunError) as found:
        schemas.read(data, schemas.RunFile, "x", version=1)
    assert sentence in str(found.value)


class _Odd(Struct, forbid_unknown_fields=True):
    """One field of each that can be refused."""

    share: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    mark: Annotated[str, Meta(pattern="^a$")] = "a"
    few: Annotated[list[int], Meta(min_length=2, max_length=3)] = []
    least: int | None = None
    way: Literal["up", "down"] = "up"
    count: Annotated[int, Meta(ge=1, le=9)] = 1
    name: Annotated[str, Meta(max_length=2)] = ""
    named: dict[Annotated[str, Meta(max_length=2)], int] = {}


@pytest.mark.parametrize(
    ("held", "sentence"),
    [
        ({"share": 0}, ": expected a number above 0.0 at share"),
        ({"share": 1}, ": expected a number below 1.0 at share"),
        ({"share": True}, ": expected a number, got true or false at share"),
        ({"mark": "b"}, ": expected text of the form '^a$' at mark"),
        ({"few": [1]}, ": expected a list of length at least 2 at few"),
        ({"few": [1, 2, 3, 4]}, ": expected a list of length at most 3 at few"),
        ({"least": {}}, ": expected a whole number or null, got an object at least"),
        ({"other": 1}, ": expected no field other"),
        ({"int": 1}, ": expected no field int"),  # what a file holds is shown as it stands there
        ({"way": "a > b, got int"}, ": expected another value than 'a > b, got int' at way"),
        ({"way": "Expected `int`, 1"}, ": expected another value than 'Expected int, 1' at way"),
        (
            {"way": "Invalid enum value"},
            ": expected another value than 'Invalid enum value' at way",
        ),
        ({"count": 0}, ": expected a whole number of at least 1 at count"),
        ({"count": 10}, ": expected a whole number of at most 9 at count"),
        ({"count": None}, ": expected a whole number, got null at count"),
        ({"name": "abc"}, ": expected text of length at most 2 at name"),
        ({"named": {"abc": 1}}, ": expected text of length at most 2 at a name in named"),
        ({"named": {"ab": "c"}}, ": expected a whole number, got text at named[...]"),
    ],
)
def test_types_and_bounds_are_told_in_words(held, sentence):
    with pytest.raises(RunError) as found:
        schemas.validated(held, _Odd, "this")
    assert str(found.value) == f"this is not what heedmap writes{sentence}"


def test_sentences_are_short_whatever_the_file_says():
    data = json.dumps({"format": 1, "settings": {"keep": ["x\n" * 10**5]}}).encode()
    with pytest.raises(RunError) as found:
        schemas.read(data, schemas.RunFile, "x", version=1)
    assert len(str(found.value)) < 400 and "\n" not in str(found.value)


@pytest.mark.parametrize(("depth", "fits"), [(30, True), (31, False), (900, False)])
def test_how_deep_a_file_may_be(depth, fits):
    made = {**SETTINGS, "deep": nested(depth)}
    if fits:
        schemas.validated(made, Settings, "this")
    else:
        with pytest.raises(RunError, match="expected less nesting than 32 levels"):
            schemas.validated(made, Settings, "this")


# --- how much of each there may be ------------------------------------------------------------


TOKEN = {"position": 0, "id": 0, "text": "", "start": 0, "end": 0, "kind": "text"}
WORD = {"number": 0, "text": "", "start": 0, "end": 0, "tokens": [], "missing": 0}
LAYER = {"name": "x", "heads": 1, "grid": [1, 1]}
TABLE = {"prompt": "", "limit": 0, "missing": 0, "tokens": [TOKEN], "words": [WORD]}
PLAIN: dict[Any, dict[str, Any]] = {
    RecordingFile: {
        "format": 1, "layers": [LAYER], "keep": [], "timesteps": [1], "positions": [0],
        "table": TABLE, "latent": [1, 1], "size": [1, 1],
    },
    schemas.RunFile: {
        "format": 1, "files": ["x"],
        "settings": {
            "prompt": "", "seed": 0, "steps": 1, "guidance": 1, "size": [1, 1], "model": "",
            "scheduler": "", "versions": {"heedmap": ""},
            "edit": {"source": "", "cross": [0, 1], "self": [0, 1], "protect": [""]},
            "edits": [{"kind": "confine", "word": "", "where": [0, 0, 1, 1], "along": [""]}],
        },
    },
    ChangedWords: {"source": [0], "edited": [0]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "path", "least", "most"),
    [
        (RecordingFile, ("layers",), 1, 1024),
        (RecordingFile, ("timesteps",), 1, 10_000),
        (RecordingFile, ("positions",), 1, 2048),
        (RecordingFile, ("table", "tokens"), 0, 2048),
        (RecordingFile, ("table", "words"), 0, 100_000),
        (RecordingFile, ("table", "words", 0, "tokens"), 0, 2048),
        (schemas.RunFile, ("files",), 0, 10_000),
        (schemas.RunFile, ("settings", "edits"), 0, 256),
        (schemas.RunFile, ("settings", "edits", 0, "along"), 0, 2048),
        (schemas.RunFile, ("settings", "edit", "protect"), 0, 2048),
        (ChangedWords, ("source",), 0, 2048),
        (ChangedWords, ("edited",), 0, 2048),
    ],
    ids=lambda _: "",
)
def test_how_many_of_each_there_may_be(schema, path, least, most):
    plain = copy.deepcopy(PLAIN[schema])
    one: Any = plain
    for key in (*path, 0):
        one = one[key] if isinstance(one, dict) or key < len(one) else 0
    for count, fits in ((least, True), (least - 1, False), (most, True), (most + 1, False)):
        if count >= 0:
            at(*path)([one] * count)(plain)
            if fits:
                schemas.validated(plain, schema, "this")
            else:
                with pytest.raises(RunError, match=r"is not what heedmap writes: .*length"):
                    schemas.validated(plain, schema, "this")


@pytest.mark.parametrize(
    ("schema", "path", "fine", "odd"),
    [
        (RecordingFile, ("layers", 0, "name"), "x" * 512, "x" * 513),
        (RecordingFile, ("layers", 0, "heads"), 1024, 1025),
        (schemas.RunFile, ("settings", "steps"), 10_000, 10_001),
        (schemas.RunFile, ("settings", "mine"), [2**64, -(2**64)], {"a": [2**64 + 1]}),
        (schemas.RunFile, ("settings", "mine"), 0, -(2**64) - 1),
    ],
    ids=lambda _: "",
)
def test_how_much_of_each_there_may_be(schema, path, fine, odd):
    plain = copy.deepcopy(PLAIN[schema])
    at(*path)(fine)(plain)
    schemas.validated(plain, schema, "this")
    at(*path)(odd)(plain)
    with pytest.raises(RunError, match="this is not what heedmap writes"):
        schemas.validated(plain, schema, "this")


def test_a_grid_has_so_many_cells():
    cells = msgspec.inspect.type_info(schemas.GridFile).fields[3].type
    assert (cells.min_length, cells.max_length) == (1, 10_000)


def test_a_recording_reads_what_it_wrote(tmp_path):
    recording = made_run().maps.recording
    recording.save(tmp_path / "maps")
    back = Recording.load(tmp_path / "maps")
    assert (back.layers, back.table, back.positions) == (
        recording.layers, recording.table, recording.positions,
    )  # fmt: skip
    assert back.columns == {p: recording.positions.index(p) for p in recording.positions}
    np.testing.assert_array_equal(back.arrays[0], recording.arrays[0])


def test_values_are_counted_to_the_last_that_there_may_be(monkeypatch):
    monkeypatch.setattr(schemas, "MAX_VALUES", 4)
    schemas.validated([[1], 2, 3], list, "this")
    with pytest.raises(RunError, match="expected at most 4 values"):
        schemas.validated([[1], 2, [3]], list, "this")


def test_what_no_schema_knows_has_a_bound_too():
    """Sixteen megabytes of empty lists would be looked through one by one."""
    schemas.validated({**SETTINGS, "more": [[]] * 900_000}, Settings, "this")
    began = time.process_time()
    with pytest.raises(RunError, match="expected at most 1000000 values"):
        schemas.validated({**SETTINGS, "more": [[]] * 5_000_000}, Settings, "this")
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": -1}, "expected a whole number of at least 0 at seed"),
        ({"arguments": {"x": math.nan}}, "run.json cannot be written"),
        ({"size": (np.int64(128), 128)}, "run.json cannot be written"),
        ({"keep": {"layer"}}, "run.json cannot be written"),
        ({"model": "\ud800"}, "run.json cannot be written"),
        ({"prompt": 5}, "what run.json would hold"),
    ],
)
def test_what_could_not_be_read_is_not_written(changes, said, tmp_path):
    run = made_run()
    odd = replace(run, settings=structs.replace(run.settings, **changes))
    with pytest.raises(RunError, match=said):
        odd.save(tmp_path / "run")
    assert not list(tmp_path.iterdir())
