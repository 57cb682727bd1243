"""The sizes that streams and caches allow, for node, client and command line."""

from __future__ import annotations

from typing import Final

MAX_RECORD: Final = 1 << 20
"""Maximum bytes of a payload."""
MAX_RECORDS: Final = 10_000
"""Maximum number of records of a publish."""
MAX_VALUE: Final = 1 << 20
"""Maximum bytes of a value of a cache, and of a key."""
