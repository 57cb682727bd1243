"""The audit: reconciles the delivery ledgers of all nodes in Spark. The daemon never imports it.

May import: nothing of the project.
"""

from __future__ import annotations
