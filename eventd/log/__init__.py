"""The append-only log, its cursors, and everything that is stored by position.

The code is in the packages inside this one, each of which says what it may import.

May import: no other room.
"""

from __future__ import annotations
