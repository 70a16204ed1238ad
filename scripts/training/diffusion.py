"""The training loop of a diffusion model on latents and captions, for the UNet and the transformer.

A caption is told anew each time its scene comes up. Some captions lose what would let the model
pass by the words: the mixing of tokens in the text encoder, and the end token that knows it all.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from transformers import CLIPTextModel, CLIPTokenizer

from training.descent import Average, Descent, make_optimiser, resume
from training.latents import Latents
from training.pictures import contact_sheet
from training.run import Run
from world import captions, layouts

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
    """Arguments of the `forward` of a training model.

    `clean`, `noise`: latents (B, 4, h, w). `time`: (B,) in [0, 1), where 0 is without noise.
    `ids`: tokens (B, K). `alone`, `headless`: bool (B,), see `encode`. `cover`: the things' share
    in each cell (B, h, w).
    """

    clean: torch.Tensor
    noise: torch.Tensor
    time: torch.Tensor
    ids: torch.Tensor
    alone: torch.Tensor
    headless: torch.Tensor
    cover: torch.Tensor


def encode(
    text: CLIPTextModel, ids: torch.Tensor, alone: torch.Tensor, headless: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token embeddings and text states, both (B, K, 128), with two kinds of dropout.

    The states are those after the encoder's last layer, before its final norm.

    Args:
        text: the text encoder.
        ids: tokens (B, K).
        alone: bool (B,): the tokens of these captions do not see each other, so that the words
            must speak for themselves.
        headless: bool (B,): after the text come copies of the start state, so that the end token
            cannot carry the content.
    """
    k = ids.shape[1]
    seen = torch.ones(k, k, dtype=torch.bool, device=ids.device).tril()
    own = torch.eye(k, dtype=torch.bool, device=ids.device)
    seen = torch.where(alone[:, None, None], own, seen)[:, None]
    mask = torch.zeros(seen.shape, device=ids.device).masked_fill(~seen, -1e4)
    embeddings = text.embeddings(input_ids=ids)
    states = text.encoder(inputs_embeds=embeddings, attention_mask=mask).last_hidden_state
    # Padding is the end token too, so this is all that follows the text.
    ended = ids == cast(Any, text.config.eos_token_id)
    after = ended[..., None] & headless[:, None, None]
    return torch.where(after, embeddings[:, :1], embeddings), torch.where(
        after, states[:, :1], states
    )


class Batches(IterableDataset[Batch]):
    """Batches without end, each with fresh captions, noise and times.

    Args:
        data: scenes.
        tokenizer: reads the captions.
        n: samples a batch.
        seen: samples that the model has seen before.
        seed: two runs with the same seed and workers draw the same.
        one_object_until: up to so many samples, scenes have one thing.
        alone: share of captions whose tokens do not see each other.
    """

    def __init__(
        self, data: Latents, tokenizer: CLIPTokenizer, n: int, *,
        seen: int, seed: int, one_object_until: int, alone: float,
    ) -> None:  # fmt: skip
        self.data, self.tokenizer, self.n = data, tokenizer, n
        self.seen, self.seed, self.one_object_until = seen, seed, one_object_until
        self.alone = alone

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        rng = Random(f"{self.seed} {self.seen} {worker.id if worker else 0}")
        torch.manual_seed(rng.getrandbits(62))
        for number in itertools.count():
            drawn = number * self.n * (worker.num_workers if worker else 1)
            only_one = self.seen + drawn < self.one_object_until
            yield training_batch(
                self.data, self.tokenizer, rng, self.n, ONE_THING if only_one else ALL_KINDS,
                self.alone,
            )  # fmt: skip


def training_batch(
    data: Latents, tokenizer: CLIPTokenizer, rng: Random, n: int, shares: tuple[float, ...],
    alone_share: float,
) -> Batch:  # fmt: skip
    """Draw fresh captions, noise and times for `n` scenes of groups with the given shares."""
    index = data.batch(rng, shares, n)
    texts = [
        "" if rng.random() < EMPTY else captions.caption(retold(data.layouts[i], rng), rng).text
        for i in index
    ]
    ids = tokenizer(
        texts, padding="max_length", max_length=tokenizer.model_max_length, truncation=True
    )
    less = [OF_SEVERAL_COLOURS if of_several_colours(data.layouts[i]) else 1 for i in index]
    alone = np.array([rng.random() < alone_share * one for one in less])
    headless = np.array([rng.random() < HEADLESS for _ in texts])
    clean = torch.from_numpy(data.latents[index]).float()
    return Batch(
        clean=clean,
        noise=torch.randn_like(clean),
        time=(torch.randperm(n) + torch.rand(n)) / n,  # one in each of n equal stretches
        ids=torch.tensor(ids["input_ids"]),
        alone=torch.from_numpy(alone),
        headless=torch.from_numpy(headless),
        cover=torch.from_numpy(data.cover[index]).float() / 255,
    )


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


def train_diffusion(
    run: Run,
    name: str,
    model: nn.Module,
    seen: int,
    tokenizer: CLIPTokenizer,
    plain: tuple[str, ...],
    draw: Callable[[], np.ndarray],
    after_step: Callable[[], None] = lambda: None,
) -> None:
    """Train a model on captions and latents for the minutes of the run; save it now and then.

    Args:
        run: one process of the stage.
        name: of the checkpoint, `<name>_training.pt`.
        model: takes a `Batch` and gives the loss; parameters without gradient are left alone.
        seen: how many samples the model has seen before.
        tokenizer: reads the captions.
        plain: parts of the names of layers that Muon does not serve.
        draw: gives the pictures of `SHEET_PROMPTS` (n, h, w, 3), uint8, with the averaged weights.
        after_step: called after each step of the optimiser.
    """
    options = run.options
    model.to(run.device).train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimiser = make_optimiser(model, options.lr or 5e-3, plain)
    average = Average(parameters, options.ema)
    if (state := run.load(f"{name}_training")) is not None:
        model.load_state_dict(state["model"])
        resume(optimiser, state["optimiser"])
        average.load_state_dict(state["average"])
        seen = state["seen"]
    data = Latents(run.work / "latents")
    run.log(parameters=sum(p.numel() for p in parameters), scenes=len(data.layouts), seen=seen)

    @run.compiled
    def loss_of(*batch: torch.Tensor) -> torch.Tensor:
        with run.autocast():
            return model(*batch)

    n = options.batch or 32
    pause = min(options.sheet_minutes, options.minutes / 5)  # a killed run leaves something
    next_sheet = pause
    losses = deque[torch.Tensor](maxlen=200)
    batches = Batches(
        data, tokenizer, n, seen=seen, seed=options.seed * 1000 + run.rank,
        one_object_until=options.one_object_until // run.world, alone=options.alone,
    )  # fmt: skip
    loader = iter(DataLoader(batches, batch_size=None, num_workers=options.workers))
    descent = Descent(run, optimiser, parameters, options.hold)
    while descent.done < 1:
        batch = (x.to(run.device, non_blocking=True) for x in next(loader))
        loss = descent.checked(loss_of, *batch)
        norm = descent.step(loss)
        after_step()
        average.update()
        seen += n * run.world
        losses.append(loss.detach())
        if descent.steps % 50 == 0:
            timed = (descent.steps - 1) * n * run.world  # the clock began after the first step
            run.log(
                seen=seen, done=descent.done, loss=float(torch.stack([*losses]).mean()), norm=norm,
                samples_a_second=timed / run.elapsed(),
            )  # fmt: skip
        minutes = descent.done * options.minutes
        if minutes > next_sheet or descent.done >= 1:
            next_sheet = minutes + pause
            run.save(
                f"{name}_training",
                {"model": model.state_dict(), "optimiser": optimiser.state_dict(),
                 "average": average.state_dict(), "seen": seen},
            )  # fmt: skip
            if run.rank == 0:
                with average.applied():
                    contact_sheet(draw(), 8, run.work / f"{name}-sheet-{seen:08d}.png")
            run.wait()


def average_weights(model: nn.Module, state: dict) -> nn.Module:
    """Load a checkpoint's averaged weights into `model` and return it."""
    model.load_state_dict(state["model"])
    parameters = [p for p in model.parameters() if p.requires_grad]
    with torch.no_grad():
        for p, value in zip(parameters, state["average"]["values"], strict=True):
            p.copy_(value)
    return model


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
def draw_sheet(pipe: Any, **settings: Any) -> np.ndarray:
    """Draw `SHEET_PROMPTS` with the same seed every time: pictures (n, h, w, 3), uint8."""
    pictures = pipe(
        list(SHEET_PROMPTS),
        num_inference_steps=20,
        guidance_scale=4.0,
        generator=torch.Generator().manual_seed(1),
        output_type="np",
        return_dict=False,
        **settings,
    )[0]
    return (np.asarray(pictures) * 255).round().astype(np.uint8)
