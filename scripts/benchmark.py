"""Measure the cost of recording and of an edit.

    python scripts/benchmark.py record                  at the shape of Stable Diffusion 1.5
    python scripts/benchmark.py record --json           the same, as one JSON object
    python scripts/benchmark.py record --width 64 --latent 32 --rounds 5       a quick look
    python scripts/benchmark.py record --device cuda    whole runs by the clock, SD 1.5 and SDXL
    python scripts/benchmark.py record --family flux    text and image in one softmax; or sd3
    python scripts/benchmark.py edit                    an edit beside plain pictures, same shape
    python scripts/benchmark.py gpu                     on a GPU: exact? how long? 8 minutes
    python scripts/benchmark.py sweep memory            of a sweep; also: overhead, processes, kills

`record` runs one step of a real pipeline with random weights and keeps what every attention layer
is given. Then these layers alone are replayed, bare and recorded in turn, many times: what the
recorded ones take longer, in CPU time, as a share of the whole UNet's forward pass, is the cost of
recording. A replay is a call of the UNet with another forward pass in it, so whatever a recorder
put on the UNet and its layers acts as in a run. `edit` does the same with batches of prompts of
which all but one take the attention of that one.

Methods of other tools, in their shortest form, are measured in the same way: `benchmarking` says
which, a file for each question.
"""

import argparse
import json
from collections.abc import Sequence

import torch
from rich.console import Console

from benchmarking import editing, gpu, joint, recording, sweeping
from heedmap.backends import loading

# --- the command line -------------------------------------------------------------------------


def run_record(options: argparse.Namespace) -> None:
    """The sub-command `record`."""
    if options.family != "sd15":
        figures = joint.record(options, recording.held_mb)
        if options.json:
            print(json.dumps(figures))
        else:
            joint.report(figures)
        return
    options.width, options.latent = options.width or 320, options.latent or 64
    by_the_clock = options.device == "cuda"
    figures = (recording.record_by_the_clock if by_the_clock else recording.record)(options)
    if options.json:
        print(json.dumps(figures))
    elif by_the_clock:
        Console().print_json(data=figures)
    else:
        recording.report(figures)


def run_edit(options: argparse.Namespace) -> None:
    """The sub-command `edit`."""
    figures = editing.edit(options)
    if options.json:
        print(json.dumps(figures))
    else:
        editing.report(figures)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(required=True, metavar="WHAT")
    for_recording = verbs.add_parser("record", help="what recording costs")
    for_edits = verbs.add_parser("edit", help="what an edit costs")
    for_sweeps = verbs.add_parser("sweep", help="what a sweep costs beside its model")
    for_peak = verbs.add_parser("peak", help="the peak memory of one run; `record` asks for it")
    for verb, function in (
        (for_recording, run_record), (for_edits, run_edit), (for_peak, recording.run_peak),
        (for_sweeps, sweeping.sweeping),
    ):  # fmt: skip
        verb.add_argument("--width", type=int, default=320, help="channels of the UNet (320)")
        verb.add_argument("--latent", type=int, default=64, help="side of the latent (64)")
        verb.add_argument("--dtype", choices=loading.DTYPES[1:], default="bfloat16")
        verb.add_argument("--threads", type=int, default=1, help="(1)")
        verb.set_defaults(function=function, device="cpu")
    for verb, rounds in ((for_recording, 24), (for_edits, 8)):
        verb.add_argument("--rounds", type=int, default=rounds, help=f"pairs compared ({rounds})")
        verb.add_argument("--json", action="store_true", help="print one JSON object")
    for_sweeps.add_argument("stages", nargs="*", metavar="STAGE", help=", ".join(sweeping.STAGES))
    for_sweeps.add_argument("--jobs", type=int, help=f"({sweeping.JOBS})")
    for_sweeps.add_argument("--steps", type=int, help=f"of a job ({sweeping.STEPS})")
    for_sweeps.add_argument("--rounds", type=int, default=3, help="of one and two processes (3)")
    for_sweeps.add_argument("--kills", type=int, default=20, help="sweeps that are killed (20)")
    for_edits.add_argument("--peers", action="store_true", help="the original's way too: slow")
    for_recording.set_defaults(width=None, latent=None)
    for_recording.add_argument(
        "--family", choices=("sd15", *joint.WIDTHS), default="sd15",
        help="flux, sd3: a few blocks of their width (3072, 1536), 4096 positions (--latent 128)",
    )  # fmt: skip
    for_recording.add_argument("--text-tokens", type=int, default=512, help="flux, sd3 (512)")
    for_recording.add_argument("--blocks", type=int, default=3, help="flux, sd3 (3)")
    for_recording.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    for_recording.add_argument("--repeats", type=int, default=3, help="pairs of peaks measured (3)")
    for_recording.add_argument("--steps", type=int, default=50, help="of a run on a GPU (50)")
    for_peak.add_argument("--recorded", action="store_true", help="with heedmap")
    gpu.add_parser(verbs)
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    options.function(options)


if __name__ == "__main__":
    main()
