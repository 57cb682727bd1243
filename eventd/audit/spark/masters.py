"""The masters of Spark: their forms, and whether one answers."""

from __future__ import annotations

import re
import socket
from typing import Final
from urllib.parse import urlsplit

from eventd.errors import EventdError, Invalid
from eventd.lake.address import shown
from eventd.text.quoting import quoted

CLUSTER: Final = "spark://"
"""How the address of a standalone cluster begins."""
SERVER: Final = "sc://"
"""How the address of a server of Spark Connect begins."""
_PORTS: Final = {CLUSTER: 7077, SERVER: 15002}
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]", "::1")
_MASTER: Final = re.compile(
    r"(local(\[(\d+|\*)(,\d+)?\])?|local-cluster\[\d+,\d+,\d+\]|yarn|spark://.+|k8s://.+|sc://.+)$", re.ASCII
)
_CONNECT_TIMEOUT: Final = 5.0
"""Seconds to wait for a master to accept a connection."""


class SparkUnavailable(EventdError):
    """Spark could not be started, or its master does not answer."""

    code = "spark_unavailable"


def is_server(master: str) -> bool:
    """Return whether a master is the address of a server of Spark Connect."""
    return master.startswith(SERVER)


def is_local(master: str) -> bool:
    """Return whether all of Spark runs on this machine."""
    if master.startswith("local"):
        return True
    return master.startswith(CLUSTER) and all(host in _LOOPBACK for host, _ in _addresses(master))


def check_form(master: str) -> None:
    """Check the form of a master alone. Raises Invalid like `check_master`."""
    if _MASTER.match(master) is None:
        raise _invalid(master)
    if master.startswith((CLUSTER, SERVER)):
        _addresses(master)


def check_master(master: str) -> None:
    """Check the form of a master; for `spark://` and `sc://`, also that one of its addresses accepts a connection.

    Spark itself would retry for a minute or longer, and then report a misleading error. Raises Invalid and
    SparkUnavailable, whose messages leave out the parameters of `sc://`, such as a token.
    """
    check_form(master)
    if not master.startswith((CLUSTER, SERVER)):
        return
    refused = []
    for address in _addresses(master):
        try:
            socket.create_connection(address, timeout=_CONNECT_TIMEOUT).close()
            return
        except OSError as error:
            refused.append(f"{address[0]}:{address[1]}: {error.strerror or error}")
    raise SparkUnavailable(
        f"no Spark master answers at {without_parameters(master)} ({'; '.join(refused)})",
        hint="start the master, or omit --master to run on this machine alone",
    )


def _addresses(master: str) -> list[tuple[str, int]]:
    """Return host and port of each master in `spark://host:port,host:port`, or of `sc://host:port/;…`.

    Raises Invalid.
    """
    scheme = SERVER if is_server(master) else CLUSTER
    places = shown(master.partition("/;")[0] if is_server(master) else master).removeprefix(scheme)
    try:
        parts = [urlsplit(f"{scheme}{place}") for place in places.split(",")]
        return [(part.hostname or "", part.port or _PORTS[scheme]) for part in parts]
    except ValueError:
        raise _invalid(master) from None


def without_parameters(master: str) -> str:
    """Return a master without parameters, of which a token may be one, and without a user and a query.

    Only `sc://` has parameters, after `/;`. They are left out also of what is not a master, such as `sc://…` without
    the slash.
    """
    return shown(re.split("/?;", master, maxsplit=1)[0])


def _invalid(master: str) -> Invalid:
    return Invalid(
        f"{quoted(without_parameters(master))} is not a Spark master",
        hint="write local[*], local-cluster[2,1,1024], spark://host:7077, yarn, k8s://… or sc://host:15002",
    )
