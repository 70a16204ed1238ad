"""Gradient descent as all stages do it: Muon, a rate that falls over the minutes, averaged weights.

The rate follows the clock, not a count of steps, so that a call leaves a finished model after the
minutes it was given, however fast the machine is.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ParamSpec

import torch
from torch import nn

from training.muon import Muon
from training.run import Run

P = ParamSpec("P")
ALIKE = 0.9
"""The cosine that compiled and plain gradients of a matrix have at least; bfloat16 gives 0.99."""
NOISE = 1e-4
"""Of the largest gradient's norm: of a smaller one bfloat16 leaves little but rounding."""
REST_RATE = 1e-3
"""Learning rate of what Muon does not serve, in all stages."""


def falling_rate(fraction: float, step: int, hold: float = 0.4) -> float:
    """The learning rate's factor: 40 steps of warm-up, level until `hold`, then down to 2 %."""
    fall = 1 - 0.98 * max(0.0, (min(fraction, 1.0) - hold) / (1 - hold))
    return min(1.0, (step + 1) / 40) * fall


def make_optimiser(module: nn.Module, lr: float, plain: tuple[str, ...]) -> Muon:
    """Muon at `lr` for weights of two or more dimensions; AdamW for vectors and `plain` names.

    Args:
        module: parameters that take no gradient now are left out.
        lr: the first and full learning rate of the matrices.
        plain: parts of names. Muon is for hidden layers; the first, the last and the embeddings
            do better without it (Jordan et al., 2024).
    """
    matrices, rest = [], []
    for name, p in module.named_parameters():
        if p.requires_grad:
            matrix = p.ndim >= 2 and not any(part in name for part in plain)
            (matrices if matrix else rest).append(p)
    return Muon(matrices, rest, lr=lr, rest_lr=REST_RATE)


def resume(optimiser: Muon, state: dict) -> None:
    """Take up a checkpoint's momenta, but keep the rates that this call was given."""
    rates = [group["initial_lr"] for group in optimiser.param_groups]
    optimiser.load_state_dict(state)
    for group, rate in zip(optimiser.param_groups, rates, strict=True):
        group["initial_lr"] = rate


class Descent:
    """The steps that one call of a stage makes.

    `steps`: how many were made. `done`: the share of the call's minutes that is over; the call ends
    when it reaches 1.
    """

    def __init__(
        self, run: Run, optimiser: Muon, parameters: list[nn.Parameter], hold: float = 0.4
    ) -> None:
        self.run, self.optimiser, self.parameters, self.hold = run, optimiser, parameters, hold
        self.steps, self.done = 0, 0.0

    def checked(
        self, function: Callable[P, torch.Tensor], *args: P.args, **kwargs: P.kwargs
    ) -> torch.Tensor:
        """The loss that `function` gives; the first only if its gradients are those of plain code.

        A compiler has lost gradients on CPUs more than once, and a model whose lower layers stand
        still goes on learning a little: the loss alone does not tell.

        Args:
            function: of `Run.compiled`.
            args: its arguments.
            kwargs: its arguments by name.
        """
        plain = getattr(function, "__wrapped__", None)
        if self.steps == 0 and plain is not None:
            matrices = [p for p in self.parameters if p.ndim >= 2]
            found, wanted = (
                torch.autograd.grad(one(*args, **kwargs), matrices, allow_unused=True)
                for one in (function, plain)
            )
            if lost := differing(found, wanted):
                sys.exit(
                    f"{len(lost)} of {len(matrices)} matrices get other gradients when the loss is "
                    "compiled: use --no-compile, or compile less of it"
                )
        return function(*args, **kwargs)

    def step(self, loss: torch.Tensor) -> float:
        """One step down the loss of all processes; gives the norm of its gradients."""
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        norm = self.run.share_gradients(self.parameters, clip=1.0)
        if self.steps == 1:
            self.run.restart_clock()  # the first step was spent on compiling
        self.done = self.run.fraction()
        factor = falling_rate(self.done, self.steps, self.hold)
        for group in self.optimiser.param_groups:
            group["lr"] = group["initial_lr"] * factor
        self.optimiser.step()
        self.steps += 1
        return norm


def differing(
    some: Sequence[torch.Tensor | None], others: Sequence[torch.Tensor | None]
) -> list[int]:
    """The places at which two lists of gradients are not `ALIKE`, but for those that are noise."""
    pairs = [
        tuple(torch.zeros(1) if g is None else g.detach().double().flatten() for g in pair)
        for pair in zip(some, others, strict=True)
    ]
    noise = NOISE * max((float(g.norm()) for pair in pairs for g in pair), default=0.0)
    return [
        number
        for number, (a, b) in enumerate(pairs)
        if max(a.norm(), b.norm()) > noise
        and (a.shape != b.shape or float(a @ b) < ALIKE * float(a.norm() * b.norm()))
    ]


class Average:
    """An exponential moving average of parameters, faster while it is young."""

    def __init__(self, parameters: list[nn.Parameter], decay: float) -> None:
        self.decay, self.count = decay, 0
        self.parameters = parameters
        self.values = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def update(self) -> None:
        """Take in the parameters as they are now."""
        self.count += 1
        decay = min(self.decay, (1 + self.count) / (10 + self.count))
        torch._foreach_lerp_(self.values, [p.detach() for p in self.parameters], 1 - decay)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the averages with the parameters (twice is as before)."""
        for p, value in zip(self.parameters, self.values, strict=True):
            old = p.detach().clone()
            p.copy_(value)
            value.copy_(old)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The parameters are the averages inside of the block."""
        self.swap()
        try:
            yield
        finally:
            self.swap()

    def state_dict(self) -> dict:
        return {"count": self.count, "values": self.values}

    def load_state_dict(self, state: dict) -> None:
        self.count = state["count"]
        for mine, theirs in zip(self.values, state["values"], strict=True):
            mine.copy_(theirs)
