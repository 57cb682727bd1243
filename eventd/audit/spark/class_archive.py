"""An archive of the classes that Java loads for an audit: with it, Spark starts in about half the processor time.

`routerctl audit prepare` writes it into the user's cache. A Java that it does not fit ignores it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

from eventd.errors import Unavailable
from eventd.settings.environment import java_environment

_QUIET: Final = "-Xlog:disable"
"""Java would report on stdout that an archive does not fit."""
_NEW: Final = "classes.jsa"


class NoClassArchive(Unavailable):
    """There is no place for an archive, or it would not fit; an audit runs without one."""


@dataclass(frozen=True)
class ClassArchive:
    """The archive for one Java and one Spark, at `file`, and a folder of the session in which Java writes a new one."""

    file: Path
    scratch: Path

    def options(self, *, record: bool) -> str:
        """Return the options for Java to use the archive, if there is one, or with `record` to write it at its end."""
        if record:
            return f"-XX:ArchiveClassesAtExit={self.scratch / _NEW} {_QUIET}"
        return f"-XX:SharedArchiveFile={self.file} -Xshare:auto {_QUIET}" if self.file.exists() else ""

    def keep(self) -> None:
        """Move an archive that Java has written to its place, over an earlier one. Raises OSError."""
        written = self.scratch / _NEW
        part = self.file.with_suffix(f".{os.getpid()}.part")
        if written.exists():
            self.file.parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.move(written, part)
                part.replace(self.file)
            finally:
                part.unlink(missing_ok=True)


def class_archive(java: Path, scratch: Path, environ: Mapping[str, str] | None = None) -> ClassArchive:
    """Return the archive for the Java of this home, and the Spark that is installed or that SPARK_HOME names.

    `environ` is that of this process by default. Raises NoClassArchive if there is no cache, no such Java or Spark, a
    path that Java's options cannot hold, or settings of Spark by the operator (SPARK_CONF_DIR), on which the classes
    depend.
    """
    environ = java_environment(environ)
    if settings := environ.get("SPARK_CONF_DIR"):
        raise NoClassArchive(
            f"no archive of Spark's classes is used with settings of your own (SPARK_CONF_DIR={settings})",
            hint=f"unset SPARK_CONF_DIR, or name an archive in {settings}/spark-defaults.conf",
        )
    if not ("XDG_CACHE_HOME" in environ or "HOME" in environ):
        raise NoClassArchive(
            "there is no folder for an archive of Spark's classes: neither XDG_CACHE_HOME nor HOME is set",
            hint="set XDG_CACHE_HOME to a folder",
        )
    cache = Path(environ.get("XDG_CACHE_HOME") or Path(environ["HOME"], ".cache"))
    spark = Path(environ.get("SPARK_HOME") or Path(import_module("pyspark").__file__ or "").parent)
    try:
        release, changed = (java / "release").read_text(), (spark / "jars").stat().st_mtime_ns
    except OSError as error:
        raise NoClassArchive(
            f"no archive of Spark's classes fits: {error.filename}: {error.strerror}",
            hint="let JAVA_HOME and SPARK_HOME name complete installations",
        ) from None
    digest = hashlib.sha256(f"{java}\n{release}\n{spark}\n{changed}".encode()).hexdigest()[:16]
    found = ClassArchive(cache / "routerd-eventd" / f"spark-{digest}.jsa", scratch)
    for path in (found.file, scratch):
        if re.search(r"[\s\"'\\]", str(path)):
            raise NoClassArchive(
                f"{path} has a space, a quote or a backslash, which Java's options cannot hold",
                hint="set XDG_CACHE_HOME and TMPDIR to folders without such characters",
            )
    return found
