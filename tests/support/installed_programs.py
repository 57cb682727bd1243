"""Both programs as files on a PATH, for shells and services that find them there."""

from __future__ import annotations

from pathlib import Path

from tests.support.fork_server import shell_command


def write_programs(folder: Path) -> Path:
    """Write `routerctl` and `routerd-eventd` into a folder; processes that use it get `shell_files` as `pass_fds`."""
    folder.mkdir(exist_ok=True)
    for name in ("routerctl", "routerd_eventd"):
        file = folder / name.replace("_", "-")
        file.write_text(f'#!/bin/sh\nexec {shell_command(f"eventd.cli.{name}")} "$@"\n')
        file.chmod(0o755)
    return folder
