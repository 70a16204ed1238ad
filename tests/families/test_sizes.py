"""True geometry: every size has the grids that halving its latent, or its patches, give."""

import pytest

from families.checking import ALONE, check, paint
from families.joint import asked
from heedmap.errors import ArgumentError
from heedmap.recording.tracing import trace

PROMPT = "a red house"

# (W, H) in pixels, and the grids of the levels of the UNet.
SD1 = [
    ((176, 104), [(13, 22), (7, 11), (4, 6), (2, 3)]),
    ((8, 264), [(33, 1), (17, 1), (9, 1), (5, 1)]),
]
SDXL = [((832, 1216), [(76, 52), (38, 26)])]
PATCHES = [((176, 112), [(7, 11)]), ((16, 256), [(16, 1)])]
CASES = [
    *(("sd1", *case) for case in SD1),
    *(("sdxl", *case) for case in SDXL),
    *(("sigma", *case) for case in PATCHES),
]


@pytest.mark.parametrize(("family", "size", "grids"), CASES)
def test_each_size_gives_exact_maps(load, family, size, grids):
    pipe = load(family)
    w, h = size

    def call():
        # The latents are enough: large pictures take the VAE longer than all the rest.
        small = {"steps": 1, "guidance_scale": 1.0, "output_type": "latent"}
        if family == "sigma":
            small |= {"use_resolution_binning": False, "max_sequence_length": 20}
        return paint(pipe, PROMPT, width=w, height=h, **small)

    recording = check(pipe, call, [PROMPT], ALONE).recordings[0]
    assert recording.size == size
    assert recording.latent == (h // 8, w // 8)
    assert sorted({layer.grid for layer in recording.layers}, reverse=True) == grids
    cells = recorder_cells(recording)
    assert min(cells) == 64
    assert cells[0] / cells[1] == pytest.approx(w / h, rel=0.02)


@pytest.mark.parametrize("family", ["flux", "chroma", "klein", "qwen"])
def test_an_image_without_a_position_is_refused(load, family):
    """Whose pipelines round sides down to multiples of 16 pixels."""
    pipe, ran = load(family), []
    pipe.transformer.register_forward_hook(lambda *_: ran.append(1))
    with pytest.raises(ArgumentError), trace(pipe):
        paint(pipe, prompt=PROMPT, steps=1, **asked(family, width=64, height=7))
    assert not ran


def recorder_cells(recording):
    """The (w, h) of a word's map."""
    from heedmap.maps.heatmaps import HeatMaps

    values = HeatMaps(recording)["red"].values
    return values.shape[1], values.shape[0]
