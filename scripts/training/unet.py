"""The stage `unet`: text encoder and UNet together, from latents and captions."""

import argparse
import json
from typing import Any, cast

import torch
from diffusers import UNet2DConditionModel
from diffusers.models.attention_processor import AttnProcessor
from torch import nn
from transformers import CLIPTextModel, CLIPTokenizer

from training.diffusion import draw_sheet, encode, train_diffusion
from training.models import (
    EXPORT,
    assemble,
    noise_schedule,
    text_model,
    trained_tokenizer,
    trained_vae,
    unet_model,
)
from training.run import Run

PLAIN = ("conv_in", "conv_out", "embedd")
"""Layers that Muon does not serve."""


class Model(nn.Module):
    """Text encoder and UNet with the training loss; nothing of it is exported but the two."""

    alphas: torch.Tensor

    def __init__(self, text: CLIPTextModel, unet: UNet2DConditionModel) -> None:
        super().__init__()
        self.text, self.unet = text, unet
        self.register_buffer("alphas", noise_schedule().alphas_cumprod, persistent=False)

    def forward(
        self, clean: torch.Tensor, noise: torch.Tensor, time: torch.Tensor, ids: torch.Tensor,
        alone: torch.Tensor, headless: torch.Tensor, cover: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """Return the loss: squared error of v, cells with things counting up to four times."""
        t = (time * len(self.alphas)).long()
        a = self.alphas[t][:, None, None, None]
        noisy = a.sqrt() * clean + (1 - a).sqrt() * noise
        target = a.sqrt() * noise - (1 - a).sqrt() * clean
        weight = 1 + 3 * cover[:, None] * a.sqrt()
        states = self.text.final_layer_norm(encode(self.text, ids, alone, headless)[1])
        guess = self.unet(noisy, t, states, return_dict=False)[0].float()
        return (weight * (guess - target).square()).mean()


def train_unet(rank: int, options: argparse.Namespace) -> None:
    """Train text encoder and UNet, from latents and captions."""
    run = Run(rank, options)
    tokenizer = trained_tokenizer(run.work)
    torch.manual_seed(options.seed)  # every process begins with the same weights
    model, seen = first_weights(tokenizer, options)
    # An explicit softmax has a faster backward pass than SDPA on CPUs.
    model.unet.set_attn_processor(AttnProcessor())
    vae = trained_vae(run.work).to(run.device)
    train_diffusion(
        run, "unet", model, seen, tokenizer, PLAIN,
        lambda: draw_sheet(assemble(model.text, model.unet, tokenizer, vae)),
        lambda: bound_queries(model.text),
    )  # fmt: skip


@torch.no_grad()
def bound_queries(text: CLIPTextModel, most: float = 0.1) -> None:
    """Hold the queries and keys of the text encoder at a root mean square of `most`.

    Muon's steps do not shrink with the gradient, so the scores grew until every token saw itself
    alone and no gradient came back: colours were bound to no noun. With `most` at 0.1 a score is
    within about ±7, which is sharp and still learns. The idea is that of QK-clip (Kimi K2, 2025).
    """
    for layer in cast(Any, text.encoder.layers):
        for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
            size = float(projection.weight.square().mean().sqrt())
            projection.weight.mul_(min(1.0, most / size))


def first_weights(tokenizer: CLIPTokenizer, options: argparse.Namespace) -> tuple[Model, int]:
    """What a training without a checkpoint begins with, and how many samples that has seen."""
    if not options.from_export:
        return Model(text_model(tokenizer), unet_model(options.latent_side)), 0
    exported = CLIPTokenizer.from_pretrained(EXPORT / "tokenizer")
    if exported.get_vocab() != tokenizer.get_vocab():
        raise SystemExit("the exported weights have another tokenizer: train without --from-export")
    text = CLIPTextModel.from_pretrained(
        EXPORT / "text_encoder", dtype=torch.float32, attn_implementation="eager"
    )
    unet = UNet2DConditionModel.from_pretrained(EXPORT / "unet", dtype=torch.float32)
    card = json.loads((EXPORT / "card.json").read_text())
    return Model(text, unet), int(card["training"]["samples_seen"])
