"""How the embedded model is trained: its parts, each against something independent of it."""

import json
from argparse import Namespace
from pathlib import Path
from random import Random

import pytest
import torch
from diffusers import (
    FlowMatchEulerDiscreteScheduler,
    StableDiffusionPipeline,
)
from making import letter_tokenizer
from torch import nn

import train_tiny
from heedmap.backends.loading import model_card
from heedmap.errors import RunError
from training import joint, latents
from training.descent import Average, make_optimiser
from training.diffusion import (
    encode,
)
from training.export import export
from training.models import (
    noise_schedule,
    text_model,
    trained_tokenizer,
    trained_vae,
    unet_model,
)
from training.pictures import to_pictures
from training.unet import Model
from world import captions, layouts, scenes

CPU = torch.device("cpu")


def options(work: Path, *line: str) -> Namespace:
    """The options of a command line, for this process, uncompiled and in float32."""
    threads = str(torch.get_num_threads())  # a stage sets it: leave it as it is
    fixed = ("--work", str(work), "--device", "cpu", "--threads", threads)
    return train_tiny.parse([*line, *fixed, "--no-compile", "--no-bf16"])


# --- optimising -------------------------------------------------------------------------------


def test_muon_steps_alike_for_every_shape_and_plain_names_take_adamw():
    module = nn.ModuleDict(
        {"conv_in": nn.Conv2d(3, 8, 3), "wide": nn.Linear(32, 8), "conv": nn.Conv2d(8, 16, 3)}
    )
    optimiser = make_optimiser(module, lr=0.01, plain=("conv_in",))
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    for p in module.parameters():
        p.grad = torch.randn(p.shape, generator=generator)
    optimiser.step()
    for name, p in module.named_parameters():
        if name in ("wide.weight", "conv.weight"):
            rms = (p - before[name]).square().mean().sqrt()
            assert 0.15 < rms / 0.01 < 0.25, name
        else:  # AdamW's first step is its rate, against the gradient
            step = -1e-3 * torch.sign(p.grad)
            torch.testing.assert_close(p.detach(), before[name] + step, rtol=0, atol=1e-6)


def test_averages_are_applied_and_taken_back():
    weight = nn.Parameter(torch.tensor([1.0]))
    average = Average([weight], decay=0.9)
    weight.data += 1
    average.update()  # young: two elevenths of the old, nine of the new
    with pytest.raises(KeyError), average.applied():
        assert weight.item() == pytest.approx((2 * 1 + 9 * 2) / 11)
        raise KeyError
    assert weight.item() == 2
    assert average.values[0].item() == pytest.approx(20 / 11)


# --- pictures and latents ---------------------------------------------------------------------


def test_latents_are_those_of_the_scenes_they_name(tmp_path):
    """With the embedded autoencoder, in shards of four scenes."""
    arguments = options(tmp_path, "latents", "--scenes", "10", "--shard", "4")
    folder = tmp_path / "latents"
    latents.make_latents(0, arguments)

    data = latents.Latents(folder)
    assert [len(layout.things) for layout in data.layouts] == [1] * 4 + [2] * 4 + [2, 3] * 2
    assert all(layout.relation == "several" for layout in data.layouts[8:])
    drawn = [scenes.render(layout) for layout in data.layouts]
    with torch.no_grad():
        z = torch.from_numpy(data.latents).float()
        back = to_pictures(trained_vae(tmp_path).decode(z).sample)
    for scene, picture, cover in zip(drawn, back, data.cover, strict=True):
        assert not layouts.is_held_out(scene.layout)
        assert ((scene.image.astype(float) - picture) ** 2).mean() < 255**2 / 100  # 20 dB
        things = scene.masks.any(axis=0)
        assert cover[5, 9] == int(255 * things[40:48, 72:80].mean())
        assert abs(cover.mean() / 255 - things.mean()) < 1 / 255
    index = data.batch(Random(0), (0, 1, 0, 0, 1, 0), 40)
    assert {len(data.layouts[i].things) for i in index} == {2, 3}


# --- text encoder and UNet --------------------------------------------------------------------


class Answer(nn.Module):
    """In the UNet's place: keeps its input, and gives a set answer."""

    def forward(self, noisy, *others, return_dict):
        self.noisy = noisy
        return (self.answer,)


@pytest.fixture(scope="module")
def tokenizer():
    return letter_tokenizer()


@pytest.fixture
def model(tokenizer) -> Model:
    torch.manual_seed(0)
    return Model(text_model(tokenizer), Answer()).eval()


def ids_of(tokenizer, *texts: str) -> torch.Tensor:
    batch = tokenizer(list(texts), padding="max_length", max_length=20, return_tensors="pt")
    return batch["input_ids"]


def flags(*values: bool) -> torch.Tensor:
    return torch.tensor(values)


@torch.no_grad()
def test_encode_without_dropout_is_the_text_encoder(model, tokenizer):
    ids = ids_of(tokenizer, "at house", "")
    embeddings, states = encode(model.text, ids, flags(False, False), flags(False, False))
    states = model.text.final_layer_norm(states)
    torch.testing.assert_close(embeddings, model.text.embeddings(ids))
    torch.testing.assert_close(states, model.text(ids).last_hidden_state, rtol=0, atol=1e-5)


@torch.no_grad()
def test_the_loss_is_that_of_v_with_things_up_to_four_times(model, tokenizer):
    """The scheduler's own formulas are the reference."""
    schedule = noise_schedule()
    clean, noise = torch.randn(2, 3, 4, 8, 8, generator=torch.Generator().manual_seed(1))
    t, cover = torch.tensor([0, 500, 999]), torch.rand(3, 8, 8)
    ids, off = ids_of(tokenizer, "at", "", "house"), flags(False, False, False)
    v = schedule.get_velocity(clean, noise, t)
    model.unet.answer = v
    time = (t + 0.5) / 1000
    loss = model(clean, noise, time, ids, off, off, cover)
    torch.testing.assert_close(model.unet.noisy, schedule.add_noise(clean, noise, t))
    assert loss.item() == pytest.approx(0, abs=1e-10)
    model.unet.answer = v + 1
    signal = schedule.alphas_cumprod[t].sqrt()
    expected = 1 + 3 * (signal * cover.mean((1, 2))).mean()
    assert model(clean, noise, time, ids, off, off, cover).item() == pytest.approx(expected.item())


# --- the transformer --------------------------------------------------------------------------


@pytest.mark.parametrize("empty_tokens", joint.EMPTY_TOKENS)
@torch.no_grad()
def test_joint_model_reads_its_text_as_the_pipeline_does(empty_tokens):
    transformer = joint.transformer_model()
    for p in transformer.parameters():
        torch.nn.init.normal_(p, std=0.05)
    model = joint.Model(joint.text_encoder(), transformer)
    pipe = joint.assemble_joint(transformer, model.text, trained_vae(Path("none")))
    prompts = ["a red house next to a blue tree", "a cat"]
    encoded, _, pooled, _ = pipe.encode_prompt(
        prompts, None, None, max_sequence_length=empty_tokens
    )
    ids = joint.joint_tokenizer()(prompts, padding="max_length", return_tensors="pt")["input_ids"]
    states, ours = model.states(ids, flags(False, False), flags(False, False))
    torch.testing.assert_close(ours, pooled)
    latents, t = torch.randn(2, 4, 16, 16), torch.tensor([300.0, 700.0])
    with joint.fold_scales(transformer):
        expected = transformer(latents, encoded, pooled, t, return_dict=False)[0]
    transformer.set_attn_processor(joint.CountedJointAttention(empty_tokens))
    found = transformer(latents, states, ours, t, return_dict=False)[0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_joint_loss_is_that_of_the_schedulers_velocity():
    model = joint.Model(joint.text_encoder(), Answer())
    clean, noise = torch.randn(2, 2, 4, 16, 16)
    sigma = torch.tensor([0.25, 0.5])
    time = torch.distributions.Normal(0, 1).cdf(sigma.logit())
    ids, off, cover = torch.full((2, 32), 735), flags(False, False), torch.ones(2, 16, 16)
    model.transformer.answer = noise - clean + 1
    loss = model(clean, noise, time, ids, off, off, cover)
    scheduler = FlowMatchEulerDiscreteScheduler()
    scheduler.set_timesteps(sigmas=sigma.flip(0).tolist())
    noisy = scheduler.scale_noise(clean, scheduler.timesteps.flip(0), noise)
    torch.testing.assert_close(model.transformer.noisy, noisy)
    assert loss.item() == pytest.approx(1 + 3 * (1 - sigma).mean().item(), rel=1e-4)


# --- export -----------------------------------------------------------------------------------


def test_the_averaged_weights_are_exported(tmp_path):
    """With the embedded tokenizer and autoencoder, as where a work folder has lost its own."""
    to = tmp_path / "model"
    how = options(tmp_path, "export", "--to", str(to), "--guidance", "3")
    tokenizer = trained_tokenizer(tmp_path)
    model = Model(text_model(tokenizer), unet_model(16))
    averages = [p.detach() + 0.5 for p in model.parameters()]
    state = {"model": model.state_dict(), "average": {"count": 1, "values": averages}, "seen": 77}
    torch.save(state, tmp_path / "unet_training.pt")
    export(how)
    pipe = StableDiffusionPipeline.from_pretrained(to, dtype=torch.float16)
    exported = [*pipe.text_encoder.parameters(), *pipe.unet.parameters()]
    assert all(torch.equal(p, a.half()) for p, a in zip(exported, averages, strict=True))
    assert pipe.scheduler.config.prediction_type == "v_prediction"
    card = json.loads((to / "card.json").read_text())
    assert card["training"]["samples_seen"] == 77 and card["defaults"]["guidance"] == 3
    assert model_card(to).vocabulary == captions.vocabulary()

    (to / "model_index.json").unlink()  # now the folder looks like a user's
    with pytest.raises(RunError):
        export(how)
    assert (to / "card.json").exists()
