"""Everything that goes out is a consumer with a cursor over the log."""

from __future__ import annotations
