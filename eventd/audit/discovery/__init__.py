"""Installed as the package `pyspark_eventd`, under which Spark finds the format "eventd" without registration.

May import: audit.source.
"""

from __future__ import annotations

from eventd.audit.source import EventdSource as DefaultSource

__all__ = ["DefaultSource"]
