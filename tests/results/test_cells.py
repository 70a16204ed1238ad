"""A cell of a grid: where it stands, its line in the table, and what a sheet calls it."""

from making import random_edit

from heedmap.results.grids import Cell


def cell(**changed) -> Cell:
    made = {
        "number": 7, "seed": 3, "target": "at sea", "weights": {"sea": 2.0},
        "cross_replace": (0.0, 0.8), "self_replace": (0.1, 0.4), "result": random_edit(),
    }  # fmt: skip
    return Cell(**{**made, **changed})


def test_a_cell_has_a_row_of_values():
    made = cell()
    about = made.result.report
    assert made.row() == {
        "cell": 7, "seed": 3, "source": "at house", "target": "at sea", "prompt": "at sea",
        "weight of sea": 2.0, "cross_from": 0.0, "cross_to": 0.8, "self_from": 0.1, "self_to": 0.4,
        "kind": "replace", "sites": 21, "self_sites": 7, "moved": 0.25,
        "share_inside": about.change.inside.share, "mse_inside": about.change.inside.mse,
        "psnr_db_inside": about.change.inside.psnr_db, "ssim_inside": about.change.inside.ssim,
        "share_outside": about.change.outside.share, "mse_outside": about.change.outside.mse,
        "psnr_db_outside": about.change.outside.psnr_db,
        "ssim_outside": about.change.outside.ssim, "file": "cells/007/image.png",
    }  # fmt: skip
