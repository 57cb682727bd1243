"""Plugins: the names that plugin authors import.

May import: plugins.author.
"""

from __future__ import annotations

from eventd.plugins.author.authoring import Emit, Event, Mask, Part, Plan, Resource

__all__ = ["Emit", "Event", "Mask", "Part", "Plan", "Resource"]
