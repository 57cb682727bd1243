"""The process that plays seeds for another one: it reads a seed a line, and answers each with its result as a line.

If it gets the word `postgres` after its folder, its first line says where to find the server. An argument would show
the password to every user of the machine.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path


def main(folder: Path, *, on_postgres: bool) -> None:
    """Play the seeds of the standard input until it ends; the nodes' files are below `folder`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that gives the seeds ends this one, also after Ctrl-C
    import msgspec

    from eventd.cli.simulate.postgres import ServerAccess
    from eventd.simulation.campaign import play_seeds, result_to_json

    server = msgspec.json.decode(sys.stdin.readline(), type=ServerAccess).open() if on_postgres else None
    for result in play_seeds(_seeds(), folder, server):
        sys.stdout.buffer.write(result_to_json(result) + b"\n")
        sys.stdout.buffer.flush()


def _seeds() -> Iterator[int]:
    while line := sys.stdin.readline():
        yield int(line)


if __name__ == "__main__":
    main(Path(sys.argv[1]), on_postgres="postgres" in sys.argv[2:])
