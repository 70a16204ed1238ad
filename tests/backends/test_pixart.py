"""PixArt: its layers, the grid of its patches, and the text as T5 reads it."""

import pytest
from making import cross_attention_layers, random_pixart, self_attention_layers

from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import family_of
from heedmap.errors import ArgumentError


@pytest.fixture(scope="module")
def pipe():
    return random_pixart()


def test_layers_are_in_the_order_of_the_pass():
    pipe = random_pixart(num_layers=12)
    cross = cross_attention_layers(pipe)
    own = self_attention_layers(pipe)
    assert list(cross) == [f"transformer_blocks.{n}.attn2" for n in range(12)]
    assert list(own) == [f"transformer_blocks.{n}.attn1" for n in range(12)]
    ran = []
    for name, layer in cross.items():
        layer.register_forward_pre_hook(lambda *_, name=name: ran.append(name))
    pipe("a", num_inference_steps=1, output_type="latent", max_sequence_length=4)
    assert ran == list(cross)


@pytest.mark.parametrize(
    ("side", "latent", "grid"),
    [(2, (12, 30), (6, 15)), (1, (5, 7), (5, 7))],
)
def test_the_grid_is_that_of_the_patches(side, latent, grid):
    pipe = random_pixart(patch_size=side, num_layers=1)
    names = list(cross_attention_layers(pipe))
    assert {family_of(pipe).grid(name, latent) for name in names} == {grid}
    assert family_of(pipe).unit == 8 * side
    seen = []
    pipe.transformer.pos_embed.register_forward_hook(lambda *call: seen.append(call[-1].shape[1]))
    given = {"height": 8 * latent[0], "width": 8 * latent[1], "use_resolution_binning": False}
    pipe("a", num_inference_steps=1, max_sequence_length=4, output_type="latent", **given)
    assert seen == [grid[0] * grid[1]]


def test_words_have_the_tokens_of_t5(pipe):
    table = prompt_table(pipe, " A Red house, ")
    assert (table.prompt, table.limit) == (" A Red house, ", 300)
    assert [(word.text, word.tokens) for word in table.words] == [
        ("A", (0, 1)), ("Red", (2, 3, 4)), ("house", (5,)),
    ]  # fmt: skip
    kinds = [token.kind for token in table.tokens]
    assert kinds == ["text"] * 7 + ["end"] + ["pad"] * 292
    assert [token.text for token in table.tokens[:8]] == [
        "A", "A", "R", "e", "d", "house", ",", "<end>",
    ]  # fmt: skip
    assert prompt_table(pipe, "a", {"max_sequence_length": 5}).limit == 5
    cut = prompt_table(pipe, "a red house", {"max_sequence_length": 5, "eta": 0.0})
    assert [word.missing for word in cut.words] == [0, 1, 1]
    with pytest.raises(ArgumentError, match="max_sequence_length"):
        prompt_table(pipe, "a", {"max_sequence_length": 0})
