"""Figures, measured on real processes. Never part of the tests: `make bench` runs them."""

from __future__ import annotations
