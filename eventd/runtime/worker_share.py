"""What one of several processes does of the work of one node. Pure.

Each serves the API, and some of the groups, both ways: who listens for a group's peers also sends to them, because what
a link knows of its order lies in memory. What is to be done once is done by the first.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32


class Share(NamedTuple):
    """The share of process `worker` of `workers`. `resumed`: it goes on for one that ended, beside the others.

    `folder` holds a socket of each process, named by its number, where the others ask it how it is doing. `claim` names
    the claim on the database that their parent holds for all of them.
    """

    worker: int = 0
    workers: int = 1
    resumed: bool = False
    folder: str = ""
    claim: str = ""

    @property
    def is_first(self) -> bool:
        """Whether it does what is to be done once."""
        return self.worker == 0

    @property
    def is_whole(self) -> bool:
        """Whether there are no others."""
        return self.workers == 1

    def serves(self, group: str) -> bool:
        """Whether the group is its own. One that is declared or deleted moves no other group."""
        return crc32(group.encode()) % self.workers == self.worker


ALL = Share()
"""The share of a node that is one process."""
