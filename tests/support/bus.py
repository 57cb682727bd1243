"""A node with the Routemaster surface as a process, and its clients."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import ssl
from typing import Any

from eventd.store.rows.tokens import handle_of
from tests.support.callback_program import ReceiverThread
from tests.support.certificates import Files
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.running import NodeProcess

ROOT = "root-key-of-sixteen"


class Bus:
    """A node with the surface, asked as Routemaster's clients ask.

    With `tls`, the listener has this certificate, and plain requests are redirected.
    """

    def __init__(
        self, processes: Processes, *, database_url: str | None = None, tls: Files | None = None, **env: str
    ) -> None:
        self.port = free_port()
        settings = {
            "EVENTD_ROUTEMASTER_LISTEN": f"127.0.0.1:{self.port}",
            "EVENTD_ROUTEMASTER_ROOT_KEY": ROOT,
            "EVENTD_ROUTEMASTER_REQUIRE_TLS": "false",
            "EVENTD_ROUTEMASTER_SSL_VERIFY": "false",
            "EVENTD_ROUTEMASTER_MAX_BACKOFF": "300ms",
            "EVENTD_CALLBACK_ALLOW": "127.0.0.1",
        }
        if tls is not None:
            settings["EVENTD_ROUTEMASTER_REQUIRE_TLS"] = "true"
            settings |= {"EVENTD_ROUTEMASTER_TLS_CERT": str(tls.cert), "EVENTD_ROUTEMASTER_TLS_KEY": str(tls.key)}
        self.context = None if tls is None else ssl.create_default_context(cafile=str(tls.cert.parent / "ca.crt"))
        self.node = NodeProcess(processes, "bus", database_url=database_url, **settings | env)

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection to the surface, over TLS if it has a certificate."""
        if self.context is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        return http.client.HTTPSConnection("localhost", self.port, timeout=20, context=self.context)

    def ask(self, method: str, path: str, body: Any = None, *, token: str) -> tuple[int, bytes]:
        auth = "Basic " + base64.b64encode(f"{token}:x".encode()).decode()
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, None if body is None else json.dumps(body), {"Authorization": auth})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def token(self, name: str) -> str:
        status, text = self.ask("POST", "/api_tokens", {"name": name}, token=ROOT)
        assert status == 201
        return str(json.loads(text)["token"])

    def publish(self, token: str, topic: str, url: str, **more: Any) -> None:
        status, text = self.ask("POST", f"/topics/{topic}", {"type": "create", "url": url, **more}, token=token)
        assert (status, text) == (200, b"")

    def subscribe(self, token: str, *topics: str, receiver: ReceiverThread, **more: Any) -> None:
        body = {"topics": list(topics), "callback": receiver.url, "uuid": "secret-uuid", "timeout": 0, **more}
        assert self.ask("POST", "/subscription", body, token=token)[0] == 204

    def listed(self, token: str) -> list[dict[str, Any]]:
        """Return the callbacks as operators see them, but only that of a token's subscriber."""
        handle = handle_of(token.partition("--")[0], token)
        found = self.node.ask("GET", "/callbacks")["callbacks"]
        return [one for one in found if one["callback"] == f"rm/{handle}"]

    def topics(self, token: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.ask("GET", "/topics", token=token)[1])
        return found

    def subscriber(self, token: str) -> dict[str, Any]:
        rows = json.loads(self.ask("GET", "/subscriptions", token=token)[1])
        return next(row for row in rows if row["subscriber"] == token)
