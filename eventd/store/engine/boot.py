"""Which run of this machine it is: what was written and not flushed is lost where it has ended."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from eventd.runtime.chance import Chance

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id(chance: Chance) -> str:
    """Names the run of the system. Where it does not say, a random name: sooner a new history than a false one."""
    with suppress(OSError):
        if name := _BOOT_ID.read_text().strip():
            return name
    return f"unknown {chance.token(8).hex()}"
