"""The choice how an audit reaches the files of its lake and output: by Python through fsspec, or by Spark."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from eventd.lake.address import is_address

_ONE_MACHINE: Final = re.compile(r"local(\[.*)?$")


class Access(StrEnum):
    """How files are reached; AUTO: through Spark if an address is read on a cluster, otherwise through fsspec."""

    AUTO = "auto"
    FSSPEC = "fsspec"
    SPARK = "spark"

    def writes_by_spark(self, url: str, master: str, *, remote: bool) -> bool:
        """Return whether Spark writes at an address. Through Spark Connect (`remote`) it could write only tables."""
        return not remote and self.is_by_spark(url, master)

    def is_by_spark(self, url: str, master: str) -> bool:
        """Return whether Spark reads at a path or an address, with this master (empty: this machine).

        A path is assumed to be the same on every machine, so Python opens it, unless SPARK is requested.
        """
        on_cluster = bool(master) and _ONE_MACHINE.match(master) is None
        return self is Access.SPARK or (self is Access.AUTO and is_address(url) and on_cluster)
