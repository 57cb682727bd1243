"""The database.

May import: no other room.
"""

from __future__ import annotations
