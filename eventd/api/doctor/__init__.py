"""Doctor: is everything in order, and if not, what can be done about it. Reading, judging and mending are apart."""

from __future__ import annotations
