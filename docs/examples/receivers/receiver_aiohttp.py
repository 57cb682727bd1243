"""Receives callbacks with aiohttp, and verifies them with eventd.client.webhooks.

Usage: python receiver_aiohttp.py SECRET_FILE [SECRET_FILE], two during a rotation. PORT is 9000 unless it is set.
"""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from pathlib import Path

from aiohttp import web

from eventd.client import webhooks

try:
    SECRETS = [webhooks.read_secret(Path(name).read_text()) for name in sys.argv[1:]]
except (OSError, webhooks.BadKey) as problem:
    sys.exit(f"the secret cannot be used: {problem}")
MAX_BODY = 4 << 20
REMEMBERED = 100_000
# In production a table with a unique id, written in the same transaction as what `handle` does.
seen: OrderedDict[str, None] = OrderedDict()


def handle(id: str, body: bytes) -> None:
    """Do what the callback is for. An exception is answered with 500, so that the sender tries again."""
    print(id, body.decode(), flush=True)


async def receive(request: web.Request) -> web.Response:
    body = await request.read()  # the bytes that are signed, not decoded JSON
    try:
        found = webhooks.verify(request.headers, body, SECRETS)  # id, time (300 s) and signature
    except (webhooks.Malformed, webhooks.Unauthorized) as error:
        return web.Response(status=401, text=str(error))
    if found.id not in seen:  # the sender repeats a request, with the same id, if the answer was lost
        handle(found.id, body)
        seen[found.id] = None
        if len(seen) > REMEMBERED:
            seen.popitem(last=False)
    return web.Response(status=204)


application = web.Application(client_max_size=MAX_BODY)
application.router.add_post("/hooks", receive)

if __name__ == "__main__":
    if not SECRETS:
        sys.exit(__doc__)
    web.run_app(application, host="127.0.0.1", port=int(os.environ.get("PORT", "9000")))
