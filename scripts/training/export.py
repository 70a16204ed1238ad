"""The stage `export`: the averaged weights as a pipeline folder, float16, with a card."""

import argparse
import json
from pathlib import Path

import torch
from diffusers import StableDiffusionPipeline

from heedmap.io.writing import whole_folder
from heedmap.tiny import EMBEDDED
from training.diffusion import average_weights
from training.models import assemble, text_model, trained_tokenizer, trained_vae, unet_model
from training.unet import Model
from world import captions, layouts
from world.scenes import SIZE


def export(options: argparse.Namespace) -> None:
    """Write the folder `--to`, which must be new or empty, whole or not at all.

    The card's figures are those of other weights, so it has none until `evaluate.py obey --card`.
    """
    work = Path(options.work)
    state = torch.load(work / "unet_training.pt", map_location="cpu")
    tokenizer = trained_tokenizer(work)
    model = Model(text_model(tokenizer), unet_model(options.latent_side))
    average_weights(model, state)
    pipe = assemble(model.text, model.unet, tokenizer, trained_vae(work))
    pipe.to(dtype=torch.float16)
    pipe.vae.register_to_config(_name_or_path="")  # not that of the training
    about = card(pipe, state["seen"], options.guidance)
    with whole_folder(options.to) as folder:
        pipe.save_pretrained(folder, safe_serialization=True)
        (folder / "card.json").write_text(json.dumps(about, indent=2) + "\n")
    size = sum(f.stat().st_size for f in options.to.rglob("*") if f.is_file())
    print(f"{options.to}: {size / 2**20:.1f} MiB, {state['seen']} samples seen")


def card(pipe: StableDiffusionPipeline, seen: int, guidance: float) -> dict:
    """What the model is, what it draws, and how it was trained."""
    parts = {"unet": pipe.unet, "text_encoder": pipe.text_encoder, "vae": pipe.vae}
    return {
        "name": EMBEDDED,
        "licence": "Apache-2.0",
        "draws": {
            "nouns": layouts.NOUNS,
            "colours": tuple(layouts.COLOURS),
            "sizes": tuple(layouts.SIZES),
            "relations": tuple(layouts.RELATIONS),
            "settings": tuple(layouts.SETTINGS),
        },
        "natural_colours": layouts.NATURAL,
        "plurals": captions.PLURALS,
        "vocabulary": sorted(captions.vocabulary()),
        "phrases": captions.phrases(),
        "limits": "It draws cartoons of up to three things that differ, or of two or three that "
        "are alike and nothing beside them; all look to the right. Beyond it are more things, "
        "“a cat and two dogs”, things within things, letters, people and photographs.",
        "defaults": {"steps": 25, "guidance": guidance, "size": (SIZE, SIZE)},
        "training": {
            "samples_seen": seen,
            "world": "scripts/world; held-out combinations are never shown",
            "attention_supervision": False,
            "loss": "squared error of v; cells with things count up to four times",
            "captions": "told anew each time; half of those that could say which of two things "
            "is where keep silent about it; only natural colours are left out",
            "text_dropout": "up to half of the captions, later a fifth, and a twentieth of those "
            "with things of several colours: tokens do not see each other in the text encoder; "
            "half: end and padding are replaced by the start state; a tenth: empty",
            "parameters": {
                n: sum(p.numel() for p in part.parameters()) for n, part in parts.items()
            },
        },
    }
