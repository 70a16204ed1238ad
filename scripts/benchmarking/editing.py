"""What an edit costs beside plain generation of as many pictures, in CPU time.

A run has three phases: both attentions are taken from the source, then the cross-attention alone,
then none. Each is replayed by itself, so that its median is that of one thing, and the run is made
of them as the default windows say. Recording is on in all of them, as it is in `heedmap.edit`.

The peer "original" is the method of prompt-to-prompt in its shortest form: an explicit softmax in
every layer, self-attention included, and edited probabilities put in the place of plain ones.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from diffusers.models.attention_processor import AttnProcessor
from rich.console import Console
from rich.table import Table

from benchmarking.replay import (
    PROMPT,
    SETTING,
    Call,
    Figures,
    Turns,
    attention_layers,
    cpu_seconds,
    quartiles,
    random_pipeline,
    replayer,
    run,
    take_down,
)
from heedmap.backends.prompts import prompt_table
from heedmap.mathematics.rules import Inject, Weights
from heedmap.recording.controller import Steering
from heedmap.recording.tracing import Trace
from heedmap.text.alignment import pair_words
from heedmap.text.token_mapping import token_shares

CROSS, SELF = 0.8, 0.4  # the windows that `heedmap.edit` has by itself
PHASES = {"both": SELF, "cross": CROSS - SELF, "none": 1 - CROSS}
"""Shares of a run: which attention is taken from the source."""
SELF_CELLS = 32**2
TARGETS = tuple(PROMPT.replace("house", noun) for noun in ("boat", "castle", "church"))
BAR = 1.05
Editor = Callable[[Any, Sequence[str], str], AbstractContextManager[Any]]


# --- editors: opened on a pipeline, all prompts but the first take from the first -----------------


def columns(pipe: Any, source: str, target: str) -> torch.Tensor:
    """M (K source, K target) of a swap."""
    tables = prompt_table(pipe, source), prompt_table(pipe, target)
    matrix = torch.zeros(*(len(table.tokens) for table in tables))
    for w, n, part in token_shares(*tables, pair_words(*tables)):
        matrix[w, n] = part
    return matrix


def steering(pipe: Any, prompts: Sequence[str], phase: str) -> Steering:
    """What `heedmap.edit` does in a phase, from the first step to the last."""
    rules = {}
    for number, target in enumerate(prompts[1:], 1):
        matrix = columns(pipe, prompts[0], target)
        start = torch.zeros(len(matrix.T))
        rules[number] = [Inject(matrix, start, start + (phase != "none"))]
    own = dict.fromkeys(rules, (0.0, float(phase == "both")))
    return Steering(rules, dict.fromkeys(rules, 0), own, SELF_CELLS)


def heedmap_edit(pipe: Any, prompts: Sequence[str], phase: str) -> AbstractContextManager[Any]:
    """Recorded as in `heedmap.edit`."""
    return Trace(pipe, steering=steering(pipe, prompts, phase))


@contextmanager
def original(pipe: Any, prompts: Sequence[str], phase: str) -> Iterator[None]:
    """Prompt-to-prompt's way: probabilities (B·H, Q, K) of all layers are made and edited."""
    matrices = torch.stack([columns(pipe, prompts[0], target) for target in prompts[1:]])

    def edited(layer: Any, compute: Callable[..., torch.Tensor], *args: Any) -> torch.Tensor:
        p = compute(*args)
        # (branch, image, head, Q, K), the conditional branch last.
        images = p.unflatten(0, (2, len(prompts), layer.heads))[1]
        if layer.is_cross_attention and phase != "none":
            images[1:] = torch.einsum("hqw,bwn->bhqn", images[0], matrices.to(p))
        elif not layer.is_cross_attention and phase == "both" and p.shape[1] <= SELF_CELLS:
            images[1:] = images[0]
        return p

    for layer in attention_layers(pipe.unet, cross_only=False).values():
        layer.set_processor(AttnProcessor())
        layer.get_attention_scores = partial(edited, layer, layer.get_attention_scores)
    yield


# --- the figures ------------------------------------------------------------------------------


def extra_s(
    pipe: Any, calls: dict[str, Call], editor: Editor, prompts: Sequence[str], phase: str,
    names: Sequence[str], rounds: int,
) -> list[float]:  # fmt: skip
    """How much longer the layers of one UNet call take with an edit: a number for each pair."""
    print(
        f"{time.strftime('%H:%M:%S')} {len(prompts)} prompts, {phase}", file=sys.stderr, flush=True
    )
    bare, changed = (replayer(pipe, calls, names) for _ in range(2))
    turns = Turns(bare, changed, calls[""])
    with editor(changed, prompts, phase):
        run(changed, 1 + rounds, turns, prompts)
    return turns.extra_s


def ratio(
    pipe: Any, calls: dict[str, Call], editor: Editor, prompts: Sequence[str], rounds: int,
    forward_s: float, *, large: bool,
) -> Figures:  # fmt: skip
    """How long a run takes with an edit, by a plain one of as many prompts.

    `large`: whether layers of more than `SELF_CELLS` cells that attend to themselves are replayed
    too. They are slow, and heedmap leaves them alone.
    """
    names = [
        name for name, layer in attention_layers(pipe.unet, cross_only=False).items()
        if large or layer.is_cross_attention or calls[name].output.shape[1] <= SELF_CELLS
    ]  # fmt: skip
    extra = {
        phase: quartiles(
            extra_s(pipe, calls, editor, prompts, phase, names, rounds), 100 / forward_s
        )
        for phase in PHASES
    }
    middle = sum(part * extra[phase][1] for phase, part in PHASES.items())
    return {"ratio": round(1 + middle / 100, 4), "extra_percent": extra}


def no_op(pipe: Any, steps: int = 2) -> float:
    """How far an edit that changes nothing strays: by the range of the plain latents.

    The prompt is replaced by itself and all its weights are 1, in float32.
    """
    pipe.to(torch.float32)
    prompts = [PROMPT, PROMPT]
    plain = run(pipe, steps, prompts=prompts)
    same = steering(pipe, prompts, "both")
    ones = Weights(torch.ones(len(prompt_table(pipe, PROMPT).tokens)))
    rules = {number: [*those, ones] for number, those in same.rules.items()}
    with Trace(pipe, steering=Steering(rules, same.sources, same.self_windows)):
        edited = run(pipe, steps, prompts=prompts)
    return float((edited - plain).abs().max() / (plain.max() - plain.min()))


@torch.no_grad()
def edit(options: argparse.Namespace) -> Figures:
    """What edits cost on the CPU."""
    pipe = random_pipeline(options)
    found: dict[str, Figures] = {}
    forwards: dict[str, list[float]] = {}
    for name, prompts in (("pair", (PROMPT, TARGETS[0])), ("several", (PROMPT, *TARGETS))):
        calls = take_down(pipe, prompts)
        forward = partial(pipe.unet, *calls[""].args, **calls[""].kwargs)
        forwards[name] = [cpu_seconds(forward) for _ in range(2)]
        part = pipe, calls, heedmap_edit, prompts, options.rounds
        found[name] = ratio(*part, min(forwards[name]), large=False)
        forwards[name].append(cpu_seconds(forward))
        if name == "pair" and options.peers:
            # So slow, and so far from the bar, that fewer rounds tell it.
            part = pipe, calls, original, prompts, max(2, options.rounds // 4)
            found["original"] = ratio(*part, min(forwards[name]), large=True)
    return {
        "pair_over_batch_of_two": found["pair"]["ratio"],
        "n_edits_over_n_plus_one": found["several"]["ratio"],
        "n": len(TARGETS),
        "no_op": no_op(pipe),
        "peers": {
            name: {"pair_over_batch_of_two": found[name]["ratio"]}
            for name in ("original",)
            if name in found
        },
        "spread": {
            "extra_percent": {name: row["extra_percent"] for name, row in found.items()},
            "forward_s": {n: [round(s, 3) for s in seconds] for n, seconds in forwards.items()},
        },
        "setting": {name: getattr(options, name) for name in (*SETTING, "rounds")}
        | {"parameters": pipe.unet.num_parameters(), "torch": torch.__version__}
        | {"cross": CROSS, "self": SELF},
    }


def report(figures: Figures) -> None:
    """Print what `edit` measured as a table."""
    table = Table(title=", ".join(f"{name} {v}" for name, v in figures["setting"].items()))
    table.add_column("edit")
    for column in ("of plain", "bar", *(f"more in phase {phase}" for phase in PHASES)):
        table.add_column(column, justify="right")
    rows: list[tuple[str, str, float, float | None]] = [
        ("pair", "a pair", figures["pair_over_batch_of_two"], BAR),
        ("several", f"{figures['n']} of one source", figures["n_edits_over_n_plus_one"], BAR),
    ]
    if "original" in figures["peers"]:
        peer = figures["peers"]["original"]["pair_over_batch_of_two"]
        rows.append(("original", "a pair, as the original does it", peer, None))
    for name, label, value, bar in rows:
        spread = figures["spread"]["extra_percent"][name]
        phases = [f"{m:.2f} % ({low:.2f} to {high:.2f})" for low, m, high in spread.values()]
        table.add_row(label, f"{value:.3f}", f"{bar}" if bar else "", *phases)
    console = Console(highlight=False, width=130)
    console.print(table)
    console.print(f"an edit that changes nothing strays by {figures['no_op']:.2g} of the range")
