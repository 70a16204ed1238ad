"""The stages `vae` and `decoder`: pictures to latents and back.

`vae` trains on crops, which is fast; `decoder` goes on with larger ones and in the end with whole
pictures, since crops alone leave shifted hues (group normalisation sees another mean). Neither has
a KL term: the latents are kept in shape by normalising them while they are trained, and by
whitening them at the end. Nothing is compiled: it is no faster here, and on a CPU the gradients of
most layers came out as zeros (torch 2.13, bfloat16).
"""

import argparse
import copy
import shutil
import time
from random import Random
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderKL
from torch import nn

from heedmap.io.writing import whole_folder
from training.descent import Average, Descent, make_optimiser, resume
from training.models import latents_of, pictures_of, trained_vae, vae_model
from training.pictures import contact_sheet, crops, to_pictures, to_tensor, training_layout
from training.run import Run
from training.whitening import EPSILON, whiten
from world import layouts, scenes

CROP = 64
"""Side of the crops that the stage `vae` trains on."""
PLAIN = ("conv_in", "conv_out", "quant")
"""Layers that Muon does not serve."""
KEEP_NORMAL = 0.02
"""Weight of the latents' departure from zero mean and unit deviation, in the stage `vae`.

It acts in a further call, where they are normalised by figures that no longer follow them.
"""
KEEP_OLD = 0.05
"""Weight of the latents' departure from the old ones, in `decoder --encoder`."""


def picture_loss(y: torch.Tensor, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """L1 + L2 + gradients + L2 of 4x4 means (tints), things counting three times.

    L2 weighs most: what is judged is the squared error.
    """
    d = (y - x).float()
    weight = 1 + 2 * mask
    edges = (d[..., 1:] - d[..., :-1]).abs().mean() + (d[..., 1:, :] - d[..., :-1, :]).abs().mean()
    tint = nn.functional.avg_pool2d(weight * d, 4).square().mean()
    return (weight * (0.2 * d.abs() + 4 * d.square())).mean() + 0.25 * edges + 2 * tint


def train_vae(rank: int, options: argparse.Namespace) -> None:
    """Encoder and decoder, with a fixed small noise on normalised latents; then whitening.

    A first call normalises the latents by each batch's own mean and deviation, so that nothing can
    collapse. A further call goes on with the running ones, as decoding will have them.
    """
    run = Run(rank, options)
    torch.manual_seed(options.seed)  # every process begins with the same weights
    vae = vae_model(options.latent_side).to(run.device).train()
    statistics = torch.zeros(2, 4, device=run.device)  # running mean and deviation, a channel each
    statistics[1] = 1
    optimiser = make_optimiser(vae, options.lr or 1.5e-3, PLAIN)
    step, settled = 0, False
    if (state := run.load("vae_training")) is not None:
        settled = True
        vae.load_state_dict(state["vae"])
        statistics.copy_(state["statistics"])
        resume(optimiser, state["optimiser"])
        step = state["step"]
    rng = Random(options.seed * 100 + rank + step)
    torch.manual_seed(options.seed * 100 + rank + step)

    def loss_of(
        x: torch.Tensor, mask: torch.Tensor, noise: torch.Tensor, running: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        with run.autocast():
            z = latents_of(vae, x)
            own = torch.stack([z.mean((0, 2, 3)), z.std((0, 2, 3))])
            mean, deviation = running if settled else own
            z = (z - mean[:, None, None]) / (deviation[:, None, None] + EPSILON)
            drift = z.mean((0, 2, 3)).square().mean() + z.std((0, 2, 3)).log().square().mean()
            y = pictures_of(vae, z + noise)
        return picture_loss(y, x, mask) + KEEP_NORMAL * drift, own.detach()

    batch, seen, began = options.batch or 16, 0, time.monotonic()
    side = CROP * options.latent_side // scenes.SIZE
    descent = Descent(run, optimiser, [p for p in vae.parameters() if p.requires_grad])
    while descent.done < 1:
        x, mask = crops(rng, batch, CROP, run.device)
        noise = options.noise * torch.randn(batch, 4, side, side)
        loss, own = loss_of(x, mask, noise.to(run.device), statistics)
        descent.step(loss)
        if not settled:
            statistics.lerp_(own, 0.02)
        seen += batch * run.world
        step += 1
        if step % 100 == 0:
            speed = seen / (time.monotonic() - began)
            run.log(step=step, done=descent.done, loss=float(loss.detach()), crops_a_second=speed)
        if step % 500 == 0 or descent.done >= 1:
            run.save(
                "vae_training",
                {"vae": vae.state_dict(), "optimiser": optimiser.state_dict(),
                 "statistics": statistics, "step": step},
            )  # fmt: skip
    if rank == 0:
        batches = (
            np.stack([scenes.render(training_layout(s)).image for s in range(start, start + 32)])
            for start in range(0, 1024, 32)
        )
        whiten(vae.eval(), statistics, (to_tensor(images, run.device) for images in batches))
        save(vae, run)


def train_decoder(rank: int, options: argparse.Namespace) -> None:
    """The decoder on crops of `--crop` pixels, whole pictures as a rule; the latents stay.

    With `--encoder` the encoder learns too, held near its old latents so that a UNet of those has
    little to learn again; the latents have to be made anew. What is there is saved, and measured,
    every `--sheet-minutes`.
    """
    run = Run(rank, options)
    vae = trained_vae(run.work).to(run.device)
    old = copy.deepcopy(vae).requires_grad_(False)
    vae.encoder.requires_grad_(options.encoder)
    vae.quant_conv.requires_grad_(options.encoder)
    optimiser = make_optimiser(vae, options.lr or 2e-3, PLAIN)
    parameters = [p for p in vae.parameters() if p.requires_grad]
    average = Average(parameters, 0.99)
    rng = Random(time.time_ns() + rank)  # nothing counts the calls: each sees other scenes

    def loss_of(
        x: torch.Tensor, mask: torch.Tensor, noise: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        with run.autocast():
            with torch.no_grad():
                z = before = latents_of(old, x)
            if options.encoder:
                z = latents_of(vae, x)
            y = pictures_of(vae, z + noise)
        drift = (z - before).square().mean()
        return picture_loss(y, x, mask) + KEEP_OLD * drift, drift.detach()

    batch = options.batch or 8 * (scenes.SIZE // options.crop) ** 2
    side = options.crop * options.latent_side // scenes.SIZE
    descent, saved = Descent(run, optimiser, parameters, hold=options.hold), time.monotonic()
    while descent.done < 1:
        x, mask = crops(rng, batch, options.crop, run.device)
        noise = 0.5 * options.noise * torch.randn(batch, 4, side, side)
        loss, drift = loss_of(x, mask, noise.to(run.device))
        descent.step(loss)
        average.update()
        if descent.steps % 100 == 0:
            run.log(
                step=descent.steps, done=descent.done, loss=float(loss.detach()),
                drift=float(drift),
            )  # fmt: skip
        if rank == 0 and time.monotonic() - saved > 60 * options.sheet_minutes:
            with average.applied():
                save(vae, run)
            saved = time.monotonic()
    if rank == 0:
        average.swap()
        save(vae.eval(), run)


def save(vae: AutoencoderKL, run: Run) -> None:
    """The finished autoencoder to its folder, and how well it does."""
    shutil.rmtree(run.work / "vae", ignore_errors=True)
    with whole_folder(run.work / "vae") as folder:
        vae.save_pretrained(folder)
    report(vae, run)


@torch.no_grad()
def report(vae: Any, run: Run, n: int = 192) -> None:
    """Peak signal-to-noise ratio on held-out scenes, and a sheet to look at."""
    errors = []
    for start in range(0, n, 32):
        seeds = range(layouts.HELD_OUT_SEED + start, layouts.HELD_OUT_SEED + start + 32)
        images = np.stack([scenes.render(layouts.lay_out(s, held_out=True)).image for s in seeds])
        z = vae.encode(to_tensor(images, run.device)).latent_dist.mode()
        back = to_pictures(vae.decode(z).sample)
        errors.append(((images.astype(float) - back) ** 2).mean((1, 2, 3)))
        if start == 0:
            sheet = np.concatenate([images[:10], back[:10], images[10:20], back[10:20]])
            contact_sheet(sheet, 10, run.work / "vae.png")
            run.log(latent_std=float(z.std()), latent_max=float(z.abs().max()))
    run.log(held_out_psnr_db=float(10 * np.log10(255**2 / np.concatenate(errors).mean())))
