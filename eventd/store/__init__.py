"""The database.

May import: nothing of the project.
"""

from __future__ import annotations
