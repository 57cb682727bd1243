"""Blocking requests to the console of many nodes, with the cookie that its one-time link gives."""

from __future__ import annotations

import http.client
import re


class ConsoleVisit:
    """A browser without scripts that has opened a link. `cookie`: what the link gave; empty if it was refused."""

    def __init__(self, link: str) -> None:
        self._host, _, path = link.removeprefix("http://").partition("/")
        self.cookie = ""
        self.cookie = self._ask(f"/{path}")[2].partition(";")[0]

    def get(self, path: str) -> tuple[int, str]:
        """Return the status and the text of a page."""
        return self._ask(path)[:2]

    def row(self, name: str) -> str:
        """Return the row of a node on the page of all nodes."""
        row = re.search(rf'<tr id="node-{name}".*?</tr>', self.get("/console/")[1], re.S)
        assert row is not None
        return row[0]

    def _ask(self, path: str) -> tuple[int, str, str]:
        connection = http.client.HTTPConnection(self._host, timeout=20)
        try:
            connection.request("GET", path, headers={"Cookie": self.cookie} if self.cookie else {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers.get("Set-Cookie", "")
        finally:
            connection.close()
