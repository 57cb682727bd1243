"""Moves the harness into namespaces of its own, where it may mount file systems and spoil the network of all nodes."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys

_ENTERED = "CHAOS_NAMESPACES"
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_NETEM = ("delay", "30ms", "20ms", "loss", "2%")


def enter() -> None:
    """Start this program again in namespaces of its own, as far as that is allowed: they end with it."""
    if _ENTERED in os.environ:
        if has_network():
            set_network(up=True)
        return
    for flags in (["-m", "-n"], ["-m"]):
        trial = ["unshare", *flags, "mount", "-t", "tmpfs", "chaos", "/mnt"]
        if shutil.which("unshare") and subprocess.run(trial, capture_output=True).returncode == 0:
            os.environ[_ENTERED] = " ".join(flags)
            os.execvp("unshare", ["unshare", *flags, sys.executable, "-m", "tests.chaos", *sys.argv[1:]])


def has_mounts() -> bool:
    """Return whether this process may mount."""
    return "-m" in os.environ.get(_ENTERED, "")


def has_network() -> bool:
    """Return whether this process has a network of its own."""
    return "-n" in os.environ.get(_ENTERED, "")


def set_network(*, up: bool) -> None:
    """Switch the loopback interface on or off: while it is off, no packet arrives."""
    request = struct.pack("16sh14x", b"lo", _IFF_UP if up else 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket.fileno(), _SIOCSIFFLAGS, request)


def delay_packets(*, on: bool) -> str:
    """Let packets be late and some be lost, or not any more; return why that is not possible, or an empty text."""
    change = ["replace", "dev", "lo", "root", "netem", *_NETEM] if on else ["del", "dev", "lo", "root"]
    try:
        done = subprocess.run(["tc", "qdisc", *change], capture_output=True, text=True)
    except FileNotFoundError:
        return "tc is not installed"
    return f"the kernel has no netem: {done.stderr.strip()}" if done.returncode else ""
