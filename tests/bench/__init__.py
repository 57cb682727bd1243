"""Benchmarks on real processes. Not part of the tests: `make bench` runs a short set of them."""

from __future__ import annotations
