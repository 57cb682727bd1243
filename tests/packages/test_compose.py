"""The sites of compose.yaml: its structure, and its own commands, variables and resources as processes of this machine.

No engine for containers is here. What differs is replaced: folders of volumes, and names of hosts.
"""

from __future__ import annotations

import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.release.source import version
from eventd.settings.model import Settings, variable_of
from tests.support.fork_server import shell_files
from tests.support.installed_programs import write_programs
from tests.support.ports import free_port
from tests.support.source import ROOT
from tests.support.waiting import wait_for

FOLDER = ROOT / "deploy" / "compose"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SITES = ("site-a", "site-b", "site-c")
STANDBYS = ("lab", "lab-standby")
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("routerd-eventd:")]
_LINES = (ROOT / "deploy/container/Containerfile").read_text().replace("\\\n", " ").splitlines()
IMAGE = dict(word.split("=") for line in _LINES if line.startswith("ENV ") for word in line.split()[1:])
"""The variables that the image sets."""


def test_every_service_is_limited_to_what_it_needs() -> None:
    for name in [*OURS, "prometheus"]:
        service = SERVICES[name]
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"]), name
    for name in OURS:
        assert SERVICES[name]["security_opt"] == ["no-new-privileges:true"], name
    for name, service in SERVICES.items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), f"{name} is open to others"


def test_every_node_waits_for_the_keys_and_says_when_it_is_ready() -> None:
    for name in OURS:
        if name != "secrets":
            waits = SERVICES[name]["depends_on"]
            assert waits.keys() <= {"secrets", "database"}, name
            assert SERVICES[name]["healthcheck"]["test"][:4] == ["CMD", "routerd-eventd", "probe", "--ready"], name
    assert SERVICES["database"]["depends_on"] == {"secrets": {"condition": "service_completed_successfully"}}


def test_every_volume_and_file_that_is_mounted_exists() -> None:
    sources = [volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", ())]
    assert {name for name in sources if not name.startswith(".")} == COMPOSE["volumes"].keys()
    assert [name for name in sources if name.startswith(".") and not (FOLDER / name).exists()] == []


def test_every_variable_of_a_node_is_a_setting_and_the_image_has_the_version_of_the_project() -> None:
    known = {variable_of(name) for name in Settings.model_fields}
    for name in OURS:
        assert SERVICES[name].get("environment", {}).keys() <= known
        assert SERVICES[name]["image"] == f"routerd-eventd:${{EVENTD_VERSION:-{version()}}}"


def test_the_sites_send_their_traces_to_a_collector_that_is_there() -> None:
    traced = yaml.safe_load((FOLDER / "tracing.yaml").read_text())["services"]
    collector = traced.pop("jaeger")
    assert all(port.startswith("127.0.0.1:") for port in collector["ports"])
    assert traced == {
        name: {"environment": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://jaeger:4318", "OTEL_SERVICE_NAME": name}}
        for name in SITES
    }


def test_prometheus_scrapes_every_site_with_the_key_that_is_written_for_it() -> None:
    configuration = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    for job in configuration["scrape_configs"]:
        assert job["static_configs"] == [{"targets": [f"{name}:8780" for name in SITES]}]
        assert job["authorization"] == {"credentials_file": "/run/secrets/eventd/metrics-key"}
    assert ">metrics-key" in SERVICES["secrets"]["command"][0]


class Machine:
    """The services as processes: each site has a folder in place of its volume, and ports in place of its host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secrets = folder / "secrets"
        self.api = {name: free_port() for name in (*SITES, *STANDBYS)}
        self.peers = {name: free_port() for name in SITES}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        write_programs(folder / "bin")

    def command(self, name: str) -> list[str]:
        service = SERVICES[name]
        # An engine takes $$ for a dollar.
        words = [*service["entrypoint"], *service["command"]]
        words = [self._here(name, word.replace("$$", "$")) for word in words]
        return [str(self.folder / "bin" / words[0]), *words[1:]] if words[0] == "routerd-eventd" else words

    def environment(self, name: str) -> dict[str, str]:
        own = {**IMAGE, **SERVICES[name].get("environment", {})}
        values = {key: self._here(name, value) for key, value in own.items() if key != "PATH"}
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        return values | {"PATH": path, "PYTHONPATH": str(ROOT), "EVENTD_LOG_FORMAT": "json"}

    def _here(self, name: str, text: str) -> str:
        volume = self.secrets if name == "secrets" else self.folder / name
        volume.mkdir(exist_ok=True)
        text = text.replace("/var/lib/routerd-eventd", str(volume)).replace("/run/secrets/eventd", str(self.secrets))
        text = text.replace("/etc/routerd-eventd/site.yaml", str(self.folder / f"{name}.yaml"))
        return text.replace("0.0.0.0:8780", f"127.0.0.1:{self.api.get(name, 0)}")

    def start(self, name: str) -> None:
        if name in SITES:
            (self.folder / f"{name}.yaml").write_text(self._resources(name))
        with (self.folder / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                self.command(name),
                env=self.environment(name),
                cwd=self.folder,
                stdout=log,
                stderr=log,
                pass_fds=shell_files(),
            )

    def _resources(self, name: str) -> str:
        text = (FOLDER / "sites" / f"{name}.yaml").read_text()
        text = text.replace("address: 0.0.0.0, port: 8787", f"address: 127.0.0.1, port: {self.peers[name]}")
        for other in SITES:
            text = text.replace(f"http://{other}:8787", f"http://127.0.0.1:{self.peers[other]}")
        return text

    def write_secrets(self) -> None:
        for _ in range(2):  # the second time nothing is written anew
            subprocess.run(self.command("secrets"), env=self.environment("secrets"), check=True)

    def run(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a site, as `docker compose exec` does."""
        command = [str(self.folder / "bin" / words[0]), *words[1:]]
        options = {"env": self.environment(name), "cwd": self.folder, "pass_fds": shell_files()}
        return subprocess.run(command, capture_output=True, text=True, **options)

    def healthy(self, name: str) -> bool:
        assert self.running[name].poll() is None, (self.folder / f"{name}.log").read_text()[-2000:]
        return self.run(name, *SERVICES[name]["healthcheck"]["test"][1:]).returncode == 0


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    for process in made.running.values():
        process.terminate()
    assert [process.wait(timeout=30) for process in made.running.values()] == [0] * len(made.running)


def test_an_event_of_one_site_arrives_at_all_three(machine: Machine) -> None:
    machine.write_secrets()
    for name in SITES:
        machine.start(name)
    for name in SITES:
        wait_for(lambda: machine.healthy(name), f"{name} to be ready", every=0.2)  # noqa: B023
    emit = ("routerctl", "federation", "event", "emit", "--type", "seen", "--subject", "10.0.0.9/32")
    assert machine.run("site-a", *emit).returncode == 0
    events = ("routerctl", "federation", "event", "list")
    for name in SITES:
        wait_for(lambda: "10.0.0.9/32" in machine.run(name, *events).stdout, f"the event at {name}", every=0.2)  # noqa: B023
    key = (machine.secrets / "metrics-key").read_text()
    metrics = urllib.request.Request(
        f"http://127.0.0.1:{machine.api['site-b']}/metrics", headers={"Authorization": f"Bearer {key}"}
    )
    assert b"routerd_eventd_" in urllib.request.urlopen(metrics).read()


def test_a_node_on_postgres_and_its_standby_are_both_healthy(postgres_url: str, machine: Machine) -> None:
    machine.write_secrets()
    assert re.fullmatch(
        r"postgresql\+psycopg://eventd:[0-9a-f]{64}@database/eventd", (machine.secrets / "database-url").read_text()
    )
    (machine.secrets / "database-url").write_text(postgres_url)
    for name in STANDBYS:
        machine.start(name)
        wait_for(lambda: machine.healthy(name), f"{name} to be ready, or to stand by", every=0.2)  # noqa: B023
    assert machine.run("lab", "routerd-eventd", "probe", "--ready").returncode == 0
    assert "served by process" in machine.run("lab-standby", "routerd-eventd", "probe", "--ready").stderr
