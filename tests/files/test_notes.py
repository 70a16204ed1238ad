"""Notes: what a file says comes back as it was, and so does what no schema knows."""

import json
import pickle
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import SETTINGS, settings_of
from msgspec import structs

from heedmap.errors import RunError
from heedmap.files import schemas
from heedmap.files.notes import Note, to_json
from heedmap.files.settings import Settings

WINDOWS = {"cross": [0, 0.5], "self": [0.25, 1]}
EDIT = {"source": "a cat", **WINDOWS}
FULL: dict[str, Any] = {
    **SETTINGS,
    "keep": ["layer", "step"],
    "schedulers": {"scheduler": {"class": "X", "config": {"order": [1, None]}, "mine": 1}},
    "edits": [
        {"kind": "rule", "name": "fade"},
        {"kind": "confine", "word": "a", "where": [0, 0.5, 8, 8], "mine": {"b": []}},
        {"kind": "confine", "word": "a", "where": {"mask": [8, 8], "more": 3}},
        {"kind": "reweight", "word": "b", "weight": 2.5},
    ],
    "batch_place": [1, 2],
    "edit": {**EDIT, "windows": {"cat": [0, 1]}, "mine": True},
    "mine": [1, 2.5, None, "ü", {"more": {}, "unnoted": []}],
    "more": 3,
}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_what_was_read_is_written_again_with_all_that_nobody_knows():
    read = settings_of(**FULL)
    assert to_json(read) == FULL
    assert json.loads(json.dumps(to_json(read))) == FULL
    assert settings_of(**to_json(read)) == read


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_any_names_are_kept(more):
    """Whatever they are called, also as our own attributes are."""
    more = {key: value for key, value in more.items() if key not in FIELDS}
    read = settings_of(**{**more, "edit": {**more, **EDIT}})
    assert read.edit is not None
    assert to_json(read) == {**SETTINGS, **more, "edit": {**more, **EDIT}}


FIELDS = {one.encode_name for one in [*structs.fields(Settings), *structs.fields(Note)]} | {
    *("source", "cross", "self", "kind", "kind_asked", "windows", "renormalize", "only"),
    *("self_cells", "protect", "blend_from", "threshold"),
}


def test_what_an_older_version_did_not_note_is_known_and_stays_away():
    read = settings_of()
    assert {"text", "keep", "threads"} <= {*read.unnoted} and "seed" not in read.unnoted
    assert (read.keep, read.tokens, read.threads) == (("layer",), "prompt", None)
    assert to_json(read) == SETTINGS
    assert to_json(structs.replace(read, threads=2)) == {**SETTINGS, "threads": 2}


def test_what_is_left_out_where_it_is_none_is_not_an_older_versions():
    read = settings_of()
    assert read.edit is None and read.batch_place is None
    assert not {"edit", "batch_place"} & {*read.unnoted}


@pytest.mark.parametrize("name", ["edit", "batch_place"])
def test_what_may_be_left_out_is_not_null(name):
    with pytest.raises(RunError, match=f"expected a value, got null at {name}$"):
        settings_of(**{name: None})


def test_an_attribute_and_its_name_in_a_file():
    read = settings_of(edit=EDIT)
    assert read.edit is not None
    assert (read.edit.self_attention, read.edit.cross) == ((0.25, 1.0), (0.0, 0.5))
    assert list(to_json(read)["edit"]) == ["source", "cross", "self"]


def mutable(value: Any) -> bool:
    """Whether there are lists where the type says what stands there."""
    if isinstance(value, msgspec.Struct):
        return any(mutable(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, Mapping):
        return any(isinstance(one, msgspec.Struct) and mutable(one) for one in value.values())
    return isinstance(value, list) or (isinstance(value, tuple) and any(map(mutable, value)))


def test_a_note_is_frozen():
    read = settings_of(**FULL)
    for note in (read, read.edit, read.versions, read.edits[0]):
        with pytest.raises(AttributeError, match="immutable"):
            note.more = {}
    assert not mutable(read)


SHARED = ["__setitem__", "__delitem__", "clear", "pop"]
CHANGES = {
    dict: [*SHARED, "__ior__", "popitem", "setdefault", "update"],
    list: [
        *SHARED,
        "__iadd__",
        "__imul__",
        "append",
        "extend",
        "insert",
        "remove",
        "reverse",
        "sort",
    ],
}


@pytest.mark.parametrize(
    "again", [lambda one: one, deepcopy, lambda o: pickle.loads(pickle.dumps(o))]
)
def test_nor_can_what_it_holds_be_changed(again):
    about = {"ip": [1, {"a": [2]}]}
    for note in (settings_of(**FULL), settings_of(arguments=about, loras=[about])):
        note = again(note)
        before, number = json.dumps(to_json(note)), hash(note)
        held = [note.arguments, note.defaults, note.more, note.schedulers, *note.loras]
        held += (
            [note.arguments["ip"], note.loras[0]["ip"][1]] if note.loras else [note.more["mine"]]
        )
        for one in held:
            kind = dict if isinstance(one, dict) else list
            for name in CHANGES[kind]:
                with pytest.raises(TypeError, match=f"this {kind.__name__} is part of a note"):
                    getattr(one, name)(*[0, 0][: name == "__setitem__"])
            assert kind(one) == one and type(kind(one)) is kind
        assert (json.dumps(to_json(note)), hash(note)) == (before, number)
    about["ip"].clear()  # whoever gave it may do with it as he likes


def test_a_note_can_be_copied_and_sent():
    read = settings_of(**FULL)
    assert deepcopy(read) == pickle.loads(pickle.dumps(read)) == read


def test_what_is_unsaid_is_not_shown():
    assert repr(settings_of().versions) == (
        "Versions(heedmap='0.1.0', unnoted=('torch', 'diffusers', 'transformers', 'python'))"
    )


def test_files_are_written_and_read_back(tmp_path):
    content = schemas.RunFile(format=1, settings=settings_of(**FULL))
    schemas.write_file(tmp_path / "run.json", content)
    read = schemas.read_file(tmp_path / "run.json", schemas.RunFile, "a run", version=1, most=10**6)
    assert read == content
    held = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert held == {"format": 1, "settings": FULL}
