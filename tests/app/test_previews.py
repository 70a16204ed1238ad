"""Previews: they change nothing of what is drawn, resemble it, and cost a bounded share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli.calling import files

from app.serving import PROMPT
from heedmap.drawing import editing, generation

# --- of heedmap's own calls -------------------------------------------------------------------


def hostile(seen: list[torch.Tensor]) -> Callable[[torch.Tensor], None]:
    """A preview that keeps what it sees, and then spoils what it was given."""

    def preview(latents: torch.Tensor) -> None:
        seen.append(latents.clone())
        latents.zero_()
        torch.rand(7)

    return preview


def test_a_preview_changes_neither_picture_nor_settings(random_model, tmp_path: Path):
    seen: list[torch.Tensor] = []
    plain = generation.generate(random_model, PROMPT, seed=5, steps=3)
    watched = generation.generate(random_model, PROMPT, seed=5, steps=3, preview=hostile(seen))
    assert [tuple(latents.shape) for latents in seen] == [(1, 4, 16, 16)] * 3
    plain.save(tmp_path / "plain")
    watched.save(tmp_path / "watched")
    for name in files(tmp_path / "plain"):
        a, b = ((tmp_path / which / name).read_bytes() for which in ("plain", "watched"))
        assert a == b, name
    decoded = random_model.vae.decode(seen[-1] / random_model.vae.config.scaling_factor).sample
    picture = ((decoded[0] / 2 + 0.5).clamp(0, 1).movedim(0, -1) * 255).round().byte().numpy()
    assert np.array_equal(picture, np.asarray(plain.image))  # the last latents are the picture's


def test_a_preview_of_an_edit_sees_source_and_edit_and_changes_neither(random_model):
    seen: list[torch.Tensor] = []
    asked: dict[str, Any] = {"seed": 5, "steps": 3, "only": "house->sea"}
    plain = editing.edit(random_model, PROMPT, "a red sea", **asked)
    watched = editing.edit(random_model, PROMPT, "a red sea", preview=hostile(seen), **asked)
    assert [tuple(latents.shape) for latents in seen] == [(2, 4, 16, 16)] * 3
    assert not torch.equal(seen[-1][0], seen[-1][1])
    for side in ("source", "edited"):
        before, after = getattr(plain, side), getattr(watched, side)
        assert np.array_equal(np.asarray(before.image), np.asarray(after.image))
        assert before.settings == after.settings
    grid = editing.grid(
        random_model, PROMPT, weights={"red": [1, 2]}, seeds=5, steps=2, preview=hostile(seen)
    )
    assert len(grid) == 2 and tuple(seen[-1].shape) == (3, 4, 16, 16)


# --- of the app -------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_linear_preview_resembles_the_picture(embedded):
    from heedmap.wiring.colours import fit_colours
    from heedmap.wiring.decoding import unscaled

    latents: list[torch.Tensor] = []
    run = generation.generate(
        embedded, "a red house at sunset", seed=1, steps=8, preview=latents.append
    )
    colours = fit_colours(embedded.vae)(unscaled(embedded.vae, latents[-1]))
    small = run.image.resize((16, 16), resample=4)
    wanted = np.asarray(small, dtype=float).reshape(-1) / 255
    found = colours[0].movedim(0, -1).numpy().reshape(-1)
    # This autoencoder is far from linear; those of Stable Diffusion are nearer to it.
    assert np.corrcoef(wanted, found)[0, 1] > 0.35


def test_previews_cost_a_bounded_share_of_the_time(random_model):
    from heedmap.app.previews import Previewer

    now, shown = [0.0], []

    def show(image: Any) -> None:
        now[0] += 2.0  # each takes two seconds
        shown.append(image)

    previewer = Previewer(random_model, show, clock=lambda: now[0])
    for _ in range(100):
        previewer(torch.zeros(2, 4, 16, 16))
        now[0] += 1.0
    assert shown[0].size == (256 + 8 + 256, 256)  # two images side by side
    assert 2 * len(shown) <= 0.25 * now[0] and len(shown) >= 10
    large = torch.zeros(1, 4, 64, 96)
    now[0] += 100
    previewer(large)
    assert shown[-1].size == (384, 256)
