"""Every family, briefly: exact maps of each image in each branch, and the image to the bit."""

import pytest

from families.checking import check_family
from families.models import TABLE

PROMPTS = ["a red dog", "the cat"]


@pytest.mark.parametrize("family", TABLE)
def test_a_family_gives_exact_maps(load, family):
    """Of prompts of unlike length, whose padding is not alike."""
    row, pipe = TABLE[family], load(family)
    more = {"num_images_per_prompt": row.repeats, "seeds": range(2 * row.repeats)}
    recorder = check_family(pipe, family, PROMPTS, **more)
    for recording in recorder.recordings:
        grids = sorted({layer.grid for layer in recording.layers}, reverse=True)
        assert grids == sorted(row.grids, reverse=True)
        side = pipe.vae_scale_factor // (1 + (family in ("bria", "ernie")))  # of two cells
        assert recording.size == (recording.latent[1] * side, recording.latent[0] * side)
        assert recording.table.find("red" if recording.table.prompt == PROMPTS[0] else "cat")
    assert recorder.recordings[0].table.find("red") == row.red
