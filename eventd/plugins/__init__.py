"""Plugins: programs and functions that turn events into proposals. What their authors import is here.

It stays light: a host process imports it, and starts in a moment.
"""

from __future__ import annotations

from eventd.plugins.authoring import Emit, Event, Mask, Part, Plan, Resource

__all__ = ["Emit", "Event", "Mask", "Part", "Plan", "Resource"]
