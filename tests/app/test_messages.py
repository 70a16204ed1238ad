"""What the page may tell Gradio: what a schema names, and nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedmap.app.messages import Cancel, Event, Reset, encoded, parsed

SOUND: dict[str, Any] = {
    "data": ["a", 1, 0.5, True, None, ["x"]],
    "fn_index": 3,
    "session_hash": "s",
}


def told(**changes: Any) -> bytes:
    return json.dumps({**SOUND, **changes}).encode()


def test_a_press_of_a_button_goes_through_as_it_is():
    event = parsed(Event, told())
    assert event is not None
    assert json.loads(encoded(event)) == {**SOUND, "event_data": None, "trigger_id": None}


@pytest.mark.parametrize(
    "changes",
    [
        {"data": [{"path": "/etc/passwd"}]},
        {"data": [["x", {"path": "/etc/passwd"}]]},
        {"data": [[["x"]]]},
        {"data": [None] * 65},
        {"data": None},
        {"fn_index": -1},
        {"fn_index": 1000},
        {"fn_index": "3"},
        {"session_hash": ""},
        {"session_hash": "../x"},
        {"trigger_id": 10_000},
        {"event_data": {"token": "../../etc/passwd"}},
        {"event_data": {"token": "A" * 32}},
        {"event_data": {"token": {"path": "/etc/passwd"}}},
    ],
)
def test_what_is_not_in_the_schema_is_no_message(changes):
    assert parsed(Event, told(**changes)) is None


def test_what_a_schema_does_not_name_is_left_out():
    event = parsed(Event, told(more={"path": "/etc/passwd"}, event_data={"path": "/etc/passwd"}))
    assert event is not None
    assert b"passwd" not in encoded(event) and event.event_data is None


def test_of_an_upload_only_its_name_goes_through():
    token = "0123456789abcdef" * 2
    event = parsed(Event, told(event_data={"token": token, "path": "/etc/passwd"}))
    assert event is not None
    assert json.loads(encoded(event))["event_data"] == {"token": token}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b"1e999"])
def test_what_is_no_message_at_all(body):
    for schema in (Event, Cancel, Reset):
        assert parsed(schema, body) is None


def test_half_of_a_character_becomes_a_question_mark():
    event = parsed(Event, told(data=["a \ud83d b"]))
    assert event is not None and event.data == ["a ? b"]


def test_what_is_told_when_a_page_is_closed():
    cancel = parsed(Cancel, b'{"session_hash": "s", "fn_index": 2, "event_id": "e1", "more": 1}')
    assert cancel is not None
    assert json.loads(encoded(cancel)) == {"session_hash": "s", "fn_index": 2, "event_id": "e1"}
    assert parsed(Cancel, b'{"session_hash": "s", "fn_index": 2}') is None
    reset = parsed(Reset, b'{"event_id": "e1"}')
    assert reset is not None and json.loads(encoded(reset)) == {"event_id": "e1", "success": True}


PLAIN = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=9)


@given(st.lists(PLAIN | st.lists(st.text(max_size=9), max_size=16), max_size=64))
def test_every_list_of_plain_fields_goes_through_as_it_is(fields):
    event = parsed(Event, told(data=fields))
    assert event is not None
    assert json.loads(encoded(event))["data"] == fields
