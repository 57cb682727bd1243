"""Installed as the package `pyspark_eventd`: by that name Spark finds the format "eventd" without registration."""

from __future__ import annotations

from eventd.audit.source import EventdSource as DefaultSource

__all__ = ["DefaultSource"]
