"""Asks the node that serves a database whether it is ready, which only the node knows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException

from eventd.cli.gateway.lock import holder, read_serving
from eventd.cli.gateway.serving_file import reachable_host
from eventd.errors import Unavailable
from eventd.net.address import Address
from eventd.store.engine.database import Database
from eventd.tls.plain_http import wants_tls

SECONDS = 5.0
"""Seconds that the node may take to answer. A node with hung workers waits 2 s for each of them."""
MAX_ANSWER_BYTES = 1 << 20


async def ask_readiness(database: Database) -> Mapping[str, str] | None:
    """Return the state of each readiness check of the node that serves the database: `ok` or the problem.

    Returns None if no node serves it, and the problem as the only check `api` if the node does not answer. Raises
    `Unavailable` if its address is unknown or it requires a key.
    """
    process = holder(database)
    if not process:
        return None
    serving = read_serving(database)
    if serving is None:
        raise Unavailable(
            f"process {process} serves this database, but the address of its API is unknown",
            hint="ask the node itself: routerctl doctor --server URL",
        )
    address = Address.parse(serving.address)
    try:
        return _ask(address)
    except (OSError, HTTPException, ValueError) as error:
        words = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return {"api": f"process {process} serves this database, but does not answer at {address}: {words}"}


def _ask(address: Address) -> Mapping[str, str]:
    """Return the state of each readiness check of the node at an address. Blocks the event loop."""
    connection = HTTPConnection(reachable_host(address.host), address.port, timeout=SECONDS)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        content = answer.read(MAX_ANSWER_BYTES + 1)
    finally:
        connection.close()
    if len(content) > MAX_ANSWER_BYTES:
        raise ValueError(f"the answer is larger than {MAX_ANSWER_BYTES >> 20} MiB")
    if answer.status == 401:
        raise Unavailable("the node requires a key for its readiness", hint=_WITH_KEY)
    if wants_tls(answer.status, content):
        raise Unavailable("the node's API speaks TLS", hint=_WITH_TLS)
    answered = json.loads(content)
    checks = answered.get("checks") if isinstance(answered, dict) else None
    if not isinstance(checks, dict):
        raise ValueError("the answer has no checks: another program answers there")
    return {str(name): _WHICH if name == "groups" and state != "ok" else str(state) for name, state in checks.items()}


_WHICH = "at least one group is not ready: see the node's log, or `routerctl doctor --server URL` with a key"
_WITH_TLS = "ask the node itself: routerctl doctor --server https://HOST:PORT --ca-file PATH"
_WITH_KEY = "ask the node itself: routerctl doctor --server URL --key-file PATH"
