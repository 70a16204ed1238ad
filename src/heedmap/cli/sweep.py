"""`heedmap sweep`: many jobs, one table."""

import os
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

import heedmap as hm
from heedmap.cli.console import EMBEDDED, Task, command, parsed
from heedmap.errors import plural
from heedmap.parsing import parse_shard

_JOBS = "Jobs: .jsonl, or .toml lists to combine."
_OUT = "A new folder, or that of this sweep to continue."
_BATCH = "Most images at once; equal up to rounding to single ones."
_MASKS = "Also save all masks as a COCO data set, in OUT/masks."
_SHARD = "Run part I of N, from 1, as in a SLURM array."


@command(model=EMBEDDED, out="required", without="open_")
def sweep(
    task: Task,
    jobs: Annotated[Path, typer.Argument(metavar="JOBS", help=_JOBS)],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help=_OUT)],
    batch: Annotated[int, typer.Option(min=1, help=_BATCH)] = 1,
    no_page: Annotated[
        bool, typer.Option("--no-page", help="Save no pages, sheets and overlays.")
    ] = False,
    masks: Annotated[bool, typer.Option("--masks", help=_MASKS)] = False,
    shard: Annotated[Any, parsed(parse_shard, "I/N", _SHARD)] = None,
) -> None:
    """Run the jobs of a file, and write a table of their results.

    The table is results.parquet. A job is a call of generate, edit or locate: {"task": "generate",
    "prompt": "a cat", "seed": 7}. A sweep that is started again skips the jobs that are done. Under
    `accelerate launch` the processes share the jobs. The exit code is 1 if a job failed;
    failed.jsonl lists these.
    """
    # Of the processes that Accelerate launches.
    first = os.environ.get("RANK", "0") == "0"
    result = hm.sweep(
        jobs,
        out,
        model=task.model,
        device=task.device,
        dtype=task.dtype,
        batch=batch,
        pages=not no_page,
        shard=shard,
        show_progress=task.bars and first,
    )
    if not first:  # the launcher ends all processes if another one ends with an error
        return
    if masks and not result.pending:
        folder = out / "masks"
        shutil.rmtree(folder, ignore_errors=True)
        hm.dataset(out, folder, show_progress=task.bars)
    counts = {name: getattr(result, name) for name in ("done", "failed", "pending")}
    texts = [f"{count} {name}" for name, count in counts.items()]
    lines = [f"{plural(sum(counts.values()), 'job')}: {', '.join(texts)}."]
    if result.table.exists():
        lines.append(f"The table: {result.table}")
    data = {"folder": str(out), "table": str(result.table), **counts}
    task.finish(data, [out], lines, page="")
    if result.failed:
        raise typer.Exit(1)
