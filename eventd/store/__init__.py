"""The database, in the rooms below; no code of its own.

May import: no other room.
"""

from __future__ import annotations
