"""`python -m tests.support.with_postgres COMMAND …`: runs a command with `--postgres URL` of a server of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from tests.support.postgres import PostgresServer, find_programs


def main(command: Sequence[str]) -> int:
    """Return the status with which the command has ended."""
    server = PostgresServer(find_programs())
    try:
        server.start()
        url = f"postgresql://postgres@127.0.0.1:{server.port}/postgres"
        return subprocess.run([*command, "--postgres", url]).returncode
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
