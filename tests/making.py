"""What tests make: pipelines of random weights, recordings, runs, pairs and pages of numbers."""

import json
import re
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import numpy as np
import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    PixArtSigmaPipeline,
    PixArtTransformer2DModel,
    StableDiffusionPipeline,
    UNet2DConditionModel,
)
from hypothesis import strategies as st
from matplotlib.figure import Figure
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTokenizer,
    Qwen2Tokenizer,
    T5Config,
    T5EncoderModel,
    T5Tokenizer,
)

from heedmap.backends import loading
from heedmap.backends.registry import family_of
from heedmap.figures import overlays, plots
from heedmap.figures.overlays import StepPictures
from heedmap.io.schemas import EditReport, Settings, to_json
from heedmap.maps.heatmaps import HeatMaps
from heedmap.maps.recordings import Layer, Recording
from heedmap.mathematics.by_hand import LayerInputs
from heedmap.pipelines import generation
from heedmap.pipelines.arguments import resolve_options
from heedmap.pipelines.measures import change_between
from heedmap.results.ablations import Ablation
from heedmap.results.edits import EditResult
from heedmap.results.explanations import Explanation, ExplanationReport
from heedmap.results.runs import Run
from heedmap.text.prompts import split_words
from heedmap.text.tokenization import tokenize
from heedmap.text.weights import leave_out, parse_weights, spelled, weighed
from heedmap.text.words import Token, TokenTable, Word


def recording(
    prompt="at house, at sea", keep=("layer", "step", "head"), latent=(16, 16), steps=3, seed=0
) -> Recording:
    """A recording of numbers by chance: two layers up, one down, with different heads."""
    rng = np.random.default_rng(seed)
    table = tokenize(prompt, letter_tokenizer())
    positions = table.positions("start", "text", "end")
    h, w = latent
    half = (-(-h // 2), -(-w // 2))
    layers = (
        Layer("down_blocks.0.attentions.0.transformer_blocks.0.attn2", 2, latent),
        Layer("up_blocks.0.attentions.0.transformer_blocks.0.attn2", 4, half),
        Layer("up_blocks.1.attentions.1.transformer_blocks.0.attn2", 2, latent),
    )
    arrays = []
    for layer in layers:
        shape = (
            steps if "step" in keep else 1,
            layer.heads if "head" in keep else 1,
            layer.grid[0] * layer.grid[1],
            len(positions),
        )
        scores = np.exp(rng.normal(size=shape))
        arrays.append((scores / scores.sum(-1, keepdims=True)).astype(np.float32))
    timesteps = tuple(float(t) for t in range(900, 900 - steps, -1))
    return Recording(
        layers, frozenset(keep), timesteps, positions, table, latent, (w * 8, h * 8), tuple(arrays),
    )  # fmt: skip


SETTINGS = {
    "prompt": "at house, at sea", "negative": "dogs", "seed": 7, "steps": 3, "guidance": 4.0,
    "size": [128, 128], "model": "heedmap-tiny", "scheduler": "DDIMScheduler",
    "versions": {"heedmap": "0.1.0"},
}  # fmt: skip


def settings_of(**noted: Any) -> Settings:
    """Settings, of plain JSON types, with what all must note."""
    noted.setdefault("text", noted.get("prompt", SETTINGS["prompt"]))
    return msgspec.convert({**SETTINGS, **noted}, Settings, str_keys=True)


def with_settings(run: Any, **noted: Any) -> Any:
    """The same run with other settings, of plain JSON types."""
    held = {**to_json(run.settings), **noted}
    return replace(run, settings=msgspec.convert(held, Settings, str_keys=True))


REPORT = {
    "kind": "replace", "why": "'house' became 'sea'",
    "options": {"source": "at house", "cross_replace": [0.0, 0.8], "self_replace": [0.0, 0.4]},
    "sites": 21, "self_sites": 7, "moved": 0.25,
    "words": {"source": [1], "edited": [1]},
    "change": {
        "inside": {"share": 0.5, "mse": 0.01, "psnr_db": 20.0, "ssim": 0.5},
        "outside": {"share": 0.5, "mse": None, "psnr_db": None, "ssim": None},
    },
}  # fmt: skip


def report_of(**noted: Any) -> EditReport:
    """The evidence of an edit, of plain JSON types, with what all must have."""
    return msgspec.convert({**REPORT, **noted}, EditReport, str_keys=True)


def random_run(prompt="at house, at sea") -> Run:
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 255, (128, 128, 3), dtype=np.uint8))
    return Run(image, HeatMaps(recording(prompt), image), settings_of(prompt=prompt))


def run_with_steps(shows: Any = "latents") -> Run:
    """A run with a picture for each of its steps."""
    run = random_run()
    count = len(run.maps.recording.timesteps)
    frames = tuple(noise(n, (6, 4)) for n in range(count))
    return replace(run, step_pictures=StepPictures(frames, shows))


def noise(seed: int, size=(128, 128)) -> Image.Image:
    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


def noisy_run(prompt: str, seed: int, text: str | None = None) -> Run:
    image = noise(seed)
    text = text or prompt
    settings = settings_of(prompt=prompt, text=text, negative=None)
    return Run(image, HeatMaps(recording(text), image), settings)


def random_edit(blended: bool = False, edited: str = "at sea") -> EditResult:
    source, target = noisy_run("at house", 0), noisy_run(edited, 1, edited.strip("():2"))
    inside = np.zeros((128, 128), dtype=bool)
    inside[:40, 10:70] = True
    asked = {"source": "at house", "cross_replace": [0.0, 0.8], "self_replace": [0.0, 0.4]}
    target = with_settings(target, edit=asked)
    about = report_of(change=to_json(change_between(source.image, target.image, inside)))
    return EditResult(source, target, about, inside if blended else None)


def random_ablation(
    word: str = "house", prompt: str = "at house, at sea", **noted: Any
) -> Ablation:
    """A word left out of a run of numbers by chance; of "house" the prompt reads "at , at sea"."""
    run = with_settings(noisy_run(prompt, 0), **noted)
    left = leave_out(parse_weights(prompt), run.maps.tokens, word)
    zero = {"kind": "reweight", "word": word, "weight": 0.0, "renormalize": False}
    attention = with_settings(noisy_run(prompt, 1), **{"edits": [zero], **noted})
    return Ablation(
        word, run, {"attention": attention, "prompt": with_settings(noisy_run(left, 2), **noted)}
    )


def generate_batch(pipe, prompts, seeds, edits=(), **given) -> list[Run]:
    """A batch, with the options of `generate` as keyword arguments."""
    options, seeds = resolve_options(generation.generate, pipe, seeds, given)
    return generation.generate_batch(pipe, prompts, seeds, options, edits=tuple(edits))[0]


def random_explanation(
    masked=True, edited=False, word="house", prompt="a red house"
) -> Explanation:
    """One of numbers by chance: three heads of four numbers, six tokens, ten channels."""
    rng = np.random.default_rng(0)

    def normal(*size: int) -> np.ndarray:
        return rng.normal(size=size).astype(np.float32).astype(np.float64)

    start = prompt.index(word)
    tokens = (
        Token(0, 0, "<start>", 0, 0, "start"), Token(1, 1, "a", 0, 1, "text"),
        Token(2, 2, "red", 2, 5, "text"), Token(3, 3, word, start, start + len(word), "text"),
        Token(4, 4, "<end>", 0, 0, "end"), Token(5, 4, "<pad>", 0, 0, "pad"),
    )  # fmt: skip
    mask = np.zeros((3, 6))
    mask[:, 5] = -np.inf
    raised = np.exp(rng.normal(size=(3, 6)))
    rows = (raised / raised.sum(-1, keepdims=True)).astype(np.float32).astype(np.float64)
    inputs = LayerInputs(
        query=normal(3, 4),
        key=normal(3, 6, 4),
        value=normal(3, 6, 4),
        mask=mask if masked else None,
        scale=0.5,
        edited=rows if edited else None,
        added=None,
        weight=normal(10, 12),
        bias=normal(10),
        residual=None,
        factor=1.0,
        output=normal(10),
    )
    name = "up_blocks.1.attentions.0.transformer_blocks.0.attn2"
    report = ExplanationReport(
        word=word, tokens=(3,), prompt=prompt, at=(40, 72), size=(128, 96),
        layer=Layer(name, 3, (6, 8)), short="up 1.0", place=(4, 2), head=1, step=2, steps=5,
        passes=(0, 1), timestep=749.0, automatic_axes=("layer", "step", "head"),
        maps_difference=1e-7, settings_diff=(), seed=7, model="heedmap-tiny", dtype="float32",
    )  # fmt: skip
    return Explanation(report, tokens, inputs, noise(1, (128, 96)))


PROMPT = "a photograph of an astronaut riding a brown horse on the moon"


def table_of(prompt: str, limit: int = 77) -> TokenTable:
    """One token a word, and what CLIP puts around them."""
    spans = split_words(prompt)[: limit - 2]
    tokens = [Token(0, 0, "<start>", 0, 0, "start")]
    words = []
    for n, (a, b) in enumerate(spans):
        tokens.append(Token(n + 1, n + 1, prompt[a:b], a, b, "text"))
        words.append(Word(n, prompt[a:b], a, b, (n + 1,), 0))
    tokens.append(Token(len(tokens), 9, "<end>", 0, 0, "end"))
    tokens += [Token(p, 9, "<pad>", 0, 0, "pad") for p in range(len(tokens), limit)]
    return TokenTable(prompt, limit, 0, tuple(tokens), tuple(words))


def weigh(written: str, table: TokenTable, weights: dict[str, float]) -> str:
    """A prompt with weights of words written into it, as a grid notes it."""
    parsed = parse_weights(written)
    return spelled(parsed.text, weighed(parsed, table, weights))


BLOCKS = (
    *(("down_blocks.0", 64),) * 2, *(("down_blocks.1", 32),) * 2, *(("down_blocks.2", 16),) * 2,
    ("mid_block", 8),
    *(("up_blocks.1", 16),) * 3, *(("up_blocks.2", 32),) * 3, *(("up_blocks.3", 64),) * 3,
)  # fmt: skip


def stable_diffusion(
    prompt: str = PROMPT, *, keep: frozenset = frozenset({"layer"}), steps: int = 50,
    side: int = 64, heads: int = 8, seed: int = 0,
) -> Run:  # fmt: skip
    """A run in the shapes of SD 1.5 at 512×512: soft blobs that move, with noise, as maps are."""
    random = np.random.default_rng(seed)
    table = table_of(prompt)
    positions = tuple(range(len(table.words) + 2))
    s, h = steps if "step" in keep else 1, heads if "head" in keep else 1
    layers, arrays = [], []
    for n, (block, grid) in enumerate(BLOCKS):
        cellular = grid * side // 64
        y, x = np.mgrid[:cellular, :cellular].reshape(2, -1) / cellular
        centre = random.uniform(0.2, 0.8, (s, h, 1, len(positions), 2))
        near = (x[:, None] - centre[..., 0]) ** 2 + (y[:, None] - centre[..., 1]) ** 2
        scores = random.standard_normal(near.shape, np.float32) * 0.3 - 8 * near.astype(np.float32)
        scores[..., 0] += 4  # the start token draws most
        weights = np.exp(scores)
        arrays.append(weights / weights.sum(axis=-1, keepdims=True))
        name = f"{block}.attentions.{n % 3}.transformer_blocks.0.attn2"
        layers.append(Layer(name, heads, (cellular, cellular)))
    pixels = random.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    image = Image.fromarray(pixels).resize((8 * side, 8 * side), Image.Resampling.BICUBIC)
    recording = Recording(
        tuple(layers), keep, tuple(np.linspace(981, 1, steps).tolist()), positions, table,
        (side, side), image.size, tuple(arrays),
    )  # fmt: skip
    settings = settings_of(
        prompt=prompt, text=prompt, negative=None, seed=7, steps=steps, guidance=7.5,
        size=list(image.size), keep=sorted(keep), model="org/model", dtype="float32",
        pipeline="StableDiffusionPipeline", edits=[], arguments={},
    )  # fmt: skip
    return Run(image, HeatMaps(recording, image), settings)


def small(prompt: str = "a red house", keep: frozenset = frozenset({"layer"}), **more: Any) -> Run:
    return stable_diffusion(prompt, keep=keep, steps=4, side=16, heads=2, **more)


def with_refined(run: Any, grid: tuple[int, int] = (8, 8)) -> Any:
    """The same run with refined maps: for each token a blob by chance."""
    made = run.maps.recording
    random = np.random.default_rng(3)
    y, x = np.mgrid[: grid[0], : grid[1]].reshape(2, *grid, 1) / max(grid)
    centre = random.uniform(0.1, 0.9, (2, len(made.positions)))
    near = (x - centre[0]) ** 2 + (y - centre[1]) ** 2
    blobs = np.exp(-12 * near) + 0.05 * random.random(near.shape)
    recording = replace(made, refined=blobs.astype(np.float32))
    return replace(run, maps=replace(run.maps, recording=recording))


def gradient(width: int = 128, height: int = 128) -> Image.Image:
    """A picture that is another colour at each place."""
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([x, y, 255 - x], axis=-1).astype(np.uint8))


def run_of(prompt: str = "a red house", **settings: Any) -> Run:
    """A small run that notes these settings, of plain JSON types."""
    made = small(prompt)
    return with_settings(made, **settings)


def same_pixels(one: Image.Image | Figure, other: Image.Image | Figure) -> bool:
    """Whether two pictures, or figures, are the same to the bit."""
    one, other = (plots.render(it) if isinstance(it, Figure) else it for it in (one, other))
    return one.size == other.size and one.tobytes() == other.tobytes()


def data_of(page: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(text)


EMBEDDED = {"model": "heedmap-tiny", "seed": 7, "steps": 25, "guidance": 4.0, "size": [128, 128]}


def pixels(image) -> np.ndarray:
    return np.asarray(image).astype(int)


def largest_difference(a, b) -> int:
    """The largest difference of two pictures, in levels of 255."""
    return int(np.abs(pixels(a) - pixels(b)).max())


def run(pipe, prompt, seeds=(0,), steps=3, **arguments):
    """The pictures of a call with fixed noise, as floats (B, h, w, 3)."""
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    return pipe(
        prompt, num_inference_steps=steps, generator=generators, output_type="np", **arguments
    ).images


def letter_tokenizer() -> CLIPTokenizer:
    """A CLIP tokenizer without merges but for "house" and "at": the other words are letters."""
    merges = [("h", "o"), ("u", "s"), ("ho", "us"), ("hous", "e</w>"), ("a", "t</w>")]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*letters, *(c + "</w>" for c in letters), *("".join(pair) for pair in merges)]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    for special in ("<|startoftext|>", "<|endoftext|>"):
        vocabulary[special] = len(vocabulary)
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=77)


def letter_t5() -> T5Tokenizer:
    """A T5 tokenizer of letters and two words.

    As with the real one, "a" is two tokens: the start of a word and the letter. So in "a red house"
    every other word stands where `letter_tokenizer` has it, behind the start token of CLIP.
    """
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = [(special, 0.0) for special in ("<pad>", "</s>", "<unk>")]
    pieces += [(letter, -4.0) for letter in f"▁{letters}.,!?-'"]
    pieces += [(f"▁{letter}", -3.0) for letter in letters[1:]]
    pieces += [("▁house", -2.0), ("▁at", -2.0)]
    return T5Tokenizer(vocab=pieces, extra_ids=0)


CHAT = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


def letter_qwen(*more: str) -> Qwen2Tokenizer:
    """A tokenizer of Qwen's class, of letters, " house", and the words of its chat templates.

    As the real one, it reads 34 tokens before the prompt of Qwen-Image. Special tokens have no
    merges; there may be more. The template is that of Qwen 3, without tools.
    """
    words = (
        "system Describe user assistant Ġthe Ġimage Ġby Ġdetailing Ġcolor Ġshape Ġsize Ġtexture "
        "Ġquantity Ġtext Ġspatial Ġrelationships Ġof Ġobjects Ġand Ġbackground Ġhouse ĊĊ"
    )
    pairs = [(w[:n], w[n]) for w in words.split() for n in range(1, len(w))]
    merges = [*dict.fromkeys(pairs)]
    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    specials = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", *more)
    vocabulary = {piece: number for number, piece in enumerate([*pieces, *specials])}
    made = Qwen2Tokenizer(vocab=vocabulary, merges=merges, model_max_length=1024)
    made.add_special_tokens({"additional_special_tokens": [*specials[1:]]})
    made.chat_template = CHAT
    return made


@cache
def _tokenizer(name: str, limit: int) -> Any:
    found = letter_tokenizer() if name == "letters" else loading.tokenizer()
    found.model_max_length = limit
    return found


def table(prompt: str, limit: int = 77, name: str = "letters") -> TokenTable:
    """The words and tokens of a prompt by `letter_tokenizer`, or by the embedded model's."""
    return tokenize(prompt, _tokenizer(name, limit))


def random_pixart(kind: type = PixArtSigmaPipeline, **config: Any) -> Any:
    """A PixArt of real classes with tiny random weights: three layers, on patches of two cells."""
    torch.manual_seed(7)
    encoder = T5EncoderModel(
        T5Config(
            vocab_size=len(letter_t5()),
            d_model=24,
            d_kv=8,
            d_ff=48,
            num_layers=2,
            num_heads=3,
            feed_forward_proj="gated-gelu",
            is_encoder_decoder=False,
            use_cache=False,
        )
    ).eval()
    transformer = {
        "sample_size": 32,  # 128 in the larger models
        "num_attention_heads": 4,  # 16
        "attention_head_dim": 8,  # 72
        "num_layers": 3,  # 28
        "caption_channels": 24,  # 4096
    } | config
    width = transformer["num_attention_heads"] * transformer["attention_head_dim"]
    model = PixArtTransformer2DModel(cross_attention_dim=width, **transformer).eval()
    for name, parameter in [*encoder.named_parameters(), *model.named_parameters()]:
        if ".to_q." in name or ".to_k." in name:  # sharp, so that wrong maps are seen
            parameter.data.mul_(3)
        elif "embed_tokens" in name or "relative_attention_bias" in name or "shared" in name:
            torch.nn.init.normal_(parameter)
        elif "proj_out" in name:  # nothing is normed before it meets the text: it must not grow
            parameter.data.mul_(0.3)
    vae = AutoencoderKL(
        block_out_channels=(8, 8, 8, 8),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=1,
        norm_num_groups=4,
        scaling_factor=0.13025,
    ).eval()
    made = kind(
        vae=vae,
        text_encoder=encoder,
        tokenizer=letter_t5(),
        transformer=model,
        scheduler=DPMSolverMultistepScheduler(),
    )
    made.set_progress_bar_config(disable=True)
    return made


def random_pipeline() -> StableDiffusionPipeline:
    """A Stable Diffusion 1.x of real classes with tiny random weights: 3 levels, 7 cross layers."""
    made = deepcopy(_random_pipeline())  # in half of the time
    torch.manual_seed(0)  # a test that draws numbers of its own draws the same in any order
    return made


@cache
def _random_pipeline() -> StableDiffusionPipeline:
    torch.manual_seed(0)
    tokenizer = letter_tokenizer()
    unet = UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(16, 32, 32),
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        mid_block_type="UNetMidBlock2DCrossAttn",
        layers_per_block=1,
        attention_head_dim=2,
        cross_attention_dim=32,
        norm_num_groups=8,
    )
    vae = AutoencoderKL(
        block_out_channels=(8, 8, 8, 8),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=1,
        norm_num_groups=4,
    )
    text = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=77,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    # Random weights attend almost evenly: sharper keys make wrong maps visible.
    for name, parameter in unet.named_parameters():
        if ".attn2.to_q." in name or ".attn2.to_k." in name:
            parameter.data.mul_(6)
    pipe = StableDiffusionPipeline(
        vae=vae.eval(),
        text_encoder=text.eval(),
        tokenizer=tokenizer,
        unet=unet.eval(),
        scheduler=DDIMScheduler(beta_schedule="scaled_linear", clip_sample=False, steps_offset=1),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipe.set_progress_bar_config(disable=True)
    return pipe


SENTENCES = [
    "a red house next to a blue tree",
    "a photo of a red cat at night, the dog isn't here! 😂😂 😂😂😂",
    "a snow-covered house, a cat and a dog!",
]


def build_tokenizer(limit: int | None = 77, **kwargs) -> CLIPTokenizer:
    """A CLIP tokenizer whose byte-level merges come from a handful of sentences."""
    pieces = CLIPTokenizer().backend_tokenizer
    trained = Tokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix="</w>"))
    trained.normalizer, trained.pre_tokenizer = pieces.normalizer, pieces.pre_tokenizer
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=alphabet, end_of_word_suffix="</w>", show_progress=False
    )
    trained.train_from_iterator(SENTENCES * 3, trainer)
    merges: Any = [tuple(merge) for merge in json.loads(trained.to_str())["model"]["merges"]]
    # As in CLIP's own vocabulary: "!" is 0, then the bytes, the merges, and the two specials.
    pieces = ["!", *alphabet, *(a + "</w>" for a in alphabet), *("".join(m) for m in merges)]
    pieces += ["<|startoftext|>", "<|endoftext|>"]
    vocab = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    if limit is not None:
        kwargs["model_max_length"] = limit
    return CLIPTokenizer(vocab=vocab, merges=merges, **kwargs)


@cache
def shared_tokenizer(limit: int) -> CLIPTokenizer:
    """One of `build_tokenizer`, for tests that leave it as it is."""
    return build_tokenizer(limit)


SCRAPS = [
    *("cat", "Red", "house,", "😂", "😂😂", "🇩🇪", "👩‍👧", "한국", "猫", "e\u0301", "İ", "ﬁ"),
    *("<my-cat>", "<", ">", "!", "'s", "-", "_", "1.5", " ", "\n", "\u200d", "\ufe0f"),
    *("<|endoftext|>", "\u1112\u1161\u11ab", "ǅ", "\x00", '"', "\u0f73"),
]
PROMPTS = st.text(max_size=60) | st.lists(st.sampled_from(SCRAPS), max_size=30).map("".join)
"""Texts of odd characters, some of them words."""


def maps_of(latent=(16, 16), **more: Any) -> HeatMaps:
    made = recording(latent=latent, **more)
    return HeatMaps(made, gradient(*made.size))


def recordings_of(maps: Any) -> list[Recording]:
    """The recordings of several maps."""
    return [one.recording for one in maps]


def by_hand(maps: HeatMaps, parts: list[np.ndarray], size=(256, 256)) -> list[Image.Image]:
    """Overlays of these values on one scale, from the least of them to the greatest."""
    low, high = min(float(p.min()) for p in parts), max(float(p.max()) for p in parts)
    image = maps.image.resize(size, Image.Resampling.LANCZOS)
    return [overlays.overlay(image, part, low=low, high=high) for part in parts]


def cross_attention_layers(pipe: Any) -> dict[str, Any]:
    """The layers of a pipeline that attend to the text, by dotted path."""
    return family_of(pipe).text_layers()


def self_attention_layers(pipe: Any) -> dict[str, Any]:
    """The layers of the image's attention to itself, by dotted path."""
    return family_of(pipe).image_layers()
