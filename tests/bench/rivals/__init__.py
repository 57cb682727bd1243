"""Other programs that bring messages from one site to another, measured beside our node."""

from __future__ import annotations
