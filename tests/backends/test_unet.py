"""The attention layers of a UNet: which there are, and how a compiled UNet is made to run."""

import pytest
import torch
from diffusers import UNet2DConditionModel
from diffusers.models.attention_processor import Attention
from making import cross_attention_layers, random_pipeline, run, self_attention_layers

from heedmap.backends.registry import check_served, family_of
from heedmap.errors import HeedmapWarning, ModelError
from heedmap.recording.tracing import trace


@pytest.fixture(autouse=True)
def compiler():
    yield
    torch.compiler.reset()


def test_layers_are_in_the_order_of_the_pass(random_model):
    cross = cross_attention_layers(random_model)
    own = self_attention_layers(random_model)
    stages = [name.split(".")[0] for name in cross]
    assert stages == ["down_blocks"] * 2 + ["mid_block"] + ["up_blocks"] * 4
    assert all(name.endswith("attn2") for name in cross)
    assert set(own) == {name.replace("attn2", "attn1") for name in cross}
    assert all(layer.is_cross_attention for layer in cross.values())
    random_model.unet.down_blocks[0].attentions[0].transformer_blocks[0].attn2.added_kv_proj_dim = 8
    random_model.unet.down_blocks[0].attentions[0].transformer_blocks[0].attn1.added_kv_proj_dim = 8
    assert len(cross_attention_layers(random_model)) == len(cross) - 1
    assert len(self_attention_layers(random_model)) == len(own) - 1


def test_more_than_ten_blocks_are_ordered_by_number():
    class Pipe:
        unet = UNet2DConditionModel(
            block_out_channels=(8,),
            down_block_types=("CrossAttnDownBlock2D",),
            up_block_types=("UpBlock2D",),
            layers_per_block=1,
            transformer_layers_per_block=11,
            attention_head_dim=2,
            cross_attention_dim=8,
            norm_num_groups=4,
        )

    names = [name for name in cross_attention_layers(Pipe()) if name.startswith("down")]
    assert [int(name.split(".")[-2]) for name in names] == list(range(11))


def test_attention_of_other_parts_is_no_layer():
    """What reads an image prompt beside the stages, and what ties boxes to places."""
    pipe = random_pipeline()
    cross = set(cross_attention_layers(pipe))
    own = set(self_attention_layers(pipe))
    block = pipe.unet.mid_block.attentions[0].transformer_blocks[0]
    pipe.unet.resampler = Attention(query_dim=32, heads=2, dim_head=16)
    pipe.unet.reader = Attention(query_dim=32, cross_attention_dim=32, heads=2, dim_head=16)
    block.fuser = torch.nn.ModuleDict({"attn": Attention(query_dim=32, heads=2, dim_head=16)})
    assert set(cross_attention_layers(pipe)) == cross
    assert set(self_attention_layers(pipe)) == own
    pipe.unet = torch.compile(pipe.unet, backend="eager")
    assert set(self_attention_layers(pipe)) == own


@pytest.mark.parametrize("latent", [(16, 16), (13, 22)])
def test_each_stage_has_its_grid(random_model, latent):
    family = family_of(random_model)
    found = {name: family.grid(name, latent) for name in cross_attention_layers(random_model)}
    h, w = latent
    half = (-(-h // 2), -(-w // 2))
    quarter = (-(-half[0] // 2), -(-half[1] // 2))
    stages = {
        "down_blocks.0": latent,
        "down_blocks.1": half,
        "mid_block": quarter,
        "up_blocks.1": half,
        "up_blocks.2": latent,
    }
    assert set(found) == set(cross_attention_layers(random_model))
    for name, grid in found.items():
        assert grid == next(value for stage, value in stages.items() if name.startswith(stage))


def pipe_of(**parts):
    return type("Pipe", (), parts)()


def plain_unet(**added):
    """A UNet whose attention is to itself alone; or with layers that have added keys."""
    made = UNet2DConditionModel(
        block_out_channels=(8,),
        down_block_types=("DownBlock2D",),
        up_block_types=("UpBlock2D",),
        mid_block_type=None,
        layers_per_block=1,
        norm_num_groups=4,
    )
    made.down_blocks[0].attention = Attention(query_dim=8, heads=2, dim_head=4, **added)
    return made


@pytest.mark.parametrize(
    "pipe",
    [
        pipe_of(unet=None, transformer=torch.nn.Linear(2, 2)),
        pipe_of(unet=plain_unet()),
        pipe_of(unet=plain_unet(added_kv_proj_dim=8, only_cross_attention=False)),
    ],
)
def test_pipelines_without_text_cross_attention_are_refused(pipe):
    with pytest.raises(ModelError):
        check_served(pipe)


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_compiled_unet_runs_as_it_was_written_and_is_put_back(is_wrapped):
    pipe = random_pipeline()
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    part = pipe.unet.time_embedding
    if is_wrapped:
        pipe.unet.time_embedding = torch.compile(part, backend=backend)
    else:
        part.compile(backend=backend)
    with pytest.warns(HeedmapWarning, match="compiled"), trace(pipe):
        run(pipe, "a", steps=1)
    assert not graphs
    run(pipe, "a", steps=1)
    assert graphs
