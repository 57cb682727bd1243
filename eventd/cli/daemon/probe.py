"""`routerd-eventd probe`: asks a node whether it is alive or ready, for the health checks of containers.

The node on this machine is asked over its local socket, which needs no key, or else over TCP. A container runs this
every few seconds, so it imports only what loads fast, and no HTTP library.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from eventd.cli.gateway.serving_file import lock_file, reachable_host, read_serving_file
from eventd.net.local_socket import LISTEN_HEADER, ROOT, SocketFolder, SocketUnusable
from eventd.settings.environment import DATA_DIR, DATABASE_FILE, probe_environment
from eventd.tls.plain_http import wants_tls

if TYPE_CHECKING:
    import ssl

SECONDS = 2.0
"""Seconds that each step may take by default: connecting, and waiting for the next part of the answer."""
MOST_BYTES = 64 << 10
"""Maximum bytes of an answer that are read."""
_PORT = "8780"
_LISTEN = f"127.0.0.1:{_PORT}"
_FLAGS = {"--ready": "ready", "--standby-ok": "standby_ok"}
_VALUES = {
    "--server": "server",
    "--data-dir": "data_dir",
    "--key-file": "key_file",
    "--ca-file": "ca_file",
    "--client-cert": "client_cert",
    "--client-key": "client_key",
}


class Probe(NamedTuple):
    """The options of `probe`. Empty ones are taken from the environment."""

    ready: bool = False
    standby_ok: bool = False
    server: str = ""
    data_dir: str = ""
    key_file: str = ""
    ca_file: str = ""
    client_cert: str = ""
    client_key: str = ""
    seconds: float = SECONDS


class ProbeFailed(Exception):
    """The node does not answer, or is not ready; the text says why and what to do."""


def read_words(words: Sequence[str]) -> Probe | None:
    """Return the probe that these arguments request; None if the full command line has to parse them.

    The full one supports --help and --timeout and reports mistakes, but takes ten times as long to load.
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
    """Ask the node; return the text to print, which begins with `alive` or `ready`. Raises `ProbeFailed`."""
    known = probe_environment(environ)
    server = probe.server or known.get("EVENTD_SERVER", "")
    path = "/healthz"
    if probe.ready:
        path = "/readyz?verbose&standby=ok" if probe.standby_ok else "/readyz?verbose"
    answer = None if server else _ask_locally(path, _folder(probe, known), known.get("EVENTD_API_LISTEN", ""), probe)
    if answer is None:
        server = server or _local_address(probe, known)
        answer = _ask(server, path, _key(probe, known), _tls_files(probe, known), probe.seconds)
    status, text = answer
    if status == 401:
        raise ProbeFailed(f"the node at {server} requires a key for probes: give one with --key-file")
    if wants_tls(status, text.encode()):
        raise ProbeFailed(f"the node at {server} speaks TLS: name it with --server https://…, and its --ca-file")
    if status == 200:
        return "ready" if probe.ready else "alive"
    failed = [line.removeprefix("[-]").strip() for line in text.splitlines() if line.startswith("[-]")]
    raise ProbeFailed(
        "; ".join(failed) or f"the node at {server or _folder(probe, known)} answers with HTTP status {status}"
    )


def _folder(probe: Probe, known: Mapping[str, str]) -> str:
    return probe.data_dir or known.get("EVENTD_DATA_DIR", "") or DATA_DIR


def _ask_locally(path: str, folder: str, listen: str, probe: Probe) -> tuple[int, str] | None:
    """Return the status and the text of the answer over the node's local socket; None if TCP has to be used.

    `listen`: where the node listens, if that is known: several nodes may share a folder. Raises `ProbeFailed` if the
    node accepts the connection and does not answer.
    """
    user = os.geteuid()
    try:
        with SocketFolder(folder, owners=None if user == ROOT else (user, ROOT)) as opened:
            found = opened.connect(probe.seconds)
    except SocketUnusable:
        return None
    if found is None:
        return None
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    if listen:
        head += f"{LISTEN_HEADER}: {listen}\r\n"
    with found[0] as connection:
        try:
            status, text = _exchange(connection, head)
        except TimeoutError:
            raise ProbeFailed(f"the node at {folder} accepts connections and does not answer in time") from None
        except (OSError, _NotHttp):
            return None
    return None if status not in (200, 503) or not text else (status, text)


def _local_address(probe: Probe, known: Mapping[str, str]) -> str:
    """Return the API's address of the node on this machine: the one that it wrote beside its database, or the setting.

    A node that chose a free port has written it; one on Postgres writes none.
    """
    serving = read_serving_file(lock_file(f"{_folder(probe, known)}/{DATABASE_FILE}"))
    return (serving.address if serving else "") or known.get("EVENTD_API_LISTEN", "") or _LISTEN


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


class _TlsFiles(NamedTuple):
    """The files for a connection over TLS.

    If they are empty, the system's CAs are used, and no client certificate is shown.
    """

    ca: str
    cert: str
    key: str


def _tls_files(probe: Probe, known: Mapping[str, str]) -> _TlsFiles:
    files = _TlsFiles(
        probe.ca_file or known.get("EVENTD_CA_FILE", ""),
        probe.client_cert or known.get("EVENTD_CLIENT_CERT_FILE", ""),
        probe.client_key or known.get("EVENTD_CLIENT_KEY_FILE", ""),
    )
    if bool(files.cert) != bool(files.key):
        raise ProbeFailed("--client-cert and --client-key belong together: give both, or none")
    return files


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
    return tls, reachable_host(host), int(port), f"/{path}".rstrip("/")


def _ask(server: str, path: str, key: str, files: _TlsFiles, seconds: float) -> tuple[int, str]:
    """Return the status and the text of the answer to a GET. Raises `ProbeFailed`."""
    tls, host, port, base = _split(server)
    head = f"GET {base}{path} HTTP/1.1\r\nHost: {f'[{host}]' if ':' in host else host}:{port}\r\nConnection: close\r\n"
    if key:
        head += f"Authorization: Bearer {key}\r\n"
    try:
        with socket.create_connection((host, port), timeout=seconds) as plain:
            if not tls:
                return _exchange(plain, head)
            # otherwise the request waits up to 40 ms for the node's delayed acknowledgement of the handshake
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with _over_tls(plain, host, files) as connection:
                return _exchange(connection, head)
    except _NotHttp:
        raise ProbeFailed(
            f"what answers at {host} port {port} is not the API of a node: name it with --server"
        ) from None
    except (OSError, UnicodeError) as error:
        if tls and (failure := _tls_failure(error)):
            raise ProbeFailed(f"cannot reach {host} port {port}: {failure}") from None
        why = "no answer in time" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or str(error)
        raise ProbeFailed(
            f"cannot reach {host} port {port}: {why} (check that the node runs, or name its API with --server)"
        ) from None


class _NotHttp(Exception):
    """The answer is not HTTP."""


def _exchange(connection: socket.socket, head: str) -> tuple[int, str]:
    """Return the status and the text of the answer to a request. Raises `_NotHttp` and OSError."""
    connection.sendall(f"{head}\r\n".encode())
    answer = b""
    while len(answer) < MOST_BYTES and (part := connection.recv(MOST_BYTES)):
        answer += part
    first = answer.split(b"\r\n", 1)[0].split(b" ")
    if not first[0].startswith(b"HTTP/1.") or len(first) < 2 or not first[1].isdigit():
        raise _NotHttp
    return int(first[1]), answer.partition(b"\r\n\r\n")[2].decode("utf-8", "replace")


def _tls_failure(error: Exception) -> str:
    """Return why TLS failed; empty if it did not."""
    import ssl

    if not isinstance(error, ssl.SSLError):
        return ""
    from eventd.tls.reasons import Reason, failure_at_client

    failure = failure_at_client(error)
    step = ": give one with --client-cert and --client-key" if failure.reason == Reason.CLIENT_MISSING else ""
    return f"TLS failed ({failure.reason}): {failure.detail}{step}"


def _over_tls(plain: socket.socket, host: str, files: _TlsFiles) -> socket.socket:
    import ssl  # slow to load, and not needed on the same machine

    try:
        context = ssl.create_default_context(cafile=files.ca or None)
    except OSError as error:
        why = "contains no certificate" if isinstance(error, ssl.SSLError) else error.strerror
        raise ProbeFailed(f"{files.ca}: {why}: correct --ca-file or EVENTD_CA_FILE") from None
    if files.cert:
        _show_certificate(context, files)
    return context.wrap_socket(plain, server_hostname=host)


def _show_certificate(context: ssl.SSLContext, files: _TlsFiles) -> None:
    """Let the connection show the client certificate. Raises `ProbeFailed`, which names the file."""
    from eventd.tls.pair import PairUnusable, load_pair_into

    for file, names in (
        (files.cert, "--client-cert or EVENTD_CLIENT_CERT_FILE"),
        (files.key, "--client-key or EVENTD_CLIENT_KEY_FILE"),
    ):
        try:
            open(file, "rb").close()
        except OSError as error:  # OpenSSL does not say which of the two
            raise ProbeFailed(f"{file}: {error.strerror}: correct {names}") from None
    try:
        load_pair_into(context, files.cert, files.key)
    except PairUnusable as error:
        raise ProbeFailed(f"{error}: correct --client-cert and --client-key") from None
