"""Plugins: programs and functions that turn events into proposals. Also what their authors import."""

from __future__ import annotations
