"""How a node reaches its machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eventd.net.connecting import OpenAddress, open_first
from eventd.plugins.run.executable import RunProgram, run_executable
from eventd.runtime.threads import THREADS, ThreadFactory
from eventd.store.engine.failed_sync import RewriteFile, rewrite_file


@dataclass(frozen=True, slots=True)
class MachineAccess:
    """How a node reaches the machine that it runs on: a simulation has its own.

    `threads` creates every thread pool but the loop's default executor, `boot_id` identifies the boot of the machine
    (empty: it is read), `rewrite` writes a file again, `run_program` runs the program of a plugin, and `open_address`
    connects to an address that rules allow.
    """

    threads: ThreadFactory = THREADS
    boot_id: str = ""
    rewrite: RewriteFile = rewrite_file
    run_program: RunProgram = run_executable
    open_address: OpenAddress = open_first


MACHINE: Final = MachineAccess()
"""The machine of this process."""
