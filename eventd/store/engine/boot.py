"""Identifies the run of this machine: commits without a flush are lost when it ends."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from eventd.runtime.chance import Chance

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id(chance: Chance) -> str:
    """Return an id of the system's current boot.

    Where the system has none, it is random: rather a new history than a false one.
    """
    with suppress(OSError):
        if name := _BOOT_ID.read_text().strip():
            return name
    return f"unknown {chance.token(8).hex()}"
