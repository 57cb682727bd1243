"""`make completions`: what shells read to complete the command line of routerctl."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from deploy.release.source import ROOT

FOLDER = ROOT / "deploy" / "completions"
FILES = {"bash": "bash/routerctl", "zsh": "zsh/_routerctl", "fish": "fish/routerctl.fish"}


def scripts() -> dict[str, str]:
    """Return the script for each shell, as routerctl itself prints it, by its path below `deploy/completions`."""
    return {name: _script(shell) for shell, name in FILES.items()}


def _script(shell: str) -> str:
    command = [sys.executable, "-m", "eventd.cli.routerctl"]
    environment = {**os.environ, "_ROUTERCTL_COMPLETE": f"source_{shell}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return f"{done.stdout.strip()}\n"


def main(target: Path = FOLDER) -> None:
    """Write all scripts."""
    for name, text in scripts().items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text)


if __name__ == "__main__":
    main()
