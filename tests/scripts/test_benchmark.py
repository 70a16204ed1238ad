"""The benchmark for a GPU, on the CPU: recording changes nothing, and is timed beside others."""

import json
from pathlib import Path

import benchmark
from benchmarking import gpu


def test_recording_is_exact_and_all_recorders_are_timed(tmp_path: Path):
    out = tmp_path / "gpu.json"
    line = "gpu --device cpu --width 32 --latent 16 --blocks 2 --steps 1 --rounds 1"
    chosen = ["--families", "sd15", "--dtypes", "float32", "--batches", "1", "--out", str(out)]
    options = benchmark.parse([*line.split(), *chosen])
    options.function(options)
    figures = json.loads(out.read_text())["families"]["sd15"]["float32"]
    assert figures["same_image"] and figures["largest_error"] < 1e-5
    times = figures["batches"]["1"]
    assert set(times) == set(gpu.WAYS)
    assert all(time["ms"] > 0 for time in times.values())
