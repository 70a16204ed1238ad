"""Train the embedded Stable Diffusion on the drawn world, from nothing.

Stages, each resumable from its checkpoint in `--work` and each skipped by naming the next:

    python scripts/train_tiny.py tokenizer            a byte-pair vocabulary from captions
    python scripts/train_tiny.py vae --minutes 15     the autoencoder; whitened latents
    python scripts/train_tiny.py decoder --minutes 5  the decoder alone, a little longer
    python scripts/train_tiny.py latents --scenes 40000
    python scripts/train_tiny.py unet --minutes 120   text encoder and UNet together
    python scripts/train_tiny.py export               the pipeline folder, float16

A call of `unet` trains for its minutes with a learning rate that falls to nothing at their end, so
that each call leaves a finished model; a further call goes on from the checkpoint (or, where that
is lost, from the exported weights with `--from-export`). On CPUs `--processes 2` of one thread each
is the fastest way to use two cores; on a GPU leave it at 1.

No mask shapes the attention. Masks weight the diffusion loss (object pixels count more), no more.
"""

import argparse
import copy
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import numpy as np
import torch
import torch._inductor.config
import torch.distributed as dist
import torch.multiprocessing as mp
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from diffusers.models.attention_processor import AttnProcessor
from PIL import Image
from safetensors.numpy import load_file, save_file
from torch import nn
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from heedmap.tiny import scenes
from muon import Muon

# With channels-last convolutions inductor gave weight gradients of zero for bfloat16 convolutions
# on an AMD CPU (torch 2.13): every layer above the first such convolution stood still.
torch._inductor.config.layout_optimization = False

EXPORT = Path(__file__).parents[1] / "src" / "heedmap" / "tiny" / "model"
MAX_TOKENS = 77
SHARD = 4096
"""Scenes in one file of latents."""

# Never shown to the byte-pair training, so that these words of the world are several tokens.
SPLIT_WORDS = ("butterfly", "mushroom", "purple", "cactus")
PIECES = "buttery buttermilk butters fly mushy mushes room purse purrs ripple apple cacti thus"


def vae_model(latent_side: int) -> AutoencoderKL:
    """An untrained autoencoder for 128-pixel pictures with latents 16 or 32 wide."""
    channels = {16: (16, 32, 96, 128), 32: (24, 64, 128)}[latent_side]
    return AutoencoderKL(
        block_out_channels=channels,
        down_block_types=("DownEncoderBlock2D",) * len(channels),
        up_block_types=("UpDecoderBlock2D",) * len(channels),
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=8,
        mid_block_add_attention=False,
        sample_size=scenes.SIZE,
        scaling_factor=1.0,
    )


def unet_model(latent_side: int) -> UNet2DConditionModel:
    """An untrained UNet: cross-attention at all grids but the 4x4 one, where it was noise."""
    return UNet2DConditionModel(
        sample_size=latent_side,
        in_channels=4,
        out_channels=4,
        block_out_channels=(64, 128, 192),
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        mid_block_type="UNetMidBlock2D",
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        layers_per_block=1,
        attention_head_dim=4,  # the number of heads, by diffusers' old naming
        cross_attention_dim=128,
        norm_num_groups=16,
    )


def text_model(tokenizer: CLIPTokenizer) -> CLIPTextModel:
    """An untrained text encoder of one layer: each word keeps more of its own meaning."""
    config = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=512,
        projection_dim=128,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=MAX_TOKENS,
        hidden_act="gelu",
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    config._attn_implementation = "eager"
    return CLIPTextModel(config)


def noise_schedule() -> DDIMScheduler:
    """v-prediction with zero terminal signal-to-noise ratio (Lin et al., 2024)."""
    return DDIMScheduler(
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
        prediction_type="v_prediction",
        rescale_betas_zero_snr=True,
        timestep_spacing="trailing",
        clip_sample=False,
        set_alpha_to_one=True,
        steps_offset=1,
    )


# --- common ground of the stages --------------------------------------------------------------


class Run:
    """One process of a stage: its rank, its device, its clock, its log and its checkpoint."""

    def __init__(self, rank: int, options: argparse.Namespace) -> None:
        self.options = options
        self.rank, self.world = rank, options.processes
        self.work = Path(options.work)
        self.device = torch.device(options.device)
        if self.device.type == "cuda":
            self.device = torch.device("cuda", rank)
            torch.backends.cuda.matmul.allow_tf32 = True
            torch.backends.cudnn.allow_tf32 = True
        else:
            torch.set_num_threads(options.threads)
        if self.world > 1:
            os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
            os.environ.setdefault("MASTER_PORT", str(options.port))
            backend = "nccl" if self.device.type == "cuda" else "gloo"
            dist.init_process_group(backend, rank=rank, world_size=self.world)
        torch.manual_seed(options.seed * 1000 + rank)
        self.start = time.monotonic()
        self.seconds = options.minutes * 60.0

    def fraction(self) -> float:
        """The share of the minutes that is over, the same number in every process."""
        value = torch.tensor([(time.monotonic() - self.start) / self.seconds])
        if self.world > 1:
            value = value.to(self.device)
            dist.broadcast(value, src=0)
        return float(value)

    def restart_clock(self) -> None:
        """Begin to count the minutes now (compilation is over)."""
        self.start = time.monotonic()

    def share_gradients(self, parameters: list[nn.Parameter], clip: float) -> float:
        """Average the gradients over the processes, clip them, and give their norm before."""
        grads = [p.grad for p in parameters if p.grad is not None]
        if self.world > 1:
            flat = torch.cat([g.reshape(-1) for g in grads])
            dist.all_reduce(flat)
            flat /= self.world
            at = 0
            for g in grads:
                g.copy_(flat[at : at + g.numel()].view_as(g))
                at += g.numel()
        return float(nn.utils.clip_grad_norm_(parameters, clip))

    def compiled(self, function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """`function` compiled for fixed shapes, unless that was switched off."""
        return torch.compile(function, dynamic=False) if self.options.compile else function

    def autocast(self) -> torch.autocast:
        """bfloat16 matrix work."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.options.bf16)

    def log(self, **figures: object) -> None:
        """One line of figures, from the first process, to the screen and to the log file."""
        if self.rank == 0:
            line = " ".join(
                f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in figures.items()
            )
            line = f"{time.strftime('%H:%M:%S')} {line}"
            print(line, flush=True)
            with (self.work / f"{self.options.stage}.log").open("a") as file:
                file.write(line + "\n")

    def save(self, name: str, state: dict) -> None:
        """Write a checkpoint whole or not at all, from the first process."""
        if self.rank == 0:
            partial = self.work / f"{name}.partial"
            torch.save(state, partial)
            partial.replace(self.work / f"{name}.pt")

    def load(self, name: str) -> dict | None:
        """The checkpoint of that name, or None."""
        path = self.work / f"{name}.pt"
        return torch.load(path, map_location=self.device) if path.exists() else None


def falling_rate(fraction: float, step: int, hold: float = 0.4) -> float:
    """The learning rate's factor: 40 steps of warm-up, level until `hold`, then down to 2 %."""
    fall = 1 - 0.98 * max(0.0, (min(fraction, 1.0) - hold) / (1 - hold))
    return min(1.0, (step + 1) / 40) * fall


def make_optimiser(
    modules: list[nn.Module], lr: float, rest_lr: float, plain: tuple[str, ...]
) -> Muon:
    """Muon for weights of two or more dimensions, AdamW for those named in `plain` and the rest."""
    matrices, rest = [], []
    for module in modules:
        for name, p in module.named_parameters():
            if p.requires_grad:
                matrix = p.ndim >= 2 and not any(part in name for part in plain)
                (matrices if matrix else rest).append(p)
    return Muon(matrices, rest, lr=lr, rest_lr=rest_lr)


def set_rate(optimiser: Muon, factor: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = group["initial_lr"] * factor


class Average:
    """An exponential moving average of parameters, faster while it is young."""

    def __init__(self, parameters: list[nn.Parameter], decay: float) -> None:
        self.decay, self.count = decay, 0
        self.parameters = parameters
        self.values = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def update(self) -> None:
        self.count += 1
        decay = min(self.decay, (1 + self.count) / (10 + self.count))
        torch._foreach_lerp_(self.values, [p.detach() for p in self.parameters], 1 - decay)

    def swap(self) -> None:
        """Exchange the averages with the parameters (twice is as before)."""
        for p, value in zip(self.parameters, self.values, strict=True):
            old = p.detach().clone()
            p.data.copy_(value)
            value.copy_(old)

    def state_dict(self) -> dict:
        return {"count": self.count, "values": self.values}

    def load_state_dict(self, state: dict) -> None:
        self.count = state["count"]
        for mine, theirs in zip(self.values, state["values"], strict=True):
            mine.copy_(theirs)


def made(work: Path, part: str) -> Path:
    """The folder of an earlier result: in `work`, or the exported one where that is lost."""
    return work / part if (work / part).is_dir() else EXPORT / part


def training_layout(seed: int, count: int | None = None) -> scenes.Layout:
    """A layout that training may see."""
    return scenes.lay_out(seed, count, held_out=False)


def to_tensor(images: np.ndarray, device: torch.device) -> torch.Tensor:
    """Pictures uint8 (B, h, w, 3) to float (B, 3, h, w) in [-1, 1]."""
    return torch.from_numpy(images).to(device).permute(0, 3, 1, 2).float().div_(127.5).sub_(1)


def to_pictures(x: torch.Tensor) -> np.ndarray:
    """Floats (B, 3, h, w) in [-1, 1] to pictures uint8 (B, h, w, 3)."""
    return (
        x.float().add(1).mul(127.5).round().clamp(0, 255).byte().permute(0, 2, 3, 1).cpu().numpy()
    )


def contact_sheet(pictures: np.ndarray, columns: int, path: Path) -> None:
    """Pictures uint8 (n, h, w, 3) in a grid, to a PNG file."""
    rows = [
        np.concatenate(list(pictures[i : i + columns]), axis=1)
        for i in range(0, len(pictures) - columns + 1, columns)
    ]
    Image.fromarray(np.concatenate(rows, axis=0)).save(path)


# --- tokenizer --------------------------------------------------------------------------------


def train_tokenizer(work: Path, merges: int = 420) -> None:
    """Byte-pair merges from captions, in the files of a CLIPTokenizer."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    rng = Random(0)
    texts = [scenes.caption(training_layout(seed), rng).text for seed in range(20_000)]
    # Words without meaning (letters at random) must not be learned as wholes.
    known = (scenes.vocabulary() | {","}) - set(SPLIT_WORDS)
    corpus = [
        " ".join(word for word in text.replace(",", " ,").split() if word in known)
        for text in texts
    ]
    corpus += [PIECES] * 200
    bpe = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    bpe.normalizer = normalizers.Lowercase()
    bpe.pre_tokenizer = pre_tokenizers.Whitespace()
    bpe.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=merges + 60, end_of_word_suffix="</w>")
    )
    learned = [tuple(pair) for pair in json.loads(bpe.to_str())["model"]["merges"]]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*letters, *(c + "</w>" for c in letters), *("".join(pair) for pair in learned)]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    for special in ("<|startoftext|>", "<|endoftext|>"):
        vocabulary[special] = len(vocabulary)
    tokenizer = CLIPTokenizer(vocab=vocabulary, merges=learned, model_max_length=MAX_TOKENS)
    shutil.rmtree(work / "tokenizer", ignore_errors=True)
    tokenizer.save_pretrained(work / "tokenizer")
    words = (*scenes.NOUNS, *scenes.COLOURS, "giraffe", "한국", "🦒")
    print(len(tokenizer), "tokens;", {w: len(tokenizer(w)["input_ids"]) - 2 for w in words})


# --- autoencoder ------------------------------------------------------------------------------


def crops(
    rng: Random, n: int, side: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """N fresh crops near things: pictures (n, 3, side, side), and masks (n, 1, side, side)."""
    images, masks = [], []
    while len(images) < n:
        scene = scenes.draw(training_layout(rng.randrange(scenes.HELD_OUT_SEED)))
        for k in range(2 if side < scenes.SIZE else 1):
            thing = scene.layout.things[k % len(scene.layout.things)]
            room = scenes.SIZE - side
            reach = thing.radius * 0.7
            x, y = (
                min(max(round((c + rng.uniform(-reach, reach)) * scenes.SIZE - side / 2), 0), room)
                for c in (thing.x, thing.y)
            )
            images.append(scene.image[y : y + side, x : x + side])
            masks.append(scene.masks.any(axis=0)[y : y + side, x : x + side])
    weight = torch.from_numpy(np.stack(masks[:n])).to(device).float()[:, None]
    return to_tensor(np.stack(images[:n]), device), weight


def picture_loss(y: torch.Tensor, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """L1 + L2 + gradients + L2 of 4x4 means (tints), things counting three times."""
    d = (y - x).float()
    weight = 1 + 2 * mask
    edges = (d[..., 1:] - d[..., :-1]).abs().mean() + (d[..., 1:, :] - d[..., :-1, :]).abs().mean()
    tint = nn.functional.avg_pool2d(weight * d, 4).square().mean()
    return (weight * (0.5 * d.abs() + 2 * d.square())).mean() + 0.25 * edges + 2 * tint


def train_vae(rank: int, options: argparse.Namespace) -> None:
    """Encoder and decoder, with a fixed small noise on normalised latents; then whitening.

    A first call normalises the latents by each batch's own mean and deviation, so that nothing can
    collapse. A further call goes on with the running ones, as decoding will have them.
    """
    run = Run(rank, options)
    torch.manual_seed(options.seed)
    vae = vae_model(options.latent_side).to(run.device).train()
    statistics = torch.zeros(2, 4, device=run.device)  # running mean and deviation, a channel each
    statistics[1] = 1
    optimiser = make_optimiser([vae], options.lr or 1.5e-3, 1e-3, ("conv_in", "conv_out", "quant"))
    step, settled = 0, False
    if (state := run.load("vae_training")) is not None:
        settled = True
        vae.load_state_dict(state["vae"])
        statistics.copy_(state["statistics"])
        optimiser.load_state_dict(state["optimiser"])
        step = state["step"]
    parameters = [p for p in vae.parameters() if p.requires_grad]
    rng = Random(options.seed * 100 + rank + step)
    torch.manual_seed(options.seed * 100 + rank + step)

    def loss_of(
        x: torch.Tensor, mask: torch.Tensor, noise: torch.Tensor, running: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        with run.autocast():
            z = vae.quant_conv(vae.encoder(x))[:, :4].float()  # type: ignore[misc]
            own = torch.stack([z.mean((0, 2, 3)), z.std((0, 2, 3))])
            mean, deviation = running if settled else own
            z = (z - mean[:, None, None]) / (deviation[:, None, None] + 1e-4)
            drift = z.mean((0, 2, 3)).square().mean() + z.std((0, 2, 3)).log().square().mean()
            y = vae.decoder(vae.post_quant_conv(z + noise))  # type: ignore[misc]
        return picture_loss(y, x, mask) + 0.02 * drift, own.detach()

    loss_of = run.compiled(loss_of)  # type: ignore[assignment]
    batch, seen, done = options.batch or 16, 0, 0.0
    factor = 2 ** (len(vae.config["block_out_channels"]) - 1)
    side = 64
    first, mark = step, time.monotonic()
    while done < 1:
        x, mask = crops(rng, batch, side, run.device)
        noise = options.noise * torch.randn(batch, 4, side // factor, side // factor)
        loss, seen_statistics = loss_of(x, mask, noise.to(run.device), statistics)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        run.share_gradients(parameters, clip=1.0)
        if step == first + 1:
            run.restart_clock()
        done = run.fraction()
        set_rate(optimiser, falling_rate(done, step - first))
        optimiser.step()
        if not settled:
            statistics.lerp_(seen_statistics, 0.02)
        seen += batch * run.world
        step += 1
        if step % 100 == 0:
            speed = seen / (time.monotonic() - mark)
            run.log(step=step, done=done, loss=float(loss.detach()), crops_a_second=speed)
        if step % 500 == 0 or done >= 1:
            run.save(
                "vae_training",
                {"vae": vae.state_dict(), "optimiser": optimiser.state_dict(),
                 "statistics": statistics, "step": step},
            )  # fmt: skip
    if rank == 0:
        whiten(vae.eval(), statistics, run)
        vae.save_pretrained(run.work / "vae")
        report_vae(vae, run)


@torch.no_grad()
def whiten(vae: AutoencoderKL, statistics: torch.Tensor, run: Run) -> None:
    """Fold into the quant convolutions that latents come out uncorrelated, with unit variance."""
    vectors = []
    for seed in range(0, 1024, 32):
        images = np.stack([scenes.draw(training_layout(s)).image for s in range(seed, seed + 32)])
        z = vae.quant_conv(vae.encoder(to_tensor(images, run.device)))[:, :4]  # type: ignore[misc]
        vectors.append(z.permute(0, 2, 3, 1).reshape(-1, 4).double())
    z = torch.cat(vectors)
    mean = z.mean(0)
    values, directions = torch.linalg.eigh(torch.cov(z.T))
    forward = torch.diag(values.rsqrt()) @ directions.T  # z' = forward (z - mean)
    quant, post = vae.quant_conv, vae.post_quant_conv
    assert quant is not None and post is not None
    weight, bias = quant.weight[:4, :, 0, 0].double(), quant.bias[:4].double()
    quant.weight.zero_()
    quant.weight[:4, :, 0, 0] = (forward @ weight).float()
    quant.bias[:4] = (forward @ (bias - mean)).float()
    quant.bias[4:] = -20.0  # log variance: the latents are taken as they are
    # The decoder was trained on (z - running mean) / running deviation.
    back = torch.linalg.inv(forward)
    running, deviation = statistics.double()
    scale = 1 / (deviation + 1e-4)
    post_weight, post_bias = post.weight[:, :, 0, 0].double(), post.bias.double()
    post.weight[:, :, 0, 0] = (post_weight @ torch.diag(scale) @ back).float()
    post.bias.copy_((post_weight @ (scale * (mean - running)) + post_bias).float())


@torch.no_grad()
def report_vae(vae: AutoencoderKL, run: Run, n: int = 192) -> float:
    """Peak signal-to-noise ratio on held-out scenes, and a sheet to look at."""
    errors, rows = [], []
    for start in range(0, n, 32):
        seeds = range(scenes.HELD_OUT_SEED + start, scenes.HELD_OUT_SEED + start + 32)
        images = np.stack([scenes.draw(scenes.lay_out(s, held_out=True)).image for s in seeds])
        x = to_tensor(images, run.device)
        z = vae.encode(x).latent_dist.mode()  # type: ignore[union-attr]
        back = to_pictures(vae.decode(z).sample)  # type: ignore[union-attr]
        errors.append(((images.astype(float) - back) ** 2).mean((1, 2, 3)))
        if start == 0:
            rows = [*images[:10], *back[:10], *images[10:20], *back[10:20]]
            run.log(latent_std=float(z.std()), latent_max=float(z.abs().max()))
    psnr = float(10 * np.log10(255**2 / np.concatenate(errors).mean()))
    contact_sheet(np.stack(rows), 10, run.work / "vae.png")
    run.log(held_out_psnr_db=psnr)
    return psnr


def train_decoder(rank: int, options: argparse.Namespace) -> None:
    """The decoder on whole pictures: the latents of training stay as they are.

    With `--encoder` the encoder learns too, held near its old latents so that a UNet of those has
    little to learn again; the latents have to be made anew.
    """
    run = Run(rank, options)
    vae = AutoencoderKL.from_pretrained(made(run.work, "vae"), dtype=torch.float32).to(run.device)  # type: ignore[union-attr]
    old = copy.deepcopy(vae).requires_grad_(False)
    vae.encoder.requires_grad_(options.encoder)
    vae.quant_conv.requires_grad_(options.encoder)
    optimiser = make_optimiser([vae], options.lr or 2e-3, 1e-3, ("conv_in", "conv_out", "quant"))
    parameters = [p for p in vae.parameters() if p.requires_grad]
    average = Average(parameters, 0.99)
    rng = Random(time.time_ns() + rank)

    def latents_of(model: AutoencoderKL, x: torch.Tensor) -> torch.Tensor:
        return model.quant_conv(model.encoder(x))[:, :4].float()  # type: ignore[misc]

    def loss_of(
        x: torch.Tensor, mask: torch.Tensor, noise: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        with run.autocast():
            with torch.no_grad():
                z = before = latents_of(old, x)
            if options.encoder:
                z = latents_of(vae, x)
            y = vae.decoder(vae.post_quant_conv(z + noise))
        drift = (z - before).square().mean()
        return picture_loss(y, x, mask) + 0.05 * drift, drift.detach()

    loss_of = run.compiled(loss_of)  # type: ignore[assignment]
    batch, step, done = options.batch or 8, 0, 0.0
    while done < 1:
        x, mask = crops(rng, batch, scenes.SIZE, run.device)
        noise = (
            0.5 * options.noise * torch.randn(batch, 4, options.latent_side, options.latent_side)
        )
        loss, drift = loss_of(x, mask, noise.to(run.device))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        run.share_gradients(parameters, clip=1.0)
        if step == 1:
            run.restart_clock()
        done = run.fraction()
        set_rate(optimiser, falling_rate(done, step, hold=0.2))
        optimiser.step()
        average.update()
        step += 1
        if step % 100 == 0:
            run.log(step=step, done=done, loss=float(loss.detach()), drift=float(drift))
    if rank == 0:
        average.swap()
        vae.save_pretrained(run.work / "vae")
        report_vae(vae.eval(), run)


# --- latents ----------------------------------------------------------------------------------


def make_latents(rank: int, options: argparse.Namespace) -> None:
    """Shards of encoded scenes: latents, the share of thing pixels in every cell, seeds, counts."""
    run = Run(rank, options)
    vae = (
        AutoencoderKL.from_pretrained(made(run.work, "vae"), dtype=torch.float32)
        .to(run.device)
        .eval()
    )  # type: ignore[union-attr]
    folder = run.work / "latents"
    folder.mkdir(exist_ok=True)

    def encode(x: torch.Tensor) -> torch.Tensor:
        with run.autocast():
            return vae.quant_conv(vae.encoder(x))[:, :4].float()

    encode = run.compiled(encode)
    cell = scenes.SIZE // options.latent_side
    for shard in range(rank, math.ceil(options.scenes / SHARD), run.world):
        path = folder / f"{shard:05d}.safetensors"
        if path.exists():
            continue
        latents, cover, counts = [], [], []
        # Shards go round: one thing, two things, two things and three, so that each is at hand.
        seeds = np.arange(shard * SHARD, (shard + 1) * SHARD)
        for start in range(0, SHARD, 64):
            drawn = [
                scenes.draw(training_layout(int(s), shard_count(shard, int(s))))
                for s in seeds[start : start + 64]
            ]
            x = to_tensor(np.stack([d.image for d in drawn]), run.device)
            with torch.no_grad():
                latents.append(encode(x).half().cpu().numpy())
            any_thing = np.stack([d.masks.any(axis=0) for d in drawn]).astype(np.float32)
            shape = (64, options.latent_side, cell, options.latent_side, cell)
            cover.append((any_thing.reshape(shape).mean((2, 4)) * 255).astype(np.uint8))
            counts += [len(d.layout.things) for d in drawn]
        arrays = {
            "latents": np.ascontiguousarray(np.concatenate(latents)),  # as it lies, so it is saved
            "cover": np.concatenate(cover),
            "seeds": seeds,
            "counts": np.array(counts, dtype=np.uint8),
        }
        save_file(arrays, path.with_suffix(".partial"))
        path.with_suffix(".partial").replace(path)
        run.log(shard=shard)


def shard_count(shard: int, seed: int) -> int:
    """How many things the scenes of a shard have: all one, all two, or two and three."""
    return (1, 2, 2 if seed % 2 else 3)[shard % 3]


class Latents:
    """All shards in memory, with their layouts, drawn from by the number of things."""

    def __init__(self, folder: Path) -> None:
        shards = [load_file(path) for path in sorted(folder.glob("*.safetensors"))]
        if not shards:
            sys.exit("no latents there: run the stage 'latents' first")
        self.latents, self.cover, seeds, counts = (
            np.concatenate([s[k] for s in shards]) for k in ("latents", "cover", "seeds", "counts")
        )
        self.layouts = [training_layout(int(s), int(c)) for s, c in zip(seeds, counts, strict=True)]
        self.by_count = [np.flatnonzero(counts == c) for c in (1, 2, 3)]

    def batch(self, rng: Random, shares: tuple[float, float, float], n: int) -> np.ndarray:
        """N indices, the numbers of things drawn with the given shares."""
        kinds = rng.choices((0, 1, 2), shares, k=n)
        return np.array([self.by_count[k][rng.randrange(len(self.by_count[k]))] for k in kinds])


# --- text encoder and UNet --------------------------------------------------------------------


class Model(nn.Module):
    """Text encoder and UNet with the training loss; nothing of it is exported but the two."""

    def __init__(self, text: CLIPTextModel, unet: UNet2DConditionModel) -> None:
        super().__init__()
        self.text, self.unet = text, unet

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
        after = (ids == self.text.config.eos_token_id)[..., None] & headless[:, None, None]
        return torch.where(after, x[:, :1], x)

    def forward(
        self, clean: torch.Tensor, noise: torch.Tensor, t: torch.Tensor, alphas: torch.Tensor,
        ids: torch.Tensor, alone: torch.Tensor, headless: torch.Tensor, cover: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """The loss: squared error of v, cells with things counting up to four times."""
        a = alphas[t][:, None, None, None]
        noisy = a.sqrt() * clean + (1 - a).sqrt() * noise
        target = a.sqrt() * noise - (1 - a).sqrt() * clean
        weight = 1 + 3 * cover[:, None] * a.sqrt()
        states = self.encode(ids, alone, headless)
        guess = self.unet(noisy, t, states, return_dict=False)[0].float()
        return (weight * (guess - target).square()).mean()


def training_batch(
    run: Run, data: Latents, tokenizer: CLIPTokenizer, rng: Random, n: int, seen: int
) -> tuple[torch.Tensor, ...]:
    """What `Model.forward` takes, but for the schedule: a fresh batch with fresh captions."""
    only_one = seen < run.options.one_object_until
    index = data.batch(rng, (1, 0, 0) if only_one else (0.40, 0.48, 0.12), n)
    texts = ["" if rng.random() < 0.1 else scenes.caption(data.layouts[i], rng).text for i in index]
    ids = tokenizer(texts, padding="max_length", max_length=MAX_TOKENS, truncation=True)
    alone = np.array([rng.random() < run.options.alone for _ in texts])
    headless = np.array([rng.random() < 0.5 for _ in texts])
    clean = torch.from_numpy(data.latents[index]).float()
    # Stratified timesteps: one in each of n equal stretches.
    t = ((torch.randperm(n) + torch.rand(n)) / n * 1000).long()
    batch = (
        clean, torch.randn_like(clean), t, torch.tensor(ids["input_ids"]), torch.from_numpy(alone),
        torch.from_numpy(headless), torch.from_numpy(data.cover[index]).float() / 255,
    )  # fmt: skip
    return tuple(x.to(run.device) for x in batch)


def train_unet(rank: int, options: argparse.Namespace) -> None:
    """Text encoder and UNet, from latents and captions."""
    run = Run(rank, options)
    tokenizer = CLIPTokenizer.from_pretrained(made(run.work, "tokenizer"))
    torch.manual_seed(options.seed)
    if options.from_export:
        text = CLIPTextModel.from_pretrained(
            EXPORT / "text_encoder", dtype=torch.float32, attn_implementation="eager"
        )
        unet = UNet2DConditionModel.from_pretrained(EXPORT / "unet", dtype=torch.float32)
    else:
        text, unet = text_model(tokenizer), unet_model(options.latent_side)
    unet.set_attn_processor(AttnProcessor())  # explicit softmax: faster backward than SDPA on CPUs
    model = Model(text, unet).to(run.device).train()
    parameters = list(model.parameters())
    optimiser = make_optimiser([model], options.lr or 5e-3, 1e-3, ("conv_in", "conv_out", "embedd"))
    average = Average(parameters, options.ema)
    state = run.load("unet_training")
    seen = 0
    if state is not None:
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        average.load_state_dict(state["average"])
        seen = state["seen"]
    elif options.from_export:
        card = json.loads((EXPORT / "card.json").read_text())
        seen = int(card["training"]["samples_seen"])
    for group in optimiser.param_groups:
        group["initial_lr"] = (options.lr or 5e-3) if group["kind"] == "muon" else 1e-3
    rng = Random(options.seed * 1000 + rank + seen)
    torch.manual_seed(options.seed * 1000 + rank + seen)
    data = Latents(run.work / "latents")
    alphas = noise_schedule().alphas_cumprod.to(run.device)
    run.log(parameters=sum(p.numel() for p in parameters), scenes=len(data.layouts), seen=seen)

    def loss_of(*batch: torch.Tensor) -> torch.Tensor:
        clean, noise, t, ids, alone, headless, cover = batch
        with run.autocast():
            return model(clean, noise, t, alphas, ids, alone, headless, cover)

    loss_of = run.compiled(loss_of)
    n, step, done, losses = options.batch or 32, 0, 0.0, []
    start_seen, mark, next_sheet = seen, time.monotonic(), options.sheet_minutes * 60
    while done < 1:
        loss = loss_of(*training_batch(run, data, tokenizer, rng, n, seen))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        norm = run.share_gradients(parameters, clip=1.0)
        if step == 1:
            run.restart_clock()
            start_seen, mark = seen, time.monotonic()
        done = run.fraction()
        set_rate(optimiser, falling_rate(done, step, options.hold))
        optimiser.step()
        average.update()
        seen += n * run.world
        step += 1
        losses.append(float(loss.detach()))
        if step % 50 == 0:
            run.log(
                seen=seen, done=done, loss=float(np.mean(losses[-200:])), norm=norm,
                samples_a_second=(seen - start_seen) / (time.monotonic() - mark),
            )  # fmt: skip
        sheet_due = done * run.seconds > next_sheet
        if sheet_due or done >= 1:
            next_sheet = done * run.seconds + options.sheet_minutes * 60
            run.save(
                "unet_training",
                {"model": model.state_dict(), "optimiser": optimiser.state_dict(),
                 "average": average.state_dict(), "seen": seen},
            )  # fmt: skip
            if rank == 0:
                average.swap()
                sample_sheet(model, tokenizer, run, seen)
                average.swap()
            if run.world > 1:
                dist.barrier()


SHEET_PROMPTS = (
    "a red house", "a blue cat", "a green tree in a meadow", "a purple rocket at night",
    "a yellow fish", "a pink butterfly on the beach", "an orange snail in the snow", "a white car",
    "a red flower at sunset", "a mushroom", "a dog", "a big green cactus",
    "a red house next to a blue tree", "a yellow cat left of a purple balloon",
    "a pink boat above a green dog", "a giraffe",
)  # fmt: skip


@torch.no_grad()
def sample_sheet(model: Model, tokenizer: CLIPTokenizer, run: Run, seen: int) -> None:
    """The same prompts and seeds every time, to a picture."""
    pipe = assemble(model.text, model.unet, tokenizer, run.work)
    generator = torch.Generator().manual_seed(1)
    pictures = pipe(
        list(SHEET_PROMPTS),
        num_inference_steps=20,
        guidance_scale=4.0,
        generator=generator,
        output_type="np",
    ).images  # type: ignore[union-attr]
    path = run.work / f"sheet-{seen:08d}.png"
    contact_sheet((np.asarray(pictures) * 255).round().astype(np.uint8), 8, path)


def assemble(
    text: CLIPTextModel, unet: UNet2DConditionModel, tokenizer: CLIPTokenizer, work: Path
) -> StableDiffusionPipeline:
    """A pipeline of the parts."""
    vae = AutoencoderKL.from_pretrained(made(work, "vae"), dtype=torch.float32)
    pipe = StableDiffusionPipeline(
        vae=vae.to(unet.device),  # type: ignore[union-attr]
        text_encoder=text, tokenizer=tokenizer, unet=unet, scheduler=noise_schedule(),
        safety_checker=None, feature_extractor=None, requires_safety_checker=False,
    )  # fmt: skip
    pipe.set_progress_bar_config(disable=True)
    return pipe


def export(options: argparse.Namespace) -> None:
    """The averaged weights as a pipeline folder, float16, with a card.

    The card's figures are those of other weights, so it has none until `evaluate.py obey --card`.
    """
    work = Path(options.work)
    state = torch.load(work / "unet_training.pt", map_location="cpu")
    tokenizer = CLIPTokenizer.from_pretrained(made(work, "tokenizer"))
    model = Model(text_model(tokenizer), unet_model(options.latent_side))
    model.load_state_dict(state["model"])
    for p, value in zip(model.parameters(), state["average"]["values"], strict=True):
        p.data.copy_(value)
    pipe = assemble(model.text, model.unet, tokenizer, work)
    pipe.to(dtype=torch.float16)
    parts = {"unet": pipe.unet, "text_encoder": pipe.text_encoder, "vae": pipe.vae}
    card = {
        "name": "heedmap-tiny",
        "licence": "Apache-2.0",
        "draws": {
            "nouns": scenes.NOUNS,
            "colours": tuple(scenes.COLOURS),
            "sizes": tuple(scenes.SIZES),
            "relations": tuple(scenes.RELATIONS),
            "settings": tuple(scenes.SETTINGS),
        },
        "limits": "Cartoon scenes of one to three of these things, 128x128 pixels, and nothing "
        "else; an unknown word leaves the rest of the prompt as it is. More than three things, "
        "things within things, text, people and photographs cannot be drawn.",
        "defaults": {"steps": 25, "guidance": options.guidance},
        "training": {
            "samples_seen": state["seen"],
            "world": "heedmap.tiny.scenes; held-out combinations are never shown",
            "attention_supervision": False,
            "loss": "squared error of v; cells with things count up to four times",
            "text_dropout": "half of the captions: tokens do not see each other in the text "
            "encoder; half: end and padding are replaced by the start state; a tenth: empty",
            "parameters": {
                n: sum(p.numel() for p in part.parameters()) for n, part in parts.items()
            },
        },
    }
    partial = options.to.with_name(options.to.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    pipe.save_pretrained(partial, safe_serialization=True)
    (partial / "card.json").write_text(json.dumps(card, indent=2) + "\n")
    shutil.rmtree(options.to, ignore_errors=True)
    partial.rename(options.to)
    size = sum(f.stat().st_size for f in options.to.rglob("*") if f.is_file())
    print(f"{options.to}: {size / 2**20:.1f} MiB, {state['seen']} samples seen")


def iterate_stages() -> Iterator[tuple[str, Callable[[int, argparse.Namespace], None]]]:
    """The stages that run in several processes."""
    yield from (("vae", train_vae), ("decoder", train_decoder), ("latents", make_latents),
                ("unet", train_unet))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    stages = dict(iterate_stages())
    parser.add_argument("stage", choices=("tokenizer", *stages, "export"))
    parser.add_argument("--work", type=Path, default=Path("outputs/training"), help="checkpoints")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="a process, on CPUs")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--latent-side", type=int, choices=(16, 32), default=16)
    parser.add_argument("--batch", type=int, help="a process; 32 for the UNet")
    parser.add_argument("--lr", type=float, help="of the matrices (Muon)")
    parser.add_argument("--noise", type=float, default=0.05, help="on the latents of the VAE")
    parser.add_argument("--ema", type=float, default=0.998)
    parser.add_argument("--hold", type=float, default=0.4, help="share of time at the full rate")
    parser.add_argument("--alone", type=float, default=0.5, help="captions without mixing")
    parser.add_argument("--one-object-until", type=int, default=120_000, help="samples")
    parser.add_argument("--scenes", type=int, default=40_000)
    parser.add_argument("--sheet-minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--port", type=int, default=29511)
    parser.add_argument("--guidance", type=float, default=4.0, help="default of the export")
    parser.add_argument("--to", type=Path, default=EXPORT, help="folder of the export")
    parser.add_argument("--encoder", action="store_true", help="the stage 'decoder' trains both")
    parser.add_argument("--from-export", action="store_true", help="begin at the exported weights")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--no-bf16", dest="bf16", action="store_false")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.stage == "tokenizer":
        train_tokenizer(options.work)
    elif options.stage == "export":
        export(options)
    elif options.processes == 1:
        stages[options.stage](0, options)
    else:
        mp.spawn(stages[options.stage], args=(options,), nprocs=options.processes)


if __name__ == "__main__":
    main()
