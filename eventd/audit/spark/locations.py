"""The locations of a lake and of an audit's output, which Python reaches through fsspec, or Spark does.

On one machine, Python opens them. On a cluster, Spark does: its executors then need no package for an object store, and
there is one set of credentials, that of Spark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from eventd.audit.spark.spark_storage import SparkStorage
from eventd.errors import Invalid
from eventd.lake.address import shown
from eventd.lake.storage import ConnectedStorage, Storage, connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GLOB: Final = re.compile(r"[*?\[\]{}\\]")
"""Characters of a pattern in Spark's paths."""
_SAME_STORE: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasbs": "wasb"}
"""Schemes that name the same store as another one."""


@dataclass(frozen=True)
class Location:
    """A path or an address, whether Spark reads and writes there, and the noun for it in messages.

    `alternative`, for hints, is what a user may do instead if Spark cannot reach it. `url` may hold a secret: only
    `address` is for messages, and no repr shows it.
    """

    url: str = field(repr=False)
    by_spark: bool = False
    noun: str = "lake"
    alternative: str = ""

    def open(self, spark: SparkSession | None = None) -> Storage:
        """Return the storage, for this process; `spark` is needed if Spark reads and writes there.

        Raises MissingExtra, LakeUnusable for an address without a file system, and Invalid like `spark_url`.
        """
        if not self.by_spark:
            return self.connect()
        if spark is None:
            raise ValueError("a location that Spark reads cannot be opened without Spark")
        return SparkStorage(spark, self.spark_url, self.noun, self.alternative)

    def connect(self) -> ConnectedStorage:
        """Return the storage that this process reaches by itself. Raises MissingExtra and LakeUnusable."""
        return connect(self.url, self.noun)

    @property
    def address(self) -> str:
        """Return the path or address to show, without user, password and query."""
        return shown(self.url)

    @property
    def spark_url(self) -> str:
        """Return the address as Spark takes it: `file://` before a path, and `s3a` for `s3`.

        It has the secrets of the address, which Spark needs: what Spark shows of it must go through `without_secrets`.
        Raises Invalid for an address with characters that Spark takes for a pattern.
        """
        if _GLOB.search(self.url):
            raise Invalid(
                f"{self.address} has a character that Spark takes for a pattern",
                hint="use an address without *, ?, [, ], {, } and \\",
            )
        scheme, separator, rest = self.url.rstrip("/").partition("://")
        if not separator:
            return f"file://{Path(self.url).expanduser().absolute()}"
        return f"s3a://{rest}" if scheme == "s3" else f"{scheme}://{rest}"

    def for_spark(self, path: str) -> str:
        """Return the address of a file or folder there, for Spark."""
        return f"{self.spark_url}/{path}"

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the parts of the path or address, equal for two spellings of the same place.

        Links in a path are resolved. User and query of an address are left out; of chained addresses, the last one
        counts.
        """
        scheme, separator, rest = self.url.rpartition("::")[2].partition("://")
        if not separator or scheme == "file":
            return Path(self.url.rpartition("file://")[2]).expanduser().resolve().parts
        authority, slash, path = rest.partition("/")
        host = shown(f"{scheme}://{authority}").partition("://")[2].rpartition("***@")[2]
        place = re.split(r"[?#]", f"{host}{slash}{path}")[0]
        return _SAME_STORE.get(scheme, scheme), *filter(None, place.split("/"))


def require_apart(lake: Location, out: Location) -> None:
    """Check that an output is not the lake, and neither of the two lies in the other. Raises Invalid.

    The two must be apart because all nodes can write to a lake, and an output has the keys of the audit's hashes; an
    audit also deletes files in its output that it does not know.
    """
    shared = min(len(lake.parts), len(out.parts))
    if lake.parts[:shared] == out.parts[:shared]:
        raise Invalid(
            f"the {out.noun} {out.address} is, contains or lies in the {lake.noun} {lake.address}",
            hint="choose another --out, to which no node writes",
        )
