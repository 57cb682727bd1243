"""The inventory of a lake: one text that names every state and manifest with its digest, as `sha256sum` prints it.

A manifest has the digest of its Parquet file, so the inventory stands for all rows of the lake.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping


def write_inventory(digests: Mapping[str, str]) -> bytes:
    """Return a line `SHA256  PATH` for each file, sorted by path; `digests` has the SHA-256 in hex by path."""
    return "".join(f"{digest}  {path}\n" for path, digest in sorted(digests.items())).encode()


def lake_state(digests: Mapping[str, str]) -> str:
    """Return the state of a lake: the SHA-256, in hex, of its inventory."""
    return hashlib.sha256(write_inventory(digests)).hexdigest()
