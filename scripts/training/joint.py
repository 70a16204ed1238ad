"""The stage `joint`: a transformer of the Stable Diffusion 3 kind, from latents and captions.

It shares autoencoder, tokenizer and text encoder with the UNet's model; only the transformer is
trained (rectified flow, Esser et al., 2024, arXiv 2403.03206). Its first text encoder gives the
tokens' embeddings and its second the states in context, since the pipeline takes the last layer
but one of each. It has no T5: the pipeline puts zeros in its place, `max_sequence_length` of them.
"""

import argparse
import math
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, cast

import torch
from diffusers import (
    AutoencoderKL,
    FlowMatchEulerDiscreteScheduler,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
)
from diffusers.models.attention_processor import JointAttnProcessor2_0
from torch import nn
from transformers import CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

from training.diffusion import draw_sheet, encode, train_diffusion
from training.models import EXPORT, trained_vae
from training.run import Run

MAX_TOKENS = 32
"""Text positions of the CLIP encoders."""
EMPTY_TOKENS = (1, 256)
"""Positions of the T5 encoder that is not there: of the card, and of the pipeline by default. Each
batch is trained with one or the other."""
EMBEDDING_SCALE, STATE_SCALE = 4.0, 1 / 128
"""Factors that bring token embeddings and text states to a deviation of about 1 for training."""
PLAIN = ("pos_embed", "context_embedder", "time_text_embed", "norm", "proj_out")
"""Layers that Muon does not serve."""


def transformer_model() -> SD3Transformer2DModel:
    """Return an untrained transformer whose blocks begin as the identity (Peebles & Xie, 2023)."""
    transformer = SD3Transformer2DModel(
        sample_size=16,
        patch_size=2,
        in_channels=4,
        out_channels=4,
        num_layers=8,
        attention_head_dim=32,
        num_attention_heads=5,
        joint_attention_dim=256,
        caption_projection_dim=160,
        pooled_projection_dim=256,
        pos_embed_max_size=16,
        qk_norm="rms_norm",
    )
    for name, p in transformer.named_parameters():
        if ".linear." in name or name.startswith("proj_out"):  # modulation and the last layer
            nn.init.zeros_(p)
    return transformer


def text_encoders(text: CLIPTextModel) -> list[CLIPTextModelWithProjection]:
    """Return the pipeline's two encoders, both with the weights of the embedded one.

    The pipeline takes the last hidden state but one. The second encoder therefore has one more
    layer, which adds nothing to its input.
    """
    encoders = []
    for layers in (1, 2):
        config = copy(text.config)
        config.num_hidden_layers = layers
        encoder: Any = CLIPTextModelWithProjection(config)
        state = {f"text_model.{name}": value for name, value in text.state_dict().items()}
        state |= {
            name: torch.zeros_like(value)
            for name, value in encoder.state_dict().items()
            if ".layers.1." in name
        }
        state["text_projection.weight"] = torch.eye(text.config.hidden_size)
        encoder.load_state_dict(state)
        encoders.append(encoder.to(text.device, text.dtype))
    return encoders


class CountedJointAttention:
    """Joint attention in which the last text token stands for `empty_tokens` equal ones.

    Equal tokens stay equal in every block, so the result is exact and the others need not be
    computed. An explicit softmax has a faster backward pass than SDPA on CPUs.
    """

    def __init__(self, empty_tokens: int = EMPTY_TOKENS[0]) -> None:
        self.empty_tokens = empty_tokens

    def __call__(
        self,
        attn: Any,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        attention_mask: None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        def heads(x: torch.Tensor) -> torch.Tensor:  # (B, N, H d) -> (B, H, N, d)
            return x.unflatten(-1, (attn.heads, -1)).transpose(1, 2)

        n = hidden_states.shape[1]
        image = [heads(f(hidden_states)) for f in (attn.to_q, attn.to_k, attn.to_v)]
        added = (attn.add_q_proj, attn.add_k_proj, attn.add_v_proj)
        text = [heads(f(encoder_hidden_states)) for f in added]
        query = torch.cat([attn.norm_q(image[0]), attn.norm_added_q(text[0])], dim=2)
        key = torch.cat([attn.norm_k(image[1]), attn.norm_added_k(text[1])], dim=2)
        value = torch.cat([image[2], text[2]], dim=2)
        count = torch.zeros(key.shape[2], device=key.device)
        count[-1] = math.log(self.empty_tokens)
        scores = query @ key.mT * query.shape[-1] ** -0.5 + count
        output = (scores.softmax(-1).to(value.dtype) @ value).transpose(1, 2).flatten(2)
        states = output[:, n:]
        if not attn.context_pre_only:
            states = attn.to_add_out(states)
        return attn.to_out[0](output[:, :n]), states


class Model(nn.Module):
    """Transformer with the training loss, and the text encoder, which is not trained."""

    def __init__(self, text: CLIPTextModel, transformer: SD3Transformer2DModel) -> None:
        super().__init__()
        self.text, self.transformer = text.requires_grad_(False), transformer
        self.attention = CountedJointAttention()

    def states(
        self, ids: torch.Tensor, alone: torch.Tensor, headless: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return text states (B, K + 1, 256), the last for all empty tokens, and pooled (B, 256).

        The states are scaled (`fold_scales`).
        Pooled is the state of the first end token; of `headless` captions it is the start state,
        so that the words must be read by attention.
        """
        embeddings, states = encode(self.text, ids, alone, headless)
        ends = ids.eq(cast(int, self.text.config.eos_token_id)).int().argmax(dim=1)
        pooled = self.text.final_layer_norm(states[torch.arange(len(ids)), ends])
        both = torch.cat([EMBEDDING_SCALE * embeddings, STATE_SCALE * states], dim=-1)
        return nn.functional.pad(both, (0, 0, 0, 1)), torch.cat([pooled, pooled], dim=-1)

    def forward(
        self, clean: torch.Tensor, noise: torch.Tensor, time: torch.Tensor, ids: torch.Tensor,
        alone: torch.Tensor, headless: torch.Tensor, cover: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """Return the loss: squared error of the velocity, cells with things up to four times."""
        normal = torch.erfinv((2 * time - 1).clamp(-0.9999, 0.9999)) * math.sqrt(2)
        sigma = normal.sigmoid()[:, None, None, None]
        with torch.no_grad():
            states, pooled = self.states(ids, alone, headless)
        noisy = (1 - sigma) * clean + sigma * noise
        t = sigma.flatten() * 1000
        self.attention.empty_tokens = EMPTY_TOKENS[int(torch.randint(len(EMPTY_TOKENS), ()))]
        guess = self.transformer(noisy, states, pooled, t, return_dict=False)[0].float()
        weight = 1 + 3 * cover[:, None] * (1 - sigma)
        return (weight * (guess - (noise - clean)).square()).mean()


@contextmanager
def fold_scales(transformer: SD3Transformer2DModel) -> Iterator[None]:
    """Let the transformer take unscaled text states inside of the block.

    The scales are powers of two, so the weights come back exactly.
    """
    weight = transformer.context_embedder.weight.data
    half = weight.shape[1] // 2
    scales = torch.tensor([EMBEDDING_SCALE] * half + [STATE_SCALE] * half, device=weight.device)
    weight *= scales
    try:
        yield
    finally:
        weight /= scales


def joint_tokenizer() -> CLIPTokenizer:
    """Return the embedded tokenizer, cut to `MAX_TOKENS`."""
    return CLIPTokenizer.from_pretrained(EXPORT / "tokenizer", model_max_length=MAX_TOKENS)


def text_encoder() -> CLIPTextModel:
    """Return the embedded text encoder in float32."""
    return CLIPTextModel.from_pretrained(
        EXPORT / "text_encoder", dtype=torch.float32, attn_implementation="eager"
    )


def assemble_joint(
    transformer: SD3Transformer2DModel, text: CLIPTextModel, vae: AutoencoderKL
) -> StableDiffusion3Pipeline:
    """Return a pipeline of the parts; all but the transformer are the UNet model's."""
    first, second = text_encoders(text)
    vae.register_to_config(shift_factor=0.0)  # the pipeline adds it to the latents
    tokenizer = joint_tokenizer()
    missing: Any = None
    pipe = StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=vae,
        text_encoder=first,
        tokenizer=tokenizer,
        text_encoder_2=second,
        tokenizer_2=tokenizer,
        text_encoder_3=missing,
        tokenizer_3=missing,
    )
    pipe.set_progress_bar_config(disable=True)
    return pipe


def train_joint(rank: int, options: argparse.Namespace) -> None:
    """Train the transformer, from latents and captions."""
    run = Run(rank, options)
    torch.manual_seed(options.seed)  # every process begins with the same weights
    model = Model(text_encoder(), transformer_model())
    model.transformer.set_attn_processor(model.attention)  # type: ignore[arg-type]
    vae = trained_vae(run.work).to(run.device)

    def draw() -> Any:
        model.transformer.set_attn_processor(JointAttnProcessor2_0())
        try:
            with fold_scales(model.transformer):
                pipe = assemble_joint(model.transformer, model.text, vae)
                return draw_sheet(pipe, max_sequence_length=EMPTY_TOKENS[0])
        finally:
            model.transformer.set_attn_processor(model.attention)  # type: ignore[arg-type]

    train_diffusion(run, "joint", model, 0, joint_tokenizer(), PLAIN, draw)
