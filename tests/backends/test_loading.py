"""Loading: the embedded model, a folder, a hub id that cannot be reached."""

import json
import shutil

import pytest
import torch
from making import random_pipeline, random_pixart

from heedmap.backends import loading, registry
from heedmap.backends.prompts import prompt_table
from heedmap.errors import ArgumentError, ModelError
from heedmap.pipelines.generation import generate
from heedmap.tiny import FOLDER


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "random"
    random_pipeline().save_pretrained(path)
    return path


def test_the_embedded_model_is_a_whole_pipeline(embedded):
    assert loading.is_embedded(embedded)
    assert loading.name_of(embedded) == "heedmap-tiny"
    assert embedded.unet.dtype == torch.float32
    run = generate(embedded, "a red house", seed=0, steps=2)
    assert run.image.size == (128, 128)
    assert run.settings.model == "heedmap-tiny"


def test_the_embedded_model_is_small_and_half_precision():
    files = [f for f in FOLDER.rglob("*") if f.is_file()]
    assert sum(f.stat().st_size for f in files) <= 24 * 2**20
    assert {f.suffix for f in files} <= {".json", ".safetensors", ".txt"}
    from safetensors import safe_open

    for file in files:
        if file.suffix == ".safetensors":
            with safe_open(file, "np") as tensors:
                kinds = {tensors.get_slice(name).get_dtype() for name in tensors.keys()}  # noqa: SIM118
            assert kinds == {"F16"}


def test_a_folder_loads_and_names_itself(folder):
    pipe = loading.load(folder, dtype="bfloat16")
    assert loading.name_of(pipe) == str(folder)
    assert pipe.unet.dtype == torch.bfloat16
    assert loading.tokenizer(folder)("house")["input_ids"] == pipe.tokenizer("house")["input_ids"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"dtype": "int8"}, ArgumentError),
        ({"model": "no/such/folder"}, ModelError),
    ],
)
def test_unknown_arguments_are_refused(arguments, error):
    with pytest.raises(error, match=r"dtype|folder"):
        loading.load(**arguments)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what a machine without a GPU is told")
def test_a_missing_device_is_refused():
    with pytest.raises(ArgumentError, match="device"):
        loading.load(device="cuda")


def test_a_model_of_the_hub_is_refused_when_offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for load in (loading.load, loading.tokenizer):
        with pytest.raises(ModelError):
            load("heedmap/no-such-model")


def test_folders_without_a_pipeline_are_refused(tmp_path):
    with pytest.raises(ModelError):
        loading.load(tmp_path)
    (tmp_path / "model_index.json").write_text("{")
    with pytest.raises(ModelError):
        loading.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "part", "kind"),
    [
        ("PRXPipeline", "transformer", "PRXTransformer2DModel"),
    ],
)
def test_an_unserved_model_is_refused_before_its_weights_are_read(tmp_path, name, part, kind):
    """The folder has no weights, so that reading them would be the cause of the error."""
    index = {"_class_name": name, part: ["diffusers", kind]}
    (tmp_path / "model_index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="PRX") as raised:
        loading.load(tmp_path)
    assert raised.value.__cause__ is None


# --- what a model reads, without its weights ---


@pytest.fixture(scope="module")
def patches(tmp_path_factory):
    """A PixArt's folder as the published ones are: its transformer's class has an older name."""
    path = tmp_path_factory.mktemp("models") / "patches"
    random_pixart().save_pretrained(path)
    index = path / "model_index.json"
    text = index.read_text().replace("PixArtTransformer2DModel", "Transformer2DModel")
    index.write_text(text)
    return path


def test_a_table_without_weights_equals_the_pipelines(folder, patches):
    for model in (folder, patches, None):
        found = loading.token_table("a Red house,", model)
        assert found == prompt_table(loading.load(model), "a Red house,")


def test_a_table_reads_no_weights(patches, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(patches, bare, ignore=shutil.ignore_patterns("*.safetensors", "text_encoder"))
    assert loading.token_table("a house", bare) == loading.token_table("a house", patches)
    (bare / "tokenizer" / "tokenizer.json").unlink()
    for said in ('{"_class_name": "A", "tokenizer": ["transformers", "T5Tokenizer"]}', "[", "{}"):
        (bare / "model_index.json").write_text(said)
        with pytest.raises(ModelError):
            loading.token_table("a house", bare)


def test_sizes_must_be_multiples_of_the_patches():
    pipe = random_pixart()
    assert registry.check_size(pipe, (64, 48)) == (64, 48)
    with pytest.raises(ArgumentError, match="size"):
        registry.check_size(pipe, (64, 40))


def test_a_pipeline_of_another_class_shares_the_parts():
    pipe = random_pipeline()
    made = loading.of_kind(pipe, "StableDiffusionImg2ImgPipeline")
    assert type(made).__name__ == "StableDiffusionImg2ImgPipeline" and made.unet is pipe.unet
    for name in (type(pipe).__name__, "UNet2DConditionModel", "nothing", ""):
        assert loading.of_kind(pipe, name) is pipe
