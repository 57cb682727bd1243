"""The lock file of a SQLite database, in which the node that serves it publishes its API's address.

Health checks run often, so this module imports nothing slow.
"""

from __future__ import annotations

import os
from typing import NamedTuple

MOST_BYTES = 4096
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def lock_file(database: str | os.PathLike[str]) -> str:
    """Return the path of a database's lock file."""
    return f"{os.fspath(database)}.lock"


def reachable_host(host: str) -> str:
    """Return the host at which this machine reaches a listener: a loopback address for one on all addresses."""
    return _ANY.get(host, host)


class ServingNode(NamedTuple):
    """The values that a serving node publishes for commands on its machine.

    `address` is that of its API; `origin` is the time at which its monotonic clock was 0, in microseconds since 1970:
    see `SystemClock`. `process`: its id; empty if unknown.
    """

    address: str
    origin: int
    process: str = ""

    def line(self) -> str:
        """Return the line of the lock file that follows the one with the process id."""
        return f"{self.address} {self.origin}\n"


def read_serving_file(lock: str | os.PathLike[str]) -> ServingNode | None:
    """Return what a node has published in a lock file; None without a file, or if the node has published nothing.

    The node may have been killed since.
    """
    try:
        with open(lock, errors="replace") as file:
            process, _, line = file.read(MOST_BYTES).partition("\n")
    except OSError:
        return None
    address, _, origin = line.strip().partition(" ")
    if not origin.lstrip("-").isdigit():
        return None
    return ServingNode(address, int(origin), process.strip())
