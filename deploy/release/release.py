"""`make release`: the checks of a release, and all files of it in `dist/`, with sums and a bill of materials.

It publishes nothing, signs nothing and tags nothing: people do.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.release import deb, image
from deploy.release.contents import check_contents
from deploy.release.notes import check_all
from deploy.release.source import DIST, ROOT, BuildFailed, run, run_program, version
from deploy.release.trial import make_environment, try_wheel
from deploy.release.wheel import build_twice

SUMS = "SHA256SUMS"
BILLED_EXTRAS = ("postgres", "quic", "otel")
"""The extras in the bill of materials: those that the packages are built with."""


def changed_files() -> list[str]:
    """Return the files that differ from the commit, or are not tracked."""
    status = ["git", "-c", f"safe.directory={ROOT}", "status", "--porcelain"]
    return run(status, cwd=ROOT).splitlines()


def write_sums(folder: Path, files: list[Path]) -> Path:
    """Write the SHA-256 of each file, in the form that `sha256sum --check` reads."""
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(files)]
    (folder / SUMS).write_text("".join(lines))
    return folder / SUMS


def write_bill(wheel: Path, target: Path) -> Path:
    """Write the bill of materials: the wheel and all packages that it is installed with, in CycloneDX."""
    with tempfile.TemporaryDirectory() as scratch:
        programs = make_environment(Path(scratch) / "environment", wheel, extras=BILLED_EXTRAS)
        bill: list[str | Path] = [
            sys.executable,
            "-m",
            "cyclonedx_py",
            "environment",
            "--output-reproducible",
            "--of",
            "JSON",
        ]
        about: list[str | Path] = [
            "--pyproject",
            ROOT / "pyproject.toml",
            "--mc-type",
            "application",
            "--output-file",
            target,
        ]
        alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        run([*bill, *about, programs / "python"], env=alone)
    named = {component["name"].lower() for component in json.loads(target.read_text())["components"]}
    if lacking := {"aiohttp", "msgspec", "psycopg", "qh3", "opentelemetry-sdk"} - named:
        raise BuildFailed(f"the bill of materials lacks {', '.join(sorted(lacking))}")
    if "pytest" in named:
        raise BuildFailed("the bill of materials has tools of the tests, which are not installed with the wheel")
    return target


def build_all(folder: Path) -> list[Path]:
    """Build everything that this machine can build; what it cannot build is named on standard error."""
    with tempfile.TemporaryDirectory() as scratch:
        built = build_twice(Path(scratch))
        check_contents(built)
        try_wheel(built.wheel)
        made = [Path(shutil.copy(file, folder)) for file in built]
    made.append(write_bill(folder / built.wheel.name, folder / f"routerd-eventd-{version()}.cdx.json"))
    if absent := deb.missing():
        print(f"no Debian package was built: {', '.join(absent)} is missing", file=sys.stderr)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            made.append(deb.build_deb(folder, Path(scratch)))
        deb.lint(made[-1])
    if absent := image.missing():
        print(f"no image was built: {', '.join(absent)} is missing", file=sys.stderr)
    else:
        made.append(image.archive(folder / f"routerd-eventd-{version()}-image.tar"))
    return made


def main(words: list[str] | None = None) -> None:
    """Check, build, and list what was built."""
    parser = argparse.ArgumentParser(prog="make release ARGS=…", description="Build a release in dist/.")
    parser.add_argument("--unreleased", action="store_true", help="a trial: the changelog has no section yet")
    parser.add_argument("--check", action="store_true", help="check only, build nothing")
    given = parser.parse_args(words)
    problems = check_all(unreleased=given.unreleased)
    if not given.unreleased and (changed := changed_files()):
        problems.append(f"{len(changed)} files differ from the commit, such as {changed[0][3:]}")
    if problems:
        raise BuildFailed("\n  ".join(["this is no release:", *problems]))
    if given.check:
        return
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    made = build_all(DIST)
    write_sums(DIST, made)
    subprocess.run(["sha256sum", "--check", SUMS], cwd=DIST, check=True)


if __name__ == "__main__":
    run_program(main)
