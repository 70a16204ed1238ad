"""The work of the processes that tests start: it imports no more than the sweep itself."""

import os
import signal
from pathlib import Path

from heedmap.sweeps import processes


def run_sweep(folder: Path, killed_rank: str | None = None) -> list[int]:
    """Run the sweep in this process, and return its lines; one rank dies after its first job."""
    os.chdir(folder)
    lines: list[int] = []
    run = processes.Worker.run

    def record(worker, unit):
        if lines and os.environ.get("RANK", "") == killed_rank:
            os.kill(os.getpid(), signal.SIGKILL)
        lines.extend(job.line for job in unit)
        run(worker, unit)

    processes.Worker.run = record
    processes.sweep("jobs.jsonl", "out", pages=False)
    return lines
