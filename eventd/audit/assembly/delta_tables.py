"""Writes the tables of the report as Delta tables: each audit is a new version of them.

The package deltalake writes them, with access of its own to object stores. Spark is not involved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from eventd.audit.report.file_names import DELTA
from eventd.errors import Invalid, LakeUnavailable, MissingExtra
from eventd.lake.address import shown, without_secrets
from eventd.lake.storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa

_NOT_DELTA: Final = re.compile(r"[%\[\]|^\\]")
"""Characters of an address with which the package fails, some of them in a way that cannot be caught."""
_REASON_CHARACTERS: Final = 200
"""Maximum number of characters of an error of the store that a message shows."""


class TableFormat(StrEnum):
    """The format of the tables of a report; DELTA: they are written as Delta tables, too."""

    PARQUET = "parquet"
    DELTA = "delta"


def prepare_delta(out: str) -> Any:
    """Return the package `deltalake`, after a check that it can write to this path or address.

    Raises MissingExtra and Invalid.
    """
    try:
        import deltalake
    except ModuleNotFoundError as error:
        if error.name != "deltalake":
            raise
        raise MissingExtra(
            "--table-format delta needs the package deltalake, which is not installed",
            hint="in a clone: pip install '.[audit,delta]'",
        ) from None
    if _NOT_DELTA.search(out):
        raise Invalid(
            f"{shown(out)} has a character that the package deltalake does not understand",
            hint="use a path without %, [, ], |, ^ and \\, or leave out --table-format delta",
        )
    return deltalake


def write_delta_tables(out: Storage, tables: Mapping[str, pa.Table]) -> None:
    """Write each table as a new version of a Delta table of its name, and delete files that only old versions need.

    Raises like `prepare_delta`, and LakeUnavailable.
    """
    delta = prepare_delta(out.locate(""))
    for name, table in tables.items():
        address = out.locate(f"{DELTA}/{name}")
        try:
            delta.write_deltalake(address, table, mode="overwrite", schema_mode="overwrite", name=name)
            delta.DeltaTable(address).vacuum(dry_run=False)
        except Exception as error:  # the package's errors and those of stores have no common base class
            reason = " ".join(without_secrets(str(error), address).split())[:_REASON_CHARACTERS]
            raise LakeUnavailable(f"cannot write the Delta table {name} to {out.url}: {reason}") from None
