"""What the operator of the app decides: where it is, who may come in, and what they may ask for.

Plain data: the command line reads its defaults here.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from heedmap.errors import ArgumentError, Is
from heedmap.options import LoadOptions

MOST_LETTERS = 2000
"""The most characters of a prompt: CLIP reads 77 tokens, long prompts of web UIs have a few times
as many."""


@dataclass(frozen=True)
class Limits:
    """What one job may cost, and how much is kept.

    Attributes:
        size: pixels on a side of a picture.
        steps: denoising steps.
        upload: bytes of a file that is uploaded.
        results: results that are kept. Where each visitor sees their own, the oldest are deleted
            when there are more; where all see all, no more are drawn.
        cells: edits of a grid.
        maps: bytes that the maps of a run may take up to which steps and heads are told apart where
            nobody chose; those of the embedded model take an eighth.
        waiting: jobs that may wait for the device.
    """

    size: int = 1024
    steps: int = 100
    upload: int = 64 * 2**20
    results: int = 500
    cells: int = 48
    maps: int = 64 * 2**20
    waiting: int = 16

    @property
    def unpacked(self) -> int:
        """Bytes that an upload may have when it is unpacked: maps pack well, but not that well."""
        return 4 * self.upload

    def check_steps(self, steps: int) -> None:
        """Raise an ArgumentError if that many steps are too many."""
        if steps > self.steps:
            raise ArgumentError(
                *(Is("steps", steps), ", more than this server draws: expected 1 to "),
                f"{self.steps}",
            )

    def check_cells(self, cells: int) -> None:
        """Raise an ArgumentError if a grid of so many edits is too large."""
        if cells > self.cells:
            raise ArgumentError(
                f"a grid of {cells} edits is more than this server draws: expected at most "
                f"{self.cells}"
            )

    def check_size(self, size: tuple[int, int]) -> None:
        """Raise an ArgumentError if a picture of (width, height) pixels is too large."""
        if max(size) > self.size:
            raise ArgumentError(
                *(Is("size", size), ", more pixels than this server draws: expected at most "),
                f"{self.size} on a side",
            )


@dataclass(frozen=True)
class Options:
    """What the operator decides.

    Attributes:
        out: the folder of the results.
        host: where the server is to be bound: an address, or a name of one.
        port: of that address; 0 is any that is free.
        names: under which others ask this server, such as that of a server with TLS before it. If
            there are any, or it is bound to an address of this machine alone, it answers to these
            names, that address and those of this machine, and to no other.
        models: offered besides the embedded one. Others may be typed only where the server is bound
            to an address of this machine alone, and has no name for others: a folder's name tells
            what is on it.
        users: passwords by name; everybody is let in if there are none.
        limits: what visitors may ask for.
        loading: on which device and in which precision models are loaded.
        gallery: who sees a result: "own" for whoever had it drawn, "all" for all who are let in.
            Left to "auto": all, where only this machine is served and no password asked for.
        bound: the address that `host` turned out to be; None before the server is bound.
    """

    out: Path = Path("outputs/app")
    host: str = "127.0.0.1"
    port: int = 7860
    names: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    users: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    loading: LoadOptions = field(default_factory=LoadOptions)
    bound: str | None = None
    gallery: Literal["auto", "all", "own"] = "auto"

    @property
    def is_shared(self) -> bool:
        """Whether all see all results."""
        alone = self.is_private and not self.users
        return self.gallery == "all" or (self.gallery == "auto" and alone)

    @property
    def is_private(self) -> bool:
        """Whether only this machine is served."""
        return is_loopback(self.bound or self.host) and not self.names

    @property
    def hosts(self) -> list[str] | None:
        """The names to which the server answers; None for any."""
        if not (self.names or is_loopback(self.bound or self.host)):
            return None
        own = ("localhost", "127.0.0.1", "::1", self.host, self.bound or self.host)
        return sorted({name.lower() for name in (*own, *self.names)})


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone; a name is none."""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback
