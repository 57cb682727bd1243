"""Every kind of fault of nodes, servers and networks, and the plans that it can be part of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SERVER = "server"
"""The target of faults of the database server, which is the server of all nodes."""
NETWORK = "network"
"""The target of faults of the network of all nodes."""

Need = Literal["workers", "quiet pair", "derive"]


@dataclass(frozen=True)
class NodeFault:
    """`need` is what a node must be for the fault: of several workers, a pair that does not listen for peers, or
    with a plugin."""

    databases: tuple[str, ...] = ("sqlite", "postgres")
    need: Need | None = None
    target: str = ""
    kills: bool = False
    """Whether it ends a process with `kill -9`."""


_SQLITE, _POSTGRES = ("sqlite",), ("postgres",)

NODE_FAULTS: dict[str, NodeFault] = {
    "kill": NodeFault(kills=True),
    "kill at start": NodeFault(kills=True),
    "worker killed": NodeFault(need="workers", kills=True),
    "plugin killed": NodeFault(need="derive", kills=True),
    "freeze": NodeFault(),
    "claim lost while frozen": NodeFault(_POSTGRES, need="quiet pair"),
    "disk full": NodeFault(_SQLITE),
    "writes fail": NodeFault(_SQLITE),
    "read-only at start": NodeFault(_SQLITE),
    "disk turns read-only": NodeFault(_SQLITE),
    "writes end with EIO": NodeFault(_SQLITE),
    "flush ends with EIO": NodeFault(_SQLITE),
    "flush ends with ENOSPC": NodeFault(_SQLITE),
    "slow flush": NodeFault(_SQLITE),
    "database deleted": NodeFault(_SQLITE),
    "database replaced": NodeFault(_SQLITE),
    "database sessions ended": NodeFault(_POSTGRES),
    "database backend killed": NodeFault(_POSTGRES, target=SERVER, kills=True),
    "database server killed": NodeFault(_POSTGRES, target=SERVER, kills=True),
    "database server stopped at once": NodeFault(_POSTGRES, target=SERVER),
    "restore": NodeFault(),
    "keys rotated under partition": NodeFault(),
    "clock step": NodeFault(),
    "network down": NodeFault(target=NETWORK),
    "packets late and lost": NodeFault(target=NETWORK),
}
"""The disk of a Postgres server is not the node's, so only nodes on SQLite have faults of the disk."""

PRELOADED = {
    "disk turns read-only",
    "writes end with EIO",
    "flush ends with EIO",
    "flush ends with ENOSPC",
    "slow flush",
    "clock step",
}
"""Faults by a library that is loaded before those of the node."""
OWN_DISK = {"disk full", "read-only at start"}
"""Faults that need a file system of the node's own."""
LONG = {"freeze", "claim lost while frozen"}
"""Faults that last up to a minute in some rounds."""
