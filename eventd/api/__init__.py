"""What a node answers over HTTP to those who run it."""

from __future__ import annotations
