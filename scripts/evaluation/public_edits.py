"""Edits of the images of PIE-Bench, by its own metrics.

PIE-Bench (Ju et al., *PnP Inversion*, ICLR 2024, arXiv 2310.01506) has 700 images of 512×512 pixels
with a prompt, an edited prompt, and a mask of what may change. Its folder holds `mapping_file.json`
and `annotation_images/`. Each image is edited by `edit(…, image=)`.

As in the benchmark's own evaluation, PSNR, LPIPS, MSE and SSIM compare both images with the mask
blackened, and the structure distance (Tumanyan et al., CVPR 2022) compares the whole images: the
mean squared difference of the cosine similarities between the keys of the last layer of a DINO ViT.
The printed units are the paper's. LPIPS needs the package `lpips`, the structure distance the
model; what is missing is left out.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from skimage.metrics import structural_similarity

import heedmap
from evaluation.measures import Figures, mean
from evaluation.obedience import Progress

DINO = "facebook/dino-vitb8"
"""The model of the structure distance."""
UNITS = {"structure": 1e3, "psnr_db": 1.0, "lpips": 1e3, "mse": 1e4, "ssim": 1e2}
"""What each metric is multiplied by in the paper's tables."""
PUBLISHED = {
    "DDIM inversion, prompt-to-prompt": (69.43, 17.87, 208.80, 219.88, 71.14),
    "null-text inversion, prompt-to-prompt": (13.44, 27.03, 60.67, 35.86, 84.11),
    "PnP inversion, prompt-to-prompt": (11.65, 27.22, 54.55, 32.86, 84.76),
}
"""The metrics of UNITS with Stable Diffusion 1.4: table 1 of PnP Inversion (arXiv 2310.01506)."""
Metric = Callable[[Image.Image, Image.Image], float]
"""A function of two images of one size."""


@dataclass(frozen=True)
class Case:
    """An edit of the benchmark.

    Attributes:
        image: path of the source image.
        source: its prompt.
        target: the edited prompt.
        mask: bool (H, W), True where the image may change.
        kind: the number of the kind of edit, "0" to "9".
    """

    image: Path
    source: str
    target: str
    mask: np.ndarray
    kind: str


def read(folder: Path) -> Iterator[Case]:
    """Yield the edits of PIE-Bench; raise SystemExit if the folder is of another layout."""
    listed = folder / "mapping_file.json"
    if not listed.is_file():
        raise SystemExit(f"{listed} is missing: expected the folder of PIE-Bench")
    for entry in json.loads(listed.read_text(encoding="utf-8")).values():
        image = folder / "annotation_images" / entry["image_path"]
        with Image.open(image) as file:
            width, height = file.size
        yield Case(
            image=image,
            source=_plain(entry["original_prompt"]),
            target=_plain(entry["editing_prompt"]),
            mask=decode_mask(entry["mask"], (height, width)),
            kind=str(entry["editing_type_id"]),
        )


def _plain(prompt: str) -> str:
    """Return a prompt without the brackets around what changes."""
    return prompt.replace("[", "").replace("]", "")


def decode_mask(runs: list[int], shape: tuple[int, int]) -> np.ndarray:
    """Return a mask of the benchmark.

    Args:
        runs: a start and a length in turn, in the pixels row by row.
        shape: (H, W).

    Returns:
        bool (H, W). As in the benchmark's own code, the image's border counts as changed.
    """
    flat = np.zeros(shape[0] * shape[1], bool)
    for start, length in zip(runs[::2], runs[1::2], strict=True):
        flat[start : start + length] = True
    mask = flat.reshape(shape)
    mask[[0, -1], :] = True
    mask[:, [0, -1]] = True
    return mask


def compare(source: Image.Image, edited: Image.Image, mask: np.ndarray) -> Figures:
    """Return PSNR, MSE and SSIM of two images outside of a mask; None where nothing is outside."""
    if mask.all():
        return dict.fromkeys(("psnr_db", "mse", "ssim"))
    a, b = (np.asarray(blackened(one, mask)) / 255 for one in (source, edited))
    mse = float(((a - b) ** 2).mean())
    ssim: Any = structural_similarity(
        a, b, data_range=1, channel_axis=2,
        gaussian_weights=True, sigma=1.5, use_sample_covariance=False,
    )  # fmt: skip
    psnr = None if mse == 0 else float(-10 * np.log10(mse))
    return {"psnr_db": psnr, "mse": mse, "ssim": float(ssim)}


def blackened(image: Image.Image, mask: np.ndarray) -> Image.Image:
    """Return an image with a mask (H, W) in black."""
    pixels = np.array(image.convert("RGB"))
    pixels[mask] = 0
    return Image.fromarray(pixels)


def structure_distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the distance of two images' structures.

    Args:
        a: keys of one image, (tokens, channels).
        b: keys of the other, of the same shape.

    Returns:
        The mean squared difference of the cosine similarities of all pairs of tokens.
    """
    unit = [torch.nn.functional.normalize(keys.double(), dim=-1) for keys in (a, b)]
    similarities = [keys @ keys.T for keys in unit]
    return float((similarities[0] - similarities[1]).square().mean())


def last_keys(model: torch.nn.Module, image: Image.Image) -> torch.Tensor:
    """Return the keys of a ViT's last layer, (tokens, channels), for an image at 224×224 pixels."""
    projections = [
        module
        for name, module in model.named_modules()
        if name.rpartition(".")[2] in ("key", "k_proj")
    ]
    kept: list[torch.Tensor] = []
    hook = projections[-1].register_forward_hook(lambda _, __, keys: kept.append(keys[0]))
    small = image.convert("RGB").resize((224, 224), Image.Resampling.BILINEAR)
    pixels = torch.tensor(np.asarray(small)).float().permute(2, 0, 1) / 255
    average = torch.tensor((0.485, 0.456, 0.406))[:, None, None]
    spread = torch.tensor((0.229, 0.224, 0.225))[:, None, None]
    try:
        with torch.no_grad():
            model((pixels - average)[None] / spread)
    finally:
        hook.remove()
    return kept[0]


def other_metrics() -> dict[str, Metric]:
    """Return the metrics that need a model: those that can be loaded here."""
    found: dict[str, Metric] = {}
    try:
        import lpips  # pyright: ignore[reportMissingImports]

        network = lpips.LPIPS(net="squeeze", verbose=False)
        found["lpips"] = lambda a, b: float(network(_signed(a), _signed(b)))
    except ModuleNotFoundError:
        pass
    try:
        from transformers import ViTModel

        model: Any = ViTModel.from_pretrained(DINO, add_pooling_layer=False)
        found["structure"] = lambda a, b: structure_distance(
            last_keys(model, a), last_keys(model, b)
        )
    except OSError:  # not here, and no network
        pass
    return found


def _signed(image: Image.Image) -> torch.Tensor:
    """Return an image as (1, 3, H, W), -1 to 1."""
    return torch.tensor(np.asarray(image)).float().permute(2, 0, 1)[None] / 127.5 - 1


def measure(
    pipe: Any,
    cases: list[Case],
    seed: int,
    progress: Progress,
    metrics: dict[str, Metric] | None = None,
    **how: Any,
) -> Figures:
    """Edit the image of each case, and compare.

    Args:
        pipe: the pipeline.
        cases: the edits.
        seed: of the noise.
        progress: called with how far it is.
        metrics: those that need models, "lpips" and "structure"; by default all that can be loaded.
        **how: arguments of `edit`.

    Returns:
        The mean of each metric in its own unit, and the number of edits.
    """
    if metrics is None:
        metrics = other_metrics()
    rows: list[Figures] = []
    for number, case in enumerate(cases, 1):
        result = heedmap.edit(pipe, case.source, case.target, image=case.image, seed=seed, **how)
        with Image.open(case.image) as file:
            source = file.convert("RGB")
        edited = result.edited.image.resize(source.size)
        row = compare(source, edited, case.mask)
        if "structure" in metrics:
            row["structure"] = metrics["structure"](source, edited)
        if "lpips" in metrics and not case.mask.all():
            outside = [blackened(one, case.mask) for one in (source, edited)]
            row["lpips"] = metrics["lpips"](*outside)
        rows.append(row)
        progress("edits", number, len(cases))
    figures: Figures = {}
    for name in UNITS:
        values = [row[name] for row in rows if row.get(name) is not None]
        figures[name] = mean(values)
    return {**figures, "edits": len(rows)}


def table(figures: Figures) -> str:
    """Return the figures beside the published ones, in the paper's units, as Markdown."""
    heads = "structure distance · 10³ | PSNR (dB) | LPIPS · 10³ | MSE · 10⁴ | SSIM · 10²"
    lines = [f"| | {heads} |", "| --- | --- | --- | --- | --- | --- |"]
    own = [figures[name] for name in UNITS]
    scaled = [v if v is None else v * unit for v, unit in zip(own, UNITS.values(), strict=True)]
    cells = " | ".join("–" if value is None else f"{value:.2f}" for value in scaled)
    lines.append(f"| heedmap, {figures['edits']} edits | {cells} |")
    for name, values in PUBLISHED.items():
        cells = " | ".join(f"{value:.2f}" for value in values)
        lines.append(f"| {name} (published: arXiv 2310.01506, table 1) | {cells} |")
    return "\n".join(lines)
