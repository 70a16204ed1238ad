"""Muon, an optimiser that orthogonalises the momentum of every matrix (Jordan et al., 2024).

Plain AdamW serves the rest (embeddings, first and last convolutions, vectors). With several
processes each orthogonalises its share of the matrices and the shares are exchanged, so the cost of
the Newton-Schulz steps is divided by the number of processes.
"""

import math
from collections import defaultdict
from collections.abc import Iterable

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
        by_shape: dict[tuple[int, int], list[torch.nn.Parameter]] = defaultdict(list)
        for p in group["params"]:
            if p.grad is not None:
                by_shape[(p.shape[0], p[0].numel())].append(p)
        world = dist.get_world_size() if dist.is_initialized() else 1
        rank = dist.get_rank() if dist.is_initialized() else 0
        mine: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
        costs = [0.0] * world
        owners: list[tuple[int, torch.nn.Parameter]] = []
        for (rows, columns), members in sorted(by_shape.items(), key=lambda kv: kv[0]):
            cost = float(min(rows, columns) ** 2 * max(rows, columns))
            share: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
            for p in members:
                assert p.grad is not None
                owner = costs.index(min(costs))
                costs[owner] += cost
                owners.append((owner, p))
                state = self.state[p]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(p)
                state["momentum"].lerp_(p.grad, 1 - group["momentum"])
                if owner == rank:
                    ahead = torch.lerp(p.grad, state["momentum"], group["momentum"])
                    share.append((p, ahead.reshape(rows, columns)))
            if share:
                updates = orthogonalise(torch.stack([u for _, u in share]))
                mine += [(p, u) for (p, _), u in zip(share, updates, strict=True)]
        found = {id(p): u for p, u in mine}
        for owner in range(world):
            owned = [p for o, p in owners if o == owner]
            if not owned:  # more processes than matrices
                continue
            if owner == rank:
                flat = torch.cat([found[id(p)].reshape(-1) for p in owned])
            else:
                flat = torch.empty(sum(p.numel() for p in owned), device=owned[0].device)
            if world > 1:
                dist.broadcast(flat, src=owner)
            at = 0
            for p in owned:
                update = flat[at : at + p.numel()].view_as(p)
                at += p.numel()
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"] * 0.2 * math.sqrt(max(p.shape[0], p[0].numel())))

    def _adamw(self, group: dict) -> None:
        beta1, beta2 = 0.9, 0.98
        for p in group["params"]:
            if p.grad is None:
                continue
            state = self.state[p]
            if "step" not in state:
                state.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
            state["step"] += 1
            state["m"].lerp_(p.grad, 1 - beta1)
            state["v"].lerp_(p.grad.square(), 1 - beta2)
            m = state["m"] / (1 - beta1 ** state["step"])
            v = state["v"] / (1 - beta2 ** state["step"])
            p.add_(m / (v.sqrt() + 1e-8), alpha=-group["lr"])
