"""The stage `unet`: text encoder and UNet together, from latents and captions.

A caption is told anew each time its scene comes up. Some captions lose what would let the model
pass by the words: the mixing of tokens in the text encoder, and the end token that knows it all.
"""

import argparse
import json
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from diffusers import UNet2DConditionModel
from diffusers.models.attention_processor import AttnProcessor
from torch import nn
from transformers import CLIPTextModel, CLIPTokenizer

from training.descent import Average, Descent, make_optimiser, resume
from training.latents import Latents
from training.models import (
    EXPORT,
    MAX_TOKENS,
    assemble,
    noise_schedule,
    text_model,
    trained_tokenizer,
    trained_vae,
    unet_model,
)
from training.pictures import contact_sheet
from training.run import Run
from world import captions, layouts

PLAIN = ("conv_in", "conv_out", "embedd")
"""Layers that Muon does not serve."""
ONE_THING, ALL_KINDS = (1, 0, 0, 0, 0, 0), (0.33, 0.37, 0.04, 0.08, 0.08, 0.10)
"""Shares of the groups of scenes (`latents.GROUPS`): while the model is young, and later."""
EMPTY, HEADLESS = 0.1, 0.5
"""Shares of captions that are empty, for guidance, and without an end token (`Model.encode`)."""
DIRECTIONS = ("left", "right", "above", "below")
UNSAID = 0.5
"""Share of scenes of two things side by side, or one above the other, whose caption keeps silent
about which is where: the place of a word in the caption then tells nothing of its thing, and the
noun has to take up its colour."""
OF_SEVERAL_COLOURS = 0.25
"""Of the share of captions whose tokens do not see each other (`--alone`), that of captions with
things of several colours: there the words alone do not tell which colour is whose, and what guesses
then guesses elsewhere, too."""


class Batch(NamedTuple):
    """What `Model.forward` takes.

    `clean`, `noise`: latents (B, 4, h, w). `t`: timesteps (B,). `ids`: tokens (B, K). `alone`,
    `headless`: bool (B,), see `Model.encode`. `cover`: the things' share in each cell (B, h, w).
    """

    clean: torch.Tensor
    noise: torch.Tensor
    t: torch.Tensor
    ids: torch.Tensor
    alone: torch.Tensor
    headless: torch.Tensor
    cover: torch.Tensor


class Model(nn.Module):
    """Text encoder and UNet with the training loss; nothing of it is exported but the two."""

    alphas: torch.Tensor

    def __init__(self, text: CLIPTextModel, unet: UNet2DConditionModel) -> None:
        super().__init__()
        self.text, self.unet = text, unet
        self.register_buffer("alphas", noise_schedule().alphas_cumprod, persistent=False)

    def encode(
        self, ids: torch.Tensor, alone: torch.Tensor, headless: torch.Tensor
    ) -> torch.Tensor:
        """Text states (B, K, 128) as CLIPTextModel gives them, but for two kinds of dropout.

        `alone` (B,): the tokens of these captions do not see each other, so that the words must
        speak for themselves. `headless` (B,): after the text come copies of the start state, so
        that the end token cannot carry the content.
        """
        k = ids.shape[1]
        seen = torch.ones(k, k, dtype=torch.bool, device=ids.device).tril()
        own = torch.eye(k, dtype=torch.bool, device=ids.device)
        seen = torch.where(alone[:, None, None], own, seen)[:, None]
        mask = torch.zeros(seen.shape, device=ids.device).masked_fill(~seen, -1e4)
        x = self.text.embeddings(input_ids=ids)
        x = self.text.encoder(inputs_embeds=x, attention_mask=mask).last_hidden_state
        x = self.text.final_layer_norm(x)
        # Padding is the end token too, so this is all that follows the text.
        ended = ids == cast(Any, self.text.config.eos_token_id)
        after = ended[..., None] & headless[:, None, None]
        return torch.where(after, x[:, :1], x)

    def forward(
        self, clean: torch.Tensor, noise: torch.Tensor, t: torch.Tensor, ids: torch.Tensor,
        alone: torch.Tensor, headless: torch.Tensor, cover: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """The loss: squared error of v, cells with things counting up to four times."""
        a = self.alphas[t][:, None, None, None]
        noisy = a.sqrt() * clean + (1 - a).sqrt() * noise
        target = a.sqrt() * noise - (1 - a).sqrt() * clean
        weight = 1 + 3 * cover[:, None] * a.sqrt()
        states = self.encode(ids, alone, headless)
        guess = self.unet(noisy, t, states, return_dict=False)[0].float()
        return (weight * (guess - target).square()).mean()


def training_batch(
    run: Run, data: Latents, tokenizer: CLIPTokenizer, rng: Random, n: int, seen: int
) -> Batch:
    """Fresh captions, noise and timesteps for `n` scenes."""
    only_one = seen < run.options.one_object_until
    index = data.batch(rng, ONE_THING if only_one else ALL_KINDS, n)
    texts = [
        "" if rng.random() < EMPTY else captions.caption(retold(data.layouts[i], rng), rng).text
        for i in index
    ]
    ids = tokenizer(texts, padding="max_length", max_length=MAX_TOKENS, truncation=True)
    less = [OF_SEVERAL_COLOURS if of_several_colours(data.layouts[i]) else 1 for i in index]
    alone = np.array([rng.random() < run.options.alone * one for one in less])
    headless = np.array([rng.random() < HEADLESS for _ in texts])
    clean = torch.from_numpy(data.latents[index]).float()
    # Stratified timesteps: one in each of n equal stretches.
    t = ((torch.randperm(n) + torch.rand(n)) / n * 1000).long()
    batch = Batch(
        clean=clean,
        noise=torch.randn_like(clean),
        t=t,
        ids=torch.tensor(ids["input_ids"]),
        alone=torch.from_numpy(alone),
        headless=torch.from_numpy(headless),
        cover=torch.from_numpy(data.cover[index]).float() / 255,
    )
    return Batch(*(x.to(run.device) for x in batch))


def of_several_colours(layout: layouts.Layout) -> bool:
    """Whether there are things of several colours."""
    return len({thing.colour for thing in layout.things}) > 1


def retold(layout: layouts.Layout, rng: Random) -> layouts.Layout:
    """The layout, or one of the same picture that says less of where its two things are."""
    if layout.relation not in DIRECTIONS or rng.random() >= UNSAID:
        return layout
    beside = layout.relation in ("left", "right") and rng.random() < 0.5
    things = layout.things if rng.random() < 0.5 else layout.things[::-1]
    return replace(layout, things=things, relation="beside" if beside else "with")


def train_unet(rank: int, options: argparse.Namespace) -> None:
    """Text encoder and UNet, from latents and captions."""
    run = Run(rank, options)
    tokenizer = trained_tokenizer(run.work)
    torch.manual_seed(options.seed)  # every process begins with the same weights
    model, seen = first_weights(tokenizer, options)
    # An explicit softmax has a faster backward pass than SDPA on CPUs.
    model.unet.set_attn_processor(AttnProcessor())
    model.to(run.device).train()
    parameters = list(model.parameters())
    optimiser = make_optimiser(model, options.lr or 5e-3, PLAIN)
    average = Average(parameters, options.ema)
    if (state := run.load("unet_training")) is not None:
        model.load_state_dict(state["model"])
        resume(optimiser, state["optimiser"])
        average.load_state_dict(state["average"])
        seen = state["seen"]
    rng = Random(options.seed * 1000 + rank + seen)
    torch.manual_seed(options.seed * 1000 + rank + seen)
    data = Latents(run.work / "latents")
    run.log(parameters=sum(p.numel() for p in parameters), scenes=len(data.layouts), seen=seen)

    @run.compiled
    def loss_of(*batch: torch.Tensor) -> torch.Tensor:
        with run.autocast():
            return model(*batch)

    n, losses, next_sheet = options.batch or 32, [], options.sheet_minutes
    descent = Descent(run, optimiser, parameters, options.hold)
    while descent.done < 1:
        loss = descent.checked(loss_of, *training_batch(run, data, tokenizer, rng, n, seen))
        norm = descent.step(loss)
        bound_queries(model.text)
        average.update()
        seen += n * run.world
        losses.append(float(loss.detach()))
        if descent.steps % 50 == 0:
            timed = (descent.steps - 1) * n * run.world  # the clock began after the first step
            run.log(
                seen=seen, done=descent.done, loss=float(np.mean(losses[-200:])), norm=norm,
                samples_a_second=timed / run.elapsed(),
            )  # fmt: skip
        minutes = descent.done * options.minutes
        if minutes > next_sheet or descent.done >= 1:
            next_sheet = minutes + options.sheet_minutes
            run.save(
                "unet_training",
                {"model": model.state_dict(), "optimiser": optimiser.state_dict(),
                 "average": average.state_dict(), "seen": seen},
            )  # fmt: skip
            if rank == 0:
                with average.applied():
                    sample_sheet(model, tokenizer, run, seen)
            run.wait()


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
    text = grown_text(
        CLIPTextModel.from_pretrained(
            EXPORT / "text_encoder", dtype=torch.float32, attn_implementation="eager"
        ),
        CLIPTokenizer.from_pretrained(EXPORT / "tokenizer"),
        tokenizer,
    )
    unet = UNet2DConditionModel.from_pretrained(EXPORT / "unet", dtype=torch.float32)
    card = json.loads((EXPORT / "card.json").read_text())
    return Model(text, unet), int(card["training"]["samples_seen"])


@torch.no_grad()
def grown_text(text: CLIPTextModel, old: CLIPTokenizer, new: CLIPTokenizer) -> CLIPTextModel:
    """The text encoder with the tokens of another tokenizer.

    Tokens that it knew keep their state. The others begin as the mean of what the old tokenizer
    made of them; a plural as its noun, which it nearly is.
    """
    if old.get_vocab() == new.get_vocab():
        return text
    known = text.embeddings.token_embedding.weight
    singular = {plural: noun for noun, plural in captions.PLURALS.items()}
    grown = text_model(new)
    state = text.state_dict()
    table = grown.embeddings.token_embedding.weight.clone()
    for piece, place in new.get_vocab().items():
        if piece in old.get_vocab():
            table[place] = known[old.get_vocab()[piece]]
        else:
            word = piece.removesuffix("</w>")
            ids = old(singular.get(word, word), add_special_tokens=False)["input_ids"]
            table[place] = known[ids].mean(0)
    name = next(k for k in state if k.endswith("token_embedding.weight"))
    grown.load_state_dict(state | {name: table})
    return grown


SHEET_PROMPTS = (
    "a red house", "a blue cat", "a green tree in a meadow", "a purple rocket at night",
    "a yellow fish", "a pink butterfly on the beach", "an orange snail in the snow", "a white car",
    "a red flower at sunset", "a mushroom", "a dog", "a big green cactus",
    "a red house next to a blue tree", "a yellow cat left of a purple balloon",
    "a pink boat above a green dog", "a giraffe",
    "a house", "a cat in the snow", "a black cat in the snow", "a grey dog at night",
    "two red cats", "three balloons", "a red cat and a blue cat",
    "a brown house left of a black house",
)  # fmt: skip


@torch.no_grad()
def sample_sheet(model: Model, tokenizer: CLIPTokenizer, run: Run, seen: int) -> None:
    """Draw the same prompts and seeds every time, as one picture."""
    vae = trained_vae(run.work).to(run.device)
    pictures = assemble(model.text, model.unet, tokenizer, vae)(
        list(SHEET_PROMPTS),
        num_inference_steps=20,
        guidance_scale=4.0,
        generator=torch.Generator().manual_seed(1),
        output_type="np",
        return_dict=False,
    )[0]
    path = run.work / f"sheet-{seen:08d}.png"
    contact_sheet((np.asarray(pictures) * 255).round().astype(np.uint8), 8, path)
