"""What a page is given of a recording: exact but for rounding, and within its budget."""

import base64
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from making import small, table_of, with_refined

from heedmap.maps.recordings import Layer, Recording
from heedmap.page import packing
from heedmap.text.words import Token, TokenTable, Word


def pack(recording: Recording, budget: int) -> dict[str, Any]:
    """The data of a run with one prompt, with its entries."""
    packed = packing.pack([{"prompt": recording}], budget)
    return {**packed, **packed["runs"][0], **packed["runs"][0]["prompts"][0]}


def told(recording: Recording) -> list[np.ndarray]:
    """The arrays with the K axis in the order of the page: words, start token, end token."""
    order = [*range(1, len(recording.positions) - 1), 0, len(recording.positions) - 1]
    return [array[..., order] for array in recording.arrays]


def unpacked(packed: dict[str, Any], table: dict[str, Any]) -> list[np.ndarray]:
    """The planes of a table by layer, (windows, heads, C, Q), read as the page reads them."""
    raw = zlib.decompress(base64.b64decode(table["data"][0]))
    entries, layers, windows = len(packed["entries"]), packed["layers"], len(table["windows"])
    heads = [one["heads"] if table["heads"] else 1 for one in layers]
    counts = [windows * own * entries for own in heads]
    ranges = np.frombuffer(raw, "<f4", 2 * sum(counts)).reshape(-1, 2)
    at, first, parts = ranges.nbytes, 0, []
    for layer, own, count in zip(layers, heads, counts, strict=True):
        places = layer["grid"][0] * layer["grid"][1]
        size = count * places
        steps = np.frombuffer(raw, np.uint8, size, at).astype(np.int64)
        if table["bits"] == 16:
            steps = steps * 256 + np.frombuffer(raw, np.uint8, size, at + size)
        at += size * table["bits"] // 8
        whole = steps.reshape(count, places).cumsum(axis=1) % 2 ** table["bits"]
        low, unit = ranges[first : first + count].T
        first += count
        planes = low[:, None] + unit[:, None] * whole
        parts.append(planes.reshape(windows, own, entries, places))
    assert at == len(raw)
    return parts


@pytest.mark.parametrize("bits, budget", [(16, 10**9), (8, 110_000)])
def test_rounding_stays_within_its_bound(bits: int, budget: int):
    """Each plane is within 1/131070 (16 bits) or 1/510 (8 bits) of its own range."""
    recording = small(keep=frozenset({"layer", "step", "head"})).maps.recording
    packed = pack(recording, budget)
    table = packed["tables"][-1]
    assert (table["bits"], table["heads"], len(table["windows"])) == (bits, True, 4)
    for array, planes in zip(told(recording), unpacked(packed, table), strict=True):
        exact = array.transpose(0, 1, 3, 2)
        allowed = np.ptp(exact, axis=-1, keepdims=True) / (2 * (2**bits - 1))
        assert (np.abs(planes - exact) <= allowed * 1.001 + 1e-8).all()


def test_a_plane_that_is_constant_up_to_rounding_becomes_constant():
    recording = small(keep=frozenset({"layer", "step", "head"})).maps.recording
    first = recording.arrays[0].copy()
    noise = np.random.default_rng(0).random(first.shape[:3], np.float32)
    first[..., 2] = 0.25 + 1e-6 * noise
    first[..., 3] = 0.25 + 1e-4 * noise  # a map
    recording = replace(recording, arrays=(first, *recording.arrays[1:]))
    packed = pack(recording, 10**9)
    planes = unpacked(packed, packed["tables"][-1])
    even, seen = (planes[0][:, :, entry] for entry in (1, 2))  # the columns 2 and 3
    assert (np.ptp(even, axis=-1) == 0).all()
    np.testing.assert_allclose(even, 0.25, rtol=1e-5)
    np.testing.assert_allclose(seen, first[..., 3], rtol=0, atol=1e-8)


def test_the_first_table_is_the_mean_of_all_steps_and_heads():
    recording = small(keep=frozenset({"layer", "step", "head"})).maps.recording
    packed = pack(recording, 10**9)
    first = packed["tables"][0]
    assert first["windows"] == [[0, 4]] and not first["heads"] and first["bits"] == 16
    for array, planes in zip(told(recording), unpacked(packed, first), strict=True):
        np.testing.assert_allclose(planes[0, 0].T, array.mean(axis=(0, 1)), atol=2e-5)


def test_words_sum_their_tokens_and_special_tokens_follow():
    run = small("a red house")
    table = run.maps.tokens
    joined = Word(2, "house", 6, 11, (3, 4), 0)
    tokens = (
        *table.tokens[:3], Token(3, 3, "hou", 6, 9, "text"), Token(4, 4, "se", 9, 11, "text"),
        *(replace(token, position=p) for p, token in enumerate(table.tokens[4:], 5)),
    )[:77]  # fmt: skip
    table = TokenTable("a red house", 77, 0, tokens, (*table.words[:2], joined))
    random = np.random.default_rng(0)
    recording = run.maps.recording
    arrays = tuple(random.random((*a.shape[:3], 6), np.float32) for a in recording.arrays)
    recording = replace(recording, table=table, arrays=arrays, positions=tuple(range(6)))
    packed = pack(recording, 10**9)
    kinds = [(entry["text"], entry["kind"]) for entry in packed["entries"]]
    assert kinds == [
        ("a", "word"), ("red", "word"), ("house", "word"),
        ("start token", "start"), ("end token", "end"),
    ]  # fmt: skip
    planes = unpacked(packed, packed["tables"][0])[0]
    np.testing.assert_allclose(planes[0, 0, 2], arrays[0][0, 0, :, 3:5].sum(-1), atol=2e-5)


def test_the_prompt_is_split_into_words_and_the_text_between():
    table = table_of("(a) 빨간 집,  next")
    run = small("(a) 빨간 집,  next")
    pieces = pack(run.maps.recording, 10**6)["pieces"]
    assert "".join(text for text, *_ in pieces) == table.prompt
    assert [text for text, number, _ in pieces if number >= 0] == ["a", "빨간", "집", "next"]


def test_words_past_the_limit_are_marked_and_have_no_map():
    run = small()
    table = run.maps.tokens
    longer = replace(
        table,
        prompt="a red house there",
        words=(*table.words, Word(3, "there", 12, 17, (), 1)),
        missing=1,
    )
    packed = pack(replace(run.maps.recording, table=longer), 10**6)
    assert packed["pieces"][-1] == ["there", 3, False]
    assert "there" not in [entry["text"] for entry in packed["entries"]]


@pytest.mark.parametrize("axes", [{"layer"}, {"layer", "step"}, {"step"}, {"layer", "head"}, set()])
def test_every_window_of_a_table_is_exact(axes: set):
    """Where steps are held together, what is held is their mean."""
    recording = small(keep=frozenset(axes)).maps.recording
    if "layer" not in axes:
        names = (Layer("mean", 2, (16, 16)),)
        recording = replace(recording, layers=names, arrays=recording.arrays[:1])
    for budget in (4_000, 30_000, 200_000, 10**9):
        packed = pack(recording, budget)
        for table in packed["tables"]:
            assert table["windows"][0][0] == 0 and table["windows"][-1][1] == 4
            for array, planes in zip(told(recording), unpacked(packed, table), strict=True):
                for (a, b), window in zip(table["windows"], planes, strict=True):
                    a, b = (a, b) if len(array) > 1 else (0, 1)
                    exact = array[a:b].mean(axis=(0,) if table["heads"] else (0, 1))
                    exact = exact.reshape(-1, *array.shape[2:]).transpose(0, 2, 1)
                    allowed = np.ptp(exact, axis=-1, keepdims=True) / 510
                    assert (np.abs(window - exact) <= allowed * 1.01 + 1e-6).all()


def test_the_prompts_of_a_run_share_its_tables():
    """The words of the negative prompt follow those of the prompt."""
    prompt, negative = (small(text).maps.recording for text in ("a red house", "a car"))
    packed = packing.pack([{"prompt": prompt, "negative": negative}], 10**9)
    (run,) = packed["runs"]
    assert [one["name"] for one in run["prompts"]] == ["prompt", "negative"]
    words = [(one["text"], one["prompt"]) for one in run["entries"] if one["kind"] == "word"]
    assert words == [("a", 0), ("red", 0), ("house", 0), ("a", 1), ("car", 1)]
    planes = unpacked({**packed, **run}, packed["tables"][0])[0]
    exact = np.concatenate([told(one)[0].mean(axis=(0, 1)) for one in (prompt, negative)], axis=1)
    np.testing.assert_allclose(planes[0, 0].T, exact, atol=2e-5)


# --- refined maps -----------------------------------------------------------------------------


def test_refined_maps_are_a_table_of_one_layer():
    recording = with_refined(small()).maps.recording
    packed = pack(recording, 10**9)
    refined = packed["refined"]
    (table,) = refined["tables"]
    assert table["bits"] == 16 and refined["layers"][0]["grid"] == (8, 8)
    assert table["windows"] == [[0, 4]] and not table["heads"]
    (planes,) = unpacked({**packed, **refined}, table)
    order = [*range(1, len(recording.positions) - 1), 0, len(recording.positions) - 1]
    assert recording.refined is not None
    exact = recording.refined.reshape(64, -1)[:, order].T
    allowed = np.ptp(exact, axis=-1, keepdims=True) / (2 * 65535)
    assert (np.abs(planes[0, 0] - exact) <= allowed * 1.001 + 1e-8).all()
    assert pack(small().maps.recording, 10**9)["refined"] is None
