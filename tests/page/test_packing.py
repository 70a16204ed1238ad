"""What a page is given of a recording: exact but for rounding, and within its budget."""

import base64
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from making import small, table_of

from heedmap.maps.recordings import Layer, Recording
from heedmap.page import packing
from heedmap.text.words import Token, TokenTable, Word

ALL = frozenset({"layer", "step", "head"})


def pack(recording: Recording, budget: int = 10**9) -> dict[str, Any]:
    """The data of a run with one prompt, with its entries."""
    packed = packing.pack([{"prompt": recording}], budget)
    return {**packed, **packed["runs"][0], **packed["runs"][0]["prompts"][0]}


def in_page_order(recording: Recording) -> list[np.ndarray]:
    """The arrays with the K axis in the order of the page: words, start token, end token."""
    last = len(recording.positions) - 1
    return [array[..., [*range(1, last), 0, last]] for array in recording.arrays]


def unpack(packed: dict[str, Any], table: dict[str, Any]) -> list[np.ndarray]:
    """The planes of a table by layer, (windows, heads, C, Q), read as the page reads them."""
    raw = zlib.decompress(base64.b64decode(table["data"][0]))
    entries, windows = len(packed["entries"]), len(table["windows"])
    heads = [layer["heads"] if table["heads"] else 1 for layer in packed["layers"]]
    counts = [windows * count * entries for count in heads]
    ranges = np.frombuffer(raw, "<f4", 2 * sum(counts))
    ranges = ranges.reshape(-1, 2)
    offset = ranges.nbytes
    planes = []
    for layer, own, count in zip(packed["layers"], heads, counts, strict=True):
        positions = layer["grid"][0] * layer["grid"][1]
        size = count * positions
        steps = np.frombuffer(raw, np.uint8, size, offset).astype(np.int64)
        steps = steps * 256 + np.frombuffer(raw, np.uint8, size, offset + size)
        offset += size * 2
        whole = steps.reshape(count, positions)
        whole = whole.cumsum(axis=1) % 65536
        low, unit = ranges[:count].T
        ranges = ranges[count:]
        values = low[:, None] + unit[:, None] * whole
        planes.append(values.reshape(windows, own, entries, positions))
    assert offset == len(raw)
    return planes


def assert_within_rounding(values: np.ndarray, exact: np.ndarray, slack: float) -> None:
    """Each plane is within 1/131070 of its own range."""
    allowed = np.ptp(exact, axis=-1, keepdims=True) / 131070
    assert (np.abs(values - exact) <= allowed * 1.001 + slack).all()


@pytest.mark.parametrize("axes", [ALL, {"layer"}, {"layer", "step"}, {"step"}, {"layer", "head"}])
def test_each_window_of_a_table_is_the_mean_of_its_steps(axes: set):
    """Within the bound of its rounding; heads are one by one, or their mean."""
    recording = small(keep=frozenset(axes)).maps.recording
    if "layer" not in axes:
        names = (Layer("mean", 2, (16, 16)),)
        recording = replace(recording, layers=names, arrays=recording.arrays[:1])
    kinds = set()
    for budget in (4_000, 30_000, 110_000, 200_000, 10**9):
        packed = pack(recording, budget)
        assert packed["tables"][0]["windows"] == [[0, 4]] and not packed["tables"][0]["heads"]
        for table in packed["tables"]:
            kinds.add((table["heads"], len(table["windows"])))
            assert table["windows"][0][0] == 0 and table["windows"][-1][1] == 4
            planes = unpack(packed, table)
            for array, windows in zip(in_page_order(recording), planes, strict=True):
                for (start, stop), window in zip(table["windows"], windows, strict=True):
                    steps = array[start:stop] if len(array) > 1 else array
                    exact = steps.mean(axis=0)
                    if not table["heads"]:
                        exact = exact.mean(axis=0, keepdims=True)
                    exact = exact.transpose(0, 2, 1)
                    assert_within_rounding(window, exact, slack=1e-7)
    if axes == ALL:
        assert {(True, 4), (True, 1), (False, 4), (False, 1)} <= kinds


def test_a_plane_that_is_constant_up_to_rounding_becomes_constant():
    recording = small(keep=ALL).maps.recording
    first = recording.arrays[0].copy()
    noise = np.random.default_rng(0).random(first.shape[:3], np.float32)
    first[..., 2] = 0.25 + 1e-6 * noise
    first[..., 3] = 0.25 + 1e-4 * noise  # a map
    packed = pack(replace(recording, arrays=(first, *recording.arrays[1:])))
    planes = unpack(packed, packed["tables"][-1])[0]
    assert (np.ptp(planes[:, :, 1], axis=-1) == 0).all()
    np.testing.assert_allclose(planes[:, :, 1], 0.25, rtol=1e-5)
    np.testing.assert_allclose(planes[:, :, 2], first[..., 3], rtol=0, atol=1e-8)


def test_words_sum_their_tokens_and_special_tokens_follow():
    run = small("a red house")
    table = run.maps.tokens
    joined = Word(2, "house", 6, 11, (3, 4), 0)
    parts = (Token(3, 3, "hou", 6, 9, "text"), Token(4, 4, "se", 9, 11, "text"))
    rest = [replace(token, position=p) for p, token in enumerate(table.tokens[4:76], 5)]
    tokens = (*table.tokens[:3], *parts, *rest)
    table = TokenTable("a red house", 77, 0, tokens, (*table.words[:2], joined))
    recording = run.maps.recording
    random = np.random.default_rng(0)
    arrays = tuple(random.random((*a.shape[:3], 6), np.float32) for a in recording.arrays)
    recording = replace(recording, table=table, arrays=arrays, positions=tuple(range(6)))
    packed = pack(recording)
    assert [entry["text"] for entry in packed["entries"]] == [
        "a",
        "red",
        "house",
        "start token",
        "end token",
    ]
    planes = unpack(packed, packed["tables"][0])[0]
    np.testing.assert_allclose(planes[0, 0, 2], arrays[0][0, 0, :, 3:5].sum(-1), atol=2e-5)


def test_the_prompt_is_split_into_words_and_the_text_between():
    table = table_of("(a) 빨간 집,  next")
    pieces = pack(small("(a) 빨간 집,  next").maps.recording)["pieces"]
    assert "".join(text for text, *_ in pieces) == table.prompt
    assert [text for text, number, _ in pieces if number >= 0] == ["a", "빨간", "집", "next"]


def test_words_past_the_limit_are_marked_and_have_no_map():
    run = small()
    table = run.maps.tokens
    words = (*table.words, Word(3, "there", 12, 17, (), 1))
    longer = replace(table, prompt="a red house there", words=words, missing=1)
    packed = pack(replace(run.maps.recording, table=longer))
    assert packed["pieces"][-1] == ["there", 3, False]
    assert "there" not in [entry["text"] for entry in packed["entries"]]
