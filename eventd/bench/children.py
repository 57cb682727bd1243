"""The environment of child processes, and free ports."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import closing
from typing import Final

from eventd.errors import Unavailable
from eventd.runtime.chance import SYSTEM

PORTS: Final = range(20_000, 32_000)
"""Ports below those that systems assign to outgoing connections, so that a listener's port stays free for a restart."""


def bare_environment() -> dict[str, str]:
    """Return an environment without the caller's variables, so that no EVENTD_* variable reaches the nodes."""
    return {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)), "LC_ALL": "C.UTF-8"}


def free_ports(count: int) -> list[int]:
    """Return `count` (at least 1) random ports of `PORTS` that are free at 127.0.0.1. Raises Unavailable."""
    found: list[int] = []
    for port in sorted(PORTS, key=lambda _: SYSTEM.fraction()):
        with closing(socket.socket()) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise Unavailable(
        f"this machine does not have {count} free ports from {PORTS.start} to {PORTS.stop - 1}",
        hint="stop programs that listen there",
    )
