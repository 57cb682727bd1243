"""A node whose API speaks TLS, as a process with workers: what `routerctl`, `probe` and signals do."""

from __future__ import annotations

import datetime
import signal
import socket
import ssl
import urllib.request
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from eventd.cli.daemon.probe import Probe, ProbeFailed, run_probe
from eventd.tls.certificate import Certificate
from tests.support.certificates import Authority, Files
from tests.support.processes import DAEMON, Process, Processes
from tests.support.waiting import wait_for


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def serve(processes: Processes, server: Files, **env: str) -> Process:
    """Start a node whose API speaks TLS; return when it is ready, which only its local socket tells without a CA."""
    tls = {"EVENTD_API_TLS_CERT_FILE": str(server.cert), "EVENTD_API_TLS_KEY_FILE": str(server.key)}
    node = processes.serve("node", ready=False, env={**tls, **env})

    def ready() -> bool:
        try:
            return run_probe(Probe(ready=True, data_dir=str(processes.directory / "node")), {}) == "ready"
        except ProbeFailed:
            return False

    wait_for(ready, "the node to be ready")
    return node


def shown(node: Process, ca: Authority) -> str:
    """Return the pin of the certificate that the API shows."""
    context = ssl.create_default_context(cafile=str(ca.file))
    raw = socket.create_connection(("127.0.0.1", node.port), 10)
    with context.wrap_socket(raw, server_hostname="localhost") as tls:  # which closes both
        return Certificate.of_der(tls.getpeercert(True) or b"").pin


def metric(server: str, ca: Authority, name: str) -> float:
    """Return a figure of the node; 0 until it has one."""
    context = ssl.create_default_context(cafile=str(ca.file))
    with urllib.request.urlopen(f"{server}/metrics", context=context, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)), 0.0)


def test_routerctl_verifies_the_node_and_every_worker_reads_a_new_certificate(
    processes: Processes, ca: Authority
) -> None:
    node = serve(processes, ca.issue("api"), EVENTD_WORKERS="2")
    server = f"https://127.0.0.1:{node.port}"
    listed = processes.control("topic", "list", "--server", server, "--ca-file", str(ca.file))
    assert (listed.returncode, listed.stderr) == (0, "")
    for arguments, reason in (
        ((), "tls_unknown_ca"),
        (("--ca-file", str(ca.file), "--server-name", "other.example"), "tls_wrong_name"),
        (("--pin", ca.issue("another").pin), "tls_wrong_pin"),
    ):
        for command in (("topic", "list"), ("get", "EventGroup")):
            refused = processes.control(*command, "--server", server, *arguments)
            assert refused.returncode == 1
            assert f"TLS failed ({reason})" in refused.stderr
            assert "Traceback" not in refused.stderr
    for options, says in (
        (("--pin", ca.issue("another").pin, "--server", f"http://127.0.0.1:{node.port}"), "--pin needs a server"),
        (("--server-name", "a..b", "--server", server), "--server-name must be"),
        (("--client-cert", "/x", "--server", server), "belong together"),
    ):
        wrong = processes.control("get", "EventGroup", *options)
        assert wrong.returncode == 2
        assert says in wrong.stderr
    plain = processes.control("get", "EventGroup", "--server", f"http://127.0.0.1:{node.port}")
    assert plain.returncode == 1
    assert "https://" in plain.stderr
    here = processes.control("get", "EventGroup", "--data-dir", str(processes.directory / "node"))
    assert here.returncode == 0, "over the local socket, without a CA"

    expiry = 'routerd_eventd_certificate_expiry_timestamp_seconds{group="",peer=""}'
    in_30_days = datetime.datetime.now(datetime.UTC).timestamp() + 30 * 86_400
    wait_for(lambda: abs(metric(server, ca, expiry) - in_30_days) < 3600, "the metric, which is no sum over workers")

    renewed = ca.issue("api")
    node.send(signal.SIGHUP)
    wait_for(lambda: {shown(node, ca) for _ in range(8)} == {renewed.pin}, "both workers to show the new certificate")
    assert node.terminate() == 0


def test_a_pin_is_enough_for_a_self_signed_certificate(processes: Processes, tmp_path: Path) -> None:
    made = processes.run([*DAEMON, "tls", "init", "node", "--dir", str(tmp_path / "tls"), "-o", "json"])
    assert made.returncode == 0, made.stderr
    pin = Certificate.of_pem((tmp_path / "tls/tls.crt").read_bytes())[0].pin
    assert pin in made.stdout
    node = serve(processes, Files(tmp_path / "tls/tls.crt", tmp_path / "tls/tls.key"))
    got = processes.control("get", "EventGroup", "--server", f"https://127.0.0.1:{node.port}", "--pin", pin)
    assert got.returncode == 0, got.stderr


def test_a_certificate_that_cannot_be_used_ends_the_start_with_the_reason(processes: Processes, ca: Authority) -> None:
    server, other = ca.issue("api"), ca.issue("other")
    env = {"EVENTD_API_TLS_CERT_FILE": str(server.cert), "EVENTD_API_TLS_KEY_FILE": str(other.key)}
    node = processes.serve("node", ready=False, env=env)
    assert node.wait_exit() == 1
    assert "does not belong to the certificate" in node.log()
    assert "Traceback" not in node.log()


def test_probe_over_https(processes: Processes, ca: Authority) -> None:
    node = serve(processes, ca.issue("api"))
    server = f"https://127.0.0.1:{node.port}"
    assert run_probe(Probe(ready=True, server=server, ca_file=str(ca.file)), {}) == "ready"
    assert run_probe(Probe(), {"EVENTD_SERVER": server, "EVENTD_CA_FILE": str(ca.file)}) == "alive"
    with pytest.raises(ProbeFailed, match="tls_unknown_ca"):
        run_probe(Probe(server=server), {})
    with pytest.raises(ProbeFailed, match="speaks TLS: name it with --server https://"):
        run_probe(Probe(server=f"http://127.0.0.1:{node.port}"), {})
    with pytest.raises(ProbeFailed, match="correct --ca-file"):
        run_probe(Probe(server=server, ca_file="/nowhere"), {})


def test_probe_shows_a_client_certificate(processes: Processes, ca: Authority) -> None:
    node = serve(processes, ca.issue("api"), EVENTD_API_TLS_CLIENT_CA_FILE=str(ca.file))
    mine, other = ca.issue("prober"), ca.issue("other")
    stranger = Authority(ca.folder / "stranger", "another ca").issue("stranger")
    asked = Probe(server=f"https://127.0.0.1:{node.port}", ca_file=str(ca.file))
    shown = asked._replace(client_cert=str(mine.cert), client_key=str(mine.key))
    assert run_probe(shown._replace(ready=True), {}) == "ready"
    env = {"EVENTD_CLIENT_CERT_FILE": str(mine.cert), "EVENTD_CLIENT_KEY_FILE": str(mine.key)}
    assert run_probe(asked, env) == "alive"
    words = [f"--{name.replace('_', '-')}={value}" for name, value in shown._asdict().items() if isinstance(value, str)]
    done = processes.run([*DAEMON, "probe", *(word for word in words if not word.endswith("="))])
    assert (done.returncode, done.stdout, done.stderr) == (0, "alive\n", "")
    full = processes.run([*DAEMON, "probe", "--timeout", "30s", *(word for word in words if not word.endswith("="))])
    assert (full.returncode, full.stdout, full.stderr) == (0, "alive\n", "")
    for probe, says in (
        (asked, r"tls_client_missing.*give one with --client-cert and --client-key$"),
        (shown._replace(client_cert=str(stranger.cert), client_key=str(stranger.key)), "tls_client_unknown_ca"),
        (shown._replace(client_key=""), "belong together"),
        (shown._replace(client_key=str(other.key)), "does not belong to the certificate"),
        (shown._replace(client_cert="/nowhere"), "^/nowhere: No such file or directory: correct --client-cert"),
        (shown._replace(client_key="/nowhere"), "^/nowhere: No such file or directory: correct --client-key"),
    ):
        with pytest.raises(ProbeFailed, match=says):
            run_probe(probe, {})


def test_probe_never_asks_for_the_password_of_a_key(ca: Authority, processes: Processes) -> None:
    node = serve(processes, ca.issue("api"), EVENTD_API_TLS_CLIENT_CA_FILE=str(ca.file))
    mine = ca.issue("prober")
    key = serialization.load_pem_private_key(mine.key.read_bytes(), None)
    closed = serialization.BestAvailableEncryption(b"secret")
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    mine.key.write_bytes(key.private_bytes(*form, closed))
    words = ["--server", f"https://127.0.0.1:{node.port}", "--ca-file", str(ca.file)]
    words += ["--client-cert", str(mine.cert), "--client-key", str(mine.key)]
    done = processes.run([*DAEMON, "probe", *words])
    assert done.returncode == 1
    assert done.stderr == f"error: the private key {mine.key} is encrypted: correct --client-cert and --client-key\n"
