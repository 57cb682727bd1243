"""Tries a wheel in an empty environment: no index, no checkout, and only the packages that the wheel depends on.

The dependencies are those of the environment that runs this, linked one by one: what the wheel does not declare, or a
package does not declare, is missing.
"""

from __future__ import annotations

import gzip
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.release.source import BuildFailed, project, run, version

SECONDS_TO_START = 30.0
EXTRAS = ("postgres",)


def requirements_of(*extras: str) -> list[str]:
    """Return the names of all packages that the project needs with these extras, directly or not, and that are here."""
    asked = project()["project"]
    declared = [*asked["dependencies"], *(each for extra in extras for each in asked["optional-dependencies"][extra])]
    waiting = [Requirement(each) for each in declared]
    found: dict[str, set[str]] = {}
    while waiting:
        one = waiting.pop()
        new = one.extras - found.get(canonicalize_name(one.name), set())
        if canonicalize_name(one.name) in found and not new:
            continue
        if one.marker is not None and not one.marker.evaluate({"extra": ""}):
            continue
        try:
            held = distribution(one.name)
        except PackageNotFoundError:
            raise BuildFailed(f"{one.name} is not installed: run make venv") from None
        wanted = found.setdefault(canonicalize_name(one.name), set())
        wanted |= one.extras
        for text in held.requires or ():
            inner = Requirement(text)
            marker, inner.marker = inner.marker, None
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *one.extras)):
                waiting.append(inner)
    return sorted(found)


def make_environment(folder: Path, wheel: Path, extras: tuple[str, ...] = EXTRAS) -> Path:
    """Make a virtual environment with the wheel and links to its dependencies; return the folder of its commands."""
    run([sys.executable, "-m", "venv", "--without-pip", folder])
    (packages,) = folder.glob("lib/python*/site-packages")
    link_distributions([distribution(name) for name in requirements_of(*extras)], packages)
    install = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", f"--python={folder}/bin/python"]
    run([*install, "install", "--no-deps", "--no-index", "--no-compile", wheel], env=_environment(folder))
    return folder / "bin"


def link_distributions(held: list[Distribution], packages: Path) -> None:
    """Link the files of distributions into a folder of packages: whole folders, unless several distributions share one,
    as those of OpenTelemetry do.
    """
    tops = [{file.parts[0] for file in each.files or ()} - {"..", "__pycache__"} for each in held]
    owners = Counter(top for some in tops for top in some)
    for each, own in zip(held, tops, strict=True):
        for top in own:
            shared = [file for file in each.files or () if file.parts[0] == top] if owners[top] > 1 else [PurePath(top)]
            for file in shared:
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                (packages / file).symlink_to(Path(str(each.locate_file(str(file)))).resolve())


def try_wheel(wheel: Path) -> None:
    """Install and use a wheel. Raises `BuildFailed` at the first step that does not work."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        programs = make_environment(folder / "environment", wheel)
        told = _command(programs, folder, "routerd-eventd", "version")
        if told.split() != ["routerd-eventd", version()]:
            raise BuildFailed(f"the installed version is {told.strip()!r}")
        if "database" not in _command(programs, folder, "routerd-eventd", "check", "--data-dir", str(folder / "node")):
            raise BuildFailed("routerd-eventd check shows no database")
        _try_postgres(programs, folder)
        _try_node(programs, folder, wheel)
        _try_shared_files(programs, folder)


def _environment(folder: Path, **more: str) -> dict[str, str]:
    """Return an environment in which nothing leads to the checkout."""
    return {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8", **more}


def _command(programs: Path, folder: Path, *words: str) -> str:
    return run([programs / words[0], *words[1:]], cwd=folder, env=_environment(folder))


def _try_node(programs: Path, folder: Path, wheel: Path) -> None:
    """Start a node, which migrates a SQLite file, and get a page of its console and every static file."""
    with _serving(programs, folder) as address:
        page = _get(f"http://{address}/console/").decode()
        base = re.search(r'"(/console/static/[^/"]+)/', page)
        if base is None:
            raise BuildFailed("the console's page names no static file")
        with zipfile.ZipFile(wheel) as archive:
            held = [name for name in archive.namelist() if name.startswith("eventd/console/static/")]
            served = [name for name in held if not name.endswith((".toml", ".LICENSE"))]
            for name in served:
                got = _get(f"http://{address}{base[1]}/{name.removeprefix('eventd/console/static/')}")
                if got != archive.read(name):
                    raise BuildFailed(f"the node serves {name} differently from the wheel")
        emitted = _command(programs, folder, "routerctl", "topic", "write", "t", "{}", "--server", f"http://{address}")
        if not emitted.strip():
            raise BuildFailed("routerctl topic write prints nothing")


@contextmanager
def _serving(programs: Path, folder: Path) -> Iterator[str]:
    file = folder / "api"
    serve = ["serve", "--data-dir", folder / "node", "--api-listen", "127.0.0.1:0", "--port-file", file]
    with (folder / "node.log").open("wb") as log:
        node = subprocess.Popen(
            [programs / "routerd-eventd", *map(str, serve)], cwd=folder, env=_environment(folder), stderr=log
        )
    try:
        end = time.monotonic() + SECONDS_TO_START
        while not file.exists():
            if node.poll() is not None or time.monotonic() > end:
                raise BuildFailed(f"the installed node does not start:\n{(folder / 'node.log').read_text()[-4000:]}")
            time.sleep(0.05)
        yield file.read_text().strip()
        node.send_signal(signal.SIGTERM)
        if node.wait(timeout=SECONDS_TO_START) != 0:
            raise BuildFailed(f"the installed node stops with status {node.returncode}")
    finally:
        if node.poll() is None:
            node.kill()
            node.wait()


def _get(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"Accept": "text/html,*/*", "Accept-Encoding": "identity"})
    with urllib.request.urlopen(request, timeout=SECONDS_TO_START) as answer:
        body: bytes = answer.read()
        return gzip.decompress(body) if answer.headers.get("Content-Encoding") == "gzip" else body


def _try_postgres(programs: Path, folder: Path) -> None:
    """Migrate an empty database on the Postgres of the test suite; say so if this machine has none."""
    from tests.support.postgres import PostgresMissing, PostgresServer, find_programs

    try:
        server = PostgresServer(find_programs())
    except PostgresMissing as missing:
        print(f"the migrations were not tried on Postgres: {missing}", file=sys.stderr)
        return
    try:
        server.start()
        environment = _environment(folder, EVENTD_DATABASE_URL=server.create_database())
        applied = run([programs / "routerd-eventd", "migrate"], cwd=folder, env=environment)
        if "applied 0001" not in applied:
            raise BuildFailed(f"routerd-eventd migrate says {applied.strip()!r}")
    finally:
        server.stop()


def _try_shared_files(programs: Path, folder: Path) -> None:
    """Write the files besides the code with `routerctl assets write`, and find the manual page that man would show."""
    _command(programs, folder, "routerctl", "assets", "write", str(folder / "assets"))
    written = {str(file.relative_to(folder / "assets")) for file in (folder / "assets").rglob("*") if file.is_file()}
    share = programs.parent / "share"
    installed = {str(file.relative_to(share)) for file in share.rglob("*") if file.is_file()}
    if not written or written != installed:
        raise BuildFailed(f"routerctl assets write leaves out {sorted(installed - written)[:10]}")
    if not (share / "man/man8/routerd-eventd.8").exists() or not os.access(programs / "routerctl", os.X_OK):
        raise BuildFailed("the wheel installs no manual page")
