"""The benchmark for a GPU, on the CPU: recording changes nothing, and is timed beside others."""

import json
from pathlib import Path

import benchmark
from benchmarking import gpu


def test_recording_is_exact_and_all_recorders_are_timed(tmp_path: Path):
    out = tmp_path / "gpu.json"
    line = "gpu --device cpu --width 32 --latent 16 --blocks 2 --steps 1 --rounds 1"
    options = benchmark.parse([*line.split(), "--dtypes", "float32", "--batches", "1"])
    options.out = out
    options.function(options)
    families = json.loads(out.read_text())["families"]
    assert set(families) == set(gpu.FAMILIES)
    for rows in families.values():
        row = rows["float32"]
        assert row["same_image"] and row["largest_error"] < 1e-5
        times = row["batches"]["1"]
        assert set(times) == set(gpu.WAYS)
        assert all(time["ms"] > 0 for time in times.values())
