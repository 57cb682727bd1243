"""`routerd-eventd probe`: asks a node whether it is alive or ready, for the health checks of containers.

A container runs it every few seconds, so it imports only what loads fast, and no HTTP library.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from eventd.settings.environment import probe_environment

SECONDS = 2.0
"""How long each step may take by default: to connect, and until the next part of the answer."""
MOST_BYTES = 64 << 10
"""Maximum bytes of an answer that are read."""
_PORT = "8780"
_LISTEN = f"127.0.0.1:{_PORT}"
_DATA_DIR = "eventd-data"
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # a listener on all addresses is probed on this machine
_FLAGS = {"--ready": "ready", "--standby-ok": "standby_ok"}
_VALUES = {"--server": "server", "--data-dir": "data_dir", "--key-file": "key_file"}


class Probe(NamedTuple):
    """The options of `probe`. Empty ones are taken from the environment."""

    ready: bool = False
    standby_ok: bool = False
    server: str = ""
    data_dir: str = ""
    key_file: str = ""
    seconds: float = SECONDS


class ProbeFailed(Exception):
    """The node does not answer, or is not ready; the text says why and what to do."""


def read_words(words: Sequence[str]) -> Probe | None:
    """Return the probe that these arguments ask for; None if the full command line has to read them.

    That one knows --help, --timeout and how to report mistakes, and takes ten times as long.
    """
    found: dict[str, str | bool] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word in _FLAGS:
            found[_FLAGS[word]] = True
        elif name in _VALUES:
            value = value if equals else next(rest, "")
            if not value.strip() or value.startswith("-"):
                return None
            found[_VALUES[name]] = value
        else:
            return None
    return Probe(**found)  # type: ignore[arg-type]


def run_probe(probe: Probe, environ: Mapping[str, str] | None = None) -> str:
    """Ask the node; return its first words, `alive` or `ready`. Raises `ProbeFailed`."""
    known = probe_environment(environ)
    server = probe.server or known.get("EVENTD_SERVER", "") or _local_address(probe, known)
    path = "/healthz"
    if probe.ready:
        path = "/readyz?verbose&standby=ok" if probe.standby_ok else "/readyz?verbose"
    status, text = _ask(server, path, _key(probe, known), probe.seconds)
    if status == 401:
        raise ProbeFailed(f"the node at {server} requires a key for probes: give one with --key-file")
    if status == 200:
        return "ready" if probe.ready else "alive"
    failed = [line.removeprefix("[-]").strip() for line in text.splitlines() if line.startswith("[-]")]
    raise ProbeFailed("; ".join(failed) or f"the node at {server} answers with HTTP status {status}")


def _local_address(probe: Probe, known: Mapping[str, str]) -> str:
    """Return the API's address of the node on this machine: the one that it wrote beside its database, or the setting.

    A node that chose a free port has written it; one on Postgres writes none.
    """
    folder = probe.data_dir or known.get("EVENTD_DATA_DIR", "") or _DATA_DIR
    try:
        with open(f"{folder}/eventd.db.lock", errors="replace") as file:
            _, _, written = file.read().partition("\n")
    except OSError:
        written = ""
    return written.split(" ")[0].strip() or known.get("EVENTD_API_LISTEN", "") or _LISTEN


def _key(probe: Probe, known: Mapping[str, str]) -> str:
    file = probe.key_file or ("" if "EVENTD_API_KEY" in known else known.get("EVENTD_API_KEY_FILE", ""))
    if not file:
        return known.get("EVENTD_API_KEY", "")
    try:
        with open(file, encoding="ascii") as opened:
            key = opened.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not a key"
        raise ProbeFailed(f"{file}: {why}: correct --key-file or EVENTD_API_KEY_FILE") from None
    if not key or not key.isprintable():
        raise ProbeFailed(f"{file}: contains no key, or more than a key: correct the file")
    return key


def _split(server: str) -> tuple[bool, str, int, str]:
    """Return whether an address is HTTPS, its host, its port and its path. Raises `ProbeFailed`."""
    scheme, marked, rest = server.partition("://")
    place, _, path = (rest if marked else server).partition("/")
    tls = bool(marked) and scheme == "https"
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        host, port = place, "443" if tls else _PORT
    if (marked and scheme not in ("http", "https")) or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ProbeFailed(f"{server!r} is not an address of a node: write http://HOST:PORT")
    host = host.strip("[]")
    return tls, _ANY.get(host, host), int(port), f"/{path}".rstrip("/")


def _ask(server: str, path: str, key: str, seconds: float) -> tuple[int, str]:
    """Return the status and the text of the answer to a GET. Raises `ProbeFailed`."""
    tls, host, port, base = _split(server)
    head = f"GET {base}{path} HTTP/1.1\r\nHost: {f'[{host}]' if ':' in host else host}:{port}\r\nConnection: close\r\n"
    if key:
        head += f"Authorization: Bearer {key}\r\n"
    try:
        with socket.create_connection((host, port), timeout=seconds) as plain:
            connection = _over_tls(plain, host) if tls else plain
            connection.sendall(f"{head}\r\n".encode())
            answer = b""
            while len(answer) < MOST_BYTES and (part := connection.recv(MOST_BYTES)):
                answer += part
    except (OSError, UnicodeError) as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or str(error)
        raise ProbeFailed(
            f"cannot reach {host} port {port}: {why} (check that the node runs, or name its API with --server)"
        ) from None
    first = answer.split(b"\r\n", 1)[0].split(b" ")
    if not first[0].startswith(b"HTTP/1.") or len(first) < 2 or not first[1].isdigit():
        raise ProbeFailed(f"what answers at {host} port {port} is not the API of a node: name it with --server")
    return int(first[1]), answer.partition(b"\r\n\r\n")[2].decode("utf-8", "replace")


def _over_tls(plain: socket.socket, host: str) -> socket.socket:
    import ssl  # slow to load, and not needed on the same machine

    return ssl.create_default_context().wrap_socket(plain, server_hostname=host)
