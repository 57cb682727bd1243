"""The local socket of a node on this machine: the folder that holds it, and the process at its other end.

Both ends check the other one, so a file that another user plants is of no use: the node serves only trusted users, and
a command speaks only to a process of a trusted user. Commands load this module on every run: it imports nothing slow.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import sys
from collections.abc import Collection
from types import TracebackType
from typing import NamedTuple

NAME = "eventd.sock"
"""The name of the socket in the node's data folder."""
DATABASE_HEADER = "Eventd-Database"
"""Names the database that a request is meant for: a node that serves another one refuses the request."""
LISTEN_HEADER = "Eventd-Listen"
"""Names the address at which the intended node listens: several nodes on Postgres may share a folder."""
ROOT = 0
_BY_DESCRIPTOR = "/proc/self/fd"
_PEER = struct.Struct("3i")
_SHORTEST_LIMIT = 104
"""Maximum bytes of a socket's path, including the terminating NUL, on any system."""


class SocketUnusable(Exception):
    """The local socket cannot be used; the text names the file or folder and the reason."""


class Busy(SocketUnusable):
    """A process listens at the socket, and has no room for another connection now."""


class Peer(NamedTuple):
    """The process at the other end of a Unix socket, as it was when it connected, or began to listen."""

    process: int
    user: int


def peer_of(connection: socket.socket) -> Peer:
    """Return the process at the other end, as the kernel reports it. Raises `SocketUnusable` where it reports none."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        raise SocketUnusable("this system does not tell which user is at the other end of a socket")
    try:
        process, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _PEER.size))
    except OSError as error:
        raise SocketUnusable(f"the user at the other end of the socket is unknown: {error.strerror}") from None
    return Peer(process, user)


class SocketFolder:
    """An open folder that only trusted users may write to, so only they can put a socket there. Close it after use.

    `owners`: the users that it may belong to; None: any. `users`: the users that are trusted at the other end of a
    connection.
    """

    def __init__(self, path: str | os.PathLike[str], owners: Collection[int] | None) -> None:
        """Open the folder. Raises `SocketUnusable`, also if it cannot be opened."""
        self.path = os.fspath(path)
        try:
            self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise SocketUnusable(f"{path}: {error.strerror}") from None
        about = os.fstat(self.descriptor)
        self.users = (os.geteuid(), ROOT, about.st_uid)
        if owners is not None and about.st_uid not in owners:
            self.close()
            raise SocketUnusable(f"the folder {path} belongs to another user")
        if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            self.close()
            raise SocketUnusable(f"other users may write to the folder {path}: run chmod go-w {path}")

    def address(self, name: str) -> str:
        """Return an address for a socket in the folder. Raises `SocketUnusable` if it is longer than an address may be.

        On Linux it goes through the open folder: short, and the same folder even if its path now names another one.
        """
        if sys.platform == "linux" and os.path.isdir(f"{_BY_DESCRIPTOR}/{self.descriptor}"):
            return f"{_BY_DESCRIPTOR}/{self.descriptor}/{name}"
        address = f"{self.path}/{name}"
        if len(os.fsencode(address)) >= _SHORTEST_LIMIT:
            raise SocketUnusable(f"the path {address} is too long for a socket")
        return address

    def connect(self, seconds: float | None = None) -> tuple[socket.socket, Peer] | None:
        """Return a connection to the process that listens at the folder's socket, and that process.

        None if none listens there. `seconds`: the time limit of later reads and writes. Raises `SocketUnusable`,
        without a byte sent, if the file is not a socket, or not that of a trusted user, and `Busy`.
        """
        try:
            about = os.stat(NAME, dir_fd=self.descriptor, follow_symlinks=False)
        except OSError:
            return None
        if not stat.S_ISSOCK(about.st_mode):
            raise SocketUnusable(f"{self.path}/{NAME} is not a socket")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            try:
                connection.connect(self.address(NAME))
            except (ConnectionRefusedError, FileNotFoundError):  # left by a node that was killed, or just removed
                connection.close()
                return None
            except BlockingIOError:
                raise Busy(f"{self.path}/{NAME} has too many connections") from None
            except OSError as error:
                raise SocketUnusable(f"{self.path}/{NAME}: {error.strerror}") from None
            peer = peer_of(connection)
            if peer.user not in self.users:
                raise SocketUnusable(f"{self.path}/{NAME} is the socket of another user")
            connection.settimeout(seconds)
        except BaseException:
            connection.close()
            raise
        return connection, peer

    def close(self) -> None:
        """Close the folder."""
        os.close(self.descriptor)

    def __enter__(self) -> SocketFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
