"""Checks that the optional packages of the audit are installed. Only the audit and the lake need any of them."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from eventd.errors import MissingExtra

GENERATING: Final = ("numpy", "pyarrow", "fsspec")
"""The packages needed to generate ledgers."""
AUDITING: Final = (*GENERATING, "pandas", "pyspark")
CONNECTING: Final = "grpc"
"""The package that a session of Spark Connect needs in addition."""


def require(*packages: str) -> None:
    """Check that packages can be imported; without names, all packages of the audit. Raises MissingExtra."""
    for package in packages or AUDITING:
        try:
            import_module(package)
        except ModuleNotFoundError as error:
            raise MissingExtra(
                f"the audit needs the package {error.name}, which is not installed",
                hint=f"in a clone: pip install '.[{'audit,connect' if package == CONNECTING else 'audit'}]'",
            ) from None
