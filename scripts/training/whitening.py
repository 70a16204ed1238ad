"""Latents as diffusion wants them: uncorrelated channels of unit variance, no noise of their own.

Trained latents are correlated and of any scale. A linear map makes them white and its inverse leads
back; both fit into the 1x1 convolutions that an AutoencoderKL has around its latents, so nothing is
added to the model and its pictures stay the same.
"""

from collections.abc import Iterable

import torch
from diffusers import AutoencoderKL

from training.models import latents_of

EPSILON = 1e-4
"""Added to the latents' deviations where training divides by them, which whitening has to know."""
LOG_VARIANCE = -20.0
"""What the encoder says of its own noise afterwards: it has none to speak of."""


@torch.no_grad()
def whiten(vae: AutoencoderKL, statistics: torch.Tensor, pictures: Iterable[torch.Tensor]) -> None:
    """Fold into the quant convolutions that latents come out uncorrelated, with unit variance.

    Args:
        vae: its decoder takes latents less the mean, over the deviation, of `statistics`;
            afterwards `vae.decode(z)` takes what `vae.encode` gives.
        statistics: (2, 4), mean and deviation of each channel that the decoder was trained with.
        pictures: batches (B, 3, h, w) that the latents' covariance is measured on.
    """
    quant, post = vae.quant_conv, vae.post_quant_conv
    assert quant is not None and post is not None and quant.bias is not None
    assert post.bias is not None
    z = torch.cat(
        [latents_of(vae, x).permute(0, 2, 3, 1).reshape(-1, 4).double() for x in pictures]
    )
    mean = z.mean(0)
    values, directions = torch.linalg.eigh(torch.cov(z.T))
    forward = torch.diag(values.rsqrt()) @ directions.T  # white = forward (z - mean)
    weight, bias = quant.weight[:4, :, 0, 0].double(), quant.bias[:4].double()
    quant.weight.zero_()
    quant.weight[:4, :, 0, 0] = (forward @ weight).float()
    quant.bias[:4] = (forward @ (bias - mean)).float()
    quant.bias[4:] = LOG_VARIANCE
    # z = back white + mean, and the decoder wants (z - running mean) / running deviation.
    back = torch.linalg.inv(forward)
    running, deviation = statistics.double()
    scale = 1 / (deviation + EPSILON)
    post_weight, post_bias = post.weight[:, :, 0, 0].double(), post.bias.double()
    post.weight[:, :, 0, 0] = (post_weight @ torch.diag(scale) @ back).float()
    post.bias.copy_((post_weight @ (scale * (mean - running)) + post_bias).float())
