"""The measures of a change, against numbers by hand and scikit-image."""

import math
from typing import Any, cast

import numpy as np
import pytest
from making import noise
from PIL import Image
from skimage import metrics

from heedmap.io.schemas import to_json
from heedmap.pipelines.measures import change_between


def test_measures_of_change_equal_those_worked_out_by_hand():
    before = Image.new("RGB", (16, 8), (0, 0, 0))
    pixels = np.zeros((8, 16, 3), dtype=np.uint8)
    pixels[:, :4] = (51, 0, 102)  # 0.2, 0, 0.4: the squares' mean is (0.04 + 0.16) / 3
    inside = np.zeros((8, 16), dtype=bool)
    inside[:, :8] = True  # of which half has changed
    change = change_between(before, Image.fromarray(pixels), inside)
    mse = 0.2 / 3 / 2
    assert change.inside.share == 0.5
    assert change.inside.mse == pytest.approx(mse, rel=1e-12)
    assert change.inside.psnr_db == pytest.approx(-10 * math.log10(mse), rel=1e-12)
    assert change.outside.mse == 0
    assert change.outside.psnr_db is None


def test_similarity_is_scikit_images():
    """With the Gaussian windows of Wang et al.; scikit-image treats borders otherwise."""
    random = np.random.default_rng(7)
    before = random.integers(0, 256, (64, 100, 3), dtype=np.uint8)
    after = np.clip(before + random.normal(0, 25, before.shape), 0, 255).astype(np.uint8)
    _, expected = cast(Any, metrics).structural_similarity(
        before / 255, after / 255, data_range=1.0, channel_axis=2, full=True,
        gaussian_weights=True, sigma=1.5, use_sample_covariance=False,
    )  # fmt: skip
    inside = np.zeros(before.shape[:2], dtype=bool)
    inside[5:-5, 5:40] = True
    change = change_between(Image.fromarray(before), Image.fromarray(after), inside)
    assert change.inside.ssim == pytest.approx(expected[inside].mean(), rel=1e-9)


def test_equal_images_have_no_change():
    size = (40, 9)
    picture = noise(3, size)
    for inside in (np.ones(size[::-1], dtype=bool), np.zeros(size[::-1], dtype=bool)):
        change = change_between(picture, picture, inside)
        for name, share in (("inside", float(inside.mean())), ("outside", 1 - inside.mean())):
            there = share > 0
            assert to_json(change)[name] == {
                "share": share,
                "mse": 0.0 if there else None,
                "psnr_db": None,
                "ssim": pytest.approx(1) if there else None,
            }
