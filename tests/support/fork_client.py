"""Runs a forked command for a shell: `python -I -S fork_client.py SOCKET MODULE ARGUMENTS…`.

This process is what the shell sees. It passes its signals on to the command and exits with the command's status; if it
is killed, the command is killed. It imports few modules, because its purpose is a fast start.
"""

from __future__ import annotations

import _socket
import marshal
import os
import signal
import sys

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def _main() -> None:
    number, *words = sys.argv[1:]
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    ignored = []
    for each in _PASSED_ON:
        if signal.getsignal(each) == signal.SIG_IGN:
            ignored.append(int(each))
        else:
            signal.signal(each, lambda received, _: ours.send(str(int(received)).encode()))
    mask = os.umask(0o077)
    os.umask(mask)
    request = {
        "command": [sys.executable, "-m", *words],
        "cwd": os.getcwd(),
        "env": dict(os.environ),
        "umask": mask,
        "ignored": ignored,
        "kept": [],
    }
    files = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2, theirs.fileno()))
    requests = _socket.socket(fileno=int(number))
    requests.sendmsg([b"\0" + marshal.dumps(request)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
    theirs.close()
    status = int(ours.recv(32) or 1)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


_main()
