"""What programs that are started for a while get: an environment without ours, and ports that nobody has."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import closing
from typing import Final

from eventd.errors import Unavailable
from eventd.runtime.chance import SYSTEM

PORTS: Final = range(20_000, 32_000)
"""Below those a system hands out for outgoing connections: what listens there is found again."""


def bare_environment() -> dict[str, str]:
    """For child processes: nothing of the caller's, so none of its EVENTD_* variables can reach their nodes."""
    return {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)), "LC_ALL": "C.UTF-8"}


def free_ports(count: int) -> list[int]:
    """TCP ports of loopback that nobody listens on. Raises Unavailable."""
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
    raise Unavailable(f"this machine has no {count} free ports between {PORTS.start} and {PORTS.stop}")
