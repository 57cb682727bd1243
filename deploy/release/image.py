"""`make image`: the container image as an archive, by buildah, without an engine and without a registry.

The base is made by mmdebstrap, and the wheels of the locks are downloaded once, by their hashes; both are kept in
`build/image`. `make image-test` uses what this builds.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from deploy.release.source import DIST, ROOT, BuildFailed, commit_time, run, run_program, version

SCRATCH = ROOT / "build" / "image"
BASE = "localhost/routerd-eventd-base"
IMAGE = "localhost/routerd-eventd"
SUITE = "bookworm"
PYTHON = "3.11"
"""The minor version of the suite's Python, for which wheels are downloaded."""
LOCKS = ("requirements-build.lock", "requirements-runtime.lock")
NEEDED = ("buildah", "mmdebstrap", "skopeo")


def environment() -> dict[str, str]:
    """Return what lets buildah work as root of a container: no namespaces of its own, plain folders as layers."""
    return {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs", "TMPDIR": "/var/tmp"}


def buildah(*words: str | Path) -> str:
    """Return the output of buildah."""
    return run(["buildah", *words], env=environment(), cwd=ROOT)


def missing() -> list[str]:
    """Return the programs that are needed and not installed."""
    return [name for name in NEEDED if shutil.which(name) is None]


def make_tree() -> Path:
    """Make an archive of Debian with Python and CA certificates, unless it is there; return it."""
    tree = SCRATCH / "base.tar"
    if not tree.exists():
        SCRATCH.mkdir(parents=True, exist_ok=True)
        packages = "--include=python3,python3-venv,ca-certificates"
        without = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale", "info")]
        run(["mmdebstrap", "--quiet", "--variant=minbase", packages, *without, SUITE, SCRATCH / "part.tar"])
        (SCRATCH / "part.tar").rename(tree)
    return tree


def make_base() -> None:
    """Make the base image of that tree, unless it is there."""
    if BASE in buildah("images", "--format", "{{.Name}}").split():
        return
    container = buildah("from", "scratch").strip()
    buildah("add", "--quiet", container, make_tree(), "/")
    buildah("commit", "--quiet", "--rm", container, BASE)


def fetch_wheels() -> Path:
    """Download the wheels of the locks, by their hashes; return their folder."""
    folder = SCRATCH / "wheels"
    download = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--require-hashes"]
    for lock in LOCKS:
        run([*download, "--only-binary=:all:", f"--python-version={PYTHON}", "--dest", folder, "-r", ROOT / lock])
    return folder


def build() -> str:
    """Build the image; return its name."""
    make_base()
    name = f"{IMAGE}:{version()}"
    buildah(
        *("build", "--quiet", "--format=docker", f"--timestamp={commit_time()}", f"--tag={name}"),
        *(f"--build-arg=BASE={BASE}", f"--build-arg=VERSION={version()}"),
        "--build-arg=PIP_FLAGS=--no-index --find-links=/wheels",
        f"--volume={fetch_wheels()}:/wheels:ro",
        *("--file", "deploy/container/Containerfile", "."),
    )
    return name


def archive(target: Path) -> Path:
    """Build the image, and write it as an archive that `podman load` and `docker load` read."""
    if absent := missing():
        raise BuildFailed(f"{', '.join(absent)} is not installed (Debian: apt-get install {' '.join(NEEDED)})")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    buildah("push", "--quiet", build(), f"docker-archive:{target}:routerd-eventd:{version()}")
    return target


def main() -> None:
    """Write the archive into `dist/`."""
    made = archive(DIST / f"routerd-eventd-{version()}-image.tar")
    print(f"{made}  {made.stat().st_size:,} bytes")


if __name__ == "__main__":
    run_program(main)
