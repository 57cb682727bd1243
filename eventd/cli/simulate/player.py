"""The process that plays seeds for another one: it reads a seed a line, and answers each with its result as a line.

If it gets the word `postgres` after its folder, its first line says where to find the server. An argument would show
the password to every user of the machine.
"""

from __future__ import annotations

import os
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

    access = sys.stdin.readline() if on_postgres else ""
    if on_postgres and not access:
        return
    server = msgspec.json.decode(access, type=ServerAccess).open() if access else None
    try:
        for result in play_seeds(_seeds(), folder, server):
            sys.stdout.buffer.write(result_to_json(result) + b"\n")
            sys.stdout.buffer.flush()
    except BrokenPipeError:  # the process that gives the seeds was killed
        _discard_output()


def _seeds() -> Iterator[int]:
    while line := sys.stdin.readline():
        yield int(line)


def _discard_output() -> None:
    """Let what is still in the buffer go nowhere, without an error when this process ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


if __name__ == "__main__":
    main(Path(sys.argv[1]), on_postgres="postgres" in sys.argv[2:])
