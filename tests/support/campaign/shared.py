"""The federation of the campaign for all processes of a test run: it takes as long as several audits."""

from __future__ import annotations

import asyncio
import fcntl
import pickle
import shutil
from pathlib import Path

from tests.support.campaign.federation import Federation, run_federation


def share_federation(folder: Path) -> Federation:
    """Return the federation in a folder; run it first if no process has. Others wait for a process that runs it."""
    described = folder.with_suffix(".pickle")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not described.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a process that has failed
            described.write_bytes(pickle.dumps(asyncio.run(run_federation(folder))))
    found: Federation = pickle.loads(described.read_bytes())
    return found
