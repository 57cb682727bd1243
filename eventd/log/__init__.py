"""The log itself: positions in commit order, pages with gaps, cursors fenced by their position, retention."""

from __future__ import annotations
