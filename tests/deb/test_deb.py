"""The Debian package: lintian, and its way through an installation, an upgrade and a removal, in a tree of Debian.

systemd does not run in the tree: that units are restarted and stopped is not tried so.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from deploy.release import deb, image
from deploy.release.source import version
from tests.support.source import ROOT

pytestmark = pytest.mark.deb


class Packages(NamedTuple):
    """A package, one of the same files with the next number, and a tree in which none is installed."""

    first: Path
    second: Path
    tree: Path


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    if deb.missing() or os.geteuid() != 0:
        pytest.skip(f"this needs to be root, and {', '.join(deb.missing()) or 'nothing else'}")
    scratch = tmp_path_factory.mktemp("deb")
    first = deb.build_deb(scratch / "packages", scratch)
    second = deb.write_package(scratch / "tree", scratch / "package", f"{version()}-2", scratch / "packages")
    return Packages(first, second, deb.unpack_tree(scratch / "fresh"))


def install(tree: Path, package: Path) -> str:
    (tree / package.name).write_bytes(package.read_bytes())
    return deb.in_tree(tree, "dpkg", "--install", f"/{package.name}")


def test_lintian_finds_no_error(packages: Packages) -> None:
    assert "E: " not in deb.lint(packages.first)


def test_every_override_has_a_reason() -> None:
    lines = (deb.SOURCES / "lintian-overrides").read_text().splitlines()
    assert lines[0].startswith("#")
    assert len([line for line in lines if line.startswith("#")]) * 2 >= len(lines) - 2


def test_a_package_is_installed_upgraded_and_removed_and_the_data_stays(packages: Packages) -> None:
    tree = packages.tree
    install(tree, packages.first)
    assert deb.in_tree(tree, "routerd-eventd", "version").strip() == f"routerd-eventd {version()}"
    data = ("--data-dir", "/var/lib/routerd-eventd")
    assert "applied 0001" in deb.in_tree(tree, "routerd-eventd", "migrate", *data)
    assert "writing" in deb.in_tree(tree, "routerd-eventd", "check", *data)
    enabled = [file for file in (tree / "etc" / "systemd").rglob("*") if "routerd" in file.name]
    assert enabled == [], "nothing is started by an installation"
    before = (tree / "var/lib/routerd-eventd/eventd.db").read_bytes()

    install(tree, packages.second)
    assert deb.in_tree(tree, "dpkg-query", "--show", "--showformat=${Version}", "routerd-eventd") == f"{version()}-2"
    deb.in_tree(tree, "routerctl", "topic", "list", *data)

    deb.in_tree(tree, "dpkg", "--purge", "routerd-eventd")
    assert not (tree / "opt" / "routerd-eventd").exists()
    assert not (tree / "usr/bin/routerctl").is_symlink()
    assert (tree / "var/lib/routerd-eventd/eventd.db").read_bytes()[:100] == before[:100]


def test_the_package_needs_the_python_that_it_was_built_for(packages: Packages) -> None:
    depends = deb.run(["dpkg-deb", "--field", packages.first, "Depends"])
    minor = int(re.fullmatch(r"3\.(\d+)", image.PYTHON)[1])  # type: ignore[index]
    assert f"python3 (>= 3.{minor}), python3 (<< 3.{minor + 1})" in depends


def test_units_pages_and_completions_are_where_the_system_looks(packages: Packages) -> None:
    listed = deb.run(["dpkg-deb", "--contents", packages.first])
    held = {line.split()[5].removeprefix("./") for line in listed.splitlines()}
    units = [file.name for file in (ROOT / "deploy/systemd").iterdir() if file.suffix in (".service", ".target")]
    assert {f"lib/systemd/system/{name}" for name in units} <= held
    assert {"usr/share/man/man8/routerd-eventd.8.gz", "usr/share/bash-completion/completions/routerctl"} <= held
    assert not [name for name in held if name.startswith(("etc/", "var/"))]
