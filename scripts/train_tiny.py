"""Train the embedded Stable Diffusion on the drawn world, from nothing.

Stages, each resumable from its checkpoint in `--work` and each skipped by naming the next:

    python scripts/train_tiny.py tokenizer            a byte-pair vocabulary from captions
    python scripts/train_tiny.py vae --minutes 15     the autoencoder; whitened latents
    python scripts/train_tiny.py decoder --minutes 5  the decoder alone, a little longer
    python scripts/train_tiny.py latents --scenes 40000
    python scripts/train_tiny.py unet --minutes 120   text encoder and UNet together
    python scripts/train_tiny.py export               the pipeline folder, float16
    python scripts/train_tiny.py joint --minutes 300  a transformer of the Stable Diffusion 3 kind
    python scripts/train_tiny.py export --of joint    its folder, without the autoencoder

A call of `unet` trains for its minutes with a learning rate that falls to nothing at their end, so
that each call leaves a finished model; a further call goes on from the checkpoint (or, where that
is lost, from the exported weights with `--from-export`).

On CPUs `--processes 2` of one thread each is the fastest way to use two cores. On a GPU leave it at
1 and give `--workers`, which draw scenes and write captions. One H200 with 15 cores encodes
164,000 scenes in 80 s and trains `joint --batch 512 --lr 6e-3 --workers 12` at 10,700 samples a
second, with a loss of 0.32 after 4.3 million. The first step compiles
for 70 s.

No mask shapes the attention. Masks weight the diffusion loss (object pixels count more), no more.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.multiprocessing as mp

from heedmap.tiny import EMBEDDED, FOLDERS
from training.autoencoder import train_decoder, train_vae
from training.export import export
from training.joint import train_joint
from training.latents import make_latents
from training.tokenizer import train_tokenizer
from training.unet import train_unet

SPREAD = {
    "vae": train_vae,
    "decoder": train_decoder,
    "latents": make_latents,
    "unet": train_unet,
    "joint": train_joint,
}
"""The stages that run in several processes."""


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=("tokenizer", *SPREAD, "export"))
    parser.add_argument("--work", type=Path, default=Path("outputs/training"), help="checkpoints")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="a process, on CPUs")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--latent-side", type=int, choices=(16, 32), default=16)
    parser.add_argument("--batch", type=int, help="a process; 32 for the UNet")
    parser.add_argument("--workers", type=int, default=0, help="processes that write captions")
    parser.add_argument("--lr", type=float, help="of the matrices (Muon)")
    parser.add_argument("--noise", type=float, default=0.05, help="on the latents of the VAE")
    parser.add_argument("--ema", type=float, default=0.998)
    parser.add_argument("--hold", type=float, default=0.4, help="share of time at the full rate")
    parser.add_argument("--alone", type=float, default=0.2, help="captions without mixing")
    parser.add_argument("--one-object-until", type=int, default=120_000, help="samples")
    parser.add_argument("--scenes", type=int, default=40_000)
    parser.add_argument("--shard", type=int, default=2048, help="scenes in one file of latents")
    parser.add_argument("--sheet-minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--port", type=int, default=29511)
    parser.add_argument("--guidance", type=float, default=4.0, help="default of the export")
    parser.add_argument("--of", choices=FOLDERS, default=EMBEDDED, help="model to export")
    parser.add_argument("--to", type=Path, help="folder of the export (the package's)")
    parser.add_argument("--crop", type=int, choices=(64, 128), default=128, help="of 'decoder'")
    parser.add_argument("--encoder", action="store_true", help="the stage 'decoder' trains both")
    parser.add_argument("--from-export", action="store_true", help="begin at the exported weights")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--no-bf16", dest="bf16", action="store_false")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.stage == "tokenizer":
        train_tokenizer(options.work)
    elif options.stage == "export":
        export(options)
    elif options.processes == 1:
        SPREAD[options.stage](0, options)
    else:
        mp.spawn(SPREAD[options.stage], args=(options,), nprocs=options.processes)


if __name__ == "__main__":
    main()
