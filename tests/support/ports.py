"""Reserved ports: for listeners that must return on the same port after a kill."""

from __future__ import annotations

import atexit
import os
import random
import socket
import sys
from pathlib import Path

_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_held: list[socket.socket] = []


def free_ports(*last: int, host: str = "127.0.0.1") -> int:
    """Return a prefix that makes, with each of these last digits appended, a port as `free_port` returns one."""
    for _ in range(1000):
        number = free_port(host) // 10
        if all(_listenable(host, port) and _claim(port) for port in (number * 10 + digit for digit in last)):
            return number
    raise RuntimeError(f"no ports in a row on {host} in a thousand tries")


def free_port(host: str = "127.0.0.1") -> int:
    """Return a free TCP port that no other test on this machine gets while this process lives.

    It lies below the kernel's range of ephemeral ports: a port of that range, once released by a killed node, may
    become a client port of another program before the node returns.
    """
    choice = random.Random(os.urandom(8))  # the tests' random numbers have the same seed in every worker
    for _ in range(1000):
        port = choice.randrange(15_000, _first_outgoing_port())
        if _listenable(host, port) and _claim(port):
            return port
    raise RuntimeError(f"no free port on {host} below {_first_outgoing_port()} in a thousand tries")


def _first_outgoing_port() -> int:
    try:
        low = int(_RANGE_FILE.read_text().split()[0])
    except OSError:
        low = 49_152
    return low if low > 16_000 else 65_000


def _listenable(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _claim(port: int) -> bool:
    """Claim a port machine-wide until this process ends: a name in Linux's abstract socket namespace."""
    if sys.platform != "linux":
        return True
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0eventd-test-port-{port}")
    except OSError:
        claim.close()
        return False
    _held.append(claim)
    return True


@atexit.register
def _release() -> None:
    for claim in _held:
        claim.close()
