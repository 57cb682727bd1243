"""Real plugins for tests: programs, and packages with an entry point, installed in a folder of the test."""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path
from textwrap import dedent
from typing import Any

from eventd.plugins.contract.contract import MANUAL_TRIGGER, RunRequest
from eventd.resources.plugin_configuration import PluginConfig
from eventd.testing import NOW, event

SECOND = 1_000_000
CAPABILITIES = frozenset(("propose.dynamicConfig", "propose.providerAction", "emit.events"))


def plugin_config(**fields: Any) -> PluginConfig:
    """Return the configuration of a plugin that may propose everything, with a timeout of ten seconds."""
    given: dict[str, Any] = {
        "name": "p",
        "executable": "",
        "entry_point": "",
        "timeout": 10 * SECOND,
        "concurrency": 4,
        "ttl": 600 * SECOND,
        "env": (),
        "capabilities": CAPABILITIES,
        "context": (),
    }
    return PluginConfig(**(given | fields))


def write_program(folder: Path, body: str, name: str = "plugin") -> str:
    """Write a Python program; return its path."""
    return write_script(folder, f"#!{sys.executable} -IS\n{dedent(body)}", name)


def write_script(folder: Path, text: str, name: str = "plugin") -> str:
    """Write an executable file; return its path."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def write_package(
    folder: Path, body: str, name: str = "sample", function: str = "plugin"
) -> tuple[tuple[str, str], ...]:
    """Write a package of one module with one entry point of the same name; return the `env` a Plugin needs to
    find it."""
    site = folder / f"site-{name}"
    information = site / f"{name}-1.0.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    (site / f"module_of_{name}.py").write_text(dedent(body), encoding="utf-8")
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    points = f"[eventd.plugins]\n{name} = module_of_{name}:{function}\n"
    (information / "entry_points.txt").write_text(points, encoding="utf-8")
    return (("PYTHONPATH", str(site)),)


def manual_request(count: int = 0, **fields: Any) -> RunRequest:
    """Return a request of a manual run over this number of events."""
    events = [event(f"e{number}", subject=f"10.0.0.{number}/32") for number in range(1, count + 1)]
    return RunRequest(
        **({"plugin": "p", "trigger": MANUAL_TRIGGER, "topic": "", "now": NOW, "events": events} | fields)
    )


def install_project(project: Path, folder: Path) -> str:
    """Write what installing a project writes, without build tools; return the folder to import from."""
    about = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    site = folder / "site"
    information = site / f"{about['name'].replace('-', '_')}-{about['version']}.dist-info"
    shutil.copytree(project, site, ignore=shutil.ignore_patterns("tests", "*.yaml", "__pycache__"), dirs_exist_ok=True)
    information.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n"
    (information / "METADATA").write_text(metadata)
    groups = about["entry-points"].items()
    points = [f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in of.items()) for group, of in groups]
    (information / "entry_points.txt").write_text("".join(points))
    return str(site)
