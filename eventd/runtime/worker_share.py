"""Divides the work of one node among several processes. Pure.

Each process serves the API and some of the groups in both directions: the process that listens for a group's peers also
sends to them, because the order of a link is kept in memory. Work that must be done once is done by the first process.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32


class Share(NamedTuple):
    """The share of the process with the number `worker`, from 0, among `workers` processes.

    `resumed`: it replaces a process that ended while the others ran. `folder` holds the sockets over which the others
    reach each process, named by its number. `claim` names the claim on the database that their parent process holds
    for all of them.
    """

    worker: int = 0
    workers: int = 1
    resumed: bool = False
    folder: str = ""
    claim: str = ""

    @property
    def is_first(self) -> bool:
        """Return whether this is the process that does the work that must be done once."""
        return self.worker == 0

    @property
    def is_whole(self) -> bool:
        """Return whether this is the only process of the node."""
        return self.workers == 1

    def serves(self, group: str) -> bool:
        """Return whether this process serves the group. Declaring or deleting a group moves no other group."""
        return self.worker_of(group) == self.worker

    def worker_of(self, group: str) -> int:
        """Return the number of the process that serves the group."""
        return crc32(group.encode()) % self.workers


ALL = Share()
"""The share of a node with one process."""
