"""The process that plays seeds for another one: it reads a seed a line, and answers each with its result as a line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path


def main(folder: Path) -> None:
    """Play the seeds of the standard input until it ends; the nodes' files are below `folder`."""
    from eventd.simulation.campaign import play_seeds, result_to_json

    for result in play_seeds(_seeds(), folder):
        sys.stdout.buffer.write(result_to_json(result) + b"\n")
        sys.stdout.buffer.flush()


def _seeds() -> Iterator[int]:
    while line := sys.stdin.readline():
        yield int(line)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
