"""Folders under addresses that Spark alone can resolve: what an object store is to a cluster, without a server.

`viewfs` is a file system of Hadoop. What an address stands for is in the configuration of Spark, as credentials are.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def mount_settings(name: str, folder: Path) -> dict[str, str]:
    """Return the settings of Hadoop under which `viewfs://NAME/data` is a folder."""
    return {f"fs.viewfs.mounttable.{name}.link./data": folder.absolute().as_uri()}


def mount(spark: SparkSession, folder: Path, *, user: str = "") -> str:
    """Return an address of a folder for a running Spark. Spark keeps the file system: a name is used once.

    `user`: user and password in the address, with an `@`.
    """
    name = f"{user}m{abs(hash(folder)):x}"
    context: Any = spark.sparkContext
    for key, value in mount_settings(name, folder).items():
        context._jsc.hadoopConfiguration().set(key, value)
    return f"viewfs://{name}/data"
