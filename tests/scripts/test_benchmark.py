"""The benchmarks themselves, at a tiny width. How long things take is not judged here."""

import json
import math
from collections.abc import Iterator

import pytest
import torch

import benchmark
from benchmarking import recording

TINY = ["--width=32", "--latent=16", "--rounds=3"]


@pytest.fixture(scope="module")
def figures() -> Iterator[dict]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield recording.record(benchmark.parse(["record", *TINY, "--repeats=0"]))
    torch.set_num_threads(threads)


def test_figures_have_the_promised_names(figures: dict):
    assert {"extra_percent", "retained_mb", "peak_extra_mb", "bit_identical", "peers", "spread"} < (
        json.loads(json.dumps(figures)).keys()
    )
    assert set(figures["extra_percent"]) == {"all_tokens", "prompt_tokens"}
    assert set(figures["map_ms"]) == {"one_word", "all_words"}
    assert set(figures["peers"]) == {"classic", "store_everything", "attention_store"}
    for row in (*figures["peers"].values(), {"extra_percent": 0.0, "retained_mb": 1.0}):
        assert set(row) == {"extra_percent", "retained_mb"}
        assert math.isfinite(row["extra_percent"]) and row["retained_mb"] > 0
    assert figures["peak_extra_mb"] is None, "no peaks were asked for"


def test_only_heedmap_changes_nothing(figures: dict):
    assert figures["bit_identical"] is True
    same = figures["spread"]["identical"]
    assert [name for name in same if same[name]] == ["all_tokens", "prompt_tokens"]


def test_what_heedmap_holds_does_not_grow_with_the_steps(figures: dict):
    held = {name: list(by.values()) for name, by in figures["spread"]["retained_mb"].items()}
    for name in ("all_tokens", "prompt_tokens", "classic", "attention_store"):
        assert held[name][-1] <= held[name][0] + 0.01, name
    few, many = map(int, figures["spread"]["retained_mb"]["store_everything"])
    assert (few, many) == (2, 8)
    first, last = held["store_everything"]
    assert last == pytest.approx(first * many / few, abs=0.1)
    assert figures["peers"]["store_everything"]["retained_mb"] > 10 * figures["retained_mb"]


def test_report_can_be_read(figures: dict, capsys: pytest.CaptureFixture[str]):
    recording.report(figures)
    text = capsys.readouterr().out
    assert "bit-identical        yes" in text and "store_everything" in text
