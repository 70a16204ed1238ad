"""The stage `export`: the averaged weights as a pipeline folder, float16, with a card."""

import argparse
import json
from typing import Any

import torch

from heedmap.io.writing import whole_folder
from heedmap.tiny import EMBEDDED, FOLDERS, JOINT
from training import joint, unet
from training.diffusion import average_weights
from training.models import assemble, text_model, trained_tokenizer, trained_vae, unet_model
from world import captions, layouts
from world.scenes import SIZE

UNET_TRAINING = {
    "loss": "squared error of v; cells with things count up to four times",
    "text_dropout": "up to half of the captions, later a fifth, and a twentieth of those "
    "with things of several colours: tokens do not see each other in the text encoder; "
    "half: end and padding are replaced by the start state; a tenth: empty",
}
JOINT_TRAINING = {
    "loss": "squared error of the velocity, at times of a logit-normal distribution; cells with "
    "things count up to four times where there is little noise",
    "text_dropout": "a fifth of the captions, and a twentieth of those with things of several "
    "colours: tokens do not see each other in the text encoder; half: end and padding are "
    "replaced by the start state; a tenth: empty",
}


def export(options: argparse.Namespace) -> None:
    """Write the folder `--to`, which must be new or empty, whole or not at all.

    The card's figures are those of other weights, so it has none until `evaluate.py obey --card`.
    The transformer's folder has no weights of the autoencoder, which it shares with the UNet.
    """
    name, to = options.of, options.to or FOLDERS[options.of]
    trained = "unet_training.pt" if name == EMBEDDED else "joint_training.pt"
    state = torch.load(options.work / trained, map_location="cpu")
    pipe = (_unet_pipeline if name == EMBEDDED else _joint_pipeline)(options, state)
    pipe.vae.register_to_config(_name_or_path="")  # not that of the training
    about = card(name, pipe, state["seen"], options.guidance)
    with whole_folder(to) as folder:
        pipe.save_pretrained(folder, safe_serialization=True)
        if name == JOINT:
            (folder / "vae" / "diffusion_pytorch_model.safetensors").unlink()
        (folder / "card.json").write_text(json.dumps(about, indent=2) + "\n")
    size = sum(f.stat().st_size for f in to.rglob("*") if f.is_file())
    print(f"{to}: {size / 2**20:.1f} MiB, {state['seen']} samples seen")


def _unet_pipeline(options: argparse.Namespace, state: dict) -> Any:
    tokenizer = trained_tokenizer(options.work)
    model = unet.Model(text_model(tokenizer), unet_model(options.latent_side))
    average_weights(model, state)
    pipe: Any = assemble(model.text, model.unet, tokenizer, trained_vae(options.work))
    return pipe.to(dtype=torch.float16)


def _joint_pipeline(options: argparse.Namespace, state: dict) -> Any:
    model = joint.Model(joint.text_encoder(), joint.transformer_model())
    average_weights(model, state)
    pipe: Any = joint.assemble_joint(model.transformer, model.text, trained_vae(options.work))
    with joint.fold_scales(model.transformer):
        return pipe.to(dtype=torch.float16)  # a copy of the weights


def card(name: str, pipe: Any, seen: int, guidance: float) -> dict:
    """Return what the model is, what it draws, and how it was trained."""
    parts = {n: part for n, part in pipe.components.items() if isinstance(part, torch.nn.Module)}
    return {
        "name": name,
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
        "defaults": {
            "steps": 25,
            "guidance": guidance,
            "size": (SIZE, SIZE),
            "arguments": {"max_sequence_length": joint.EMPTY_TOKENS[0]} if name == JOINT else {},
        },
        "training": {
            "samples_seen": seen,
            "world": "scripts/world; held-out combinations are never shown",
            "attention_supervision": False,
            "captions": "told anew each time; half of those that could say which of two things "
            "is where keep silent about it; only natural colours are left out",
            **(UNET_TRAINING if name == EMBEDDED else JOINT_TRAINING),
            "parameters": {
                n: sum(p.numel() for p in part.parameters()) for n, part in parts.items()
            },
        },
    }
