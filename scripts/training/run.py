"""One process of a stage, and what it shares with the others: clock, gradients, log, checkpoint.

A stage is a function of a rank and the options. With `--processes 1` it is called, with more it is
spawned; it meets the other processes only through the `Run` that it begins with.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch
import torch._inductor.config
import torch.distributed as dist
from torch import nn

P = ParamSpec("P")
R = TypeVar("R")


class Run:
    """One process of a stage: its rank, its device, its clock, its log and its checkpoint."""

    def __init__(self, rank: int, options: argparse.Namespace) -> None:
        self.options = options
        self.rank, self.world = rank, options.processes
        self.work = Path(options.work)
        self.device = torch.device(options.device)
        if self.device.type == "cuda":
            self.device = torch.device("cuda", rank)
            torch.backends.cuda.matmul.allow_tf32 = True
            torch.backends.cudnn.allow_tf32 = True
        else:
            torch.set_num_threads(options.threads)
        if self.world > 1:
            os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
            os.environ.setdefault("MASTER_PORT", str(options.port))
            backend = "nccl" if self.device.type == "cuda" else "gloo"
            dist.init_process_group(backend, rank=rank, world_size=self.world)
        torch.manual_seed(options.seed * 1000 + rank)
        self.start = time.monotonic()
        self.seconds = options.minutes * 60.0

    # --- the clock

    def elapsed(self) -> float:
        """Seconds since the clock was started."""
        return time.monotonic() - self.start

    def restart_clock(self) -> None:
        """Start to count the minutes now (compilation is over)."""
        self.start = time.monotonic()

    def fraction(self) -> float:
        """The share of the minutes that is over, the same number in every process."""
        value = torch.tensor([self.elapsed() / self.seconds])
        if self.world > 1:
            value = value.to(self.device)
            dist.broadcast(value, src=0)
        return float(value)

    # --- the other processes

    def wait(self) -> None:
        """Wait until every process is here."""
        if self.world > 1:
            dist.barrier()

    def share_gradients(self, parameters: list[nn.Parameter], clip: float) -> float:
        """Average the gradients over the processes, clip them, and give their norm before."""
        grads = [p.grad for p in parameters if p.grad is not None]
        if self.world > 1:
            flat = torch.cat([g.reshape(-1) for g in grads])
            dist.all_reduce(flat)
            flat /= self.world
            at = 0
            for g in grads:
                g.copy_(flat[at : at + g.numel()].view_as(g))
                at += g.numel()
        return float(nn.utils.clip_grad_norm_(parameters, clip))

    # --- the machine

    def compiled(self, function: Callable[P, R]) -> Callable[P, R]:
        """`function` compiled for fixed shapes, unless that was switched off."""
        if not self.options.compile:
            return function
        # With channels-last convolutions inductor gave weight gradients of zero for bfloat16
        # convolutions on an AMD CPU (torch 2.13): every layer above the first such one stood still.
        torch._inductor.config.layout_optimization = False
        return torch.compile(function, dynamic=False)

    def autocast(self) -> torch.autocast:
        """bfloat16 matrix work."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.options.bf16)

    # --- files, written by the first process alone

    def log(self, **figures: object) -> None:
        """One line of figures, to the screen and to the stage's log file."""
        if self.rank == 0:
            line = " ".join(
                f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in figures.items()
            )
            line = f"{time.strftime('%H:%M:%S')} {line}"
            print(line, flush=True)
            with (self.work / f"{self.options.stage}.log").open("a") as file:
                file.write(line + "\n")

    def save(self, name: str, state: dict) -> None:
        """Write a checkpoint whole or not at all."""
        if self.rank == 0:
            partial = self.work / f"{name}.partial"
            torch.save(state, partial)
            partial.replace(self.work / f"{name}.pt")

    def load(self, name: str) -> dict | None:
        """The checkpoint of that name, or None; every process reads it."""
        path = self.work / f"{name}.pt"
        return torch.load(path, map_location=self.device) if path.exists() else None
