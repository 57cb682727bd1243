"""A storage behind Spark: its file systems, such as s3a, abfs and hdfs, with its credentials.

Files are listed and read by Spark jobs, many at a time. They are written by the JVM of this process, so not through
Spark Connect, whose JVM runs elsewhere.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from eventd.audit.spark.session import last_cause
from eventd.errors import EventdError, Invalid, LakeUnavailable, LakeUnusable, NotFound
from eventd.lake.address import shown
from eventd.lake.file_sizes import TooLargeFile, larger
from eventd.lake.layout import TEMPORARY
from eventd.lake.stored_files import FileDraft, StoredFile

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

OBJECT_STORES: Final = frozenset({"s3a", "s3n", "gs", "oss", "cosn", "obs"})
"""Schemes of stores in which a file appears whole when it is closed, and renaming is a copy."""
_ADDRESS: Final = re.compile(r"[a-zA-Z][\w+.-]*:(?://[^/]*)?(/.*)$")
"""Matches the address of a file, as Spark reports it."""
_UNCOMMITTED: Final = "_temporary"
"""The folder in which Spark writes before it commits."""


class SparkStorage:
    """The files below an address, as `Storage`. Names that begin with `_` or `.` are hidden, as everywhere in Spark.

    `alternative`: what else a user may do if Spark does not reach the address, for hints; empty: nothing.
    """

    def __init__(self, spark: SparkSession, url: str, noun: str = "lake", alternative: str = "") -> None:
        self._spark = spark
        self._noun = noun
        self._otherwise = f", or {alternative}" if alternative else ""
        self._at = url
        self._folder = urlsplit(url).path
        self.url = shown(url)

    def list(self, folder: str) -> list[StoredFile]:
        with self._trouble(f"list {folder}"):
            try:
                rows = self._collect([folder], "length")
            except NotFound:
                return []
        return sorted(StoredFile(self._relative(row.path), row.length) for row in rows)

    def unfinished(self, folder: str) -> Sequence[str]:
        with self._trouble(f"list {folder}"):
            found = []
            for pattern in (f".*{TEMPORARY}", f"*/{_UNCOMMITTED}"):
                statuses = self._java.glob(f"{self.locate(folder)}/{pattern}")
                found += [self._relative(status.getPath().toString()) for status in statuses]
            return found

    def read(self, path: str) -> bytes:
        found = self.read_many([path])
        if path not in found:
            raise NotFound(f"{path} is not in the {self._noun} at {self.url}")
        return found[path]

    def read_within(self, path: str, most: int) -> bytes:
        sizes: list[int] = []
        with self._trouble(f"read {path}"), contextlib.suppress(NotFound):  # `read` says which file is missing
            sizes = [row.length for row in self._collect([path], "length")]
        if any(size > most for size in sizes):
            raise TooLargeFile(f"{path} in the {self._noun} at {self.url} {larger(most)}")
        return self.read(path)

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        wanted = [*paths]
        with self._trouble("read files"):
            try:
                return self._contents(wanted)
            except NotFound:  # Spark reads all of them or none
                folders = sorted({str(PurePosixPath(path).parent) for path in wanted})
                there = {file.path for folder in folders for file in self.list(folder)}
                return self._contents([path for path in wanted if path in there])

    def put(self, path: str, data: bytes) -> None:
        with self.create(path) as draft:
            draft.write(data)

    @contextlib.contextmanager
    def create(self, path: str) -> Iterator[FileDraft]:
        with tempfile.NamedTemporaryFile(suffix=TEMPORARY) as file:
            yield FileDraft(file)
            file.flush()
            with self._trouble(f"write {path}"):
                self._java.place(file.name, self.locate(path))

    def delete(self, paths: Iterable[str]) -> None:
        with self._trouble("delete files"):
            for path in paths:
                self._java.delete(self.locate(path), recursive=PurePosixPath(path).name == _UNCOMMITTED)

    def locate(self, path: str) -> str:
        return f"{self._at}/{path}" if path not in ("", ".") else self._at

    def _relative(self, address: str) -> str:
        return path_below(self._folder, address)

    def _collect(self, paths: Sequence[str], column: str) -> Sequence[Row]:
        """Return the `path` and one more column of the files at and below these paths. Raises NotFound for a missing
        path."""
        from pyspark.errors import AnalysisException

        reader = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        try:
            return reader.load([self.locate(path) for path in paths]).select("path", column).collect()
        except AnalysisException as error:  # when the frame is made, or with Spark Connect when it is collected
            if error.getCondition() == "PATH_NOT_FOUND":
                raise NotFound(f"a file is missing in the {self._noun} at {self.url}") from None
            raise

    def _contents(self, paths: Sequence[str]) -> dict[str, bytes]:
        if not paths:
            return {}
        return {self._relative(row.path): bytes(row.content) for row in self._collect(paths, "content")}

    @cached_property
    def _java(self) -> _JavaFiles:
        return _JavaFiles(self._spark, self._at, self._otherwise)

    @contextlib.contextmanager
    def _trouble(self, what: str) -> Iterator[None]:
        try:
            yield
        except EventdError:
            raise
        except Exception as error:  # Spark's and Java's exceptions have no common base class
            reason = last_cause(str(error), self._at)
            if "No FileSystem for scheme" in str(error) or "ClassNotFoundException" in str(error):
                raise LakeUnusable(
                    f"Spark has no file system for {self.url}: {reason}",
                    hint="give Spark the package of that store, such as hadoop-aws for s3a: name it under"
                    f" spark.jars.packages in the file spark-defaults.conf of SPARK_CONF_DIR{self._otherwise}",
                ) from None
            raise LakeUnavailable(f"cannot {what} in the {self._noun} at {self.url}: {reason}") from None


class _JavaFiles:
    """Writes and deletes files at an address through the JVM of this process. Raises Java's errors."""

    def __init__(self, spark: SparkSession, url: str, otherwise: str) -> None:
        jvm: Any = getattr(spark, "_jvm", None)
        if jvm is None:
            raise Invalid(
                f"{shown(url)} cannot be written through Spark Connect",
                hint=f"name an output that this machine and the executors reach by themselves{otherwise}",
            )
        session: Any = spark
        self._hadoop = jvm.org.apache.hadoop.fs
        self._gateway = spark.sparkContext._gateway
        self._conf = session._jsparkSession.sessionState().newHadoopConf()
        self._files = self._path(url).getFileSystem(self._conf)
        self._direct = urlsplit(url).scheme in OBJECT_STORES

    def glob(self, pattern: str) -> Sequence[Any]:
        """Return the statuses of the files and folders that match a pattern."""
        return self._files.globStatus(self._path(pattern)) or ()

    def place(self, file: str, address: str) -> None:
        """Write a local file to an address, where it appears whole, replacing an existing one."""
        target = self._path(address)
        hidden = target if self._direct else self._path(_hidden(address))
        self._files.copyFromLocalFile(False, True, self._path(f"file://{file}"), hidden)
        if not self._direct:
            overwrite = self._gateway.new_array(self._hadoop.Options.Rename, 1)  # type: ignore[union-attr]
            overwrite[0] = self._hadoop.Options.Rename.OVERWRITE
            context = self._hadoop.FileContext.getFileContext(target.toUri(), self._conf)
            context.rename(hidden, target, overwrite)

    def delete(self, address: str, *, recursive: bool) -> None:
        """Delete a file, and its folder if that is then empty; a missing file is ignored."""
        path = self._path(address)
        self._files.delete(path, recursive)
        folder = path.getParent()
        if self._files.exists(folder) and not len(self._files.listStatus(folder)):
            self._files.delete(folder, False)

    def _path(self, address: str) -> Any:
        return self._hadoop.Path(address)


def _hidden(address: str) -> str:
    folder, _, name = address.rpartition("/")
    return f"{folder}/.{name}{TEMPORARY}"


def path_below(folder: str, address: str) -> str:
    """Return the path of a file below a folder, which has no scheme and host, from the address that Spark reports."""
    found = _ADDRESS.match(address)
    return (found[1] if found else address).removeprefix(folder).lstrip("/")
