"""The packages that only the audit needs. Everything else runs without them."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from eventd.errors import MissingExtra

GENERATING: Final = ("numpy", "pyarrow", "fsspec")
"""What makes the ledgers of a federation that never was."""
AUDITING: Final = (*GENERATING, "pandas", "pyspark")


def require(*packages: str) -> None:
    """See that packages can be imported; without names, all that an audit needs. Raises MissingExtra."""
    for package in packages or AUDITING:
        try:
            import_module(package)
        except ModuleNotFoundError as error:
            raise MissingExtra(
                f"the audit needs the package {error.name}, which is not installed",
                hint="in a clone: pip install '.[audit]'",
            ) from None
