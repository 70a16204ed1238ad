"""Scenes that training may see, as tensors; and tensors as pictures to look at."""

from pathlib import Path
from random import Random

import numpy as np
import torch
from PIL import Image

from world import layouts, scenes


def training_layout(
    seed: int, count: int | None = None, kind: layouts.Kind = "different"
) -> layouts.Layout:
    """A layout that training may see."""
    return layouts.lay_out(seed, count, held_out=False, kind=kind)


def any_layout(seed: int) -> layouts.Layout:
    """The same of any kind: half of different things, the rest of twins and of several alike."""
    kinds: tuple[layouts.Kind, ...] = ("different", "different", "twins", "several")
    return training_layout(seed, kind=kinds[seed % 4])


def to_tensor(images: np.ndarray | torch.Tensor, device: torch.device) -> torch.Tensor:
    """Pictures uint8 (B, h, w, 3) to float (B, 3, h, w) in [-1, 1]."""
    return torch.as_tensor(images).to(device).permute(0, 3, 1, 2).float().div_(127.5).sub_(1)


def to_pictures(x: torch.Tensor) -> np.ndarray:
    """Floats (B, 3, h, w) in [-1, 1] to pictures uint8 (B, h, w, 3)."""
    return (
        x.float().add(1).mul(127.5).round().clamp(0, 255).byte().permute(0, 2, 3, 1).cpu().numpy()
    )


def crops(
    rng: Random, n: int, side: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """N fresh crops near things: pictures (n, 3, side, side), and masks (n, 1, side, side)."""
    images, masks = [], []
    room = scenes.SIZE - side
    while len(images) < n:
        scene = scenes.render(any_layout(rng.randrange(layouts.HELD_OUT_SEED)))
        things = scene.layout.things
        covered = np.any(scene.masks, axis=0, keepdims=True)
        # Drawing costs more than cropping: a scene gives two crops, near one thing each.
        for k in range(2 if room else 1):
            thing = things[k % len(things)]
            reach = thing.radius * 0.7
            x, y = (
                min(max(round((c + rng.uniform(-reach, reach)) * scenes.SIZE - side / 2), 0), room)
                for c in (thing.x, thing.y)
            )
            images.append(scene.image[y : y + side, x : x + side])
            masks.append(covered[:, y : y + side, x : x + side])
    mask = torch.from_numpy(np.stack(masks[:n])).to(device).float()
    return to_tensor(np.stack(images[:n]), device), mask


def contact_sheet(pictures: np.ndarray, columns: int, path: Path) -> None:
    """Pictures uint8 (n, h, w, 3) in a grid, to a PNG file."""
    rows = [
        np.concatenate(list(pictures[i : i + columns]), axis=1)
        for i in range(0, len(pictures) - columns + 1, columns)
    ]
    Image.fromarray(np.concatenate(rows, axis=0)).save(path)
