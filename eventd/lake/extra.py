"""Loads the packages that only a lake needs. A node without a lake runs without them."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from eventd.errors import MissingExtra


def pyarrow() -> Any:
    """Return the package `pyarrow`. Raises MissingExtra."""
    return _load("pyarrow")


def parquet() -> Any:
    """Return `pyarrow.parquet`. Raises MissingExtra."""
    return _load("pyarrow.parquet")


def fsspec() -> Any:
    """Return the package `fsspec`. Raises MissingExtra."""
    return _load("fsspec")


def require() -> None:
    """Check that pyarrow and fsspec are installed, without loading them. Raises MissingExtra if one is not."""
    for package in ("pyarrow", "fsspec"):
        if find_spec(package) is None:
            raise _missing(package)


def _load(name: str) -> Any:
    if (loaded := sys.modules.get(name)) is not None:  # this is called for each column of each segment
        return loaded
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        if error.name != package:
            raise
        raise _missing(package) from None


def _missing(package: str) -> MissingExtra:
    return MissingExtra(
        f"a lake needs the package {package}, which is not installed", hint="in a clone: pip install '.[lake]'"
    )
