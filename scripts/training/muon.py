"""Muon, an optimiser that orthogonalises the momentum of every matrix (Jordan et al., 2024).

Plain AdamW serves the rest (embeddings, first and last convolutions, vectors). With several
processes each orthogonalises its share of the matrices and the shares are exchanged, so the cost of
the Newton-Schulz steps is divided by the number of processes.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import cast

import torch
import torch.distributed as dist


def orthogonalise(matrices: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """The nearest semi-orthogonal matrices, roughly: quintic Newton-Schulz steps in bfloat16.

    Args:
        matrices: (n, rows, columns), any scale.
        steps: five bring the singular values to about 0.7-1.2.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices.bfloat16()
    wide = x.shape[-2] > x.shape[-1]
    if wide:
        x = x.mT
    x = x / (x.float().norm(dim=(-2, -1), keepdim=True) + 1e-7).bfloat16()
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if wide else x).float()


class Muon(torch.optim.Optimizer):
    """Muon for the matrices, AdamW for the rest.

    Args:
        matrices: parameters of two or more dimensions (convolutions are flattened to matrices).
        rest: all the others.
        lr: learning rate of the matrices; the update has an RMS of about 0.2 (Liu et al., 2025).
        rest_lr: learning rate of the rest.
    """

    def __init__(
        self,
        matrices: Iterable[torch.nn.Parameter],
        rest: Iterable[torch.nn.Parameter],
        lr: float,
        rest_lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
    ) -> None:
        groups = [
            {"params": list(matrices), "lr": lr, "kind": "muon"},
            {"params": list(rest), "lr": rest_lr, "kind": "adamw"},
        ]
        super().__init__(groups, {"momentum": momentum, "weight_decay": weight_decay})
        for group in self.param_groups:
            group["initial_lr"] = group["lr"]  # the full rate, that schedules scale

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update from the gradients there are."""
        del closure
        for group in self.param_groups:
            (self._muon if group["kind"] == "muon" else self._adamw)(group)

    def _muon(self, group: dict) -> None:
        by_shape: dict[tuple[int, int], list[torch.Tensor]] = defaultdict(list)
        for p in group["params"]:
            if p.grad is not None:
                by_shape[(p.shape[0], p[0].numel())].append(p)
        world = dist.get_world_size() if dist.is_initialized() else 1
        rank = dist.get_rank() if dist.is_initialized() else 0
        updates: dict[torch.Tensor, torch.Tensor] = {}
        owned: list[list[torch.Tensor]] = [[] for _ in range(world)]
        costs = [0.0] * world
        for (rows, columns), members in sorted(by_shape.items(), key=lambda kv: kv[0]):
            grads = [cast(torch.Tensor, p.grad) for p in members]
            momenta = [self._state(p, "momentum") for p in members]
            torch._foreach_lerp_(momenta, grads, 1 - group["momentum"])
            ahead = torch._foreach_lerp(grads, momenta, group["momentum"])
            share: list[tuple[torch.Tensor, torch.Tensor]] = []
            for p, update in zip(members, ahead, strict=True):
                owner = costs.index(min(costs))
                costs[owner] += float(min(rows, columns) ** 2 * max(rows, columns))
                owned[owner].append(p)
                if owner == rank:
                    share.append((p, update.reshape(rows, columns)))
            if share:
                orthogonal = orthogonalise(torch.stack([u for _, u in share]))
                for (p, _), update in zip(share, orthogonal, strict=True):
                    updates[p] = update.view_as(p)
        if world > 1:
            for owner, matrices in enumerate(owned):
                _share(owner, matrices, updates)
        for (rows, columns), members in by_shape.items():
            scale = 0.2 * math.sqrt(max(rows, columns))
            torch._foreach_mul_(members, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(members, [updates[p] for p in members], alpha=-group["lr"] * scale)

    def _adamw(self, group: dict) -> None:
        beta1, beta2 = 0.9, 0.98
        parameters: list[torch.Tensor] = [p for p in group["params"] if p.grad is not None]
        if not parameters:
            return
        grads = [cast(torch.Tensor, p.grad) for p in parameters]
        group["steps"] = group.get("steps", 0) + 1
        means = [self._state(p, "m") for p in parameters]
        squares = [self._state(p, "v") for p in parameters]
        torch._foreach_lerp_(means, grads, 1 - beta1)
        torch._foreach_lerp_(squares, torch._foreach_mul(grads, grads), 1 - beta2)
        sizes = torch._foreach_sqrt(torch._foreach_div(squares, 1 - beta2 ** group["steps"]))
        torch._foreach_add_(sizes, 1e-8)
        rate = group["lr"] / (1 - beta1 ** group["steps"])
        torch._foreach_addcdiv_(parameters, means, sizes, value=-rate)

    def _state(self, p: torch.Tensor, name: str) -> torch.Tensor:
        """Return a parameter's state of that name, zeros at first."""
        if name not in self.state[p]:
            self.state[p][name] = torch.zeros_like(p)
        return self.state[p][name]


def _share(
    owner: int, matrices: list[torch.Tensor], updates: dict[torch.Tensor, torch.Tensor]
) -> None:
    """Send the updates of one process's matrices to all processes."""
    if not matrices:  # more processes than matrices
        return
    if owner == dist.get_rank():
        flat = torch.cat([updates[p].reshape(-1) for p in matrices])
    else:
        flat = torch.empty(sum(p.numel() for p in matrices), device=matrices[0].device)
    dist.broadcast(flat, src=owner)
    for p, part in zip(matrices, flat.split([p.numel() for p in matrices]), strict=True):
        updates[p] = part.view_as(p)
