"""Everything that comes in is admitted, then appended to the log."""

from __future__ import annotations
