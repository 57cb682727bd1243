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
_REPLACE = "remove it and restart the node"
_SWITCH_OFF = "set local_socket = false, for the node and as EVENTD_LOCAL_SOCKET for its commands"
_BY_DESCRIPTOR = "/proc/self/fd"
_PEER = struct.Struct("3i")
_SHORTEST_LIMIT = 104
"""Maximum bytes of a socket's path, including the terminating NUL, on any system."""


class SocketProblem(NamedTuple):
    """Why the local socket cannot be used, with the file or folder, and the next step that corrects it."""

    detail: str
    remedy: str


class SocketUnusable(Exception):
    """The local socket cannot be used, because of `problem`."""

    def __init__(self, detail: str, remedy: str) -> None:
        super().__init__(detail)
        self.problem = SocketProblem(detail, remedy)


class Busy(SocketUnusable):
    """A process listens at the socket, but its queue has no room for another connection now."""


class Peer(NamedTuple):
    """The process at the other end of a Unix socket, as it was when it connected, or began to listen."""

    process: int
    user: int


def peer_of(connection: socket.socket) -> Peer:
    """Return the process at the other end, as the kernel reports it. Raises `SocketUnusable` where it reports none."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        raise SocketUnusable("this system does not tell which user is at the other end of a socket", _SWITCH_OFF)
    try:
        process, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _PEER.size))
    except OSError as error:
        words = f"the user at the other end of the socket is unknown: {error.strerror}"
        raise SocketUnusable(words, "restart the node") from None
    return Peer(process, user)


def require_socket(path: str, mode: int) -> None:
    """Raise `SocketUnusable` if the file of this mode, which has the name of the socket, is something else."""
    if stat.S_ISSOCK(mode):
        return
    kinds = ((stat.S_ISLNK, "a symbolic link"), (stat.S_ISDIR, "a directory"))
    found = next((name for is_kind, name in kinds if is_kind(mode)), "a file")
    raise SocketUnusable(f"{path} is {found} and not the socket of the node", _REPLACE)


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
            words = f"cannot open the folder {path}: {error.strerror}"
            raise SocketUnusable(words, "check the path, and that this user may open the folder") from None
        about = os.fstat(self.descriptor)
        self.users = (os.geteuid(), ROOT, about.st_uid)
        if owners is not None and about.st_uid not in owners:
            self.close()
            raise SocketUnusable(
                f"the folder {path} belongs to another user", "run the node and its commands as that user"
            )
        if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            self.close()
            words = f"other users may write to the folder {path}, so no local socket in it is safe"
            raise SocketUnusable(words, f"run chmod go-w {path} and restart the node")

    def address(self, name: str) -> str:
        """Return an address for a socket in the folder. Raises `SocketUnusable` if it is longer than an address may be.

        On Linux it goes through the open folder: short, and the same folder even if its path now names another one.
        """
        if sys.platform == "linux" and os.path.isdir(f"{_BY_DESCRIPTOR}/{self.descriptor}"):
            return f"{_BY_DESCRIPTOR}/{self.descriptor}/{name}"
        address = f"{self.path}/{name}"
        if len(os.fsencode(address)) >= _SHORTEST_LIMIT:
            raise SocketUnusable(f"the path {address} is too long for a socket", "choose a shorter path for data_dir")
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
        require_socket(f"{self.path}/{NAME}", about.st_mode)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            try:
                connection.connect(self.address(NAME))
            except (ConnectionRefusedError, FileNotFoundError):  # left by a node that was killed, or just removed
                connection.close()
                return None
            except BlockingIOError:
                raise Busy(f"{self.path}/{NAME} has too many connections", "try again later") from None
            except OSError as error:
                words = f"cannot connect to {self.path}/{NAME}: {error.strerror}"
                raise SocketUnusable(words, "run the command as the user of the node") from None
            peer = peer_of(connection)
            if peer.user not in self.users:
                raise SocketUnusable(f"{self.path}/{NAME} is the socket of another user", _REPLACE)
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
