"""The audit: the books of all nodes, balanced in Spark. Only here is Spark known; the daemon never imports it."""

from __future__ import annotations
