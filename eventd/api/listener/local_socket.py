"""The node's local socket: bound in the data folder under a temporary name, and published when the node serves.

The rename that publishes the socket replaces any file of this name (the socket of a killed node, or a planted file) in
one step and without following a link. The socket of a node that answers is not replaced.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from eventd.api.listener.addresses import BACKLOG
from eventd.net.local_socket import NAME, ROOT, Busy, SocketFolder, SocketProblem, SocketUnusable, require_socket
from eventd.runtime.chance import Chance

RETRY_SECONDS = 1.0
"""How often a node tries to publish its socket while another node answers at its name."""

LEFTOVER_SECONDS = 60.0
"""Minimum age of a temporary socket that is removed if no process listens at it."""

_OTHER_NODE = "stop that node, or give each node a data_dir of its own"

logger = logging.getLogger("eventd.local_socket")


@dataclass(slots=True)
class LocalSocket:
    """The socket of a node, listening as `descriptor`, which the node's processes share; -1 if it is not bound.

    `users` may connect: the owner of the folder, root and the node's user. `temporary`: its name until it is published.
    `problem`: why it is not reachable; None if it is, as far as is known.
    """

    folder: Path
    descriptor: int = -1
    inode: tuple[int, int] = (0, 0)
    users: tuple[int, ...] = ()
    temporary: str = ""
    problem: SocketProblem | None = None

    @property
    def _path(self) -> Path:
        return self.folder / NAME

    def look(self) -> SocketProblem | None:
        """Return why commands do not reach this node through the socket; None if they do."""
        try:
            about = os.lstat(self._path)
            if (about.st_dev, about.st_ino) == self.inode:
                return None  # perhaps since another process of the node took the name over
            if self.problem is None:
                require_socket(str(self._path), about.st_mode)
        except SocketUnusable as error:
            return error.problem
        except OSError as error:
            return self.problem or SocketProblem(f"cannot find {self._path}: {error.strerror}", "restart the node")
        return self.problem or SocketProblem(f"{self._path} is the socket of another node", _OTHER_NODE)

    def bind(self, chance: Chance) -> None:
        """Listen in the folder under a temporary name. An error is logged, and the node works without the socket."""
        try:
            with _open(self.folder) as folder:
                self.users = folder.users
                self.temporary = f".{NAME}.{chance.token(6).hex()}"
                self._listen(folder)
                self._remove_leftovers(folder)
        except (OSError, SocketUnusable) as error:
            self._fail(self._problem_of(error))

    def _listen(self, folder: SocketFolder) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(folder.address(self.temporary))
            try:
                os.chmod(self.temporary, 0o600, dir_fd=folder.descriptor)  # none can connect before it listens
                about = os.stat(self.temporary, dir_fd=folder.descriptor, follow_symlinks=False)
                listening.listen(BACKLOG)
            except BaseException:
                os.unlink(self.temporary, dir_fd=folder.descriptor)
                raise
            listening.setblocking(False)
            self.inode = about.st_dev, about.st_ino
            self.descriptor = listening.detach()

    def _remove_leftovers(self, folder: SocketFolder) -> None:
        """Remove temporary sockets of nodes that were killed before they published them."""
        mine = os.stat(self.temporary, dir_fd=folder.descriptor, follow_symlinks=False)
        for name in os.listdir(folder.descriptor):
            if not name.startswith(f".{NAME}.") or name == self.temporary:
                continue
            with suppress(FileNotFoundError):  # published or removed just now
                about = os.stat(name, dir_fd=folder.descriptor, follow_symlinks=False)
                is_old = about.st_mtime + LEFTOVER_SECONDS < mine.st_mtime  # a younger one may be about to listen
                if is_old and stat.S_ISSOCK(about.st_mode) and not _listens(folder, name):
                    os.unlink(name, dir_fd=folder.descriptor)

    def publish(self) -> bool:
        """Give the socket its name, and return True; False if another node answers there. `problem` holds the reason.

        An error is logged, and the node works without the socket.
        """
        if self.descriptor < 0 or not self.temporary:
            return True
        try:
            with _open(self.folder) as folder:
                if _is_answered(folder):
                    words = f"another node answers at {self._path}; the name is taken over when that node ends"
                    self._fail(SocketProblem(words, _OTHER_NODE))
                    return False
                self._tell_of_planted(folder)
                os.rename(self.temporary, NAME, src_dir_fd=folder.descriptor, dst_dir_fd=folder.descriptor)
        except (OSError, SocketUnusable) as error:
            self._fail(self._problem_of(error))
            self.close()
        else:
            self.temporary, self.problem = "", None
        return True

    def _tell_of_planted(self, folder: SocketFolder) -> None:
        """Log that the socket's name is taken by a file that no node has left there, and that this file is replaced.

        Raises `SocketUnusable` for a directory, which cannot be replaced.
        """
        with suppress(FileNotFoundError):
            about = os.stat(NAME, dir_fd=folder.descriptor, follow_symlinks=False)
            if stat.S_ISDIR(about.st_mode):
                require_socket(str(self._path), about.st_mode)
            if not stat.S_ISSOCK(about.st_mode):
                logger.warning("local socket replaces a file", extra={"path": str(self._path)})

    async def keep_publishing(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Publish the socket as soon as no other node answers at its name."""
        while True:
            await sleep(RETRY_SECONDS)
            if self.publish():
                return

    def _problem_of(self, error: OSError | SocketUnusable) -> SocketProblem:
        if isinstance(error, SocketUnusable):
            return error.problem
        words = f"cannot create {self._path}: {error.strerror or error}"
        return SocketProblem(words, "let the node's user write to the folder, and restart the node")

    def _fail(self, problem: SocketProblem) -> None:
        if problem != self.problem:
            about = {"path": str(self._path), "reason": problem.detail, "hint": problem.remedy}
            logger.warning("local socket unavailable", extra=about)
        self.problem = problem

    def close(self) -> None:
        """Remove the socket's file unless it is another node's by now, and stop listening. May be called again."""
        if self.descriptor < 0:
            return
        with suppress(OSError):
            path = self.folder / (self.temporary or NAME)
            about = os.lstat(path)
            if (about.st_dev, about.st_ino) == self.inode:
                path.unlink()
        os.close(self.descriptor)
        self.descriptor = -1


def _open(folder: Path) -> SocketFolder:
    return SocketFolder(folder, owners=(os.geteuid(), ROOT))


def _is_answered(folder: SocketFolder) -> bool:
    """Return whether a process of a trusted user listens at the name of the socket."""
    try:
        found = folder.connect()
    except Busy:
        return True
    except SocketUnusable:
        return False  # a planted file, which is replaced
    if found is not None:
        found[0].close()
    return found is not None


def _listens(folder: SocketFolder, name: str) -> bool:
    """Return whether a process listens at a socket in the folder."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        try:
            connection.connect(folder.address(name))
        except ConnectionRefusedError:
            return False
        except OSError:  # it listens, and has no room
            return True
    return True
