"""Receives the batches of a Routemaster bus.

Usage: python drain.py UUID_FILE [SECRET_FILE …], with the uuid of the subscription, and the secrets if its requests are
signed. PORT is 9000 unless it is set. With the PEM files TLS_CERT and TLS_KEY it speaks TLS, which a bus demands of its
subscribers; without them, let a proxy do that.
"""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web

from eventd.client.drain import Drain, DrainEvent, application


async def handle(events: Sequence[DrainEvent]) -> None:
    """Do what the events are for. After an exception the bus sends the batch again, so expect an event twice."""
    for event in events:
        print(event.topic, event.type, event.url, event.t, flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    uuid, *secrets = (Path(name).read_text().strip() for name in sys.argv[1:])
    receiving = Drain(handle, uuid, secrets=secrets)
    tls = None
    if "TLS_CERT" in os.environ:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(os.environ["TLS_CERT"], os.environ["TLS_KEY"])
    port = int(os.environ.get("PORT", "9000"))
    web.run_app(application(receiving, path="/hooks"), host="127.0.0.1", port=port, ssl_context=tls)
