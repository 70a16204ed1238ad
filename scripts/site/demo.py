"""The demo of the site: the embedded model as files that ONNX Runtime Web runs in a browser.

The folder `demo` holds the page's own scripts. All else is made when the site is built: the model
is exported to ONNX, with the attention probabilities as further outputs, and the runtime comes from
npm.
"""

import base64
import gzip
import hashlib
import json
import logging
import math
import shutil
import subprocess
import tarfile
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

HERE = Path(__file__).parent / "demo"
RUNTIME = "onnxruntime-web@1.30.0"
"""The package of npm that runs the model."""
SHA512 = "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
"""The checksum of the package, as npm states it (`npm view onnxruntime-web dist.integrity`)."""
RUNTIME_FILES = {
    "ort.wasm.bundle.min.mjs": "runtime.js",
    "ort-wasm-simd-threaded.wasm": "runtime.wasm.gz",
}
"""The files of the package that the demo uses, and their names in it."""
RESULT_SCRIPTS = ("maps.js", "drawing.js")
"""The scripts of a result's page that the demo shares."""
WITHOUT = "This copy of the site was built without the demo."


def write(folder: Path, cache: Path) -> str:
    """Write the demo's files into a new folder.

    Args:
        folder: the folder `demo` of the site's pages.
        cache: the folder where packages of npm are kept.

    Returns:
        the HTML of the demo.

    Raises:
        SystemExit: if the package of npm is not there and cannot be fetched.
    """
    import heedmap as hm
    from heedmap import page, tiny

    package = fetch(cache)
    folder.mkdir(parents=True)
    for path in HERE.glob("*.js"):
        shutil.copyfile(path, folder / path.name)
    assets = Path(page.__file__).parent / "assets"
    shared = "".join((assets / name).read_text("utf-8") for name in RESULT_SCRIPTS)
    (folder / "results.js").write_text(f"{shared}\nexport {{ drawing, maps }};\n", "utf-8")
    shutil.copyfile(tiny.FOLDER / "tokenizer" / "tokenizer.json", folder / "tokenizer.json")
    with tarfile.open(package) as archive:
        for name, own in RUNTIME_FILES.items():
            file = archive.extractfile(f"package/dist/{name}")
            assert file is not None
            _put(folder / own, file.read())
    pipe = hm.load()
    grids = _write_models(folder, pipe)
    size = sum(path.stat().st_size for path in folder.glob("*.gz"))
    settings = _settings(pipe, grids) | {"bytes": size}
    (folder / "settings.json").write_text(json.dumps(settings), "utf-8")
    html = (HERE / "demo.html").read_text("utf-8")
    return html.replace("MEGABYTES", f"{size / 1e6:.0f}")


def fetch(cache: Path) -> Path:
    """Return the path of the runtime's package, which npm fetches unless it is there.

    Raises:
        SystemExit: if it cannot be fetched.
        ValueError: if it has another checksum than the one that is known.
    """
    path = cache / f"{RUNTIME.replace('@', '-')}.tgz"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", RUNTIME, "--fetch-retries=0"]
        try:
            with tempfile.TemporaryDirectory(dir=cache) as folder:
                subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
                Path(folder, path.name).replace(path)
        except (OSError, subprocess.SubprocessError) as error:
            raise SystemExit(
                f"the demo of the site needs {RUNTIME}, which npm did not fetch ({error}): install "
                "Node.js, connect to the network, or build with --quick, which leaves it out"
            ) from error
    digest = base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()
    if digest != SHA512:
        raise ValueError(f"{path} has another checksum than demo.py states: delete it")
    return path


def _put(path: Path, data: bytes) -> None:
    """Write a file, compressed if its name says so."""
    if path.suffix == ".gz":
        data = gzip.compress(data, compresslevel=6, mtime=0)
    path.write_bytes(data)


def _settings(pipe: Any, grids: dict[str, list[int]]) -> dict[str, Any]:
    """Return what the demo's scripts need to know of the model, and how heat is drawn."""
    import numpy as np

    from heedmap import tiny
    from heedmap.backends import loading
    from heedmap.figures import overlays

    defaults = tiny.defaults()
    scheduler = pipe.scheduler
    scheduler.set_timesteps(defaults.steps)
    timesteps = scheduler.timesteps.tolist()
    alphas = scheduler.alphas_cumprod[timesteps].tolist()
    ramp = overlays.colour(np.linspace(0, 1, 256)[None])
    return {
        "timesteps": timesteps,
        "alphas": [*alphas, float(scheduler.final_alpha_cumprod)],
        "guidance": defaults.guidance,
        "side": defaults.size[0],
        "latent": _latent(pipe),
        "limit": pipe.tokenizer.model_max_length,
        "grids": grids,
        "vocabulary": list(loading.model_card().vocabulary or ()),
        "look": {
            "colours": ramp.ravel().tolist(),
            "opacity": overlays.OPACITY,
            "light": overlays.LIGHT,
            "grey": overlays.GREY,
        },
    }


def _latent(pipe: Any) -> list[int]:
    """Return the (C, h, w) of the model's latent."""
    side = pipe.unet.config.sample_size
    return [pipe.unet.config.in_channels, side, side]


# --- export ---------------------------------------------------------------------------------------


class HalfPrecision(nn.Module):
    """A module that computes in float32, with weights of float16 as the model's files have them."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.names = [name for name, _ in module.named_parameters()]
        self.weights = nn.ParameterList(_halved(value) for value in module.parameters())
        self.module = [module]  # in a list its own weights are none of this module's

    def forward(self, *inputs: Tensor) -> Any:
        weights = [weight.float() for weight in self.weights]
        named = dict(zip(self.names, weights, strict=True))
        return torch.func.functional_call(self.module[0], named, inputs)


class TextEncoder(nn.Module):
    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, ids: Tensor) -> Tensor:
        """Return the encoded text (B, K, C) of ids (B, K)."""
        return self.encoder(ids).last_hidden_state


class Denoiser(nn.Module):
    """The UNet for both branches of guidance, with the attention of the prompt's to the text."""

    def __init__(self, unet: Any) -> None:
        super().__init__()
        from diffusers.models.attention_processor import AttnProcessor

        unet.set_attn_processor(AttnProcessor())  # the one that computes probabilities
        self.unet = unet
        self.probabilities: list[Tensor] = []
        for name, layer in unet.named_modules():
            if name.endswith(".attn2"):
                self._watch(layer)

    def _watch(self, layer: Any) -> None:
        compute = layer.get_attention_scores

        def watched(*inputs: Any) -> Tensor:
            self.probabilities.append(compute(*inputs))
            return self.probabilities[-1]

        layer.get_attention_scores = watched

    def forward(self, latents: Tensor, timestep: Tensor, text: Tensor) -> tuple[Tensor, ...]:
        """Return the prediction, and for each grid the attention to each token.

        Args:
            latents: (1, C, h, w).
            timestep: (1,).
            text: (2, K, C), the negative prompt's and the prompt's.

        Returns:
            the prediction (2, C, h, w); for each grid of cross-attention layers (K, Q), the sum of
            their means over heads, divided by the number of all layers.
        """
        self.probabilities.clear()
        prediction = self.unet(torch.cat([latents, latents]), timestep, text).sample
        sums: dict[int, Tensor] = {}
        for p in self.probabilities:  # (2·H, Q, K)
            _, of_prompt = p.chunk(2)
            mean = of_prompt.mean(dim=0).T / len(self.probabilities)
            positions = mean.shape[1]
            sums[positions] = sums[positions] + mean if positions in sums else mean
        return prediction, *sums.values()


def _halved(value: Tensor) -> nn.Parameter:
    """Return a weight in float16, which must be what it is in float32."""
    half = value.detach().half()
    if not torch.equal(half.float(), value):
        raise ValueError("float16 does not hold a weight of the embedded model exactly")
    return nn.Parameter(half, requires_grad=False)


def _write_models(folder: Path, pipe: Any) -> dict[str, list[int]]:
    """Write the three models; return the (h, w) of the grids by the names of the UNet's outputs."""
    ids = torch.zeros(2, pipe.tokenizer.model_max_length, dtype=torch.int64)
    latents = torch.zeros(1, *_latent(pipe))
    timestep = torch.ones(1)
    text = TextEncoder(pipe.text_encoder)
    unet = Denoiser(pipe.unet)
    decoder = nn.Sequential(pipe.vae.post_quant_conv, pipe.vae.decoder)  # latents are not scaled
    with torch.no_grad():
        encoded = text(ids)
        _, *attention = unet(latents, timestep, encoded)
        sides = [math.isqrt(grid.shape[1]) for grid in attention]
        grids = {f"attention_{side}": [side, side] for side in sides}
        _export(folder, "text", text, {"ids": ids}, ["text"])
        inputs = {"latents": latents, "timestep": timestep, "text": encoded}
        _export(folder, "unet", unet, inputs, ["velocity", *grids])
        _export(folder, "decoder", decoder, {"latents": latents}, ["image"])
    return grids


def _export(
    folder: Path, name: str, module: nn.Module, inputs: dict[str, Tensor], outputs: list[str]
) -> None:
    """Write a model as `<name>.onnx.gz`, for inputs of these shapes."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it misses torchvision
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        program = torch.onnx.export(
            HalfPrecision(module).eval(),
            tuple(inputs.values()),
            input_names=list(inputs),
            output_names=outputs,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    for node in program.model.graph:
        node.metadata_props.clear()  # where on this machine the code of each node is
    _put(folder / f"{name}.onnx.gz", program.model_proto.SerializeToString())
