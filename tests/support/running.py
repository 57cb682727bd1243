"""Nodes as processes, for acceptance tests: started by the command and called over HTTP, nothing else.

Blocking; every wait names the condition it waits for.
"""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from tests.support.declared import declare, group, peer
from tests.support.ports import free_port
from tests.support.processes import DAEMON, Process, Processes
from tests.support.waiting import wait_for

SECRET = "0123456789abcdef0123456789abcdef"


class ApiError(Exception):
    """The API answered with an error."""

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        super().__init__(f"{status} {error.get('code')}: {error.get('message')}")
        self.status = status
        self.code = error.get("code", "")


class NodeProcess:
    """One node over several starts, with the same data and the same listener."""

    def __init__(
        self,
        processes: Processes,
        name: str,
        *,
        database_url: str | None = None,
        ready: bool = True,
        program: Sequence[str] = DAEMON,
        **env: str,
    ) -> None:
        self.name = name
        self.headers: dict[str, str] = {}
        self.port = free_port()
        self.secret: Path = processes.directory / f"{name}.secret"
        self.secret.write_text(SECRET)
        self.data = processes.directory / name
        migrate = ["--migrate"] if database_url else []
        settings = {"EVENTD_DRAIN_TIMEOUT": "5s", **env}
        self.process: Process = processes.serve(
            name, *migrate, database_url=database_url, ready=ready, env=settings, program=program
        )

    @property
    def file(self) -> Path:
        """Return the SQLite file."""
        return self.data / "eventd.db"

    # --- life -----------------------------------------------------------------------------------------------

    def kill9(self) -> None:
        """Kill the node with SIGKILL."""
        self.process.kill9()

    def start(self) -> NodeProcess:
        """Start the node again and wait until it is ready."""
        self.process.start().wait_ready()
        return self

    def stop(self) -> int:
        """Send SIGTERM; return the exit status."""
        return self.process.terminate()

    # --- asking ---------------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Send one request to the API. Raises ApiError for an error; OSError or HTTPException while the node does not
        answer."""
        return self.request(method, f"/api/v1{path}" + (f"?{urlencode(query, doseq=True)}" if query else ""), body)

    def request(self, method: str, url: str, body: Any = None, others: Mapping[str, str] | None = None) -> Any:
        """Send a request as `ask` does, with a whole path and with other headers."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.process.port, timeout=20)) as connection:
            headers = {"Content-Type": "application/json", **self.headers, **(others or {})}
            connection.request(method, url, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            told = json.loads(answer.read())
        if answer.status >= 400:
            raise ApiError(answer.status, told["error"])
        return told

    def apply(self, *documents: dict[str, Any], prune: bool = False) -> Any:
        """Apply resources."""
        sources = [{"name": "test", "text": declare(*documents)}]
        return self.ask("POST", "/resources/apply", {"sources": sources, "prune": prune})

    def join(self, *others: NodeProcess, **spec: Any) -> None:
        """Apply the group with these peers."""
        peers = [peer(other.name, other.port) for other in others]
        self.apply(group(self.name, port=self.port, secret=self.secret, **spec), *peers)
        self.wait_listening()

    def wait_listening(self) -> None:
        """Wait until peers can reach the node."""

        def listens() -> bool:
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                with contextlib.closing(connection):
                    connection.request("GET", "/")
                    return connection.getresponse().status == 404
            return False

        wait_for(listens, f"{self.name} to listen for peers")

    def emit(self, *ids: str, group: str = "edge", **fields: Any) -> Any:
        """Store events; when this returns, they are acknowledged."""
        events = [{"id": each, "type": "t", **fields} for each in ids]
        return self.ask("POST", f"/groups/{group}/events", {"events": events})

    def ids(self, *, source: str = "", group: str = "edge") -> list[str]:
        """Return the ids of all events in the order of this node's log, expired ones included."""
        found: list[str] = []
        after = ""
        while True:
            page = self.ask(
                "GET", f"/groups/{group}/events", limit=1000, includeExpired="true", source=source, after=after
            )
            found += [event["id"] for event in page["events"]]
            if page["next"] is None:
                return found
            after = page["next"]

    def counts(self, group: str = "edge") -> tuple[int, int]:
        """Return the number of events and the number of records: equal if none was stored twice."""
        status = self.ask("GET", f"/resources/EventGroup/{group}/describe")["status"]
        return status["events"], status["seq"]

    def link(self, peer: str, group: str = "edge") -> dict[str, Any]:
        """Return the link to a peer."""
        shown: dict[str, Any] = self.ask("GET", f"/groups/{quote(group)}/links", peer=peer)["outbound"][0]
        return shown

    def letters(self, group: str = "edge") -> list[tuple[str, str, str]]:
        """Return the dead letters: event, peer, reason."""
        found = self.ask("GET", f"/groups/{group}/dead-letters", limit=1000)["deadLetters"]
        return [(letter["eventId"], letter["peer"], letter["reason"]) for letter in found]

    # --- waiting --------------------------------------------------------------------------------------------

    def wait_holds(self, ids: set[str], *, seconds: float = 30.0) -> None:
        """Wait until the node holds all these events."""
        wait_for(lambda: not ids - set(self.ids()), f"{self.name} to hold {len(ids)} events", seconds=seconds)

    def wait_sent(self, *peers: str, seconds: float = 30.0, group: str = "edge") -> None:
        """Wait until these peers have acknowledged everything."""
        for each in peers:
            wait_for(
                lambda each=each: self.link(each, group)["lagEvents"] == 0,  # type: ignore[misc]
                f"{self.name} to have sent everything to {each}",
                seconds=seconds,
            )

    def wait_link(self, peer: str, state: str, reason: str = "", *, seconds: float = 20.0) -> dict[str, Any]:
        """Wait until the link is in this state, for this reason."""

        def so() -> dict[str, Any] | None:
            link = self.link(peer)
            return link if link["state"] == state and reason in ("", link["reason"]) else None

        try:
            return wait_for(so, f"{self.name} to {peer} to be {state} {reason}", seconds=seconds) or {}
        except AssertionError as error:
            raise AssertionError(f"{error}; the link: {self.link(peer)}") from None
