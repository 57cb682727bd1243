"""The append-only log, its cursors, and everything that is stored by position.

May import: nothing of the project.
"""

from __future__ import annotations
