"""Figures, measured on real processes. Never part of the tests: `make bench` runs a short set of them."""

from __future__ import annotations
