"""Identifies the current boot of this machine: commits that are not flushed may be lost when it ends."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from eventd.runtime.chance import Chance

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id(chance: Chance) -> str:
    """Return an id of the system's current boot.

    If the system has no such id, a random one is returned, so that the log begins a new epoch and does not count on
    commits that may be lost.
    """
    with suppress(OSError):
        if name := _BOOT_ID.read_text().strip():
            return name
    return f"unknown {chance.token(8).hex()}"
