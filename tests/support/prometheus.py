"""The programs of Prometheus: the checker of rules and the server, as Debian's package `prometheus` has them."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from tests.support.ports import free_port
from tests.support.waiting import wait_for

HOW_TO_INSTALL = "apt-get install --yes --no-install-recommends prometheus"


def program_or_skip(name: str) -> str:
    """Return the path of `promtool` or `prometheus`; skip the test where it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: {HOW_TO_INSTALL}")
    return found


def promtool(*arguments: str | Path, stdin: bytes = b"") -> str:
    """Run promtool and return what it printed; fail the test if it finds a fault."""
    command = [program_or_skip("promtool"), *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=120)
    output = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, output
    return output


class PrometheusServer:
    """A server on loopback, with its database in a folder of the test. Use it in a `with` statement."""

    def __init__(self, directory: Path, configuration: dict[str, Any]) -> None:
        self._port = free_port()
        file = directory / "prometheus.yml"
        file.write_text(yaml.safe_dump(configuration))
        self._log = directory / "prometheus.log"
        self._command = [
            program_or_skip("prometheus"),
            f"--config.file={file}",
            f"--storage.tsdb.path={directory}/series",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--log.level=warn",
        ]

    def __enter__(self) -> PrometheusServer:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        try:
            wait_for(self._is_ready, "Prometheus to be ready")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._process.kill()  # its database is thrown away
        self._process.wait()

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        with contextlib.suppress(OSError):
            return self._get("/-/ready")[0] == 200
        return False

    def ask(self, path: str, **query: str) -> Any:
        """Return the `data` of an answer of the HTTP API."""
        status, body = self._get(f"/api/v1/{path}" + (f"?{urlencode(query)}" if query else ""))
        assert status == 200, body
        return json.loads(body)["data"]

    def _get(self, path: str) -> tuple[int, bytes]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def value(self, expression: str) -> float | None:
        """Return the value of an expression that has one series; None if it has none."""
        found = self.ask("query", query=expression)["result"]
        return float(found[0]["value"][1]) if found else None

    def rules(self) -> list[dict[str, Any]]:
        """Return all rules with their health and alerts."""
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]

    def firing(self, alert: str) -> list[dict[str, Any]]:
        """Return what an alert fires for."""
        active = self.ask("alerts")["alerts"]
        return [one for one in active if one["labels"]["alertname"] == alert and one["state"] == "firing"]
