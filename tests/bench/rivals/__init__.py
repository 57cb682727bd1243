"""Benchmarks of other programs that carry messages from one site to another, compared with this one."""

from __future__ import annotations
