"""What a node that was killed leaves of its local socket."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from eventd.api.listener.local_socket import LEFTOVER_SECONDS, LocalSocket
from eventd.net.local_socket import NAME
from eventd.runtime.chance import SYSTEM


def leave(path: Path, age: float) -> None:
    """Leave a socket at which no process listens, of this age."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    past = path.stat().st_mtime - age
    os.utime(path, (past, past))


def test_old_temporary_sockets_without_a_process_are_removed(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    old = LEFTOVER_SECONDS + 1
    leave(tmp_path / f".{NAME}.dead", old)
    leave(tmp_path / f".{NAME}.young", 0.0)
    leave(tmp_path / "other.sock", old)
    (tmp_path / f".{NAME}.file").touch()
    os.utime(tmp_path / f".{NAME}.file", (0, 0))
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(tmp_path / f".{NAME}.living"))
        living.listen()
        os.utime(tmp_path / f".{NAME}.living", (0, 0))
        bound = LocalSocket(tmp_path)
        bound.bind(SYSTEM)
        kept = {each.name for each in tmp_path.iterdir()} - {bound.temporary}
        bound.close()
    assert kept == {f".{NAME}.young", "other.sock", f".{NAME}.file", f".{NAME}.living"}
