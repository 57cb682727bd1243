"""The audit: reconciles the delivery ledgers of all nodes in Spark. The daemon never imports it.

May import: no other room.
"""

from __future__ import annotations
