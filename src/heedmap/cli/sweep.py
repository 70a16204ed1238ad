"""`heedmap sweep`: many jobs, one table."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

import heedmap as hm
from heedmap.cli.console import (
    EMBEDDED,
    HelpCommand,
    Task,
    command,
    parsed,
    progress_bar,
    whole,
)
from heedmap.errors import HeedmapError, plural
from heedmap.parsing import parse_shard


class SweepCommand(HelpCommand):
    """The command, whose flag --ray may stand without an address."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments."""
        pairs = zip(args, [*args[1:], "-"], strict=True)
        alone = [
            one == "--ray" and following.startswith("-") for one, following in pairs
        ]
        args = [
            "--ray=local" if bare else one
            for one, bare in zip(args, alone, strict=True)
        ]
        return super().parse_args(ctx, args)


@command(model=EMBEDDED, out="required", without="open_")
def sweep(
    task: Task,
    jobs: Annotated[
        Path,
        typer.Argument(
            metavar="JOBS", help="Jobs: .jsonl, .csv, or .toml lists to combine."
        ),
    ],
    *,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="A new folder, or that of this sweep to continue."
        ),
    ],
    batch: Annotated[
        Any,
        whole("batch", "Most images at once; equal up to rounding to single ones.", 1),
    ] = 1,
    no_page: Annotated[
        bool, typer.Option("--no-page", help="Save no pages, sheets and overlays.")
    ] = False,
    shard: Annotated[
        Any, parsed(parse_shard, "I/N", "Run part I of N, from 1, as in a SLURM array.")
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="[ADDRESS]", help="Run on a Ray cluster. Default: this machine."
        ),
    ] = None,
    workers: Annotated[
        Any, whole("workers", "Ray's actors. Default: one for each GPU, or one.", 1)
    ] = None,
) -> None:
    """Run the jobs of a file, and write a table of their results.

    The table is results.parquet. A job is a call of generate, edit or locate: {"task": "generate",
    "prompt": "a cat", "seed": 7}. A sweep that is started again skips what is done. Under
    `accelerate launch` the processes share the jobs. The exit code is 1 if a job failed;
    failed.jsonl lists these.
    """
    # Of the processes that Accelerate launches.
    first = os.environ.get("RANK", "0") == "0"
    ended = ""

    def advance(done: int, total: int) -> None:
        nonlocal ended
        ended = f"{done} of {plural(total, 'job')} done"
        progress(done, total)

    try:
        with task.loading():
            from heedmap.sweeps import processes
        with progress_bar("Jobs", task.verbose and first, interval=60) as progress:
            result = processes.sweep(
                jobs,
                out,
                model=task.model,
                device=task.device,
                dtype=task.dtype,
                batch=batch,
                pages=not no_page,
                shard=shard,
                ray=ray,
                workers=workers,
                progress=advance,
            )
    except KeyboardInterrupt as error:
        if ended:
            raise KeyboardInterrupt(f"{ended}; the same command continues") from error
        raise
    except HeedmapError as error:
        if first:
            raise
        raise typer.Exit(2) from error
    if not first:  # the launcher ends all processes if another one ends with an error
        return
    table = None if result.pending else str(result.table)
    if task.verbose:
        typer.echo(f"{result.folder}: {plural(result.done, 'job')} done.")
        if result.failed:
            typer.echo(
                f"{result.failed} failed: {result.folder / 'failed.jsonl'} lists them."
            )
        left = f"{plural(result.pending, 'job')} left to other processes."
        typer.echo(f"The table: {table}" if table else left)
    counts = {name: getattr(result, name) for name in ("done", "failed", "pending")}
    task.finish(
        {"folder": str(result.folder), "table": table, **counts}, [result.folder]
    )
    if result.failed:
        raise typer.Exit(1)


@command(out="none", without="out")
def gallery(
    task: Task,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of a sweep.")
    ],
) -> None:
    """Write one page of all results of a sweep (DIR/index.html).

    Its images are filtered and sorted in the browser.
    """
    page = hm.gallery(folder)
    if task.verbose:
        typer.echo(f"The page: {page}")
    task.finish({"page": str(page)}, [page], page)
