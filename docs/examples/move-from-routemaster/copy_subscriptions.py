"""Creates the subscriptions of a Routemaster bus at a node, each in the name of its own client.

Usage: python copy_subscriptions.py SUBSCRIPTIONS_FILE NODE_URL [CA_FILE], with what `GET /subscriptions` of the old bus
answered to its root key. A subscription that exists is replaced, so it can be run again. It prints no secret.
"""

from __future__ import annotations

import base64
import json
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

SECONDS = 30


def subscribe(node: str, row: dict[str, Any], tls: ssl.SSLContext) -> str:
    """Subscribe the client of a row; return why the node refused it, or an empty text."""
    wanted = {"topics": row["topics"], "callback": row["callback"], "uuid": row["uuid"]}
    wanted |= {"timeout": row["timeout"], "max": row["max_events"]}
    user = base64.b64encode(f"{row['subscriber']}:x".encode()).decode()
    headers = {"Authorization": f"Basic {user}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{node}/subscription", json.dumps(wanted).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS, context=tls):
            return ""
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read(1000).decode(errors='replace')}"


def main(file: str, node: str, *ca: str) -> int:
    """Copy all subscriptions; return 1 if the node refused any."""
    tls = ssl.create_default_context(cafile=ca[0] if ca else None)
    refused = 0
    for row in json.loads(Path(file).read_text()):
        name = row["subscriber"].partition("--")[0]
        reason = subscribe(node.rstrip("/"), row, tls)
        refused += bool(reason)
        print(f"{name}: {reason or ', '.join(row['topics']) or 'no topics'}")
    return int(refused > 0)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
